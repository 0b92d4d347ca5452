"""What is done to the images: nothing, a corruption at a severity, a perturbation sequence, an attack."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
