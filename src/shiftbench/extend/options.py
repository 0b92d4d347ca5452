"""Options that users type or write into TOML: checked types, reading and writing."""

from shiftbench.extend import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
