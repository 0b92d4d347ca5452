"""Types of arrays and labels, for annotations."""

from shiftbench.extend import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
