"""Datasets: base classes by where the images are, opening manifests and folders, decoding."""

from shiftbench.extend import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
