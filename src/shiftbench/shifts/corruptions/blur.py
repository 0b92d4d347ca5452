"""Blur: defocus, frosted glass, motion, zoom and Gaussian (Hendrycks and Dietterich 2019)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.shifts.corruptions.blur_tables import (
    UNIT,
    disk_boxes,
    gaussian_weights,
    mirrored,
    trail_taps,
    zoom_tables,
)
from shiftbench.shifts.corruptions.catalogue import corruption
from shiftbench.shifts.corruptions.randomness import Draws, KeyedDraws, PublishedDraws
from shiftbench.shifts.corruptions.severities import Row

Values = NDArray[np.float64]
_HALF_STEP = round(UNIT * 0.5 / 257)  # of ImageMagick's 16 bits


@corruption("gaussian_blur", group="blur", tabled=True)
def gaussian_blur(image: Pixels, parameters: Row, draws: Draws) -> Pixels:
    """Gaussian of width c, edges repeated, kernel cut at four widths."""
    (sigma,) = parameters
    return gaussian_blur_levels(image, sigma)


def gaussian_blur_levels(image: Pixels, sigma: float, truncate: float = 4.0) -> Pixels:
    from shiftbench.shifts.corruptions.kernels import gaussian_levels

    out = np.empty_like(image)
    gaussian_levels(_unit_rows(image), gaussian_weights(sigma, truncate), 3, _rows(out))
    return out


@corruption("glass_blur", group="blur", tabled=True, options=("true_swap",))
def glass_blur(image: Pixels, parameters: Row, draws: Draws, true_swap: bool = False) -> Pixels:
    """Blur, move pixels by up to ``delta`` for some iterations, blur again.

    The published code means to swap two pixels but, by the way NumPy assigns views, copies the neighbour and
    leaves it where it is; that is what ImageNet-C contains, and the default. ``true_swap=True`` swaps.
    """
    from shiftbench.shifts.corruptions.kernels import gaussian_levels, pack, unpack_to_unit

    sigma, delta, iterations = parameters[0], int(parameters[1]), int(parameters[2])
    weights = gaussian_weights(sigma)
    out = np.empty_like(image)
    rows = _unit_rows(image)
    gaussian_levels(rows, weights, 3, _rows(out))
    pixels = np.empty(image.shape[:2], np.uint32)
    pack(out.reshape(-1), pixels.reshape(-1))
    for _ in range(iterations):
        _shuffle(pixels, delta, true_swap, draws)
    unpack_to_unit(pixels.reshape(-1), rows.reshape(-1))
    gaussian_levels(rows, weights, 3, _rows(out))
    return out


def _shuffle(pixels: NDArray[np.uint32], delta: int, swap: bool, draws: Draws) -> None:
    from shiftbench.shifts.corruptions.kernels import glass_shuffle, glass_shuffle_keyed

    steps = max(pixels.shape[0] - 2 * delta, 0) * max(pixels.shape[1] - 2 * delta, 0)
    if isinstance(draws, PublishedDraws):
        offsets = draws.rng.randint(-delta, delta, size=(steps, 2))
        glass_shuffle(pixels, offsets, delta, swap)
    elif isinstance(draws, KeyedDraws):
        glass_shuffle_keyed(pixels, delta, swap, *draws.stretch())


@corruption("defocus_blur", group="blur", tabled=True)
def defocus_blur(image: Pixels, parameters: Row, draws: Draws) -> Pixels:
    """A disk of the given radius with softened edge, borders reflected about the edge pixel."""
    from shiftbench.shifts.corruptions.kernels import column_boxes, column_sums, whole_column_boxes

    disk = disk_boxes(*parameters)
    height, width, channels = image.shape
    sums = np.empty((height + 2 * disk.reach + 1, (width + 2 * disk.reach) * channels), np.int32)
    column_sums(image, mirrored(height, disk.reach), mirrored(width, disk.reach), sums)
    out = np.empty_like(image)
    boxes = whole_column_boxes if disk.weights.dtype == np.int32 else column_boxes
    boxes(sums, *disk, channels, _rows(out))
    return out


@corruption("motion_blur", group="blur", tabled=True)
def motion_blur(image: Pixels, parameters: Row, draws: Draws) -> Pixels:
    """One-sided Gaussian trail of 2 * radius + 1 pixels at an angle of up to 45 degrees either way."""
    radius, sigma = parameters
    return trail(image, radius, sigma, draws.uniform(-45, 45))


@corruption("zoom_blur", group="blur", tabled=True)
def zoom_blur(image: Pixels, parameters: Row, draws: Draws) -> Pixels:
    """The mean of the image and of its centre zoomed by 1, 1 + step, ... (bilinear)."""
    from shiftbench.shifts.corruptions.kernels import zoom_sum

    end, step = parameters
    factors = tuple(float(z) for z in np.arange(1, end, step))
    source = to_float32(image).reshape(image.shape[0], -1)
    out = np.empty_like(image)
    zoom_sum(source, *zoom_tables(factors, *image.shape), image.shape[2], _rows(out))
    return out


def trail(image: Pixels, radius: float, sigma: float, degrees: float) -> Pixels:
    """Motion blur as ImageMagick computes it: offsets rounded to pixels, edges repeated, result truncated.

    ImageMagick works on 16 bits and gives floor(round(257 s) / 257) for a weighted sum s of grey levels,
    which equals floor(s + 0.5 / 257).
    """
    from shiftbench.shifts.corruptions.kernels import extend, line_filter

    weights, dx, dy = trail_taps(radius, sigma, degrees)
    height, width, channels = image.shape
    top, left = -int(dy.min()), -int(dx.min())
    padded = np.empty((height + top + int(dy.max()), (width + left + int(dx.max())) * channels), np.int32)
    extend(image, top, left, padded)
    out = np.empty_like(image)
    line_filter(padded, dy + top, (dx + left) * channels, weights, _HALF_STEP, _rows(out))
    return out


def _rows(image: Pixels) -> Pixels:
    return image.reshape(image.shape[0], -1)


def to_float32(image: Pixels) -> NDArray[np.float32]:
    """Grey levels / 255, divided in float32."""
    return np.asarray(np.divide(image, np.float32(255), dtype=np.float32))


def _unit_rows(image: Pixels) -> Values:
    from shiftbench.shifts.corruptions.kernels import to_unit

    out = np.empty((image.shape[0], image.shape[1] * image.shape[2]))
    to_unit(image.reshape(-1), out.reshape(-1))
    return out
