"""One block of predictions as one Parquet file with digests of its content.

Columns: ``top1``, ``top2``, ... (int16 where the label space allows it, -1 for a skipped image),
``logit_confidence`` and, when asked for, ``scores``. Row i is row i of the setting: ids and labels are kept
once, with the dataset.

The confidence p is kept as log(p / (1 - p)) in half precision. Two bytes for p itself would make all values
above 0.9995 equal, where most predictions of a good classifier lie, and rank-based metrics need their order.

Each column's digest stands in the file's metadata, so that a torn or edited file is found even when a single
column is read. A further one, ``file``, is of the file's place and of what made it; files of version 0.1 have none.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from shiftbench.arrays import BoolArray, IntArray, Pixels
from shiftbench.errors import StoreError
from shiftbench.io.atomic import write_atomically
from shiftbench.io.hashing import digest
from shiftbench.io.html import thumbnail
from shiftbench.io.paths import Location
from shiftbench.labels.space import Scores
from shiftbench.store.predictions import SKIPPED
from shiftbench.store.sealed import SealedFiles, damaged, explained
from shiftbench.store.spec import ResultSpec, canonical_json, spec_key

_SPEC, _DIGESTS, _MADE_BY = b"shiftbench.spec", b"shiftbench.digests", b"shiftbench.made_by"
_CONFIDENCE, _SCORES, _FILE = "logit_confidence", "scores", "file"
#: A flip of one bit in the schema can make unsigned numbers of the same bytes.
_TYPES = {_CONFIDENCE: (np.dtype("float16"),), _SCORES: (np.dtype("float32"),)}
_CLASS_TYPES = np.dtype("int16"), np.dtype("int32")
Array = NDArray[Any]


@dataclass(frozen=True)
class PredictionBlock:
    """Predictions of consecutive rows of a setting."""

    top: NDArray[np.int32]
    confidence: NDArray[np.float32]
    scores: Scores | None = None

    def __len__(self) -> int:
        return len(self.top)

    def part(self, rows: slice | IntArray) -> PredictionBlock:
        return PredictionBlock(
            self.top[rows], self.confidence[rows], None if self.scores is None else self.scores[rows]
        )

    def spread(self, rows: BoolArray) -> PredictionBlock:
        """As many rows as ``rows``, with these where it is true and skipped images elsewhere."""
        wide = PredictionBlock(
            np.full((len(rows), self.top.shape[1]), SKIPPED, np.int32),
            np.full(len(rows), np.nan, np.float32),
            None if self.scores is None else np.full((len(rows), self.scores.shape[1]), np.nan, np.float32),
        )
        wide.put(rows, self)
        return wide

    def put(self, rows: BoolArray, other: PredictionBlock) -> None:
        """Replace the chosen rows by those of another block."""
        self.top[rows], self.confidence[rows] = other.top[:, : self.top.shape[1]], other.confidence
        if self.scores is not None and other.scores is not None:
            self.scores[rows] = other.scores

    @staticmethod
    def concatenate(blocks: Sequence[PredictionBlock]) -> PredictionBlock:
        keep = all(block.scores is not None for block in blocks)
        width = min(block.top.shape[1] for block in blocks)
        return PredictionBlock(
            np.concatenate([block.top[:, :width] for block in blocks]),
            np.concatenate([block.confidence for block in blocks]),
            np.concatenate([block.scores for block in blocks if block.scores is not None]) if keep else None,
        )


def write_block(
    path: Location, block: PredictionBlock, spec: ResultSpec, made_by: str, *, compressed: bool = True
) -> None:
    """Equal predictions and spec give a byte-identical file: nothing of time or place is written.

    Files that are soon joined with others are not ``compressed``.
    """
    columns = _encode(block)
    digests = {name: _digest(values) for name, values in columns.items()}
    metadata = {
        _SPEC: spec.text.encode(),
        _DIGESTS: canonical_json({**digests, _FILE: digest(_place(path), made_by)}).encode(),
        _MADE_BY: made_by.encode(),
    }
    arrays = {name: pa.array(values.reshape(-1)) for name, values in columns.items()}
    if block.scores is not None:
        arrays[_SCORES] = pa.FixedSizeListArray.from_arrays(arrays[_SCORES], block.scores.shape[1])
    table = pa.table(arrays)
    classes = [name for name in table.column_names if name.startswith("top")]
    how = {"compression": "zstd", "compression_level": 9, "use_dictionary": classes}
    if not compressed:
        how = {"compression": "none", "use_dictionary": False}

    def write(temporary: Path) -> None:
        with (
            temporary.open("wb") as file,
            pq.ParquetWriter(file, table.schema, write_statistics=False, **how) as writer,
        ):
            writer.write_table(table)
            # Not with the schema, of which Parquet keeps a second, longer copy: a small block is mostly footer.
            writer.add_key_value_metadata(metadata)

    write_atomically(path, write, durable=False)


def read_block(
    path: Location, *, top_k: int | None = None, confidence: bool = True, scores: bool = False, key: str | None = None
) -> PredictionBlock:
    """Read and verify; raises StoreError for a file that is torn, edited or not ours.

    Columns that are not asked for are not read; a confidence that was not is nan. ``key`` is the hash that the
    file's spec must have.
    """
    # One open file for footer and data, and no threads: callers read many such files side by side.
    with explained(path), _opened(path) as raw:
        file = pq.ParquetFile(raw, pre_buffer=False)
        metadata = _own_metadata(path, file.metadata)
        if key not in (None, spec_key(metadata[_SPEC].decode())):
            raise damaged(path, _OTHER_KEY)
        digests: dict[str, str] = json.loads(metadata[_DIGESTS])
        names = [name for name in digests if name != _FILE]
        if sorted(names) != sorted(file.schema_arrow.names):
            raise damaged(path, "columns and digests differ")
        chosen = [name for name in names if name.startswith("top") and (top_k is None or int(name[3:]) <= top_k)]
        chosen += [name for name, wanted in ((_CONFIDENCE, confidence), (_SCORES, scores)) if wanted and name in names]
        table = file.read(columns=chosen, use_threads=False)
        columns = {name: _to_numpy(table.column(name)) for name in chosen}
        for name, values in columns.items():
            if _digest(values) != digests[name] or values.dtype not in _TYPES.get(name, _CLASS_TYPES):
                raise damaged(path, f"column {name} does not have the digest written with it")
        if len({len(values) for values in columns.values()}) != 1:
            raise damaged(path, "columns differ in length")
    return _decode(columns)


def read_spec(path: Location) -> ResultSpec:
    """The spec that a file was made for; its hash names the file, or the folder of a block."""
    with explained(path):
        text = _metadata(path)[_SPEC].decode()
        if spec_key(text) not in (path.stem, path.parent.name):
            raise damaged(path, _OTHER_KEY)
        return ResultSpec.from_json(json.loads(text))


def read_made_by(path: Location) -> str:
    with explained(path):
        return _metadata(path)[_MADE_BY].decode()


_OTHER_KEY = "file content does not match its key"


def _place(path: Location) -> str:
    """Model, setting and key, or setting, key and first row of a block: the same in every copy of a workspace."""
    return "/".join(path.parts[-3:])


def _encode(block: PredictionBlock) -> dict[str, Array]:
    narrow = np.int16 if block.top.max(initial=0) <= np.iinfo(np.int16).max else np.int32
    columns: dict[str, Array] = {f"top{k + 1}": block.top[:, k].astype(narrow) for k in range(block.top.shape[1])}
    columns[_CONFIDENCE] = to_logits(block.confidence)
    if block.scores is not None:
        columns[_SCORES] = np.ascontiguousarray(block.scores, dtype=np.float32)
    return columns


def to_logits(confidence: NDArray[np.float32]) -> NDArray[np.float16]:
    """Confidences as they are stored."""
    p = confidence.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.asarray(np.log(p) - np.log1p(-p)).astype(np.float16)


def from_logits(logits: Array) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-logits.astype(np.float64)))).astype(np.float32)


def as_stored(block: PredictionBlock) -> PredictionBlock:
    """The block as a reader gets it: confidences are rounded."""
    return _decode(_encode(block))


def _decode(columns: Mapping[str, Array]) -> PredictionBlock:
    names = sorted((name for name in columns if name.startswith("top")), key=lambda name: int(name[3:]))
    top = np.stack([columns[name] for name in names], axis=1).astype(np.int32)
    confidence = np.full(len(top), np.nan, np.float32)
    if _CONFIDENCE in columns:
        confidence = from_logits(columns[_CONFIDENCE])
    return PredictionBlock(top, confidence, columns.get(_SCORES))


def _opened(path: Location) -> BinaryIO:
    if isinstance(path, Path) and path.exists() and not path.is_file():
        raise damaged(path, "it is not a file")  # opening a pipe would wait forever
    return path.open("rb")


def _metadata(path: Location) -> dict[bytes, bytes]:
    with _opened(path) as raw:
        return _own_metadata(path, pq.ParquetFile(raw, pre_buffer=False).metadata)


def _own_metadata(path: Location, footer: pq.FileMetaData) -> dict[bytes, bytes]:
    metadata: dict[bytes, bytes] = footer.metadata or {}
    if not {_SPEC, _DIGESTS, _MADE_BY} <= metadata.keys():
        raise damaged(path, "it has no shiftbench metadata")
    written = json.loads(metadata[_DIGESTS]).get(_FILE)
    if written not in (None, digest(_place(path), metadata[_MADE_BY].decode())):
        raise damaged(path, "it was written for another place, or its version was changed")
    return metadata


def _digest(values: Array) -> str:
    return hashlib.blake2b(np.ascontiguousarray(values).view(np.uint8).data, digest_size=16).hexdigest()


def _to_numpy(column: pa.ChunkedArray) -> Array:
    if pa.types.is_fixed_size_list(column.type):
        width = column.type.list_size
        flat = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks]
        return (np.concatenate(flat) if flat else np.empty(0, np.float32)).reshape(-1, width)
    values: Array = column.to_numpy()
    return values


# -- images as a model saw them, for shifts that nothing but the model can make again, such as attacks ---------------
# A run keeps the most confident mistakes of each result, which the report shows: beside every block while the result is
# incomplete (``<start>.images``), then once per result (``images/<classifier>/<setting>/<key>.parquet``).

#: Images per result, as many as the report lists mistakes.
MOST_SHIFTED_IMAGES = 12


@dataclass(frozen=True)
class ShiftedImage:
    """One image after the shift, scaled down; ``webp`` is lossless, ``confidence`` that of the wrong prediction."""

    id: str
    confidence: float
    webp: bytes

    @classmethod
    def of(cls, image_id: str, confidence: float, pixels: Pixels) -> ShiftedImage:
        return cls(image_id, confidence, thumbnail(pixels, lossless=True))

    def pixels(self) -> Pixels:
        from PIL import Image  # scores do not need it

        return np.asarray(Image.open(io.BytesIO(self.webp)).convert("RGB"))


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
    parts: list[Location] = sorted(blocks.glob("[0-9]*.images"))
    found = {image.id: image for part in parts for image in read_shifted_images(files, part)}
    images = sorted(found.values(), key=lambda one: -one.confidence)
    if images:
        write_shifted_images(files, target, images[:MOST_SHIFTED_IMAGES])
