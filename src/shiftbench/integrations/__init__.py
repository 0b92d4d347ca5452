"""Robustness during training: ``Monitor``, callbacks for training frameworks, sinks for experiment trackers.

``monitor`` evaluates a model at some epochs, ``training_state`` makes sure that the training does not notice,
``ranks`` hands the metrics to all ranks, and ``sinks`` log them. This package uses only the public functions and the
workspace; training frameworks and experiment trackers are imported when they are asked for.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
