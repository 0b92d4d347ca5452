"""Several image augmentations as one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shiftbench.arrays import Pixels
from shiftbench.hardening.augmentations.base import ImageAugmentation


class Chain:
    """Augmentations applied in order, all with the numbers of one generator.

    >>> from shiftbench.hardening.augmentations.base import make_image_augmentation
    >>> standard = Chain([make_image_augmentation("crop"), make_image_augmentation("flip")])
    >>> standard(np.zeros((32, 32, 3), np.uint8), np.random.default_rng(0)).shape
    (32, 32, 3)
    """

    def __init__(self, augmentations: Sequence[ImageAugmentation]) -> None:
        self.augmentations = tuple(augmentations)

    def __call__(self, image: Pixels, generator: np.random.Generator) -> Pixels:
        for augmentation in self.augmentations:
            image = augmentation(image, generator)
        return image
