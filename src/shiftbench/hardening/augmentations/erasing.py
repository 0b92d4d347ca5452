"""Parts of an image taken away: random erasing (Zhong et al. 2020) and Cutout (DeVries and Taylor 2017)."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from shiftbench.arrays import Pixels
from shiftbench.hardening.augmentations.base import ImageAugmentation, Ratio, Share, ascending, image_augmentations
from shiftbench.io.schema import Probability

_Level = Annotated[float, Meta(ge=0, le=255)]
#: A grey level, or red, green and blue.
Colour = _Level | Annotated[tuple[_Level, ...], Meta(min_length=3, max_length=3)]
#: CIFAR-10's mean colour: what the published code of both fills with, by setting normalised pixels to zero.
CIFAR_MEAN = (125, 123, 114)
#: Boxes that may fail to fit before the image stays as it is.
_TRIES = 100


@image_augmentations.register("erase")
def erase(
    probability: Probability = 0.5,
    area: tuple[Share, Share] = (0.02, 0.4),
    aspect: tuple[Ratio, Ratio] = (0.3, 1 / 0.3),
    fill: Literal["random"] | Colour = "random",
) -> ImageAugmentation:
    """One rectangle overwritten: its share of the image uniform over ``area``, height / width over ``aspect``.

    ``fill`` is "random", a value for each pixel (the best of the paper's four), or a colour.
    """
    ascending("area", area)
    ascending("aspect", aspect)
    paint = None if fill == "random" else np.array(fill, np.uint8)

    def erased(image: Pixels, generator: np.random.Generator) -> Pixels:
        out = image.copy()
        if generator.random() >= probability:
            return out
        height, width = image.shape[:2]
        for _ in range(_TRIES):
            pixels, shape = height * width * generator.uniform(*area), generator.uniform(*aspect)
            rows, columns = round(math.sqrt(pixels * shape)), round(math.sqrt(pixels / shape))
            if 0 < rows < height and 0 < columns < width:
                top, left = generator.integers(height - rows + 1), generator.integers(width - columns + 1)
                box = out[top : top + rows, left : left + columns]
                box[:] = generator.integers(0, 256, box.shape, dtype=np.uint8) if paint is None else paint
                break
        return out

    return erased


@image_augmentations.register("cutout")
def cutout(size: Annotated[int, Meta(ge=1, le=16384)] = 16, fill: Colour = CIFAR_MEAN) -> ImageAugmentation:
    """A square of ``size`` pixels overwritten with one colour, 16 on 32-pixel images.

    Its centre is any pixel, so that a part of it, at a corner three quarters, may fall outside.
    """
    paint = np.array(fill, np.uint8)

    def cut(image: Pixels, generator: np.random.Generator) -> Pixels:
        out = image.copy()
        top, left = (int(generator.integers(length)) - size // 2 for length in image.shape[:2])
        out[max(top, 0) : max(top + size, 0), max(left, 0) : max(left + size, 0)] = paint
        return out

    return cut
