"""Flips and crops, what every recipe begins with, and parts taken away: random erasing (Zhong et al. 2020) and Cutout
(DeVries and Taylor 2017).
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta
from PIL import Image

from shiftbench.arrays import Pixels
from shiftbench.hardening.augmentations.base import ImageAugmentation, Ratio, Share, ascending, image_augmentations
from shiftbench.io.schema import Probability

#: How often a box of a drawn area and shape may fail to fit, before the middle of the image is taken.
_TRIES = 10


@image_augmentations.register("flip")
def flip(probability: Probability = 0.5) -> ImageAugmentation:
    """Left and right swapped, in half of the cases."""

    def flipped(image: Pixels, generator: np.random.Generator) -> Pixels:
        return (image[:, ::-1] if generator.random() < probability else image).copy()

    return flipped


@image_augmentations.register("crop")
def crop(padding: Annotated[int, Meta(ge=0, le=4096)] = 4) -> ImageAugmentation:
    """A black border of ``padding`` pixels, then a random window of the old size: the custom of 32-pixel images."""

    def cropped(image: Pixels, generator: np.random.Generator) -> Pixels:
        height, width = image.shape[:2]
        padded = np.zeros((height + 2 * padding, width + 2 * padding, 3), np.uint8)
        padded[padding : padding + height, padding : padding + width] = image
        top, left = generator.integers(0, 2 * padding + 1, 2)
        return np.ascontiguousarray(padded[top : top + height, left : left + width])

    return cropped


@image_augmentations.register("resized-crop")
def resized_crop(
    size: Annotated[int, Meta(ge=1, le=16384)] | None = None,
    scale: tuple[Ratio, Ratio] = (0.08, 1.0),
    ratio: tuple[Ratio, Ratio] = (3 / 4, 4 / 3),
) -> ImageAugmentation:
    """A window of random area and shape, resized: the custom of ImageNet.

    The area is uniform over ``scale`` of the image's, the logarithm of width / height uniform over ``ratio``;
    a window that never fits (an area above 1 never does) gives the middle. ``size`` is the side of the result, by
    default that of the image.
    """
    ascending("scale", scale)
    ascending("ratio", ratio)

    def resized(image: Pixels, generator: np.random.Generator) -> Pixels:
        height, width = image.shape[:2]
        top, left, rows, columns = random_window(height, width, scale, ratio, generator)
        window = Image.fromarray(np.ascontiguousarray(image[top : top + rows, left : left + columns]))
        target = (width, height) if size is None else (size, size)
        return np.array(window.resize(target, Image.Resampling.BILINEAR))

    return resized


def random_window(
    height: int,
    width: int,
    areas: tuple[float, float],
    shapes: tuple[float, float],
    generator: np.random.Generator,
) -> tuple[int, int, int, int]:
    """Top, left, height and width of a window within an image."""
    logs = math.log(shapes[0]), math.log(shapes[1])
    for _ in range(_TRIES):
        area = height * width * generator.uniform(*areas)
        shape = math.exp(generator.uniform(*logs))
        rows, columns = round(math.sqrt(area / shape)), round(math.sqrt(area * shape))
        if 0 < rows <= height and 0 < columns <= width:
            top, left = generator.integers(height - rows + 1), generator.integers(width - columns + 1)
            return int(top), int(left), rows, columns
    # The largest window of an allowed shape, in the middle.
    shape = min(max(width / height, shapes[0]), shapes[1])
    rows, columns = min(height, round(width / shape)), min(width, round(height * shape))
    rows, columns = max(rows, 1), max(columns, 1)
    return (height - rows) // 2, (width - columns) // 2, rows, columns


# Parts taken away

_Level = Annotated[float, Meta(ge=0, le=255)]
#: A grey level, or red, green and blue.
Colour = _Level | Annotated[tuple[_Level, ...], Meta(min_length=3, max_length=3)]
#: CIFAR-10's mean colour: what the published code of both fills with, by setting normalised pixels to zero.
CIFAR_MEAN = (125, 123, 114)
#: Boxes that may fail to fit before the image stays as it is.
_ERASING_TRIES = 100


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
        for _ in range(_ERASING_TRIES):
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
