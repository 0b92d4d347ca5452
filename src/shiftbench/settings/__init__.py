"""Settings and suites: what is evaluated under which name, against which reference."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
