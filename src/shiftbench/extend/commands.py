"""Commands: groups, options that all commands share, and printing."""

from shiftbench.extend import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
