"""The hardening workshop: augmentations, losses, architectures and one training loop, usable alone or together.

Code that trains a network, changes training images or compares recipes belongs here. Datasets come from ``datasets``, a
trained network is a classifier like any other (``hardened:FOLDER``), and an experiment ends in a study; shifts for
evaluation are in ``shifts``, metrics in ``metrics``. A new augmentation, scheme or architecture is a small registered
class or function, and a new recipe or experiment is a TOML file.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
