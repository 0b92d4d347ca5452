"""Greyscale, a shift of the testbed: colour removed, three equal channels kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from shiftbench.arrays import Pixels
from shiftbench.shifts.base import Shift, shift_kinds


@dataclass(frozen=True)
class Greyscale(Shift):
    """0.299 R + 0.587 G + 0.114 B in all three channels, rounded to grey levels.

    Taori et al. (2020) compute it on the float tensor without rounding; the difference is at most half a level.

    >>> Greyscale()(np.full((8, 8, 3), (255, 0, 0), np.uint8), image_id="a", seed=0)[0, 0].tolist()
    [76, 76, 76]
    """

    name = "greyscale"

    def __call__(self, image: Pixels, *, image_id: str, seed: int) -> Pixels:
        return np.repeat(luma(image)[..., None], 3, axis=-1)

    def describe(self) -> dict[str, Any]:
        return {"shift": "greyscale", "weights": [0.299, 0.587, 0.114], "rounding": "nearest 8-bit level"}


@shift_kinds.register("greyscale")
def _greyscale(record: Mapping[str, Any]) -> Shift:
    return Greyscale()


def luma(image: Pixels) -> Pixels:
    """The weighted sum, rounded; equal channels come back unchanged."""
    r, g, b = (image[..., c].astype(np.uint32) for c in range(3))
    return np.asarray((299 * r + 587 * g + 114 * b + 500) // 1000).astype(np.uint8)
