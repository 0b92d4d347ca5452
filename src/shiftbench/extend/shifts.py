"""Shifts: random numbers by seed and image id, the registry of corruptions, and image kinds."""

from shiftbench.extend import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
