"""Digital: contrast, elastic transform, pixelate, JPEG compression and saturation.

Hendrycks and Dietterich (2019).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.native.jpeg import compressed
from shiftbench.shifts.corruptions.blur import to_float32
from shiftbench.shifts.corruptions.catalogue import corruption
from shiftbench.shifts.corruptions.elastic import displacement_fields, random_affine
from shiftbench.shifts.corruptions.randomness import Draws
from shiftbench.shifts.corruptions.severities import Row

Indices = NDArray[np.uint32]
Weights = NDArray[np.int32]


@corruption("contrast", group="digital", tabled=True)
def contrast(image: Pixels, parameters: Row, draws: Draws) -> Pixels:
    """(x - mean) * c + mean for each channel."""
    from shiftbench.shifts.corruptions.kernels import contrast as kernel

    (factor,) = parameters
    out = np.empty_like(image)
    kernel(image.reshape(-1), factor, out.reshape(-1))
    return out


@corruption("saturate", group="digital", tabled=True)
def saturate(image: Pixels, parameters: Row, draws: Draws) -> Pixels:
    """S * c0 + c1 in the hue-saturation-value model, clipped."""
    from shiftbench.shifts.corruptions.kernels import shift_hsv

    factor, shift = parameters
    out = np.empty_like(image)
    shift_hsv(image, factor, shift, 0.0, out)
    return out


@corruption("elastic_transform", group="digital", tabled=True)
def elastic_transform(image: Pixels, parameters: Row, draws: Draws) -> Pixels:
    """A random affine map, then a smooth random displacement of every pixel (Simard et al. 2003).

    Three points move by U(-affine, affine); then dx and dy are alpha * gaussian(U(-1, 1), sigma), with mirrored
    borders; both steps are bilinear.
    """
    from shiftbench.shifts.corruptions.kernels import affine_warp, displace

    alpha, sigma, affine = parameters
    height, width = image.shape[:2]
    inverse = random_affine((height, width), affine, draws)
    dx, dy = displacement_fields((height, width), alpha, sigma, draws)
    warped = np.empty((height, 3 * width), np.float32)
    affine_warp(to_float32(image).reshape(height, -1), inverse, width, warped)
    out = np.empty_like(image)
    displace(warped, dx, dy, out.reshape(height, -1))
    return out


@corruption("pixelate", group="digital", tabled=True)
def pixelate(image: Pixels, parameters: Row, draws: Draws) -> Pixels:
    """Box-filtered down to a share c of the size and enlarged again, as Pillow's BOX resampling does."""
    from shiftbench.shifts.corruptions.kernels import box_pixelate

    (share,) = parameters
    height, width = image.shape[:2]
    small_h, small_w = max(int(height * share), 1), max(int(width * share), 1)
    out = np.empty_like(image)
    x_start, x_weight = _box_down(width, small_w)
    y_start, y_weight = _box_down(height, small_h)
    x_back, y_back = _box_up(small_w, width), _box_up(small_h, height)
    rows, result = image.reshape(height, -1), out.reshape(height, -1)
    box_pixelate(rows, x_start, x_weight, y_start, y_weight, x_back, y_back, result)
    return out


@lru_cache(maxsize=128)
def _box_down(size: int, small: int) -> tuple[Indices, Weights]:
    """First source pixel and 22-bit weights of every box; a box holds the pixels whose centres it covers."""
    scale = size / small
    centre = (np.arange(small) + 0.5) * scale
    start = np.maximum((centre - 0.5 * scale + 0.5).astype(np.int64), 0)
    stop = np.minimum((centre + 0.5 * scale + 0.5).astype(np.int64), size)
    taps = int((stop - start).max())
    position = start[:, None] + np.arange(taps)
    offset = (position - centre[:, None] + 0.5) / scale
    inside = (offset > -0.5) & (offset <= 0.5) & (position < stop[:, None])
    weight = np.floor(inside / inside.sum(axis=1, keepdims=True) * (1 << 22) + 0.5)
    first = np.minimum(start, size - taps)  # keep all taps inside the image
    shifted = np.zeros_like(weight)
    for i, move in enumerate(start - first):
        shifted[i, move:] = weight[i, : taps - move]
    return first.astype(np.uint32), shifted.astype(np.int32)


@lru_cache(maxsize=128)
def _box_up(small: int, size: int) -> Indices:
    """The small pixel that each enlarged pixel repeats."""
    centre = (np.arange(size) + 0.5) * (small / size)
    return np.minimum(centre.astype(np.uint32), small - 1).astype(np.uint32)


@corruption("jpeg_compression", group="digital", tabled=True)
def jpeg_compression(image: Pixels, parameters: Row, draws: Draws) -> Pixels:
    """Saved as JPEG at quality c (chroma subsampled) and read again: the pixels that Pillow and OpenCV give."""
    return compressed(image, int(parameters[0]))
