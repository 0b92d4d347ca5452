"""Declarations of the compiled inner loops (see :mod:`shiftbench.native`)."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shiftbench.native import kernel

Doubles = NDArray[np.float64]
Singles = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Shorts = NDArray[np.uint16]
Words = NDArray[np.uint32]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]


@kernel("float64[]", "uint64", "uint64", "uint64")
def fill_uniform(out: Doubles, key0: np.uint64, key1: np.uint64, start: np.uint64) -> None:
    """Fill an array with numbers uniform on [0, 1), 53 bits each."""


@kernel("float32[]", "float", "uint64", "uint64", "uint64")
def fill_symmetric(out: Singles, reach: float, key0: np.uint64, key1: np.uint64, start: np.uint64) -> None:
    """Fill an array with float32 numbers uniform on [-reach, reach)."""


#: The right edge of the last layer and the area of each, for 256 layers (Doornik 2005).
_ZIGGURAT_TAIL = 3.6541528853610088
_ZIGGURAT_AREA = 0.00492867323399


@lru_cache(maxsize=1)
def ziggurat_edges() -> Doubles:
    """Right edges of the 256 layers of equal area under exp(-x^2/2); edge 0 is the virtual base strip."""
    edges = np.zeros(257)
    edges[1] = _ZIGGURAT_TAIL
    edges[0] = _ZIGGURAT_AREA / math.exp(-0.5 * _ZIGGURAT_TAIL**2)
    for i in range(2, 256):
        density = _ZIGGURAT_AREA / edges[i - 1] + math.exp(-0.5 * edges[i - 1] ** 2)
        edges[i] = math.sqrt(-2.0 * math.log(density))
    return edges


@kernel("float64[]", "float64[]", "uint64", "uint64", "uint64")
def fill_normal(out: Doubles, edges: Doubles, key0: np.uint64, key1: np.uint64, start: np.uint64) -> None:
    """Fill an array with standard normal numbers by the ziggurat method (Marsaglia and Tsang 2000)."""


@kernel("float64[]", "uint32[]")
def fill_alias_table(law: Doubles, table: Words) -> None:
    """Build an alias table for every row of a law, by Vose's construction.

    Every noise corruption maps a grey level to a random grey level, independently for each value. Its law is therefore
    a 256 x 256 table of probabilities, which Walker's alias method samples exactly (to 2**-32): one table look-up and
    one comparison for a value, whatever the distribution. An entry packs (24-bit threshold << 8) | alias.
    """


@kernel("uint8[]", "uint32[]", "uint8[]", "uint64", "uint64", "uint64")
def sample(levels: Bytes, table: Words, out: Bytes, key0: np.uint64, key1: np.uint64, start: np.uint64) -> None:
    """Draw grey levels by an alias table; the arrays are flat.

    Value i uses the lower or upper half of word i // 2.
    """


@kernel("uint8[]", "float32[]")
def to_unit(image: Bytes, out: Singles) -> None:
    """Divide grey levels by 255, in float32; the arrays are flat."""


@kernel("uint8[]", "float64[]", "int", "uint8[]")
def gaussian_levels(image: Bytes, weights: Doubles, channels: int, out: Bytes) -> None:
    """Blur rows of grey levels on [0, 1], and truncate the result to grey levels."""


@kernel("float64[]", "float64[]", "int", "float64[]")
def gaussian_values(source: Doubles, weights: Doubles, channels: int, out: Doubles) -> None:
    """Blur rows of values without rounding."""


@kernel("uint8[]", "int64[]", "int64[]", "int32[]")
def column_sums(image: Bytes, rows: Longs, columns: Longs, out: Ints) -> None:
    """Compute running sums down the columns of an image (H, W, C) extended by row and column indices.

    Row 0 of ``out`` is zero, and row y + 1 includes the extended image's row y.
    """


@kernel("int32[]", "int32[]", "int32[]", "int32[]", "float64[]", "float", "int", "int", "uint8[]")
def column_boxes(
    sums: Ints,
    halves: Ints,
    starts: Ints,
    shifts: Ints,
    weights: Doubles,
    scale: float,
    reach: int,
    channels: int,
    out: Bytes,
) -> None:
    """Apply a filter that is symmetric in both axes, as a weighted sum of column boxes.

    For each half height h, the sums over abs(dy) <= h come from the running sums and enter with a weight at the columns
    x - dx and x + dx, for the dx in ``shifts[starts[k] : starts[k + 1]]``. The number of these is even: where it would
    be odd, there is one more with the weight zero.
    """


@kernel("int32[]", "int32[]", "int32[]", "int32[]", "int32[]", "float", "int", "int", "uint8[]")
def whole_column_boxes(
    sums: Ints,
    halves: Ints,
    starts: Ints,
    shifts: Ints,
    weights: Ints,
    scale: float,
    reach: int,
    channels: int,
    out: Bytes,
) -> None:
    """Do the same as :func:`column_boxes` in whole numbers, which is faster where there are many boxes."""


@kernel("uint8[]", "int64[]", "int64[]", "int32[]", "int", "uint8[]")
def line_filter(image: Bytes, dy: Longs, dx: Longs, weights: Ints, bias: int, out: Bytes) -> None:
    """Compute a weighted sum of the pixels at (y + dy, x + dx) of an image (H, W, C) with repeated edges.

    The weights are in units of 2**-23.
    """


@kernel("uint8[]", "uint32[]")
def pack(image: Bytes, out: Words) -> None:
    """Put the three bytes of each pixel into one word, so that moving a pixel is one load and one store."""


@kernel("uint32[]", "uint8[]")
def unpack(pixels: Words, out: Bytes) -> None:
    """Write the words of :func:`pack` back as three bytes per pixel."""


@kernel("uint32[]", "int64[]", "int", "bool")
def glass_shuffle(pixels: Words, offsets: Longs, delta: int, swap: bool) -> None:
    """Make one pass of local copies (or true swaps) from the lower right to the upper left, in place."""


@kernel("uint32[]", "int", "bool", "uint64", "uint64", "uint64")
def glass_shuffle_keyed(
    pixels: Words, delta: int, swap: bool, key0: np.uint64, key1: np.uint64, start: np.uint64
) -> None:
    """Do the same as :func:`glass_shuffle`, with offsets from a keyed stream (32 bits per pixel)."""


@kernel("uint8[]", "int32[]", "float32[]", "int32[]", "int32[]", "int32[]", "float32[]", "int", "uint8[]")
def zoom_sum(
    image: Bytes,
    y_index: Ints,
    y_part: Singles,
    run_count: Ints,
    run_start: Ints,
    run_shift: Ints,
    x_part: Singles,
    channels: int,
    out: Bytes,
) -> None:
    """Compute the mean of the image and its zooms; the tables have one row per zoom factor.

    Sums run in the order of the factors, in float32, as the published code adds them; a + f * (b - a) leaves flat
    regions exactly unchanged.
    """


@kernel("float32[]", "float64[]", "int", "float32[]")
def affine_warp(source: Singles, inverse: Doubles, width: int, out: Singles) -> None:
    """Warp rows of RGB values bilinearly, with positions rounded to 1/32 px and reflect-101 borders.

    This is how OpenCV up to version 4 computes warpAffine for float images, which the published images were made with;
    later versions interpolate exactly and differ by a grey level in one value out of ten.
    """


@kernel("float32[]", "float32[]", "float32[]", "uint8[]")
def displace(source: Singles, dx: Singles, dy: Singles, out: Bytes) -> None:
    """Look up rows of RGB values bilinearly at (x + dx, y + dy), mirrored at the borders, truncated to levels.

    Positions are computed for a whole row first, in a loop that vectorises. Weights are float64 and the sum is rounded
    to float32 before truncation, as published: in white regions the last bit decides.
    """


@kernel("float32[]", "float32[]", "float32[]")
def smooth_mirrored(noise: Singles, weights: Singles, out: Singles) -> None:
    """Apply a separable symmetric filter with mirrored borders; ``weights[j]`` belongs to distance j."""


@kernel("float64[]", "float64[]", "float64[]", "float32[]")
def cosine_field(amplitudes: Doubles, basis_y: Doubles, basis_x: Doubles, out: Singles) -> None:
    """Compute sum_kl amplitudes[k, l] * basis_y[k, y] * basis_x[l, x], in a fixed order of additions."""


@kernel("uint8[]", "uint32[]", "int32[]", "uint32[]", "int32[]", "uint8[]")
def resample(image: Bytes, x_start: Words, x_weights: Ints, y_start: Words, y_weights: Ints, out: Bytes) -> None:
    """Resize rows of RGB pixels as Pillow does: across, then down, in 22-bit fixed point, each pass rounded.

    The tables are those of ``datasets.geometry.filter_weights``.
    """


@kernel("uint8[]", "uint32[]", "int32[]", "uint32[]", "int32[]", "uint32[]", "uint32[]", "uint8[]")
def box_pixelate(
    image: Bytes,
    x_start: Words,
    x_weights: Ints,
    y_start: Words,
    y_weights: Ints,
    x_back: Words,
    y_back: Words,
    out: Bytes,
) -> None:
    """Resample to a smaller image as :func:`resample` does, and repeat its pixels back up."""


@kernel("float", "float64[]", "float64[]")
def plasma(decay: float, uniforms: Doubles, field: Doubles) -> None:
    """Fill a torus, whose side is a power of two, with a diamond-square fractal.

    Uniforms on [0, 1) are used in the published order. Each new point is a quarter of the sum of four neighbours plus
    w * U(-w, w), so the amplitude w enters twice. Every level is one grid of square centres, then two grids of edge
    centres.
    """


@kernel("uint8[]", "float64[]", "float", "uint8[]")
def fog_blend(image: Bytes, field: Doubles, amount: float, out: Bytes) -> None:
    """Compute (x + amount * fog) * max(x) / (max(x) + amount).

    The fog is the field, normalised to [0, 1] and tiled.
    """


@kernel("uint8[]", "uint8[]", "int", "int", "float", "float", "uint8[]")
def weighted_sum(image: Bytes, layer: Bytes, y: int, x: int, a: float, b: float, out: Bytes) -> None:
    """Compute a * image + b * layer on the 0-255 scale.

    The layer may be larger than the image: its part that begins at row y and column x is used.
    """


@kernel("float32[]", "int32[]")
def best_classes(scores: Singles, top: Ints) -> None:
    """Write the indices of each row's greatest scores, best first; of equal scores the first comes first."""


