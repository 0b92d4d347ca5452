"""One block of predictions as one Parquet file with digests of its content.

Columns: ``top1``, ``top2``, ... (int16 where the label space allows it, -1 for a skipped image),
``logit_confidence`` and, when asked for, ``scores``. Row i is row i of the setting: ids and labels are kept
once, with the dataset.

The confidence p is kept as log(p / (1 - p)) in half precision. Two bytes for p itself would make all values
above 0.9995 equal, where most predictions of a good classifier lie, and rank-based metrics need their order.

Each column's digest stands in the file's metadata, so that a torn or edited file is noticed even when a single
column is read. A further digest, ``file``, covers the file's place and what made it; files of version 0.1 have none.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
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
from shiftbench.store.sealed import SealedFiles, check_is_file, damaged, explained
from shiftbench.store.spec import ResultSpec, canonical_json, spec_key

# Keys of the file's metadata.
_SPEC = b"shiftbench.spec"
_DIGESTS = b"shiftbench.digests"
_MADE_BY = b"shiftbench.made_by"
# Columns, beside those of classes, ``top1``, ``top2``, ...
_TOP = "top"
_CONFIDENCE = "logit_confidence"
_SCORES = "scores"
#: The name under which the digest of the file's place stands among the digests of columns.
_FILE = "file"
#: Types are checked as well as digests: one flipped bit in the schema can turn the same bytes into unsigned numbers.
_TYPES = {_CONFIDENCE: (np.dtype("float16"),), _SCORES: (np.dtype("float32"),)}
_CLASS_TYPES = (np.dtype("int16"), np.dtype("int32"))
_OTHER_KEY = "file content does not match its key"
Array = NDArray[Any]


@dataclass(frozen=True)
class PredictionBlock:
    """Predictions of consecutive rows of a setting."""

    top: NDArray[np.int32]
    confidence: NDArray[np.float32]
    scores: Scores | None = None
    #: The version of shiftbench that wrote the file it was read from; empty for a block that is not from a file.
    made_by: str = ""

    def __len__(self) -> int:
        return len(self.top)

    def part(self, rows: slice | IntArray) -> PredictionBlock:
        """The block of some of the rows."""
        scores = None if self.scores is None else self.scores[rows]
        return PredictionBlock(self.top[rows], self.confidence[rows], scores)

    def spread(self, rows: BoolArray) -> PredictionBlock:
        """A block as long as ``rows``: this block's rows stand where it is true, skipped images elsewhere."""
        scores = None
        if self.scores is not None:
            scores = np.full((len(rows), self.scores.shape[1]), np.nan, np.float32)
        wide = PredictionBlock(
            top=np.full((len(rows), self.top.shape[1]), SKIPPED, np.int32),
            confidence=np.full(len(rows), np.nan, np.float32),
            scores=scores,
        )
        wide.put(rows, self)
        return wide

    def put(self, rows: BoolArray, block: PredictionBlock) -> None:
        """Replace the rows where ``rows`` is true by those of another block."""
        self.top[rows] = block.top[:, : self.top.shape[1]]
        self.confidence[rows] = block.confidence
        if self.scores is not None and block.scores is not None:
            self.scores[rows] = block.scores

    @staticmethod
    def concatenate(blocks: Sequence[PredictionBlock]) -> PredictionBlock:
        """One block of all rows; with scores if all blocks have them, and with the fewest classes that one has."""
        width = min(block.top.shape[1] for block in blocks)
        scores = [block.scores for block in blocks if block.scores is not None]
        return PredictionBlock(
            top=np.concatenate([block.top[:, :width] for block in blocks]),
            confidence=np.concatenate([block.confidence for block in blocks]),
            scores=np.concatenate(scores) if len(scores) == len(blocks) else None,
        )


