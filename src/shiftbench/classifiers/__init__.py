"""Models of any framework behind one interface: uint8 images in, scores over a label space out.

Importing this package imports no framework; each loader does that when it is used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
