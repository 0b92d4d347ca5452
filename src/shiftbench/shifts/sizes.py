"""What is done to a source image before it is corrupted."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from PIL import Image

from shiftbench.arrays import Pixels
from shiftbench.datasets.geometry import Geometry, centre_crop
from shiftbench.datasets.images import bad_image
from shiftbench.errors import ShiftError
from shiftbench.shifts.corruptions.image_kinds import MIN_SIDE


@dataclass(frozen=True)
class CentralFraction:
    """The middle ``fraction`` of both sides, then both sides to ``size``: how ImageNet-C-299 was made.

    >>> CentralFraction(299)(np.zeros((300, 400, 3), np.uint8)).shape
    (299, 299, 3)
    """

    size: int
    fraction: float = 0.875

    def __call__(self, pixels: Pixels) -> Pixels:
        height, width = pixels.shape[:2]
        middle = max(1, int(height * self.fraction)), max(1, int(width * self.fraction))
        image = Image.fromarray(centre_crop(pixels, middle))
        return np.asarray(image.resize((self.size, self.size), Image.Resampling.BILINEAR))


@dataclass(frozen=True)
class Preparation:
    """Source pixels to the pixels that are corrupted; an image that can't be used raises BadImageError."""

    geometry: Geometry | CentralFraction | None

    def __call__(self, pixels: Pixels, image_id: str) -> Pixels:
        height, width = pixels.shape[:2]
        result = pixels if self.geometry is None else self.geometry(pixels)
        if min(result.shape[:2]) < MIN_SIDE:
            raise bad_image(image_id, f"{width} x {height} pixels are too small to corrupt (at least {MIN_SIDE})")
        return np.ascontiguousarray(result)

    def describe(self) -> dict[str, Any]:
        if self.geometry is None:
            return {"kind": "as it is"}
        kind = "central fraction" if isinstance(self.geometry, CentralFraction) else "resize and crop"
        # lists, not tuples: the description is compared with one that was read from JSON
        values = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self.geometry).items()}
        return {"kind": kind, **values}


def preparation(size: int | None) -> Preparation:
    """The published preparation of each size; None keeps images as they are.

    * 224: the short side to 256, the middle 224 (ImageNet-C);
    * 299: the middle 87.5 % of both sides, both to 299 (ImageNet-C-299);
    * 64: both sides to 64, whatever the aspect (ImageNet-64-C);
    * any other S: as 224, that is the short side to 8/7 S, the middle S.
    """
    if size is None:
        return Preparation(None)
    if size < MIN_SIDE:
        raise ShiftError("invalid size", found=size, expected=f"at least {MIN_SIDE} pixels")
    if size == 299:
        return Preparation(CentralFraction(size))
    if size == 64:
        return Preparation(Geometry(resize=size, crop=None, resize_rule="exact"))
    return Preparation(Geometry(resize=round(size * 8 / 7), crop=size))
