"""Shifts that need no table: JPEG after another shift, and greyscale."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np

from shiftbench.arrays import Pixels
from shiftbench.shifts.base import Shift, rebuild_shift, shift_kinds


@dataclass(frozen=True)
class ThenJpeg(Shift):
    """A shift whose result is written as JPEG and read again, as the released ImageNet-C files were."""

    first: Shift
    quality: int = 85

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"{self.first.name}+jpeg{self.quality}"

    def __call__(self, image: Pixels, *, image_id: str, seed: int) -> Pixels:
        from PIL import Image  # most runs of corruptions do without

        file = io.BytesIO()
        # ``optimize`` changes the file's size, not the pixels.
        Image.fromarray(self.first(image, image_id=image_id, seed=seed)).save(file, "JPEG", quality=self.quality)
        return np.asarray(Image.open(file))

    def describe(self) -> dict[str, Any]:
        return {**self.first.identity(), "then": f"JPEG quality {self.quality}"}

    def record(self) -> dict[str, Any]:
        return {"shift": "then-jpeg", "first": self.first.record(), "quality": self.quality}


@dataclass(frozen=True)
class Greyscale(Shift):
    """0.299 R + 0.587 G + 0.114 B in all three channels, rounded to grey levels.

    Taori et al. (2020) compute it on the float tensor without rounding; the difference is at most half a level.
    """

    name = "greyscale"

    def __call__(self, image: Pixels, *, image_id: str, seed: int) -> Pixels:
        return np.repeat(luma(image)[..., None], 3, axis=-1)

    def describe(self) -> dict[str, Any]:
        return {"shift": "greyscale", "weights": [0.299, 0.587, 0.114], "rounding": "nearest 8-bit level"}


shift_kinds.add("then-jpeg", lambda record: ThenJpeg(rebuild_shift(record["first"]), record["quality"]))
shift_kinds.add("greyscale", lambda record: Greyscale())


def luma(image: Pixels) -> Pixels:
    """The weighted sum, rounded; equal channels come back unchanged."""
    r, g, b = (image[..., c].astype(np.uint32) for c in range(3))
    return np.asarray((299 * r + 587 * g + 114 * b + 500) // 1000).astype(np.uint8)
