"""Augmenting as a process of its own, so that a test can kill it. Imported once by the server that forks it."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from shiftbench.hardening.augmentations import augmix
from shiftbench.hardening.augmentations.base import make_image_augmentation
from shiftbench.hardening.augmentations.copies import augment_folder

OPTIONS: dict[str, Any] = {"options": {"severity": 5}, "copies": 2, "seed": 3}


def augment_slowly(source: str, destination: str, workers: int) -> None:
    """Slow enough that there is always something to interrupt; the pixels are the real ones."""
    mixture = augmix._mixture

    def slow_mixture(*arguments: Any) -> None:
        time.sleep(0.01)
        mixture(*arguments)

    vars(augmix)["_mixture"] = slow_mixture
    augment_folder(source, destination, "augmix", workers=workers, **OPTIONS)


# The compiled kernels are loaded here, so that every process that is forked starts at once.
for number in range(20):
    make_image_augmentation("augmix")(np.zeros((8, 8, 3), np.uint8), np.random.default_rng(number))
