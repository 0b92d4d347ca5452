"""Parts of a picture taken away: random erasing (Zhong et al. 2020) and Cutout (DeVries and Taylor 2017)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from shiftbench.arrays import Pixels
from shiftbench.hardening.augmentations.base import ImageAugmentation, image_augmentations
from shiftbench.hardening.augmentations.options import AugmentationError, colour, number, span, whole

#: CIFAR-10's mean colour: what the published code of both fills with, by setting normalised pixels to zero.
CIFAR_MEAN = (125, 123, 114)
#: Boxes that may fail to fit before the picture stays as it is.
_TRIES = 100


@image_augmentations.register("erase")
def erase(
    probability: float = 0.5,
    area: Sequence[float] = (0.02, 0.4),
    aspect: Sequence[float] = (0.3, 1 / 0.3),
    fill: Literal["random"] | float | Sequence[float] = "random",
) -> ImageAugmentation:
    """One rectangle overwritten: its share of the picture uniform over ``area``, height / width over ``aspect``.

    ``fill`` is "random", a value for each pixel (the best of the paper's four), or a colour.
    """
    chance = number("probability", probability, 0, 1)
    shares, shapes = span("area", area, 0, 1, positive=True), span("aspect", aspect, 0, 100, positive=True)
    paint = _paint(fill)

    def erased(image: Pixels, generator: np.random.Generator) -> Pixels:
        out = image.copy()
        if generator.random() >= chance:
            return out
        height, width = image.shape[:2]
        for _ in range(_TRIES):
            pixels, shape = height * width * generator.uniform(*shares), generator.uniform(*shapes)
            rows, columns = round(math.sqrt(pixels * shape)), round(math.sqrt(pixels / shape))
            if 0 < rows < height and 0 < columns < width:
                top, left = generator.integers(height - rows + 1), generator.integers(width - columns + 1)
                box = out[top : top + rows, left : left + columns]
                box[:] = generator.integers(0, 256, box.shape, dtype=np.uint8) if paint is None else paint
                break
        return out

    return erased


@image_augmentations.register("cutout")
def cutout(size: int = 16, fill: float | Sequence[float] = CIFAR_MEAN) -> ImageAugmentation:
    """A square of ``size`` pixels overwritten with one colour, 16 on 32-pixel pictures.

    Its centre is any pixel, so that a part of it, at a corner three quarters, may fall outside.
    """
    side = whole("size", size, 1, 16384)
    paint = np.array(colour("fill", fill), np.uint8)

    def cut(image: Pixels, generator: np.random.Generator) -> Pixels:
        out = image.copy()
        top, left = (int(generator.integers(length)) - side // 2 for length in image.shape[:2])
        out[max(top, 0) : max(top + side, 0), max(left, 0) : max(left + side, 0)] = paint
        return out

    return cut


def _paint(fill: Literal["random"] | float | Sequence[float]) -> Pixels | None:
    """The colour, or None for random values."""
    if fill == "random":
        return None
    if isinstance(fill, str):
        raise AugmentationError("the option 'fill' is no colour", found=repr(fill), expected='"random" or a colour')
    return np.array(colour("fill", fill), np.uint8)
