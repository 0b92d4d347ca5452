"""Images as a model saw them, for shifts that nothing but the model can make again, such as attacks.

A run keeps the most confident mistakes of each result, which the report shows: beside every block while the result is
incomplete (``<start>.images``), then once per result (``images/<classifier>/<setting>/<key>.parquet``).
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from shiftbench.arrays import Pixels
from shiftbench.errors import StoreError
from shiftbench.io.html import LONGEST
from shiftbench.io.paths import Location
from shiftbench.store.sealed import SealedFiles

#: Images per result, as many as the report lists mistakes.
MOST_SHIFTED_IMAGES = 12
_SUFFIX = ".images"


@dataclass(frozen=True)
class ShiftedImage:
    """One image after the shift, scaled down; ``webp`` is lossless."""

    id: str
    #: Of the wrong prediction, as stored with it.
    confidence: float
    webp: bytes

    @classmethod
    def of(cls, image_id: str, confidence: float, pixels: Pixels) -> ShiftedImage:
        from PIL import Image  # scores do not need it

        image = Image.fromarray(pixels)
        image.thumbnail((LONGEST, LONGEST), Image.Resampling.LANCZOS)
        file = io.BytesIO()
        image.save(file, "WEBP", lossless=True)
        return cls(image_id, confidence, file.getvalue())

    def pixels(self) -> Pixels:
        from PIL import Image

        return np.asarray(Image.open(io.BytesIO(self.webp)).convert("RGB"))


def block_images_path(block: Location) -> Location:
    return block.with_suffix(_SUFFIX)


def write_shifted_images(files: SealedFiles, path: Location, images: Sequence[ShiftedImage]) -> None:
    columns = {
        "id": pa.array([image.id for image in images], pa.string()),
        "confidence": pa.array([image.confidence for image in images], pa.float32()),
        "image": pa.array([image.webp for image in images], pa.binary()),
    }
    files.write_table(path, pa.table(columns))


def read_shifted_images(files: SealedFiles, path: Location) -> list[ShiftedImage]:
    """None if the file is missing or damaged: no number depends on it."""
    try:
        rows = files.read_table(path).to_pylist()
        return [ShiftedImage(row["id"], row["confidence"], row["image"]) for row in rows]
    except (OSError, KeyError, StoreError):
        return []


def join_shifted_images(files: SealedFiles, blocks: Location, target: Location) -> None:
    """The most confident mistakes of all blocks; equal ones in the order of the dataset. No file without images."""
    parts = sorted(blocks.glob(f"[0-9]*{_SUFFIX}"))
    found = {image.id: image for part in parts for image in read_shifted_images(files, part)}
    images = sorted(found.values(), key=lambda one: -one.confidence)
    if images:
        write_shifted_images(files, target, images[:MOST_SHIFTED_IMAGES])
