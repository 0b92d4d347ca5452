"""Robustness during training: ``Monitor``, callbacks for training frameworks, sinks for experiment trackers."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
