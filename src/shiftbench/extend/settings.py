"""Suites and stored results: how they are described, selected and read."""

from shiftbench.extend import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
