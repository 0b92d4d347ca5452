"""JPEG files by our own kernels, without Python's lock: the bytes and pixels of Pillow's and OpenCV's encoders."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.native import kernel

Table = NDArray[np.int32]

#: Annex K.1 of the JPEG standard gives the quantisation of luminance and of chroma at quality 50.
_LUMA = (
    16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55,
    14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22, 29, 51, 87, 80, 62,
    18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92,
    49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99,
)  # fmt: skip
_CHROMA = (17, 18, 24, 47, *[99] * 4, 18, 21, 26, 66, *[99] * 4, 24, 26, 56, *[99] * 5, 47, 66, *[99] * 38)


@kernel("uint8[]", "int32[]", "int32[]", "uint8[]")
def jpeg_round_trip(image: Pixels, luma: Table, chroma: Table, out: Pixels) -> None:
    """Write the pixels that an image (H, W, 3) has after it was saved and read."""


@kernel("uint8[]", "int32[]", "int32[]", "uint8[]", "int64[]")
def jpeg_file(image: Pixels, luma: Table, chroma: Table, out: Pixels, size: NDArray[np.int64]) -> None:
    """Write the bytes of a file with optimised Huffman codes; their number goes into ``size``."""


@lru_cache(maxsize=100)
def quantisation(quality: int) -> tuple[Table, Table]:
    """The tables for luminance and chroma at a quality from 1 to 100, by the Independent JPEG Group's rule."""
    if quality < 50:
        percent = 5000 // quality
    else:
        percent = 200 - 2 * quality
    return _scaled(_LUMA, percent), _scaled(_CHROMA, percent)


def _scaled(table: tuple[int, ...], percent: int) -> Table:
    scaled: Table = np.clip((np.array(table) * percent + 50) // 100, 1, 255).astype(np.int32)
    return scaled


def compressed(image: Pixels, quality: int) -> Pixels:
    """An RGB image as it is read from a JPEG file of it, chroma subsampled."""
    out = np.empty(image.shape, np.uint8)
    jpeg_round_trip(np.ascontiguousarray(image), *quantisation(quality), out)
    return out


def encode_jpeg(image: Pixels, quality: int) -> bytes:
    """The bytes of a JPEG file of an RGB image, chroma subsampled."""
    rows_of_blocks = math.ceil(image.shape[0] / 16)
    columns_of_blocks = math.ceil(image.shape[1] / 16)
    # 16 x 16 pixels are four blocks of luminance and two of chroma, none of which can take more than 600 bytes.
    longest = 600 * 6 * rows_of_blocks * columns_of_blocks + 2000
    out = np.empty(longest, np.uint8)
    size = np.zeros(1, np.int64)
    jpeg_file(np.ascontiguousarray(image), *quantisation(quality), out, size)
    return out[: size[0]].tobytes()
