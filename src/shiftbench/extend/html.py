"""Blocks of HTML for notebooks and pages: titles, notes, grids of images."""

from shiftbench.extend import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
