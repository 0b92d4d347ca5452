"""Flips and crops: what every recipe begins with."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from msgspec import Meta
from PIL import Image

from shiftbench.arrays import Pixels
from shiftbench.hardening.augmentations.base import ImageAugmentation, Ratio, ascending, image_augmentations
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
