"""The hardening workshop: augmentations, losses, architectures and one training loop, usable alone or together.

It stands beside the line and uses it: datasets come from ``datasets``, what was trained is a classifier like any
other (``hardened:FOLDER``), and an experiment ends in a study.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
