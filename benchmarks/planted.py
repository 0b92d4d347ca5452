"""Planted near-duplicates: edited copies of reference images, and how many of them a search finds."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from PIL import Image, ImageEnhance

from shiftbench.arrays import Pixels
from shiftbench.datasets.base import Dataset, DecodedImage
from shiftbench.datasets.subset import sample
from shiftbench.errors import UnknownNameError
from shiftbench.io.hashing import digest
from shiftbench.testsets.near_duplicates import find_near_duplicates

Edit = Callable[[Pixels], Pixels]
#: Part of every fingerprint; raised when an edit changes.
_VERSION = 1


def recompressed(image: Pixels, quality: int) -> Pixels:
    """Compressed as JPEG and decoded."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=quality)
    return np.array(Image.open(buffer))


def cropped(image: Pixels, share: float, place: float = 0.5) -> Pixels:
    """A crop of ``share`` of each side, resized to the original size; ``place`` 0 is the corner, 0.5 the centre."""
    height, width = image.shape[:2]
    tall, wide = max(1, round(height * share)), max(1, round(width * share))
    top, left = int((height - tall) * place), int((width - wide) * place)
    return _resized(image[top : top + tall, left : left + wide], width, height)


def shifted(image: Pixels, down: int, right: int) -> Pixels:
    """Shifted by 1/32 of the sides (a pixel for CIFAR) per unit; the border is repeated."""
    height, width = image.shape[:2]
    rows = np.clip(np.arange(height) - round(down * height / 32), 0, height - 1)
    columns = np.clip(np.arange(width) - round(right * width / 32), 0, width - 1)
    return np.asarray(image[rows][:, columns])


def stretched(image: Pixels, factor: float) -> Pixels:
    """Stretched horizontally by ``factor`` and cropped to the original width."""
    height, width = image.shape[:2]
    wide = _resized(image, max(width, round(width * factor)), height)
    left = (wide.shape[1] - width) // 2
    return wide[:, left : left + width]


def rotated(image: Pixels, degrees: float) -> Pixels:
    """Rotated about the centre; the corners become black."""
    return np.asarray(Image.fromarray(image).rotate(degrees, Image.Resampling.BICUBIC))


def shrunk(image: Pixels, factor: float) -> Pixels:
    """Downscaled by ``factor`` and upscaled again."""
    height, width = image.shape[:2]
    small = _resized(image, max(1, round(width * factor)), max(1, round(height * factor)))
    return _resized(small, width, height)


def enhanced(image: Pixels, what: str, factor: float) -> Pixels:
    """Changed by Pillow's Brightness, Contrast or Color."""
    return np.array(getattr(ImageEnhance, what)(Image.fromarray(image)).enhance(factor))


def warmed(image: Pixels) -> Pixels:
    """More red, less blue: a different white balance."""
    return np.asarray(np.clip(np.rint(image * np.array([1.15, 1.0, 0.85])), 0, 255), np.uint8)


def mirrored(image: Pixels) -> Pixels:
    return image[:, ::-1]


def _resized(image: Pixels, width: int, height: int) -> Pixels:
    return np.array(Image.fromarray(np.ascontiguousarray(image)).resize((width, height), Image.Resampling.BICUBIC))


EDITS: dict[str, Edit] = {
    "copy": np.copy,
    "jpeg-75": partial(recompressed, quality=75),
    "jpeg-50": partial(recompressed, quality=50),
    "crop-90": partial(cropped, share=0.9),
    "crop-80": partial(cropped, share=0.8),
    "crop-90-corner": partial(cropped, share=0.9, place=0.0),
    "shift-1": partial(shifted, down=0, right=1),
    "shift-2": partial(shifted, down=1, right=-2),
    "shift-3": partial(shifted, down=-3, right=1),
    "shift-4": partial(shifted, down=0, right=4),
    "stretch-1.1": partial(stretched, factor=1.1),
    "stretch-1.2": partial(stretched, factor=1.2),
    "rotate-5": partial(rotated, degrees=5),
    "rotate-10": partial(rotated, degrees=-10),
    "half-size": partial(shrunk, factor=0.5),
    "brighter": partial(enhanced, what="Brightness", factor=1.4),
    "darker": partial(enhanced, what="Brightness", factor=0.7),
    "less-contrast": partial(enhanced, what="Contrast", factor=0.6),
    "grey": partial(enhanced, what="Color", factor=0.0),
    "warmer": warmed,
    "mirror": mirrored,
}


class Planted(Dataset):
    """All images of a dataset under each edit."""

    def __init__(self, sources: Dataset, edits: Sequence[str]) -> None:
        unknown = [edit for edit in edits if edit not in EDITS]
        if unknown:
            raise UnknownNameError("edit", unknown[0], EDITS)
        self.sources, self.edits = sources, list(edits)
        self.name, self.space = f"edited {sources.name}", sources.space
        self.ids = [f"{edit}/{image}" for edit in edits for image in sources.ids]
        self.labels = np.tile(sources.labels, len(edits))

    @property
    def fingerprint(self) -> str:
        return digest("planted", _VERSION, self.sources.fingerprint, self.edits)

    def read(self, index: int) -> DecodedImage:
        edit, source = divmod(index, len(self.sources))
        return DecodedImage(np.ascontiguousarray(EDITS[self.edits[edit]](self.sources.read(source).pixels)))


def measure_recall(
    references: Dataset, *, edits: Sequence[str] = tuple(EDITS), sources: int = 100, seed: int = 0, **search: Any
) -> tuple[dict[str, float], int]:
    """The recall of each edit of ``sources`` random images, and the number of pairs that nobody planted.

    ``search``: options of ``find_near_duplicates`` such as by, thresholds and flips.
    """
    planted = Planted(sample(references, sources, seed=seed), edits)
    queue = find_near_duplicates(planted, [references], within=False, **search)
    pairs = {(pair.candidate, pair.reference) for pair in queue.pairs}
    found = {edit: [(f"{edit}/{image}", image) in pairs for image in planted.sources.ids] for edit in edits}
    recall = {edit: sum(hits) / len(hits) for edit, hits in found.items()}
    return recall, sum(pair.candidate.partition("/")[2] != pair.reference for pair in queue.pairs)
