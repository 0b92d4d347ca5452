"""Brightness and saturation through the hue-saturation-value model, and contrast."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from shiftbench.shifts.corruptions.kernels.compiling import compiled


@compiled
def change_hsv(
    r: float, g: float, b: float, s_factor: float, s_shift: float, v_shift: float
) -> tuple[float, float, float]:
    """One pixel on [0, 1] to HSV, S * factor + shift and V + shift clipped, and back, in float64.

    Ties between the largest channels go to the last one, as in the published conversion.
    """
    v = max(r, g, b)
    delta = v - min(r, g, b)
    if delta == 0.0:
        h = s = 0.0
    else:
        s = delta / v
        if b == v:
            h = 4.0 + (r - g) / delta
        elif g == v:
            h = 2.0 + (b - r) / delta
        else:
            h = (g - b) / delta
        h = (h / 6.0) % 1.0
    s = min(max(s * s_factor + s_shift, 0.0), 1.0)
    v = min(max(v + v_shift, 0.0), 1.0)
    sector = math.floor(h * 6.0)
    f = h * 6.0 - sector
    p, q, t = v * (1.0 - s), v * (1.0 - f * s), v * (1.0 - (1.0 - f) * s)
    case = int(sector) % 6
    if case == 0:
        return v, t, p
    if case == 1:
        return q, v, p
    if case == 2:
        return p, v, t
    if case == 3:
        return p, q, v
    if case == 4:
        return t, p, v
    return v, p, q


@compiled
def shift_hsv(
    image: NDArray[np.uint8], s_factor: float, s_shift: float, v_shift: float, out: NDArray[np.uint8]
) -> None:
    level = np.arange(256) / 255.0
    for y in range(image.shape[0]):
        for x in range(image.shape[1]):
            red, green, blue = change_hsv(
                level[image[y, x, 0]], level[image[y, x, 1]], level[image[y, x, 2]], s_factor, s_shift, v_shift
            )
            out[y, x, 0] = np.uint8(np.int32(min(max(red, 0.0), 1.0) * 255.0))
            out[y, x, 1] = np.uint8(np.int32(min(max(green, 0.0), 1.0) * 255.0))
            out[y, x, 2] = np.uint8(np.int32(min(max(blue, 0.0), 1.0) * 255.0))


@compiled
def shift_hsv_values(
    pixels: NDArray[np.float64], s_factor: float, s_shift: float, v_shift: float, out: NDArray[np.float64]
) -> None:
    """As :func:`shift_hsv`, for rows of RGB values that stay unrounded."""
    for i in range(pixels.shape[0]):
        red, green, blue = change_hsv(pixels[i, 0], pixels[i, 1], pixels[i, 2], s_factor, s_shift, v_shift)
        out[i, 0], out[i, 1], out[i, 2] = red, green, blue


@compiled
def brighten(
    image: NDArray[np.uint8],
    table: NDArray[np.uint16],
    v_shift: float,
    out: NDArray[np.uint8],
) -> None:
    """V + shift for flat RGB pixels, by a table of outcomes for (largest channel, channel).

    With hue and saturation kept, a channel c of a pixel with value V becomes c * V' / V. Entries above 255
    mark outcomes so near a whole number that rounding decides; such pixels, and those with two largest
    channels, take the long way round.
    """
    level = np.arange(256) / 255.0
    for i in range(out.size // 3):
        r, g, b = image[3 * i], image[3 * i + 1], image[3 * i + 2]
        top, least = max(r, g, b), min(r, g, b)
        row = np.uint32(top) << np.uint32(8)
        red, green, blue = table[row | r], table[row | g], table[row | b]
        doubtful = (red | green | blue) > 255 or np.int32(r) + g + b - least == 2 * np.int32(top)
        if doubtful and top != least:
            x, y, z = change_hsv(level[r], level[g], level[b], 1.0, 0.0, v_shift)
            out[3 * i] = np.uint8(np.int32(min(max(x, 0.0), 1.0) * 255.0))
            out[3 * i + 1] = np.uint8(np.int32(min(max(y, 0.0), 1.0) * 255.0))
            out[3 * i + 2] = np.uint8(np.int32(min(max(z, 0.0), 1.0) * 255.0))
        else:
            out[3 * i], out[3 * i + 1], out[3 * i + 2] = np.uint8(red), np.uint8(green), np.uint8(blue)


@compiled
def contrast(image: NDArray[np.uint8], factor: float, out: NDArray[np.uint8]) -> None:
    """(x - mean) * factor + mean for flat RGB pixels, through one table of 256 levels for each channel.

    The means are summed pixel by pixel, as NumPy sums over the two outer axes.
    """
    pixels = image.size // 3
    level = np.arange(256) / 255.0
    red = green = blue = 0.0
    for i in range(pixels):
        red += level[image[3 * i]]
        green += level[image[3 * i + 1]]
        blue += level[image[3 * i + 2]]
    table = np.empty((3, 256), np.uint8)
    for c in range(3):
        mean = (red, green, blue)[c] / pixels
        for v in range(256):
            value = (level[v] - mean) * factor + mean
            table[c, v] = np.uint8(np.int32(min(max(value, 0.0), 1.0) * 255.0))
    red_table, green_table, blue_table = table[0], table[1], table[2]
    for i in range(pixels):
        out[3 * i] = red_table[image[3 * i]]
        out[3 * i + 1] = green_table[image[3 * i + 1]]
        out[3 * i + 2] = blue_table[image[3 * i + 2]]
