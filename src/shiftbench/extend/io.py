"""Files: atomic writes, locks, hashes, the cache folder, paths and URLs."""

from shiftbench.extend import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
