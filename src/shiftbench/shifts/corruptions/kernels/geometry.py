"""Resampling: zooms, affine and elastic warps, box pixelation."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from shiftbench.shifts.corruptions.kernels.compiling import compiled

_ONE, _TWO, _THREE = np.uint64(1), np.uint64(2), np.uint64(3)


@compiled
def mirror101(i: int, n: int) -> int:
    """Reflection about the edge pixel's centre (gfedcb|abcdefgh|gfedcba)."""
    if n == 1:
        return 0
    period = 2 * (n - 1)
    i %= period
    return period - i if i >= n else i


@compiled
def mirror(i: int, n: int) -> int:
    """Reflection about the edge of the image (dcba|abcd|dcba)."""
    period = 2 * n
    i %= period
    return period - 1 - i if i >= n else i


@compiled
def zoom_sum(
    source: NDArray[np.float32],
    y_index: NDArray[np.int32],
    y_part: NDArray[np.float32],
    run_count: NDArray[np.int32],
    run_start: NDArray[np.int32],
    run_shift: NDArray[np.int32],
    x_part: NDArray[np.float32],
    channels: int,
    out: NDArray[np.uint8],
) -> None:
    """Mean of the image and its zooms; the tables have one row per zoom factor.

    Sums run in the order of the factors, in float32, as the published code adds them; a + f * (b - a) leaves
    flat regions exactly unchanged.
    """
    height, n = out.shape
    total = np.empty(n, np.float32)
    line = np.empty(n + channels, np.float32)
    count = np.float32(y_index.shape[0] + 1)
    for y in range(height):
        total[:] = np.float32(0)
        for z in range(y_index.shape[0]):
            top = source[y_index[z, y]]
            bottom = source[min(y_index[z, y] + 1, height - 1)]
            f = y_part[z, y]
            for i in range(n):
                line[i] = top[i] + f * (bottom[i] - top[i])
            for i in range(channels):
                line[n + i] = line[n - channels + i]
            for r in range(run_count[z]):
                first, last = run_start[z, r], run_start[z, r + 1]
                begin, end = first + run_shift[z, r], last + run_shift[z, r]
                here, following = line[begin:end], line[begin + channels : end + channels]
                sums, part = total[first:last], x_part[z, first:last]
                for i in range(last - first):
                    sums[i] += here[i] + part[i] * (following[i] - here[i])
        row = source[y]
        levels = out[y]
        for i in range(n):
            value = (row[i] + total[i]) / count
            levels[i] = np.uint8(np.int32(min(max(value, np.float32(0)), np.float32(1)) * np.float32(255)))


@compiled
def affine_warp(
    source: NDArray[np.float32], inverse: NDArray[np.float64], width: int, out: NDArray[np.float32]
) -> None:
    """Bilinear affine warp of rows of RGB values, positions rounded to 1/32 px, reflect-101 borders.

    This is how OpenCV up to version 4 computes warpAffine for float images, which the published images were
    made with; later versions interpolate exactly and differ by a grey level in one value out of ten.
    """
    height, stride = out.shape
    flat = source.reshape(height * stride)
    step_x = np.empty(width, np.int32)
    step_y = np.empty(width, np.int32)
    for x in range(width):
        step_x[x] = np.int32(np.rint(inverse[0, 0] * x * 1024))
        step_y[x] = np.int32(np.rint(inverse[1, 0] * x * 1024))
    unit, one = np.float32(1.0 / 32.0), np.float32(1)
    for y in range(height):
        x0 = np.int32(np.rint((inverse[0, 1] * y + inverse[0, 2]) * 1024)) + np.int32(16)
        y0 = np.int32(np.rint((inverse[1, 1] * y + inverse[1, 2]) * 1024)) + np.int32(16)
        row = out[y]
        for x in range(width):
            px, py = (x0 + step_x[x]) >> 5, (y0 + step_y[x]) >> 5
            ix, iy = px >> 5, py >> 5
            fx, fy = np.float32(px & 31) * unit, np.float32(py & 31) * unit
            if ix >= 0 and iy >= 0 and ix < width - 1 and iy < height - 1:
                a = np.uint64(iy * stride + ix * 3)
                b, c = a + _THREE, a + np.uint64(stride)
                d = c + _THREE
            else:
                jx, jy = mirror101(ix + 1, width) * 3, mirror101(iy + 1, height) * stride
                ix, iy = mirror101(ix, width) * 3, mirror101(iy, height) * stride
                a, b, c, d = np.uint64(iy + ix), np.uint64(iy + jx), np.uint64(jy + ix), np.uint64(jy + jx)
            w00, w01 = (one - fy) * (one - fx), (one - fy) * fx
            w10, w11 = fy * (one - fx), fy * fx
            for i in range(3):
                k = np.uint64(i)
                value = flat[a + k] * w00 + flat[b + k] * w01
                row[3 * x + i] = (value + flat[c + k] * w10) + flat[d + k] * w11


