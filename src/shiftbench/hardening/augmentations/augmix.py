"""AugMix (Hendrycks et al. 2020): several chains of simple operations, mixed with each other and with the image.

    mixture = (1 - m) * image + m * sum of w[i] * chain[i](image)
    w ~ Dirichlet(alpha, .., alpha), m ~ Beta(alpha, alpha)

The published code mixes normalised pixels; the weights sum to one, so mixing pixels is the same, up to the rounding
to grey levels here.

The operations give what Pillow computes, bit for bit, without going through Pillow where that is quicker. Each takes an
image, a level on (0, 10] and a sign. The level sets the strength as the published code does; the sign counts only where
there are two directions. Unlike in the published code, distances follow the image's own width and height.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated

import cv2
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray
from PIL import Image, ImageEnhance

from shiftbench.extend.registration import kernel
from shiftbench.extend.types import Pixels
from shiftbench.hardening.augmentations.base import Concentration, ImageAugmentation, image_augmentations
from shiftbench.hardening.errors import AugmentationError

# Operations

Operation = Callable[[Pixels, float, int], Pixels]
Table = NDArray[np.uint8]
#: The largest level, by which levels are divided.
MAX_LEVEL = 10
_LEVELS = np.arange(256)


def _looked_up(image: Pixels, tables: Table) -> Pixels:
    """The image with each level replaced by the table's; there is one table for all channels, or one for each."""
    out: object = cv2.LUT(image, tables.T[None])
    return np.asarray(out, np.uint8)


def _by_histogram(fill: Callable[[NDArray[np.int64], Table], None]) -> Operation:
    """An operation that maps each channel by a table, which ``fill`` computes from the channel's histogram."""

    def run(image: Pixels, level: float, sign: int) -> Pixels:
        channels = image.shape[2]
        counts = np.zeros((channels, 256), np.int64)
        tables = np.empty((channels, 256), np.uint8)
        _histograms(np.ascontiguousarray(image), counts)
        fill(counts, tables)
        return _looked_up(image, tables)

    return run


def _posterize(image: Pixels, level: float, sign: int) -> Pixels:
    """Only the highest bits: 4 of them, one fewer every 2.5 levels."""
    bits = max(4 - int(level * 4 / MAX_LEVEL), 1)
    return image & np.uint8(0xFF << (8 - bits) & 0xFF)


def _solarize(image: Pixels, level: float, sign: int) -> Pixels:
    """Bright values inverted: those from 256 - 25.6 * level on."""
    threshold = 256 - int(level * 256 / MAX_LEVEL)
    return _looked_up(image, np.where(threshold > _LEVELS, _LEVELS, 255 - _LEVELS).astype(np.uint8)[None])


def _affine(image: Pixels, matrix: tuple[float, ...]) -> Pixels:
    out = np.zeros_like(image)
    _bilinear_affine(np.ascontiguousarray(image), out, *matrix)
    return out


def _rotate(image: Pixels, level: float, sign: int) -> Pixels:
    """Up to 30 degrees, in whole ones, by the matrix of Pillow's ``rotate``, with its rounding."""
    degrees = sign * int(level * 30 / MAX_LEVEL)
    if degrees == 0:
        return image.copy()
    angle = -math.radians(degrees % 360)
    cosine = round(math.cos(angle), 15)
    sine = round(math.sin(angle), 15)
    negative_sine = round(-math.sin(angle), 15)
    x = image.shape[1] / 2
    y = image.shape[0] / 2
    x_offset = cosine * -x + sine * -y + x
    y_offset = negative_sine * -x + cosine * -y + y
    return _affine(image, (cosine, sine, x_offset, negative_sine, cosine, y_offset))


def _shear_x(image: Pixels, level: float, sign: int) -> Pixels:
    """Rows pushed along by up to 0.3 of their distance from the top."""
    return _affine(image, (1.0, sign * level * 0.3 / MAX_LEVEL, 0.0, 0.0, 1.0, 0.0))


def _shear_y(image: Pixels, level: float, sign: int) -> Pixels:
    """Columns pushed down by up to 0.3 of their distance from the left."""
    return _affine(image, (1.0, 0.0, 0.0, sign * level * 0.3 / MAX_LEVEL, 1.0, 0.0))


def _translate(axis: int) -> Operation:
    """Up to a third of the height or width: out[i] = image[i + distance], black beyond the edge."""

    def run(image: Pixels, level: float, sign: int) -> Pixels:
        out = np.zeros_like(image)
        length = image.shape[axis]
        distance = sign * int(level * (length / 3) / MAX_LEVEL)
        kept = max(length - abs(distance), 0)
        source = slice(max(distance, 0), max(distance, 0) + kept)
        target = slice(max(-distance, 0), max(-distance, 0) + kept)
        if axis == 0:
            out[target] = image[source]
        else:
            out[:, target] = image[:, source]
        return out

    return run


def _enhance(kind: Callable[[Image.Image], ImageEnhance._Enhance]) -> Operation:
    """From 0.1 (grey, flat, dark or blurred) over the image itself (1) to 1.9."""

    def run(image: Pixels, level: float, sign: int) -> Pixels:
        return np.array(kind(Image.fromarray(image)).enhance(level * 1.8 / MAX_LEVEL + 0.1))

    return run


