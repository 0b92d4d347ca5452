"""Shifts made of other shifts."""

from __future__ import annotations

import io
from collections.abc import Mapping
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
        return {**self.first.describe(), "then": f"JPEG quality {self.quality}"}

    def record(self) -> dict[str, Any]:
        return {"shift": "then-jpeg", "first": self.first.record(), "quality": self.quality}


@shift_kinds.register("then-jpeg")
def _then_jpeg(record: Mapping[str, Any]) -> Shift:
    return ThenJpeg(rebuild_shift(record["first"]), record["quality"])
