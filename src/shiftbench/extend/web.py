"""What a web server of a plug-in needs to be as careful as `shiftbench serve`."""

from shiftbench.extend import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
