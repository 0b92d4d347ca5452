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
_ZIGGURAT_TAIL = 3.6541528853610088  # Doornik (2005), 256 layers
_ZIGGURAT_AREA = 0.00492867323399


# Uniform on [0, 1), 53 bits each.
@kernel
def fill_uniform(out: Doubles, key0: np.uint64, key1: np.uint64, start: np.uint64) -> None: ...


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


# As float32, uniform on [-reach, reach).
@kernel
def fill_symmetric(out: Singles, reach: float, key0: np.uint64, key1: np.uint64, start: np.uint64) -> None: ...


# Standard normal numbers by the ziggurat method (Marsaglia and Tsang 2000).
@kernel
def fill_normal(out: Doubles, edges: Doubles, key0: np.uint64, key1: np.uint64, start: np.uint64) -> None: ...


# Noise as a memoryless channel: every noise corruption maps a grey level to a random grey level, independently for each
# value. Its law is therefore a 256 x 256 table of probabilities, which is sampled exactly (to 2**-32) by Walker's alias
# method: one table look-up and one comparison for a value, whatever the distribution.


# Vose's construction for every row; an entry packs (24-bit threshold << 8) | alias.
@kernel
def fill_alias_table(law: Doubles, table: Words) -> None: ...
# Grey levels drawn by an alias table; value i uses the lower or upper half of word i // 2. Flat arrays.
@kernel
def sample(levels: Bytes, table: Words, out: Bytes, key0: np.uint64, key1: np.uint64, start: np.uint64) -> None: ...
# Grey levels / 255, divided in float32. Flat arrays.
@kernel
def to_unit(image: Bytes, out: Singles) -> None: ...
# Blur rows of grey levels on [0, 1], and truncate the result to grey levels.
@kernel
def gaussian_levels(image: Bytes, weights: Doubles, channels: int, out: Bytes) -> None: ...
# Blur without rounding.
@kernel
def gaussian_values(source: Doubles, weights: Doubles, channels: int, out: Doubles) -> None: ...
# Running sums down the columns of an image (H, W, C) extended by row and column indices. Row 0 of ``out`` is zero, row
# y + 1 includes the extended image's row y.
@kernel
def column_sums(image: Bytes, rows: Longs, columns: Longs, out: Ints) -> None: ...
# A kernel that is symmetric in both axes, as a weighted sum of column boxes. For each half height h, the sums over
# |dy| <= h come from the running sums and enter with a weight at the columns x - dx and x + dx, for the dx in
# ``shifts[starts[k] : starts[k + 1]]`` (an even number of them; a zero weight fills up).
@kernel
def column_boxes(
    sums: Ints, halves: Ints, starts: Ints, shifts: Ints, weights: Doubles, scale: float, reach: int, channels: int,
    out: Bytes,
) -> None: ...  # fmt: skip
# As `column_boxes`, in whole numbers, which are faster where there are many boxes.
@kernel
def whole_column_boxes(
    sums: Ints, halves: Ints, starts: Ints, shifts: Ints, weights: Ints, scale: float, reach: int, channels: int,
    out: Bytes,
) -> None: ...  # fmt: skip
# Weighted sum of the pixels at (y + dy, x + dx) of an image (H, W, C) with repeated edges, weights in units of 2**-23.
@kernel
def line_filter(image: Bytes, dy: Longs, dx: Longs, weights: Ints, bias: int, out: Bytes) -> None: ...
# Three bytes of a pixel in one word, so that moving a pixel is one load and one store.
@kernel
def pack(image: Bytes, out: Words) -> None: ...
# The inverse of `pack`.
@kernel
def unpack(pixels: Words, out: Bytes) -> None: ...
# One pass of local copies (or true swaps) from the lower right to the upper left, in place.
@kernel
def glass_shuffle(pixels: Words, offsets: Longs, delta: int, swap: bool) -> None: ...
# As `glass_shuffle`, with offsets made from the words of a keyed stream (32 bits a pixel).
@kernel
def glass_shuffle_keyed(
    pixels: Words, delta: int, swap: bool, key0: np.uint64, key1: np.uint64, start: np.uint64
) -> None: ...
# Mean of the image and its zooms; the tables have one row per zoom factor. Sums run in the order of the factors, in
# float32, as the published code adds them; a + f * (b - a) leaves flat regions exactly unchanged.
@kernel
def zoom_sum(
    image: Bytes, y_index: Ints, y_part: Singles, run_count: Ints, run_start: Ints, run_shift: Ints, x_part: Singles,
    channels: int, out: Bytes,
) -> None: ...  # fmt: skip
# Bilinear affine warp of rows of RGB values, positions rounded to 1/32 px, reflect-101 borders. This is how OpenCV up
# to version 4 computes warpAffine for float images, which the published images were made with; later versions
# interpolate exactly and differ by a grey level in one value out of ten.
@kernel
def affine_warp(source: Singles, inverse: Doubles, width: int, out: Singles) -> None: ...
# Bilinear look-up at (x + dx, y + dy) in rows of RGB values, mirrored borders, truncated to levels. Positions are
# computed for a whole row first, a loop that vectorises. Weights are float64 and the sum is rounded to float32 before
# truncation, as published: in white regions the last bit decides.
@kernel
def displace(source: Singles, dx: Singles, dy: Singles, out: Bytes) -> None: ...
# Separable symmetric filter with mirrored borders; ``weights[j]`` belongs to distance j.
@kernel
def smooth_mirrored(noise: Singles, weights: Singles, out: Singles) -> None: ...
# sum_kl amplitudes[k, l] * basis_y[k, y] * basis_x[l, x], in a fixed order of additions.
@kernel
def cosine_field(amplitudes: Doubles, basis_y: Doubles, basis_x: Doubles, out: Singles) -> None: ...
# Resize rows of RGB pixels as Pillow does: across, then down, in 22-bit fixed point, each pass rounded. The tables are
# those of ``datasets.geometry.filter_weights``.
@kernel
def resample(
    image: Bytes, x_start: Words, x_weights: Ints, y_start: Words, y_weights: Ints, out: Bytes,
) -> None: ...  # fmt: skip
# Resample to a smaller image, and repeat its pixels back up.
@kernel
def box_pixelate(
    image: Bytes, x_start: Words, x_weights: Ints, y_start: Words, y_weights: Ints, x_back: Words, y_back: Words, out:
    Bytes,
) -> None: ...  # fmt: skip
# Diamond-square on a torus whose side is a power of two; uniforms on [0, 1) are used in the published order. Each new
# point is a quarter of the sum of four neighbours plus w * U(-w, w), the amplitude w entering twice. Every level is
# one grid of square centres, then two grids of edge centres.
@kernel
def plasma(decay: float, uniforms: Doubles, field: Doubles) -> None: ...
# (x + amount * fog) * max(x) / (max(x) + amount), the fog normalised to [0, 1] and tiled.
@kernel
def fog_blend(image: Bytes, field: Doubles, amount: float, out: Bytes) -> None: ...
# a * image + b * (the part of a larger layer that begins at row y and column x), on the 0-255 scale.
@kernel
def weighted_sum(image: Bytes, layer: Bytes, y: int, x: int, a: float, b: float, out: Bytes) -> None: ...
# For each row of scores the indices of its greatest, from the best down; of equal scores the first.
@kernel
def best_classes(scores: Singles, top: Ints) -> None: ...
# Zoomed noise, cut below the threshold, as grey levels.
@kernel
def snow_layer(
    noise: Doubles, y_index: Longs, y_part: Doubles, x_index: Longs, x_part: Doubles, threshold: float, out: Bytes
) -> None: ...
# Bleach towards the brightened grey image, then add the flakes and their 180-degree rotation.
@kernel
def snow_blend(image: Bytes, layer: Bytes, mix: float, out: Bytes) -> None: ...
# Add lines (x, y, dx, dy, light), fading towards their end, to a canvas that wraps around.
@kernel
def draw_strokes(strokes: Doubles, samples: int, canvas: Doubles) -> None: ...
# S * factor + shift and V + shift in the hue-saturation-value model, clipped and truncated to grey levels.
@kernel
def shift_hsv(image: Bytes, s_factor: float, s_shift: float, v_shift: float, out: Bytes) -> None: ...
# As `shift_hsv`, for rows of RGB values that stay unrounded.
@kernel
def shift_hsv_values(pixels: Doubles, s_factor: float, s_shift: float, v_shift: float, out: Doubles) -> None: ...
# V + shift for flat RGB pixels, by a table of outcomes for (largest channel, channel). With hue and saturation kept, a
# channel c of a pixel with value V becomes c * V' / V. Entries above 255 mark outcomes so near a whole number that
# rounding decides; such pixels, and those with two largest channels, take the long way round.
@kernel
def brighten(image: Bytes, table: Shorts, v_shift: float, out: Bytes) -> None: ...
# (x - mean) * factor + mean for flat RGB pixels, through one table of 256 levels for each channel. The means are
# summed pixel by pixel, as NumPy sums over the two outer axes.
@kernel
def contrast(image: Bytes, factor: float, out: Bytes) -> None: ...
# Distance of every pixel to the nearest of Canny's edges (thresholds 50 and 150), at most 20.
@kernel
def edge_distance(image: Bytes, out: Singles) -> None: ...
