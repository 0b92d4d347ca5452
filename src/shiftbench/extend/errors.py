"""Errors that say what was found, what was expected and what to do, and helpers for their texts."""

from shiftbench.extend import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