def write_block(
    path: Location, block: PredictionBlock, spec: ResultSpec, made_by: str, *, compressed: bool = True
) -> None:
    """Write a block; equal predictions and spec give equal bytes, as neither time nor machine is written.

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
    options: dict[str, Any] = {"compression": "none", "use_dictionary": False}
    if compressed:
        class_columns = [name for name in table.column_names if name.startswith(_TOP)]
        options = {"compression": "zstd", "compression_level": 9, "use_dictionary": class_columns}

    def write(temporary: Path) -> None:
        with (
            temporary.open("wb") as file,
            pq.ParquetWriter(file, table.schema, write_statistics=False, **options) as writer,
        ):
            writer.write_table(table)
            # The metadata does not go with the schema: Parquet keeps a second, longer copy of that, and a small block
            # is mostly footer.
            writer.add_key_value_metadata(metadata)

    write_atomically(path, write, durable=False)


def read_block(
    path: Location, *, top_k: int | None = None, confidence: bool = True, scores: bool = False, key: str | None = None
) -> PredictionBlock:
    """Read and verify; raises StoreError for a file that is torn, edited or not written by shiftbench.

    Columns that are not asked for are not read; a confidence that was not read is nan. ``key`` is the hash that the
    file's spec must have.
    """
    # The file is opened once for footer and data, and read without threads: callers read many files side by side.
    with explained(path), _opened(path) as raw:
        file = pq.ParquetFile(raw, pre_buffer=False)
        metadata, digests = _checked_metadata(path, file.metadata)
        if key not in (None, spec_key(metadata[_SPEC].decode())):
            raise damaged(path, _OTHER_KEY)
        names = [name for name in digests if name != _FILE]
        # Not ``file.metadata.schema``: the two refer to each other, and the memory of thousands of files would wait for
        # Python's cycle collector.
        if sorted(names) != sorted(file.schema_arrow.names):
            raise damaged(path, "columns and digests differ")
        names = [name for name in names if _is_requested(name, top_k, confidence, scores)]
        table = file.read(columns=names, use_threads=False)
        columns = {name: _to_numpy(table.column(name)) for name in names}
        for name, values in columns.items():
            if _digest(values) != digests[name] or values.dtype not in _TYPES.get(name, _CLASS_TYPES):
                raise damaged(path, f"column {name} does not have the digest written with it")
        if len({len(values) for values in columns.values()}) != 1:
            raise damaged(path, "columns differ in length")
    # Thousands of files have the same few versions.
    return _decode(columns, made_by=sys.intern(metadata[_MADE_BY].decode()))


def _is_requested(name: str, top_k: int | None, confidence: bool, scores: bool) -> bool:
    """Whether a reader asks for this column."""
    if name.startswith(_TOP):
        return top_k is None or _rank(name) <= top_k
    return (name == _CONFIDENCE and confidence) or (name == _SCORES and scores)


def _rank(name: str) -> int:
    """The number in the name of a column of classes: 1 of ``top1``."""
    return int(name.removeprefix(_TOP))


def read_spec(path: Location) -> ResultSpec:
    """The spec that a file was made for; its hash names the file, or the folder of a block."""
    with explained(path):
        text = _metadata(path)[_SPEC].decode()
        if spec_key(text) not in (path.stem, path.parent.name):
            raise damaged(path, _OTHER_KEY)
        return ResultSpec.from_text(text)


def read_made_by(path: Location) -> str:
    """The version of shiftbench that computed the predictions of a file."""
    with explained(path):
        return _metadata(path)[_MADE_BY].decode()


def _place(path: Location) -> str:
    """Model, setting and key, or setting, key and first row of a block: the same in every copy of a workspace."""
    return "/".join(path.parts[-3:])


def _encode(block: PredictionBlock) -> dict[str, Array]:
    fits_int16 = block.top.max(initial=0) <= np.iinfo(np.int16).max
    class_type = np.int16 if fits_int16 else np.int32
    columns: dict[str, Array] = {}
    for k in range(block.top.shape[1]):
        columns[f"{_TOP}{k + 1}"] = block.top[:, k].astype(class_type)
    columns[_CONFIDENCE] = to_logits(block.confidence)
    if block.scores is not None:
        columns[_SCORES] = np.ascontiguousarray(block.scores, dtype=np.float32)
    return columns


def to_logits(confidence: NDArray[np.float32]) -> NDArray[np.float16]:
    """Confidences as they are stored: the logit in half precision."""
    p = confidence.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.asarray(np.log(p) - np.log1p(-p)).astype(np.float16)


def from_logits(logits: Array) -> NDArray[np.float32]:
    """Confidences from what ``to_logits`` returned."""
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-logits.astype(np.float64)))).astype(np.float32)


def as_stored(block: PredictionBlock) -> PredictionBlock:
    """The block as a reader gets it: confidences are rounded."""
    return _decode(_encode(block))


def _decode(columns: Mapping[str, Array], made_by: str = "") -> PredictionBlock:
    names = sorted((name for name in columns if name.startswith(_TOP)), key=_rank)
    top = np.stack([columns[name] for name in names], axis=1).astype(np.int32)
    confidence = np.full(len(top), np.nan, np.float32)
    if _CONFIDENCE in columns:
        confidence = from_logits(columns[_CONFIDENCE])
    return PredictionBlock(top, confidence, columns.get(_SCORES), made_by)


def _opened(path: Location) -> BinaryIO:
    check_is_file(path)
    return path.open("rb")


def _metadata(path: Location) -> dict[bytes, bytes]:
    with _opened(path) as raw:
        metadata, _ = _checked_metadata(path, pq.ParquetFile(raw, pre_buffer=False).metadata)
    return metadata


def _checked_metadata(path: Location, footer: pq.FileMetaData) -> tuple[dict[bytes, bytes], dict[str, str]]:
    """The metadata of a footer, and the digests in it by column.

    Raises StoreError if the metadata is not shiftbench's, or of a file in another place.
    """
    metadata: dict[bytes, bytes] = footer.metadata or {}
    if not {_SPEC, _DIGESTS, _MADE_BY} <= metadata.keys():
        raise damaged(path, "it has no shiftbench metadata")
    digests: dict[str, str] = json.loads(metadata[_DIGESTS])
    written = digests.get(_FILE)
    if written not in (None, digest(_place(path), metadata[_MADE_BY].decode())):
        raise damaged(path, "it was written for another place, or its version was changed")
    return metadata, digests


def _digest(values: Array) -> str:
    return hashlib.blake2b(np.ascontiguousarray(values).view(np.uint8).data, digest_size=16).hexdigest()


def _to_numpy(column: pa.ChunkedArray) -> Array:
    if pa.types.is_fixed_size_list(column.type):
        width = column.type.list_size
        if not column.chunks:
            return np.empty((0, width), np.float32)
        chunks = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks]
        return np.concatenate(chunks).reshape(-1, width)
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
        from PIL import Image  # Scores do not need this library.

        return np.asarray(Image.open(io.BytesIO(self.webp)).convert("RGB"))


def write_shifted_images(files: SealedFiles, path: Location, images: Sequence[ShiftedImage]) -> None:
    columns = {
        "id": pa.array([image.id for image in images], pa.string()),
        "confidence": pa.array([image.confidence for image in images], pa.float32()),
        "image": pa.array([image.webp for image in images], pa.binary()),
    }
    files.write_table(path, pa.table(columns))


def read_shifted_images(files: SealedFiles, path: Location) -> list[ShiftedImage]:
    """The images of a file; empty if the file is missing or damaged, as no number depends on it."""
    try:
        rows = files.read_table(path).to_pylist()
        return [ShiftedImage(row["id"], row["confidence"], row["image"]) for row in rows]
    except (OSError, KeyError, StoreError):
        return []


def join_shifted_images(files: SealedFiles, blocks: Location, target: Location) -> None:
    """Write the most confident mistakes of all blocks; no file is written without images.

    Mistakes of equal confidence stay in the order of the dataset.
    """
    block_files: list[Location] = sorted(blocks.glob("[0-9]*.images"))
    images: dict[str, ShiftedImage] = {}
    for file in block_files:
        for image in read_shifted_images(files, file):
            images[image.id] = image
    by_confidence = sorted(images.values(), key=lambda image: -image.confidence)
    if by_confidence:
        write_shifted_images(files, target, by_confidence[:MOST_SHIFTED_IMAGES])
