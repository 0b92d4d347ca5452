"""The corruptions of ImageNet-C: one call, reproducible, without ImageMagick or scikit-image.

>>> import numpy as np
>>> from shiftbench.shifts.corruptions import corrupt, corruptions
>>> image = np.full((64, 64, 3), 100, np.uint8)
>>> corrupt(image, corruptions()[0], severity=3, seed=0, image_id="a.png").dtype
dtype('uint8')
"""

from __future__ import annotations

from shiftbench.shifts.compose import Greyscale
from shiftbench.shifts.corruptions.api import GENERATOR_VERSION, Corrupt, Corruption, corrupt
from shiftbench.shifts.corruptions.catalogue import CORRUPTIONS, corruption, corruptions

__all__ = [
    "CORRUPTIONS",
    "GENERATOR_VERSION",
    "Corrupt",
    "Corruption",
    "Greyscale",
    "corrupt",
    "corruption",
    "corruptions",
]
