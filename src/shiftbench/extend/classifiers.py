"""Classifiers: base classes, torch modules, weights, and the image transforms of defences."""

from shiftbench.extend import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
