"""What an extension point of one's own needs: a registry, and compiled loops."""

from shiftbench.extend import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
