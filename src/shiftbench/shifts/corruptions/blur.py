"""Blur: defocus, frosted glass, motion, zoom and Gaussian (Hendrycks and Dietterich 2019)."""

from __future__ import annotations

import decimal
import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.native import loops
from shiftbench.shifts.corruptions.catalogue import corruption
from shiftbench.shifts.corruptions.severities import Row
from shiftbench.shifts.seeds import Draws, KeyedDraws, PublishedDraws

Values = NDArray[np.float64]
Singles = NDArray[np.float32]
ZoomTables = tuple[NDArray[np.int32], Singles, NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], Singles]
UNIT = 2**23  # of integer weights: 255 * 2**23 fits 31 bits
_NEGLIGIBLE = 1e-12
_FEW_BOXES = 12
_PRECISE = decimal.Context(prec=30)
_HALF_STEP = round(UNIT * 0.5 / 257)  # of ImageMagick's 16 bits


@corruption("gaussian_blur", group="blur", tabled=True)
def gaussian_blur(image: Pixels, parameters: Row, draws: Draws) -> Pixels:
    """Gaussian of width c, edges repeated, kernel cut at four widths."""
    return gaussian_blur_levels(image, *parameters)


def gaussian_blur_levels(image: Pixels, sigma: float, truncate: float = 4.0) -> Pixels:
    out = np.empty_like(image)
    loops.gaussian_levels(_rows(image), gaussian_weights(sigma, truncate), 3, _rows(out))
    return out


@corruption("glass_blur", group="blur", tabled=True, options=("true_swap",))
def glass_blur(image: Pixels, parameters: Row, draws: Draws, true_swap: bool = False) -> Pixels:
    """Blur, move pixels by up to ``delta`` for some iterations, blur again.

    The published code means to swap two pixels but, by the way NumPy assigns views, copies the neighbour and
    leaves it where it is; that is what ImageNet-C contains, and the default. ``true_swap=True`` swaps.
    """
    sigma = parameters[0]
    delta = int(parameters[1])
    iterations = int(parameters[2])
    weights = gaussian_weights(sigma)
    blurred = np.empty_like(image)
    out = np.empty_like(image)
    loops.gaussian_levels(_rows(image), weights, 3, _rows(blurred))
    pixels = np.empty(image.shape[:2], np.uint32)
    loops.pack(blurred.reshape(-1), pixels.reshape(-1))
    steps = max(image.shape[0] - 2 * delta, 0) * max(image.shape[1] - 2 * delta, 0)
    for _ in range(iterations):
        if isinstance(draws, PublishedDraws):
            loops.glass_shuffle(pixels, draws.rng.randint(-delta, delta, size=(steps, 2)), delta, true_swap)
        elif isinstance(draws, KeyedDraws):
            loops.glass_shuffle_keyed(pixels, delta, true_swap, *draws.stretch())
    loops.unpack(pixels.reshape(-1), blurred.reshape(-1))
    loops.gaussian_levels(_rows(blurred), weights, 3, _rows(out))
    return out


@corruption("defocus_blur", group="blur", tabled=True)
def defocus_blur(image: Pixels, parameters: Row, draws: Draws) -> Pixels:
    """A disk of the given radius with softened edge, borders reflected about the edge pixel."""
    disk = disk_boxes(*parameters)
    height, width, channels = image.shape
    sums = np.empty((height + 2 * disk.reach + 1, (width + 2 * disk.reach) * channels), np.int32)
    loops.column_sums(image, mirrored(height, disk.reach), mirrored(width, disk.reach), sums)
    out = np.empty_like(image)
    boxes = loops.whole_column_boxes if disk.weights.dtype == np.int32 else loops.column_boxes
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
    end, step = parameters
    factors = tuple(float(z) for z in np.arange(1, end, step))
    out = np.empty_like(image)
    loops.zoom_sum(_rows(image), *zoom_tables(factors, *image.shape), image.shape[2], _rows(out))
    return out


def trail(image: Pixels, radius: float, sigma: float, degrees: float) -> Pixels:
    """A one-sided Gaussian trail as ImageMagick computes it: offsets rounded to pixels, edges repeated, truncated.

    ImageMagick works on 16 bits and gives floor(round(257 s) / 257) for a weighted sum s of grey levels,
    which equals floor(s + 0.5 / 257).
    """
    weights = _trail_weights(radius, sigma)
    distances = np.arange(weights.size)
    angle = math.radians(degrees)
    dx = np.ceil(distances * math.cos(angle) - 0.5).astype(np.int64)
    dy = np.ceil(distances * math.sin(angle) - 0.5).astype(np.int64)
    out = np.empty_like(image)
    loops.line_filter(image, dy, dx, weights, _HALF_STEP, _rows(out))
    return out


