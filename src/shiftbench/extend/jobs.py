"""Long-running work: blocks of images, threads, and options of executors."""

from shiftbench.extend import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
