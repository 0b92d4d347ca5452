"""Declarations of the compiled inner loops (see :mod:`shiftbench.native`)."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shiftbench.native import kernel

_ZIGGURAT_TAIL = 3.6541528853610088  # Doornik (2005), 256 layers
_ZIGGURAT_AREA = 0.00492867323399


@kernel
def fill_uniform(out: NDArray[np.float64], key0: np.uint64, key1: np.uint64, start: np.uint64) -> None:
    """Uniform on [0, 1), 53 bits each."""


@lru_cache(maxsize=1)
def ziggurat_edges() -> NDArray[np.float64]:
    """Right edges of the 256 layers of equal area under exp(-x^2/2); edge 0 is the virtual base strip."""
    edges = np.zeros(257)
    edges[1] = _ZIGGURAT_TAIL
    edges[0] = _ZIGGURAT_AREA / math.exp(-0.5 * _ZIGGURAT_TAIL**2)
    for i in range(2, 256):
        density = _ZIGGURAT_AREA / edges[i - 1] + math.exp(-0.5 * edges[i - 1] ** 2)
        edges[i] = math.sqrt(-2.0 * math.log(density))
    return edges


@kernel
def fill_normal(
    out: NDArray[np.float64],
    edges: NDArray[np.float64],
    key0: np.uint64,
    key1: np.uint64,
    start: np.uint64,
) -> None:
    """Standard normal numbers by the ziggurat method (Marsaglia and Tsang 2000)."""


# Noise as a memoryless channel: every noise corruption maps a grey level to a random grey level, independently for each
# value. Its law is therefore a 256 x 256 table of probabilities, which is sampled exactly (to 2**-32) by Walker's alias
# method: one table look-up and one comparison for a value, whatever the distribution.


@kernel
def fill_alias_table(law: NDArray[np.float64], table: NDArray[np.uint32]) -> None:
    """Vose's construction for every row; an entry packs (24-bit threshold << 8) | alias."""


@kernel
def sample(
    levels: NDArray[np.uint8],
    table: NDArray[np.uint32],
    out: NDArray[np.uint8],
    key0: np.uint64,
    key1: np.uint64,
    start: np.uint64,
) -> None:
    """Grey levels drawn by an alias table; value i uses the lower or upper half of word i // 2. Flat arrays."""


@kernel
def to_unit(image: NDArray[np.uint8], out: NDArray[np.float64]) -> None:
    """Grey levels / 255 as float64, by table (a true division for each level)."""


@kernel
def gaussian_levels(
    source: NDArray[np.float64], weights: NDArray[np.float64], channels: int, out: NDArray[np.uint8]
) -> None:
    """Blur values on [0, 1] and write truncated grey levels."""


@kernel
def gaussian_values(
    source: NDArray[np.float64], weights: NDArray[np.float64], channels: int, out: NDArray[np.float64]
) -> None:
    """Blur without rounding."""


@kernel
def column_sums(
    image: NDArray[np.uint8], rows: NDArray[np.int64], columns: NDArray[np.int64], out: NDArray[np.int32]
) -> None:
    """Running sums down the columns of an image (H, W, C) extended by row and column indices.

    Row 0 of ``out`` is zero, row y + 1 includes the extended image's row y.
    """


@kernel
def column_boxes(
    sums: NDArray[np.int32],
    halves: NDArray[np.int32],
    starts: NDArray[np.int32],
    shifts: NDArray[np.int32],
    weights: NDArray[np.float64],
    scale: float,
    reach: int,
    channels: int,
    out: NDArray[np.uint8],
) -> None:
    """A kernel that is symmetric in both axes, as a weighted sum of column boxes.

    For each half height h, the sums over |dy| <= h come from the running sums and enter with a weight at the
    columns x - dx and x + dx, for the dx in ``shifts[starts[k] : starts[k + 1]]`` (an even number of them; a
    zero weight fills up).
    """


@kernel
def whole_column_boxes(
    sums: NDArray[np.int32],
    halves: NDArray[np.int32],
    starts: NDArray[np.int32],
    shifts: NDArray[np.int32],
    weights: NDArray[np.int32],
    scale: float,
    reach: int,
    channels: int,
    out: NDArray[np.uint8],
) -> None:
    """As :func:`column_boxes`, in whole numbers, which are faster where there are many boxes."""


@kernel
def extend(image: NDArray[np.uint8], top: int, left: int, out: NDArray[np.int32]) -> None:
    """The image (H, W, C) with its edges repeated into ``out``, as rows of int32."""


@kernel
def line_filter(
    padded: NDArray[np.int32],
    row_offsets: NDArray[np.int64],
    column_offsets: NDArray[np.int64],
    weights: NDArray[np.int32],
    bias: int,
    out: NDArray[np.uint8],
) -> None:
    """Weighted sum of an even number of taps into an extended image, weights in units of 2**-23."""


@kernel
def pack(image: NDArray[np.uint8], out: NDArray[np.uint32]) -> None:
    """Three bytes of a pixel in one word, so that moving a pixel is one load and one store."""


