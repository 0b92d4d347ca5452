"""Pieces of metrics: hits, kept scores, percentile intervals, corrections for several tests."""

from shiftbench.extend import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
