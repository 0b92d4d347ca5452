"""Pieces of studies: lines, bins, hypotheses, the bootstrap over images."""

from shiftbench.extend import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