@kernel
def unpack_to_unit(pixels: NDArray[np.uint32], out: NDArray[np.float64]) -> None:
    """The inverse of :func:`pack`, on [0, 1]."""


@kernel
def glass_shuffle(pixels: NDArray[np.uint32], offsets: NDArray[np.int64], delta: int, swap: bool) -> None:
    """One pass of local copies (or true swaps) from the lower right to the upper left, in place."""


@kernel
def glass_shuffle_keyed(
    pixels: NDArray[np.uint32], delta: int, swap: bool, key0: np.uint64, key1: np.uint64, start: np.uint64
) -> None:
    """As :func:`glass_shuffle`, with offsets made from the words of a keyed stream (32 bits a pixel)."""


@kernel
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


@kernel
def affine_warp(
    source: NDArray[np.float32], inverse: NDArray[np.float64], width: int, out: NDArray[np.float32]
) -> None:
    """Bilinear affine warp of rows of RGB values, positions rounded to 1/32 px, reflect-101 borders.

    This is how OpenCV up to version 4 computes warpAffine for float images, which the published images were
    made with; later versions interpolate exactly and differ by a grey level in one value out of ten.
    """


@kernel
def displace(
    source: NDArray[np.float32], dx: NDArray[np.float32], dy: NDArray[np.float32], out: NDArray[np.uint8]
) -> None:
    """Bilinear look-up at (x + dx, y + dy) in rows of RGB values, mirrored borders, truncated to levels.

    Positions are computed for a whole row first, a loop that vectorises. Weights are float64 and the sum is
    rounded to float32 before truncation, as published: in white regions the last bit decides.
    """


@kernel
def smooth_mirrored(noise: NDArray[np.float32], weights: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    """Separable symmetric filter with mirrored borders; ``weights[j]`` belongs to distance j."""


@kernel
def cosine_field(
    amplitudes: NDArray[np.float64],
    basis_y: NDArray[np.float64],
    basis_x: NDArray[np.float64],
    out: NDArray[np.float32],
) -> None:
    """sum_kl amplitudes[k, l] * basis_y[k, y] * basis_x[l, x], in a fixed order of additions."""


@kernel
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


@kernel
def plasma(decay: float, uniforms: NDArray[np.float64], field: NDArray[np.float64]) -> None:
    """Diamond-square on a torus whose side is a power of two; uniforms on [0, 1) are used in the published order.

    Each new point is a quarter of the sum of four neighbours plus w * U(-w, w), the amplitude w entering
    twice. Every level is one grid of square centres, then two grids of edge centres.
    """


@kernel
def fog_blend(image: NDArray[np.uint8], field: NDArray[np.float64], amount: float, out: NDArray[np.uint8]) -> None:
    """(x + amount * fog) * max(x) / (max(x) + amount), the fog normalised to [0, 1] and tiled."""


@kernel
def weighted_sum(
    image: NDArray[np.uint8], layer: NDArray[np.uint8], a: float, b: float, out: NDArray[np.uint8]
) -> None:
    """a * image + b * layer on the 0-255 scale, flat arrays."""


@kernel
def snow_layer(
    noise: NDArray[np.float64],
    y_index: NDArray[np.int32],
    y_part: NDArray[np.float64],
    x_index: NDArray[np.int32],
    x_part: NDArray[np.float64],
    threshold: float,
    out: NDArray[np.uint8],
) -> None:
    """Zoomed noise, cut below the threshold, as grey levels."""


@kernel
def snow_blend(image: NDArray[np.uint8], layer: NDArray[np.uint8], mix: float, out: NDArray[np.uint8]) -> None:
    """Bleach towards the brightened grey image, then add the flakes and their 180-degree rotation."""


@kernel
def draw_strokes(strokes: NDArray[np.float64], samples: int, canvas: NDArray[np.float64]) -> None:
    """Add lines (x, y, dx, dy, light), fading towards their end, to a canvas that wraps around."""


@kernel
def shift_hsv(
    image: NDArray[np.uint8], s_factor: float, s_shift: float, v_shift: float, out: NDArray[np.uint8]
) -> None:
    """S * factor + shift and V + shift in the hue-saturation-value model, clipped and truncated to grey levels."""


@kernel
def shift_hsv_values(
    pixels: NDArray[np.float64], s_factor: float, s_shift: float, v_shift: float, out: NDArray[np.float64]
) -> None:
    """As :func:`shift_hsv`, for rows of RGB values that stay unrounded."""


@kernel
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


@kernel
def contrast(image: NDArray[np.uint8], factor: float, out: NDArray[np.uint8]) -> None:
    """(x - mean) * factor + mean for flat RGB pixels, through one table of 256 levels for each channel.

    The means are summed pixel by pixel, as NumPy sums over the two outer axes.
    """


@kernel
def edge_distance(image: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
    """Distance of every pixel to the nearest of Canny's edges (thresholds 50 and 150), at most 20."""
