"""Weights and positions of the blurs: small tables, computed once for each size and severity.

Exponentials are correctly rounded (by decimal arithmetic), since libraries differ in the last bit and in flat
regions the last bit of a weight can decide between two grey levels.
"""

from __future__ import annotations

import decimal
import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Singles = NDArray[np.float32]
UNIT = 2**23  # of integer weights: 255 * 2**23 fits 31 bits
_NEGLIGIBLE = 1e-12
_FEW_BOXES = 12
_PRECISE = decimal.Context(prec=30)


def exact_exp(exponents: NDArray[np.floating[Any]]) -> Values:
    """exp of each number, correctly rounded.

    >>> exact_exp(np.array([0.0, -1.0])).tolist()
    [1.0, 0.36787944117144233]
    """
    return np.array([float(_PRECISE.exp(decimal.Decimal(float(x)))) for x in exponents])


def trail_taps(
    radius: float, sigma: float, degrees: float
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
    """Weights and offsets (dx, dy) of a one-sided Gaussian trail at an angle, an even number of taps."""
    weights = _trail_weights(radius, sigma)
    i, angle = np.arange(weights.size), math.radians(degrees)
    dx = np.ceil(i * math.cos(angle) - 0.5).astype(np.int64)
    dy = np.ceil(i * math.sin(angle) - 0.5).astype(np.int64)
    return weights, dx, dy


@lru_cache(maxsize=64)
def _trail_weights(radius: float, sigma: float) -> NDArray[np.int32]:
    """2 * radius + 1 weights that sum to 2**23, those at the end that round to zero left out."""
    i = np.arange(2 * math.ceil(radius) + 1)
    weights = exact_exp(-(i**2) / (2.0 * sigma * sigma))
    whole = np.append(np.rint(weights / weights.sum() * UNIT), 0).astype(np.int32)
    whole[0] += UNIT - whole.sum()
    return whole[: (np.count_nonzero(whole) + 1) // 2 * 2]  # the kernel takes taps two by two


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
    reach, taps = (8, 1) if radius <= 8 else (math.ceil(radius), 2)
    grid = np.arange(-reach, reach + 1)
    disk = (grid[:, None] ** 2 + grid[None, :] ** 2 <= radius**2).astype(np.float32)
    disk /= disk.sum()
    bell = exact_exp(-(np.arange(-taps, taps + 1) ** 2) / (2.0 * softness * softness))
    bell = (bell / bell.sum()).astype(np.float32)[taps:]
    return _smoothed(_smoothed(disk, bell, axis=1), bell, axis=0)


def _smoothed(kernel: Singles, bell: Singles, axis: int) -> Singles:
    """One pass in float32 with fused multiply-adds, as OpenCV computes it, written in float64."""
    n, taps = kernel.shape[0], len(bell) - 1
    padded = np.pad(kernel, [(taps, taps) if a == axis else (0, 0) for a in (0, 1)], mode="reflect")
    total: Singles = kernel * bell[0]
    for j in range(1, taps + 1):
        pair = padded.take(range(taps + j, taps + j + n), axis) + padded.take(range(taps - j, taps - j + n), axis)
        total = (pair.astype(np.float64) * float(bell[j]) + total).astype(np.float32)
    return total


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
        kernel, reach = kernel[1:-1, 1:-1], reach - 1
    if np.count_nonzero(_steps(kernel)) <= _FEW_BOXES:
        return _boxes(kernel, 1.0)
    inner = kernel[reach, reach]
    unit = inner / np.rint(inner * 8.2e6)  # 8.2e6 * 255 * (largest kernel sum, 1.014) fits 31 bits
    whole = np.rint(kernel / unit)
    whole[:, reach] = whole[reach, :] = 2 * np.rint(whole[reach] / 2)  # the centre lines are halved below
    boxes = _boxes(whole, float(kernel.sum() / whole.sum()))
    return boxes._replace(weights=boxes.weights.astype(np.int32))


def _steps(kernel: Values) -> Values:
    """steps[dx, h]: how much the column at distance dx falls after height h."""
    reach = kernel.shape[0] // 2
    quarter = kernel[reach:, reach:]
    return quarter - np.pad(quarter, ((0, 0), (0, 1)))[:, 1:]


def _boxes(kernel: Values, scale: float) -> Boxes:
    steps = _steps(kernel)
    halves, starts, shifts, weights = [], [0], [], []
    for half in range(steps.shape[1]):
        chosen = np.flatnonzero(steps[:, half])
        if not chosen.size:
            continue
        halves.append(half)
        # The centre column is met twice, as x - 0 and x + 0; a spare entry makes the number even.
        shifts += [*chosen, *([0] * (chosen.size % 2))]
        weights += [steps[dx, half] / (2 if dx == 0 else 1) for dx in chosen] + [0.0] * (chosen.size % 2)
        starts.append(len(shifts))
    h, b, d = (np.array(part, np.int32) for part in (halves, starts, shifts))
    return Boxes(h, b, d, np.array(weights), scale, kernel.shape[0] // 2)


@lru_cache(maxsize=64)
def mirrored(n: int, pad: int) -> NDArray[np.int64]:
    """Indices -pad .. n + pad - 1 reflected about the edge pixels."""
    return np.pad(np.arange(n), pad, mode="reflect") if n > 1 else np.zeros(n + 2 * pad, np.int64)


def zoom_positions(n: int, factor: float) -> tuple[NDArray[np.int64], Values, int, int]:
    """Where the n pixels of a zoomed centre crop lie: whole and fractional positions, crop start and length.

    The crop of ceil(n / factor) pixels is stretched to round(crop * factor) samples, corner on corner, of
    which the middle n are kept.
    """
    crop = math.ceil(n / factor)
    start = (n - crop) // 2
    stretched = round(crop * factor)
    step = (crop - 1) / (stretched - 1) if stretched > 1 else 0.0
    position = (np.arange(n) + (stretched - n) // 2) * step
    whole = np.minimum(np.floor(position).astype(np.int64), crop - 1)
    return whole, position - whole, start, crop


class ZoomTables(NamedTuple):
    """Row and column positions of every zoom factor.

    Columns are given as runs, in which source and target move on together: run r of factor z covers the
    values run_start[z, r] to run_start[z, r + 1] of a row, taken from run_shift[z, r] further on.
    """

    y_index: NDArray[np.int32]
    y_part: NDArray[np.float32]
    run_count: NDArray[np.int32]
    run_start: NDArray[np.int32]
    run_shift: NDArray[np.int32]
    x_part: NDArray[np.float32]


@lru_cache(maxsize=32)
def zoom_tables(factors: tuple[float, ...], height: int, width: int, channels: int) -> ZoomTables:
    rows = [zoom_positions(height, z) for z in factors]
    columns = [zoom_positions(width, z) for z in factors]
    count = np.zeros(len(factors), np.int32)
    start = np.full((len(factors), width + 1), width * channels, np.int32)
    shift = np.zeros((len(factors), width), np.int32)
    for z, (whole, _, first, _) in enumerate(columns):
        distance = whole + first - np.arange(width)
        begins = np.concatenate([[0], np.flatnonzero(np.diff(distance)) + 1])
        count[z] = begins.size
        start[z, : begins.size] = begins * channels
        shift[z, : begins.size] = distance[begins] * channels
    y_index = np.array([whole + first for whole, _, first, _ in rows], np.int32)
    y_part = np.array([part for _, part, _, _ in rows], np.float32)
    x_part = np.array([np.repeat(part, channels) for _, part, _, _ in columns], np.float32)
    return ZoomTables(y_index, y_part, count, start, shift, x_part)
