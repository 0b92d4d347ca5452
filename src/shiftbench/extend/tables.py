"""Tables that the terminal, files and the report show, and the texts of their numbers."""

from shiftbench.extend import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
