"""A shift: what is done to the images between preprocessing and the classifier.

Deterministic: the same (seed, image id, shift) gives the same pixels on every machine, in any order, with
any number of workers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shiftbench.arrays import Pixels


class Shift(ABC):
    """Subclasses are small, immutable and picklable; ``name`` is what settings and tables show."""

    name: str

    @abstractmethod
    def __call__(self, image: Pixels, *, image_id: str, seed: int) -> Pixels:
        """One uint8 image (H, W, 3) to one of the same shape; the input is never changed."""

    def batch(self, images: Pixels, *, image_ids: Sequence[str], seed: int) -> Pixels:
        """A stack (N, H, W, 3); the same pixels as one call per image."""
        out = np.empty_like(images)
        for i, image_id in enumerate(image_ids):
            out[i] = self(images[i], image_id=image_id, seed=seed)
        return out

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """JSON-able provenance: all that decides the pixels, the generator's version included."""


@dataclass(frozen=True)
class NoShift(Shift):
    """The images as they are."""

    name = "none"

    def __call__(self, image: Pixels, *, image_id: str, seed: int) -> Pixels:
        return image

    def batch(self, images: Pixels, *, image_ids: Sequence[str], seed: int) -> Pixels:
        return images

    def describe(self) -> dict[str, Any]:
        return {"shift": "none"}