@compiled
def displace(
    source: NDArray[np.float32], dx: NDArray[np.float32], dy: NDArray[np.float32], out: NDArray[np.uint8]
) -> None:
    """Bilinear look-up at (x + dx, y + dy) in rows of RGB values, mirrored borders, truncated to levels.

    Positions are computed for a whole row first, a loop that vectorises. Weights are float64 and the sum is
    rounded to float32 before truncation, as published: in white regions the last bit decides.
    """
    height, width = dx.shape
    stride = 3 * width
    flat = source.reshape(height * stride)
    place = np.empty(width, np.int32)
    inside = np.empty(width, np.uint8)
    part_x = np.empty(width)
    part_y = np.empty(width)
    for y in range(height):
        row_x, row_y, row = dx[y], dy[y], out[y]
        for x in range(width):
            px, py = x + np.float64(row_x[x]), y + np.float64(row_y[x])
            gx, gy = math.floor(px), math.floor(py)
            ix, iy = np.int32(gx), np.int32(gy)
            part_x[x], part_y[x] = px - gx, py - gy
            inside[x] = (ix >= 0) & (iy >= 0) & (ix < width - 1) & (iy < height - 1)
            place[x] = iy * np.int32(stride) + ix * np.int32(3)
        for x in range(width):
            fx, fy = part_x[x], part_y[x]
            if inside[x]:
                a = np.uint64(place[x])
                b, c = a + _THREE, a + np.uint64(stride)
                d = c + _THREE
            else:
                kx, ky = math.floor(x + np.float64(row_x[x])), math.floor(y + np.float64(row_y[x]))
                x0, x1 = mirror(int(kx), width) * 3, mirror(int(kx) + 1, width) * 3
                y0, y1 = mirror(int(ky), height) * stride, mirror(int(ky) + 1, height) * stride
                a, b, c, d = np.uint64(y0 + x0), np.uint64(y0 + x1), np.uint64(y1 + x0), np.uint64(y1 + x1)
            w00, w01 = (1.0 - fy) * (1.0 - fx), (1.0 - fy) * fx
            w10, w11 = fy * (1.0 - fx), fy * fx
            for i in range(3):
                k = np.uint64(i)
                value = flat[a + k] * w00 + flat[b + k] * w01
                single = np.float32((value + flat[c + k] * w10) + flat[d + k] * w11)
                level = min(max(single, np.float32(0)), np.float32(1)) * np.float32(255)
                row[3 * x + i] = np.uint8(np.int32(level))


