"""Resumable writers of image folders and packed files."""

from shiftbench.extend import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
