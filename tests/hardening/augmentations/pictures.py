"""Images to augment: photographs' kind of content, in awkward sizes."""

from __future__ import annotations

import numpy as np

from shiftbench.arrays import Pixels
from tests.outputs.helpers import scene

#: Square, wide, high, a line, a single pixel.
SIZES = ((32, 32), (33, 47), (61, 30), (1, 9), (1, 1))


def coloured(size: tuple[int, int], seed: int = 0) -> Pixels:
    return scene(seed, *size)


def grey(size: tuple[int, int], seed: int = 0) -> Pixels:
    """An image without colour."""
    return np.repeat(scene(seed, *size)[:, :, :1], 3, axis=2)


def flat(level: int, size: tuple[int, int] = (32, 32)) -> Pixels:
    return np.full((*size, 3), level, np.uint8)