@compiled
def smooth_mirrored(noise: NDArray[np.float32], weights: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    """Separable symmetric filter with mirrored borders; ``weights[j]`` belongs to distance j."""
    height, width = noise.shape
    radius = weights.size - 1
    padded = np.empty(width + 2 * radius, np.float32)
    centre = padded[radius : radius + width]
    for y in range(height):
        row = noise[y]
        for i in range(width):
            centre[i] = weights[0] * row[i]
        for j in range(1, radius + 1):
            above, below = noise[mirror(y - j, height)], noise[mirror(y + j, height)]
            w = weights[j]
            for i in range(width):
                centre[i] += w * (above[i] + below[i])
        for j in range(1, radius + 1):
            padded[radius - j] = centre[mirror(-j, width)]
            padded[radius + width - 1 + j] = centre[mirror(width - 1 + j, width)]
        result = out[y]
        for i in range(width):
            result[i] = weights[0] * centre[i]
        for j in range(1, radius + 1):
            left, right = padded[radius - j : radius - j + width], padded[radius + j : radius + j + width]
            w = weights[j]
            for i in range(width):
                result[i] += w * (left[i] + right[i])


@compiled
def cosine_field(
    amplitudes: NDArray[np.float64],
    basis_y: NDArray[np.float64],
    basis_x: NDArray[np.float64],
    out: NDArray[np.float32],
) -> None:
    """sum_kl amplitudes[k, l] * basis_y[k, y] * basis_x[l, x], in a fixed order of additions."""
    modes_y, modes_x = amplitudes.shape
    height, width = out.shape
    partial = np.zeros((modes_y, width))
    for k in range(modes_y):
        line = partial[k]
        for m in range(modes_x):
            a, wave = amplitudes[k, m], basis_x[m]
            for i in range(width):
                line[i] += a * wave[i]
    total = np.empty(width)
    for y in range(height):
        total[:] = 0.0
        for k in range(modes_y):
            a, line = basis_y[k, y], partial[k]
            for i in range(width):
                total[i] += a * line[i]
        row = out[y]
        for i in range(width):
            row[i] = np.float32(total[i])


@compiled
def box_pixelate(
    image: NDArray[np.uint8],
    x_start: NDArray[np.uint32],
    x_weight: NDArray[np.int32],
    y_start: NDArray[np.uint32],
    y_weight: NDArray[np.int32],
    x_back: NDArray[np.uint32],
    y_back: NDArray[np.uint32],
    out: NDArray[np.uint8],
) -> None:
    """Box-filter RGB rows down in 22-bit fixed point (columns first, each pass rounded), repeat back up.

    Weight tables have one row per output pixel, zero where the box ends early.
    """
    height = image.shape[0]
    small_w, taps_x = x_weight.shape
    taps_y = y_weight.shape[1]
    half = np.int32(1 << 21)
    narrow = np.empty((height, small_w * 3), np.uint8)
    for y in range(height):
        row, line = image[y], narrow[y]
        for x in range(small_w):
            red = green = blue = half
            k = np.uint64(x_start[x]) * _THREE
            for t in range(taps_x):
                w = x_weight[x, t]
                red += w * np.int32(row[k])
                green += w * np.int32(row[k + _ONE])
                blue += w * np.int32(row[k + _TWO])
                k += _THREE
            line[3 * x] = np.uint8(red >> 22)
            line[3 * x + 1] = np.uint8(green >> 22)
            line[3 * x + 2] = np.uint8(blue >> 22)
    total = np.empty(small_w * 3, np.int32)
    levels = np.empty(small_w * 3, np.uint8)
    for y in range(height):
        if y > 0 and y_back[y] == y_back[y - 1]:
            out[y] = out[y - 1]
            continue
        total[:] = half
        for t in range(taps_y):
            line, w = narrow[y_start[y_back[y]] + t], y_weight[y_back[y], t]
            for i in range(total.size):
                total[i] += w * np.int32(line[i])
        for i in range(total.size):
            levels[i] = np.uint8(total[i] >> 22)
        row = out[y]
        for x in range(x_back.size):
            k = np.uint64(x_back[x]) * _THREE
            row[3 * x] = levels[k]
            row[3 * x + 1] = levels[k + _ONE]
            row[3 * x + 2] = levels[k + _TWO]