@kernel("float64[]", "int64[]", "float64[]", "int64[]", "float64[]", "float", "uint8[]")
def snow_layer(
    noise: Doubles, y_index: Longs, y_part: Doubles, x_index: Longs, x_part: Doubles, threshold: float, out: Bytes
) -> None:
    """Zoom the noise, cut it below the threshold, and write it as grey levels."""


@kernel("uint8[]", "uint8[]", "float", "uint8[]")
def snow_blend(image: Bytes, layer: Bytes, mix: float, out: Bytes) -> None:
    """Bleach towards the brightened grey image, then add the flakes and their 180-degree rotation."""


@kernel("float64[]", "int", "float64[]")
def draw_strokes(strokes: Doubles, samples: int, canvas: Doubles) -> None:
    """Add lines (x, y, dx, dy, light), which fade towards their end, to a canvas that wraps around."""


@kernel("uint8[]", "float", "float", "float", "uint8[]")
def shift_hsv(image: Bytes, s_factor: float, s_shift: float, v_shift: float, out: Bytes) -> None:
    """Compute S * factor + shift and V + shift in the hue-saturation-value model.

    Values are clipped and truncated to grey levels.
    """


@kernel("float64[]", "float", "float", "float", "float64[]")
def shift_hsv_values(pixels: Doubles, s_factor: float, s_shift: float, v_shift: float, out: Doubles) -> None:
    """Do the same as :func:`shift_hsv` for rows of RGB values that stay unrounded."""


@kernel("uint8[]", "uint16[]", "float", "uint8[]")
def brighten(image: Bytes, table: Shorts, v_shift: float, out: Bytes) -> None:
    """Compute V + shift for flat RGB pixels, by a table of outcomes for (largest channel, channel).

    With hue and saturation kept, a channel c of a pixel with value V becomes c * V' / V. Entries above 255 mark
    outcomes so near a whole number that rounding decides; such pixels, and those with two largest channels, are
    computed in full.
    """


@kernel("uint8[]", "float", "uint8[]")
def contrast(image: Bytes, factor: float, out: Bytes) -> None:
    """Compute (x - mean) * factor + mean for flat RGB pixels, through one table of 256 levels for each channel.

    The means are summed pixel by pixel, as NumPy sums over the two outer axes.
    """


@kernel("uint8[]", "float32[]")
def edge_distance(image: Bytes, out: Singles) -> None:
    """Measure the distance of every pixel to the nearest of Canny's edges (thresholds 50, 150), at most 20."""
