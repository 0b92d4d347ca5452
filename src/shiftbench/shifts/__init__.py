"""What is done to the images: nothing, a corruption at a severity, a perturbation sequence, an attack, a style.

``base`` defines a shift: a function of pixels and a seed that can describe itself and rebuild itself from its record.
Each kind of shift is one module, corruptions are one function each in ``corruptions``, and ``write`` writes shifted
images as files. A shift knows images, and a model if it is an attack; which datasets it meets belongs to ``settings``,
and scores to ``metrics``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
