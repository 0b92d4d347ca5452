"""How many duplicates a search finds: known ones are planted, and what comes back is counted.

Defaults are a promise made on other pictures. Before trusting them with your own, plant edited copies of your
reference pictures among the candidates and look at the recall of each kind of edit.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from PIL import Image, ImageEnhance

from shiftbench.arrays import Pixels
from shiftbench.classifiers.hashing import digest
from shiftbench.datasets.base import Dataset, DecodedImage
from shiftbench.datasets.subset import sample
from shiftbench.errors import ShiftbenchError, UnknownNameError
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.reports.table import Column, Table
from shiftbench.testsets.near_duplicates.find import find_near_duplicates
from shiftbench.testsets.near_duplicates.review_queue import ReviewQueue

Edit = Callable[[Pixels], Pixels]
#: Part of every fingerprint; raised when an edit changes.
_VERSION = 1


def recompressed(picture: Pixels, quality: int) -> Pixels:
    """Through JPEG and back."""
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "JPEG", quality=quality)
    return np.array(Image.open(buffer))


def cropped(picture: Pixels, share: float, place: float = 0.5) -> Pixels:
    """A part of ``share`` of each side, enlarged to the old size; ``place`` 0 is the corner, 0.5 the middle."""
    height, width = picture.shape[:2]
    tall, wide = max(1, round(height * share)), max(1, round(width * share))
    top, left = int((height - tall) * place), int((width - wide) * place)
    return _resized(picture[top : top + tall, left : left + wide], width, height)


def shifted(picture: Pixels, down: int, right: int) -> Pixels:
    """By thirty-seconds of the sides, which are pixels for CIFAR; the border is repeated."""
    height, width = picture.shape[:2]
    rows = np.clip(np.arange(height) - round(down * height / 32), 0, height - 1)
    columns = np.clip(np.arange(width) - round(right * width / 32), 0, width - 1)
    return np.asarray(picture[rows][:, columns])


def stretched(picture: Pixels, factor: float) -> Pixels:
    """Wider by ``factor``, cut to the old width."""
    height, width = picture.shape[:2]
    wide = _resized(picture, max(width, round(width * factor)), height)
    left = (wide.shape[1] - width) // 2
    return wide[:, left : left + width]


def shrunk(picture: Pixels, factor: float) -> Pixels:
    """Made smaller, and stored at the old size."""
    height, width = picture.shape[:2]
    small = _resized(picture, max(1, round(width * factor)), max(1, round(height * factor)))
    return _resized(small, width, height)


def enhanced(picture: Pixels, what: str, factor: float) -> Pixels:
    """Pillow's Brightness, Contrast or Color."""
    return np.array(getattr(ImageEnhance, what)(Image.fromarray(picture)).enhance(factor))


def warmed(picture: Pixels) -> Pixels:
    """More red, less blue: another white balance."""
    return np.asarray(np.clip(np.rint(picture * np.array([1.15, 1.0, 0.85])), 0, 255), np.uint8)


def mirrored(picture: Pixels) -> Pixels:
    return picture[:, ::-1]


def _resized(picture: Pixels, width: int, height: int) -> Pixels:
    image = Image.fromarray(np.ascontiguousarray(picture))
    return np.array(image.resize((width, height), Image.Resampling.BICUBIC))


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
    "half-size": partial(shrunk, factor=0.5),
    "brighter": partial(enhanced, what="Brightness", factor=1.4),
    "darker": partial(enhanced, what="Brightness", factor=0.7),
    "less-contrast": partial(enhanced, what="Contrast", factor=0.6),
    "grey": partial(enhanced, what="Color", factor=0.0),
    "warmer": warmed,
    "mirror": mirrored,
}


class Planted(Dataset):
    """Every picture of a data set under every edit, one edit after the other."""

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


class RecallReport(Table):
    """For each edit how many of the planted pictures came back with their source."""

    def __init__(self, planted: Planted, queue: ReviewQueue, level: float) -> None:
        self.queue = queue
        rows = [self._row(edit, planted, level) for edit in planted.edits]
        #: Pairs in the queue that nobody planted: chance resemblances, or duplicates that were there before.
        self.others = sum(1 for pair in queue.pairs if not _is_planted(pair.candidate, pair.reference))
        super().__init__(
            [
                Column("edit", "edit"),
                Column("found", "found", "count"),
                Column("planted", "of", "count"),
                Column("recall", "recall %", "number", ends=("low", "high"), places=1, times=100),
            ],
            rows,
            title="Recall of planted duplicates",
            lead=queue.lead,
            notes=[f"{self.others:,} other pairs in the queue, for {len(planted):,} candidates"],
        )

    def recall(self, edit: str) -> float:
        return float(next(row["recall"] for row in self.rows if row["edit"] == edit))

    def _row(self, edit: str, planted: Planted, level: float) -> dict[str, Any]:
        pairs = {(pair.candidate, pair.reference) for pair in self.queue.pairs}
        found, count = sum((f"{edit}/{image}", image) in pairs for image in planted.sources.ids), len(planted.sources)
        low, high = clopper_pearson(found, count, level)
        return {"edit": edit, "found": found, "planted": count, "recall": found / count, "low": low, "high": high}


def _is_planted(candidate: str, reference: str) -> bool:
    return candidate.partition("/")[2] == reference


def measure_recall(
    references: Dataset,
    *,
    edits: Sequence[str] = tuple(EDITS),
    sources: int = 100,
    seed: int = 0,
    level: float = 0.95,
    **search: Any,
) -> RecallReport:
    """Plant edited copies of ``sources`` pictures, drawn by ``seed``, and search for them among ``references``.

    ``search`` are the options of ``find_near_duplicates``: what to search by, thresholds, flips, ...
    """
    if sources < 1 or not len(references):
        raise ShiftbenchError("nothing can be planted", found=f"{sources} of {len(references)} pictures")
    planted = Planted(sample(references, sources, seed=seed), edits)
    return RecallReport(planted, find_near_duplicates(planted, [references], within=False, **search), level)
