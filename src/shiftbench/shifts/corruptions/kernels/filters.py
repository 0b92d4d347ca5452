"""Linear filters on interleaved rows: an image (H, W, C) is read as H rows of W * C values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.shifts.corruptions.kernels.compiling import compiled
from shiftbench.shifts.corruptions.kernels.random import word

_ONE, _S16, _S32, _LOW16 = (np.uint64(v) for v in (1, 16, 32, 0xFFFF))
_B8, _B16, _B255 = (np.uint32(v) for v in (8, 16, 255))


@compiled
def to_unit(image: NDArray[np.uint8], out: NDArray[np.float64]) -> None:
    """Grey levels / 255 as float64, by table (a true division for each level)."""
    table = np.arange(256) / 255.0
    for i in range(image.size):
        out[i] = table[image[i]]


@compiled
def blur_row(
    source: NDArray[np.float64],
    y: int,
    weights: NDArray[np.float64],
    channels: int,
    padded: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:
    """Row y of a separable symmetric filter with nearest-edge borders, vertical pass first.

    ``weights[j]`` belongs to distance j. The additions run in SciPy's order (centre, then from the outermost
    pair inwards): in flat regions the last bit decides between two grey levels when the result is truncated.
    """
    height, n = source.shape
    radius = weights.size - 1
    pad = radius * channels
    centre = padded[pad : pad + n]
    row = source[y]
    for i in range(n):
        centre[i] = row[i] * weights[0]
    for j in range(radius, 0, -1):
        above = source[max(y - j, 0)]
        below = source[min(y + j, height - 1)]
        w = weights[j]
        for i in range(n):
            centre[i] += (above[i] + below[i]) * w
    for i in range(pad):
        padded[i] = centre[i % channels]
        padded[pad + n + i] = centre[n - channels + i % channels]
    for i in range(n):
        out[i] = centre[i] * weights[0]
    for j in range(radius, 0, -1):
        left = padded[pad - j * channels : pad - j * channels + n]
        right = padded[pad + j * channels : pad + j * channels + n]
        w = weights[j]
        for i in range(n):
            out[i] += (left[i] + right[i]) * w


@compiled
def gaussian_levels(
    source: NDArray[np.float64], weights: NDArray[np.float64], channels: int, out: NDArray[np.uint8]
) -> None:
    """Blur values on [0, 1] and write truncated grey levels."""
    height, n = source.shape
    padded = np.empty(n + 2 * (weights.size - 1) * channels)
    row = np.empty(n)
    for y in range(height):
        blur_row(source, y, weights, channels, padded, row)
        for i in range(n):
            out[y, i] = np.uint8(np.int32(min(max(row[i], 0.0), 1.0) * 255.0))


@compiled
def gaussian_values(
    source: NDArray[np.float64], weights: NDArray[np.float64], channels: int, out: NDArray[np.float64]
) -> None:
    """Blur without rounding."""
    height, n = source.shape
    padded = np.empty(n + 2 * (weights.size - 1) * channels)
    for y in range(height):
        blur_row(source, y, weights, channels, padded, out[y])


@compiled
def column_sums(
    image: NDArray[np.uint8], rows: NDArray[np.int64], columns: NDArray[np.int64], out: NDArray[np.int32]
) -> None:
    """Running sums down the columns of an image (H, W, C) extended by row and column indices.

    Row 0 of ``out`` is zero, row y + 1 includes the extended image's row y.
    """
    width, channels = image.shape[1], image.shape[2]
    left = 0
    while columns[left] != 0 or columns[left + width - 1] != width - 1:
        left += 1  # the image itself starts here; elsewhere single columns are looked up
    first, last = left * channels, (left + width) * channels
    out[0, :] = 0
    for y in range(rows.size):
        line = image[rows[y]].reshape(width * channels)
        above, below = out[y], out[y + 1]
        for x in range(columns.size):
            if x == left:
                inner_above, inner = above[first:last], below[first:last]
                for i in range(width * channels):
                    inner[i] = inner_above[i] + np.int32(line[i])
            elif x < left or x >= left + width:
                for c in range(channels):
                    k = x * channels + c
                    below[k] = above[k] + np.int32(line[columns[x] * channels + c])


@compiled
def column_boxes(
    sums: NDArray[np.int32],
    halves: NDArray[np.int32],
    starts: NDArray[np.int32],
    shifts: NDArray[np.int32],
    weights: NDArray[Any],
    scale: float,
    reach: int,
    channels: int,
    out: NDArray[np.uint8],
) -> None:
    """A kernel that is symmetric in both axes, as a weighted sum of column boxes.

    For each half height h, the sums over |dy| <= h come from the running sums and enter with a weight at the
    columns x - dx and x + dx, for the dx in ``shifts[starts[k] : starts[k + 1]]`` (an even number of them; a
    zero weight fills up). Sums have the type of the weights (int32 or float64).
    """
    height, n = out.shape
    total = np.empty(n, weights.dtype)
    box = np.empty(sums.shape[1], np.int32)
    middle = reach * channels
    for y in range(height):
        total[:] = 0
        for k in range(halves.size):
            high, low = sums[y + reach + halves[k] + 1], sums[y + reach - halves[k]]
            for i in range(box.size):
                box[i] = high[i] - low[i]
            for t in range(starts[k], starts[k + 1], 2):
                d0, d1 = shifts[t] * channels, shifts[t + 1] * channels
                w0, w1 = weights[t], weights[t + 1]
                left0, right0 = box[middle - d0 : middle - d0 + n], box[middle + d0 : middle + d0 + n]
                left1, right1 = box[middle - d1 : middle - d1 + n], box[middle + d1 : middle + d1 + n]
                for i in range(n):
                    total[i] += w0 * (left0[i] + right0[i]) + w1 * (left1[i] + right1[i])
        row = out[y]
        for i in range(n):
            row[i] = np.uint8(np.int32(min(total[i] * scale, 255.0)))


@compiled
def extend(image: NDArray[np.uint8], top: int, left: int, out: NDArray[np.int32]) -> None:
    """The image (H, W, C) with its edges repeated into ``out``, as rows of int32."""
    height, width, channels = image.shape
    n = width * channels
    first = left * channels
    for y in range(out.shape[0]):
        line = image[min(max(y - top, 0), height - 1)].reshape(n)
        row = out[y]
        inner = row[first : first + n]
        for i in range(n):
            inner[i] = np.int32(line[i])
        for i in range(first):
            row[i] = np.int32(line[i % channels])
        for i in range(first + n, row.size):
            row[i] = np.int32(line[n - channels + i % channels])


@compiled
def line_filter(
    padded: NDArray[np.int32],
    row_offsets: NDArray[np.int64],
    column_offsets: NDArray[np.int64],
    weights: NDArray[np.int32],
    bias: int,
    out: NDArray[np.uint8],
) -> None:
    """Weighted sum of an even number of taps into an extended image, weights in units of 2**-23."""
    height, n = out.shape
    total = np.empty(n, np.int32)
    for y in range(height):
        total[:] = bias
        for t in range(0, weights.size, 2):
            line0 = padded[y + row_offsets[t], column_offsets[t] : column_offsets[t] + n]
            line1 = padded[y + row_offsets[t + 1], column_offsets[t + 1] : column_offsets[t + 1] + n]
            w0, w1 = weights[t], weights[t + 1]
            for i in range(n):
                total[i] += w0 * line0[i] + w1 * line1[i]
        for i in range(n):
            out[y, i] = np.uint8(total[i] >> 23)


@compiled
def pack(image: NDArray[np.uint8], out: NDArray[np.uint32]) -> None:
    """Three bytes of a pixel in one word, so that moving a pixel is one load and one store."""
    for i in range(out.size):
        red, green, blue = np.uint32(image[3 * i]), np.uint32(image[3 * i + 1]), np.uint32(image[3 * i + 2])
        out[i] = red | (green << _B8) | (blue << _B16)


@compiled
def unpack_to_unit(pixels: NDArray[np.uint32], out: NDArray[np.float64]) -> None:
    table = np.arange(256) / 255.0
    for i in range(pixels.size):
        pixel = pixels[i]
        out[3 * i] = table[pixel & _B255]
        out[3 * i + 1] = table[(pixel >> _B8) & _B255]
        out[3 * i + 2] = table[(pixel >> _B16) & _B255]


@compiled
def glass_shuffle(pixels: NDArray[np.uint32], offsets: NDArray[np.int64], delta: int, swap: bool) -> None:
    """One pass of local copies (or true swaps) from the lower right to the upper left, in place."""
    height, width = pixels.shape
    k = 0
    for y in range(height - delta, delta, -1):
        for x in range(width - delta, delta, -1):
            x2, y2 = x + offsets[k, 0], y + offsets[k, 1]
            k += 1
            pixel = pixels[y, x]
            pixels[y, x] = pixels[y2, x2]
            if swap:
                pixels[y2, x2] = pixel


@compiled
def glass_shuffle_keyed(
    pixels: NDArray[np.uint32], delta: int, swap: bool, key0: np.uint64, key1: np.uint64, start: np.uint64
) -> None:
    """As :func:`glass_shuffle`, with offsets made from the words of a keyed stream (32 bits a pixel)."""
    height, width = pixels.shape
    span = np.uint64(2 * delta)
    flat = pixels.reshape(height * width)
    jump = np.empty(width + 1, np.int32)
    k = start
    for y in range(height - delta, delta, -1):
        for i in range(0, width - 2 * delta, 2):
            bits = word(key0, key1, k)
            k += _ONE
            for j in range(2):
                dx = np.int32(((bits & _LOW16) * span) >> _S16) - np.int32(delta)
                dy = np.int32((((bits >> _S16) & _LOW16) * span) >> _S16) - np.int32(delta)
                jump[i + j] = dy * np.int32(width) + dx
                bits >>= _S32
        here = y * width + width - delta
        for i in range(width - 2 * delta):
            there = np.uint64(here + jump[i])
            pixel = flat[np.uint64(here)]
            flat[np.uint64(here)] = flat[there]
            if swap:
                flat[there] = pixel
            here -= 1