def _rows(image: Pixels) -> Pixels:
    return image.reshape(image.shape[0], -1)


def to_float32(image: Pixels) -> NDArray[np.float32]:
    """Grey levels / 255, divided in float32."""
    out = np.empty(image.shape, np.float32)
    loops.to_unit(np.ascontiguousarray(image).reshape(-1), out.reshape(-1))
    return out


# Weights and positions of the blurs: small tables, computed once for each size and severity. Exponentials are correctly
# rounded (by decimal arithmetic), since libraries differ in the last bit, and in flat regions the last bit of a weight
# can decide between two grey levels.
def exact_exp(exponents: NDArray[np.floating]) -> Values:
    return np.array([float(_PRECISE.exp(decimal.Decimal(float(x)))) for x in exponents])


@lru_cache(maxsize=64)
def _trail_weights(radius: float, sigma: float) -> NDArray[np.int32]:
    """2 * radius + 1 weights that sum to 2**23, those at the end that round to zero left out."""
    i = np.arange(2 * math.ceil(radius) + 1)
    weights = exact_exp(-(i**2) / (2.0 * sigma * sigma))
    integer_weights = np.rint(weights / weights.sum() * UNIT).astype(np.int32)
    integer_weights[0] += UNIT - integer_weights.sum()
    return np.trim_zeros(integer_weights, "b")


@lru_cache(maxsize=64)
def gaussian_weights(sigma: float, truncate: float = 4.0) -> Values:
    """Weights at distance 0, 1, ... of a normalised Gaussian cut at ``truncate`` widths."""
    radius = int(truncate * sigma + 0.5)
    if radius == 0:
        return np.ones(1)
    x = np.arange(-radius, radius + 1)
    phi = exact_exp(-0.5 / (sigma * sigma) * x**2)
    return np.array((phi / phi.sum())[radius:])


@lru_cache(maxsize=64)
def disk_kernel(radius: float, softness: float) -> Singles:
    """The published defocus kernel: a disk on a grid of at least 17 px, smoothed by a small Gaussian.

    The smoothing reflects at the border of the grid. A disk that touches it (radius 8 and more) therefore
    gets a kernel whose sum exceeds 1 by about a percent, and brightens the image; so did the original.
    """
    if radius <= 8:
        reach = 8
        taps = 1
    else:
        reach = math.ceil(radius)
        taps = 2
    grid = np.arange(-reach, reach + 1)
    disk = (grid[:, None] ** 2 + grid[None, :] ** 2 <= radius**2).astype(np.float32)
    disk /= disk.sum()
    bell = exact_exp(-(np.arange(-taps, taps + 1) ** 2) / (2.0 * softness * softness))
    bell = (bell / bell.sum()).astype(np.float32)[taps:]
    n = disk.shape[0]
    for axis in (1, 0):  # in float32 with fused multiply-adds, as OpenCV computes it, written in float64
        padding = [(0, 0), (0, 0)]
        padding[axis] = (taps, taps)
        padded = np.pad(disk, padding, mode="reflect")
        disk = disk * bell[0]
        for j in range(1, taps + 1):
            pair = padded.take(range(taps + j, taps + j + n), axis) + padded.take(range(taps - j, taps - j + n), axis)
            disk = (pair.astype(np.float64) * float(bell[j]) + disk).astype(np.float32)
    return disk


class Boxes(NamedTuple):
    """A kernel as nested boxes: for half height k, weights at the column distances ``shifts``."""

    halves: NDArray[np.int32]
    starts: NDArray[np.int32]
    shifts: NDArray[np.int32]
    weights: NDArray[Any]
    scale: float
    reach: int


