"""Plasma fractal, fog, frost and snow."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shiftbench.shifts.corruptions.kernels.compiling import compiled


@compiled
def plasma(side: int, decay: float, uniforms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Diamond-square on a torus; uniforms on [0, 1) are used in the published order.

    Each new point is a quarter of the sum of four neighbours plus w * U(-w, w), the amplitude w entering
    twice. Every level is one grid of square centres, then two grids of edge centres.
    """
    field = np.empty((side, side))
    field[0, 0] = 0.0
    step, k, w = side, 0, 100.0
    while step >= 2:
        half = step // 2
        for y in range(0, side, step):
            down = (y + step) & (side - 1)
            for x in range(0, side, step):
                right = (x + step) & (side - 1)
                total = (field[y, x] + field[down, x]) + (field[y, right] + field[down, right])
                field[y + half, x + half] = total / 4 + w * (-w + 2 * w * uniforms[k])
                k += 1
        for y in range(0, side, step):
            up = (y - half) & (side - 1)
            for x in range(0, side, step):
                right = (x + step) & (side - 1)
                total = (field[y + half, x + half] + field[up, x + half]) + (field[y, x] + field[y, right])
                field[y, x + half] = total / 4 + w * (-w + 2 * w * uniforms[k])
                k += 1
        for y in range(0, side, step):
            down = (y + step) & (side - 1)
            for x in range(0, side, step):
                left = (x - half) & (side - 1)
                total = (field[y + half, x + half] + field[y + half, left]) + (field[y, x] + field[down, x])
                field[y + half, x] = total / 4 + w * (-w + 2 * w * uniforms[k])
                k += 1
        step = half
        w /= decay
    return field


@compiled
def fog_blend(image: NDArray[np.uint8], field: NDArray[np.float64], amount: float, out: NDArray[np.uint8]) -> None:
    """(x + amount * fog) * max(x) / (max(x) + amount), the fog normalised to [0, 1] and tiled."""
    height, width, channels = image.shape
    mask = field.shape[0] - 1
    low, high = field[0, 0], field[0, 0]
    for y in range(field.shape[0]):
        for v in field[y]:
            low, high = min(low, v), max(high, v)
    span = high - low
    brightest = image.max() / 255.0
    bound = brightest + amount
    level = np.arange(256) / 255.0
    lit = np.empty(width * channels)
    layer = np.empty(mask + 1)
    for y in range(height):
        source = field[y & mask]
        for x in range(mask + 1):
            layer[x] = amount * ((source[x] - low) / span)
        line = image[y].reshape(width * channels)
        for x in range(width):
            fog = layer[x & mask]
            for c in range(channels):
                lit[x * channels + c] = level[line[x * channels + c]] + fog
        row = out[y].reshape(width * channels)
        for i in range(width * channels):
            row[i] = np.uint8(np.int32(min(lit[i] * brightest / bound, 1.0) * 255.0))


@compiled
def weighted_sum(
    image: NDArray[np.uint8], layer: NDArray[np.uint8], a: float, b: float, out: NDArray[np.uint8]
) -> None:
    """a * image + b * layer on the 0-255 scale, flat arrays."""
    for i in range(image.size):
        out[i] = np.uint8(np.int32(min(a * image[i] + b * layer[i], 255.0)))


@compiled
def snow_layer(
    noise: NDArray[np.float64],
    y_index: NDArray[np.int32],
    y_part: NDArray[np.float64],
    x_index: NDArray[np.int32],
    x_part: NDArray[np.float64],
    threshold: float,
) -> NDArray[np.uint8]:
    """Zoomed noise, cut below the threshold, as grey levels."""
    height, width = y_index.size, x_index.size
    rows, columns = noise.shape
    out = np.empty((height, width, 1), np.uint8)
    line = np.empty(columns + 1)
    for y in range(height):
        top = noise[y_index[y]]
        bottom = noise[min(y_index[y] + 1, rows - 1)]
        f = y_part[y]
        for i in range(columns):
            line[i] = (1.0 - f) * top[i] + f * bottom[i]
        line[columns] = line[columns - 1]
        for x in range(width):
            i, g = x_index[x], x_part[x]
            value = (1.0 - g) * line[i] + g * line[i + 1]
            if value < threshold:
                value = 0.0
            out[y, x, 0] = np.uint8(np.int32(min(max(value, 0.0), 1.0) * 255.0))
    return out


@compiled
def snow_blend(image: NDArray[np.uint8], layer: NDArray[np.uint8], mix: float, out: NDArray[np.uint8]) -> None:
    """Bleach towards the brightened grey image, then add the flakes and their 180-degree rotation."""
    height, width, _ = image.shape
    n = 3 * width
    level = (np.arange(256).astype(np.float32) / np.float32(255)).astype(np.float32)
    flake = np.arange(256) / 255.0
    keep, rest = np.float32(mix), np.float32(1.0 - mix)
    value, bright = np.empty(n, np.float32), np.empty(n, np.float32)
    near, far = np.empty(n), np.empty(n)
    for y in range(height):
        line = image[y].reshape(n)
        flakes, turned = layer[y], layer[height - 1 - y]
        for x in range(width):
            r, g, b = level[line[3 * x]], level[line[3 * x + 1]], level[line[3 * x + 2]]
            grey = r * np.float32(0.299) + g * np.float32(0.587) + b * np.float32(0.114)
            light = grey * np.float32(1.5) + np.float32(0.5)
            f1, f2 = flake[flakes[x, 0]], flake[turned[width - 1 - x, 0]]
            value[3 * x], value[3 * x + 1], value[3 * x + 2] = r, g, b
            for c in range(3):
                bright[3 * x + c], near[3 * x + c], far[3 * x + c] = light, f1, f2
        row = out[y].reshape(n)
        for i in range(n):
            mixed = keep * value[i] + rest * max(value[i], bright[i])
            row[i] = np.uint8(np.int32(min((np.float64(mixed) + near[i]) + far[i], 1.0) * 255.0))


@compiled
def draw_strokes(strokes: NDArray[np.float64], samples: int, canvas: NDArray[np.float64]) -> None:
    """Add lines (x, y, dx, dy, light), fading towards their end, to a canvas that wraps around."""
    height, width = canvas.shape
    for s in range(strokes.shape[1]):
        x, y, dx, dy, light = strokes[0, s], strokes[1, s], strokes[2, s], strokes[3, s], strokes[4, s]
        for k in range(samples):
            t = (k + 0.5) / samples
            px, py = x + t * dx, y + t * dy
            gx, gy = np.floor(px), np.floor(py)
            fx, fy = px - gx, py - gy
            left, top = int(gx) % width, int(gy) % height
            right, bottom = (left + 1) % width, (top + 1) % height
            share = light / samples * (1.0 - t)
            canvas[top, left] += share * (1.0 - fx) * (1.0 - fy)
            canvas[top, right] += share * fx * (1.0 - fy)
            canvas[bottom, left] += share * (1.0 - fx) * fy
            canvas[bottom, right] += share * fx * fy
