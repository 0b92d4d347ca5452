"""JPEG files by our own kernels, without Python's lock: the bytes and pixels of Pillow's and OpenCV's encoders."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.native import kernel

Table = NDArray[np.int32]

#: Annex K.1 of the JPEG standard: quantisation at quality 50, of luminance and of chroma.
_LUMA = (
    16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55,
    14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22, 29, 51, 87, 80, 62,
    18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92,
    49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99,
)  # fmt: skip
_CHROMA = (17, 18, 24, 47, *[99] * 4, 18, 21, 26, 66, *[99] * 4, 24, 26, 56, *[99] * 5, 47, 66, *[99] * 38)


# The pixels of an image (H, W, 3) after it was written and read.
@kernel
def jpeg_round_trip(image: Pixels, luma: Table, chroma: Table, out: Pixels) -> None: ...
# The bytes of a file with optimised Huffman codes; their number goes into ``size``.
@kernel
def jpeg_file(image: Pixels, luma: Table, chroma: Table, out: Pixels, size: NDArray[np.int64]) -> None: ...


@lru_cache(maxsize=100)
def quantisation(quality: int) -> tuple[Table, Table]:
    """The tables of a quality from 1 to 100, by the Independent JPEG Group's rule."""
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    tables = [np.clip((np.array(base) * percent + 50) // 100, 1, 255).astype(np.int32) for base in (_LUMA, _CHROMA)]
    return tables[0], tables[1]


def compressed(image: Pixels, quality: int) -> Pixels:
    """An RGB image as it is read from a JPEG file of it, chroma subsampled."""
    out = np.empty(image.shape, np.uint8)
    jpeg_round_trip(np.ascontiguousarray(image), *quantisation(quality), out)
    return out


def encode_jpeg(image: Pixels, quality: int) -> bytes:
    blocks = 6 * -(-image.shape[0] // 16) * -(-image.shape[1] // 16)
    out, size = np.empty(600 * blocks + 2000, np.uint8), np.zeros(1, np.int64)
    jpeg_file(np.ascontiguousarray(image), *quantisation(quality), out, size)
    return out[: size[0]].tobytes()