@kernel("uint8[]", "uint8[]", "float", "float", "float", "float", "float", "float")
def _bilinear_affine(
    image: Pixels, out: Pixels, xx: float, xy: float, x0: float, yx: float, yy: float, y0: float
) -> None:
    """Write the bilinear value at (xx * column + xy * row + x0, yx * column + yy * row + y0); black outside."""


@kernel("uint8[]", "int64[]")
def _histograms(image: Pixels, counts: NDArray[np.int64]) -> None:
    """Add the number of pixels of each level to ``counts``, a row per channel."""


@kernel("int64[]", "uint8[]")
def _stretching_tables(counts: NDArray[np.int64], tables: Table) -> None:
    """Map level x to (x - low) * 255 / (high - low), truncated, in the order of Pillow's operations."""


@kernel("int64[]", "uint8[]")
def _flattening_tables(counts: NDArray[np.int64], tables: Table) -> None:
    """Map level x to the number of darker pixels over a 255th of all but the brightest level's, in whole numbers."""


#: The nine operations of AugMix.
OPERATIONS: dict[str, Operation] = {
    "autocontrast": _by_histogram(_stretching_tables),
    "equalize": _by_histogram(_flattening_tables),
    "posterize": _posterize,
    "rotate": _rotate,
    "solarize": _solarize,
    "shear_x": _shear_x,
    "shear_y": _shear_y,
    "translate_x": _translate(1),
    "translate_y": _translate(0),
}
#: Four more operations that AugMix leaves out, because ImageNet-C tests with similar ones.
WITHHELD: dict[str, Operation] = {
    "color": _enhance(ImageEnhance.Color),
    "contrast": _enhance(ImageEnhance.Contrast),
    "brightness": _enhance(ImageEnhance.Brightness),
    "sharpness": _enhance(ImageEnhance.Sharpness),
}
#: The operations that uncover a part of the image.
GEOMETRIC = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")


def filled(operation: Operation, level_outside: int) -> Operation:
    """A geometric operation that fills the uncovered part with a grey level in place of black."""

    def run(image: Pixels, level: float, sign: int) -> Pixels:
        inside = operation(np.full_like(image, 255), level, sign) > 0
        return np.where(inside, operation(image, level, sign), np.uint8(level_outside))

    return run


# Mixtures

#: The lowest level that is drawn.
MIN_LEVEL = 0.1
#: The largest number of operations of a chain of random length.
MAX_DEPTH = 3


@image_augmentations.register("augmix")
def augmix(
    severity: Annotated[float, Meta(ge=MIN_LEVEL, le=MAX_LEVEL)] = 3,
    width: Annotated[int, Meta(ge=1, le=100)] = 3,
    depth: Annotated[int, Meta(ge=-1, le=100)] = -1,
    alpha: Concentration = 1.0,
    all_operations: bool = False,
    fill: Annotated[int, Meta(ge=0, le=255)] = 0,
) -> ImageAugmentation:
    """``width`` chains, each of ``depth`` operations (-1: one to three), levels U(0.1, ``severity``).

    Severity is 3 for CIFAR and 1 for ImageNet. ``all_operations`` adds colour, contrast, brightness and sharpness,
    which overlap the corruptions of ImageNet-C. ``fill`` is the grey level of what rotating, shearing and moving
    uncover. Paper 000 on DeepFashion Remixed: severity 10, width 5, all operations, fill 128. Every call with the same
    generator is a further, independent mixture: the Jensen-Shannon loss takes two.
    """
    if depth == 0:
        raise AugmentationError("invalid option 'depth'", found=depth, expected="-1, or at least 1")
    available = {**OPERATIONS, **WITHHELD} if all_operations else OPERATIONS
    operations = []
    for name, operation in available.items():
        if fill and name in GEOMETRIC:
            operation = filled(operation, fill)
        operations.append(operation)

    def chain(image: Pixels, generator: np.random.Generator) -> Pixels:
        """Operations drawn with replacement, each with its own level and sign."""
        length = depth
        if depth == -1:
            length = int(generator.integers(1, MAX_DEPTH + 1))
        for number in generator.integers(len(operations), size=length):
            level = generator.uniform(MIN_LEVEL, severity)
            sign = 1 if generator.random() < 0.5 else -1
            image = operations[number](image, level, sign)
        return image

    def mixed(image: Pixels, generator: np.random.Generator) -> Pixels:
        image = np.ascontiguousarray(image)
        weights = generator.dirichlet([alpha] * width)
        share = float(generator.beta(alpha, alpha))
        chains = np.stack([chain(image, generator) for _ in range(width)])
        out = np.empty_like(image)
        _mixture(image.reshape(-1), chains.reshape(len(chains), -1), weights * share, 1 - share, out.reshape(-1))
        return out

    return mixed


@kernel("uint8[]", "uint8[]", "float64[]", "float", "uint8[]")
def _mixture(image: Pixels, chains: Pixels, weights: NDArray[np.float64], clean: float, out: Pixels) -> None:
    """Add clean * image and the weighted chains, rounded to the nearest level; an image is a flat row."""