@lru_cache(maxsize=64)
def disk_boxes(radius: float, softness: float) -> Boxes:
    """The defocus kernel as boxes.

    Few boxes get float64 weights. Many get int32 weights for speed, in a unit that makes the disk's inner
    value a whole number, and a scale that restores the kernel's own sum: float32 kernels do not sum to exactly
    1, and in flat regions truncation turns a sum just below 1 into one grey level less.
    """
    kernel = disk_kernel(radius, softness).astype(np.float64)
    kernel[kernel < _NEGLIGIBLE] = 0.0
    reach = kernel.shape[0] // 2
    while reach > 0 and kernel[0].max() == 0:
        kernel = kernel[1:-1, 1:-1]
        reach -= 1
    weight_type: type[np.generic] = np.float64
    steps = _steps(kernel)
    scale = 1.0
    if np.count_nonzero(steps) > _FEW_BOXES:
        inner = kernel[reach, reach]
        unit = inner / np.rint(inner * 8.2e6)  # 8.2e6 * 255 * (largest kernel sum, 1.014) fits 31 bits
        integer_kernel = np.rint(kernel / unit)
        # The centre lines are halved below, so that they must be even.
        integer_kernel[:, reach] = integer_kernel[reach, :] = 2 * np.rint(integer_kernel[reach] / 2)
        steps = _steps(integer_kernel)
        scale = float(kernel.sum() / integer_kernel.sum())
        weight_type = np.int32
    halves = []
    starts = [0]
    shifts: list[int] = []
    weights: list[float] = []
    for half in range(steps.shape[1]):
        distances = np.flatnonzero(steps[:, half]).tolist()
        if not distances:
            continue
        halves.append(half)
        for dx in distances:
            shifts.append(dx)
            # The centre column is met twice, as x - 0 and x + 0.
            weights.append(steps[dx, half] / 2 if dx == 0 else steps[dx, half])
        if len(distances) % 2:
            # A spare entry makes the number of columns even.
            shifts.append(0)
            weights.append(0.0)
        starts.append(len(shifts))
    return Boxes(
        np.array(halves, np.int32),
        np.array(starts, np.int32),
        np.array(shifts, np.int32),
        np.array(weights).astype(weight_type),
        scale,
        reach,
    )


def _steps(kernel: Values) -> Values:
    """steps[dx, h]: how much the column at distance dx falls after height h."""
    reach = kernel.shape[0] // 2
    quarter = kernel[reach:, reach:]
    return quarter - np.pad(quarter, ((0, 0), (0, 1)))[:, 1:]


@lru_cache(maxsize=64)
def mirrored(n: int, pad: int) -> NDArray[np.int64]:
    """Indices -pad .. n + pad - 1 reflected about the edge pixels."""
    if n == 1:
        return np.zeros(1 + 2 * pad, np.int64)
    return np.pad(np.arange(n), pad, mode="reflect")


class ZoomPositions(NamedTuple):
    """Where the pixels of a zoomed row or column lie in the original one."""

    #: The pixel of the crop before each position, and how far behind it the position is.
    pixel: NDArray[np.int64]
    fraction: Values
    #: The first pixel of the crop, and the number of its pixels.
    start: int
    length: int


@lru_cache(maxsize=64)
def zoom_positions(n: int, factor: float) -> ZoomPositions:
    """The positions of n pixels in a zoomed centre crop.

    The crop of ceil(n / factor) pixels is stretched to round(crop * factor) samples, corner on corner, of
    which the middle n are kept.
    """
    crop = math.ceil(n / factor)
    start = (n - crop) // 2
    stretched = round(crop * factor)
    step = (crop - 1) / (stretched - 1) if stretched > 1 else 0.0
    position = (np.arange(n) + (stretched - n) // 2) * step
    pixel = np.minimum(np.floor(position).astype(np.int64), crop - 1)
    return ZoomPositions(pixel, position - pixel, start, crop)


@lru_cache(maxsize=32)
def zoom_tables(factors: tuple[float, ...], height: int, width: int, channels: int) -> ZoomTables:
    """Row and column positions of every zoom factor, as ``zoom_sum`` takes them.

    Columns are given as runs, in which source and target move on together: run r of factor z covers the
    values start[z, r] to start[z, r + 1] of a row, taken from shift[z, r] further on.
    """
    rows = [zoom_positions(height, z) for z in factors]
    columns = [zoom_positions(width, z) for z in factors]
    count = np.zeros(len(factors), np.int32)
    start = np.full((len(factors), width + 1), width * channels, np.int32)
    shift = np.zeros((len(factors), width), np.int32)
    for z, zoomed in enumerate(columns):
        distance = zoomed.pixel + zoomed.start - np.arange(width)
        begins = np.concatenate([[0], np.flatnonzero(np.diff(distance)) + 1])
        count[z] = begins.size
        start[z, : begins.size] = begins * channels
        shift[z, : begins.size] = distance[begins] * channels
    y_index = np.array([zoomed.pixel + zoomed.start for zoomed in rows], np.int32)
    y_fraction = np.array([zoomed.fraction for zoomed in rows], np.float32)
    # The kernel reads whole vectors, so that the rows are eight values longer.
    x_fraction = np.zeros((len(factors), width * channels + 8), np.float32)
    for z, (_, fraction, _, _) in enumerate(columns):
        x_fraction[z, : width * channels] = np.repeat(fraction, channels)
    return y_index, y_fraction, count, start, shift, x_fraction
