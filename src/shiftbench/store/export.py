"""Predictions as one long table for other tools: one row per image, classifier and setting.

Written result by result, so that a billion rows need no more memory than one result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from shiftbench.errors import StoreError
from shiftbench.io.atomic import write_atomically
from shiftbench.io.paths import Location, place
from shiftbench.store.models import ModelVersions
from shiftbench.store.predictions import Predictions
from shiftbench.store.run_records import RunHistory
from shiftbench.store.workspace import Result, Workspace

_FORMATS = (".csv", ".parquet")
#: Results in memory at once.
_AHEAD = 4


def export_table(
    workspace: Workspace,
    path: str | Location,
    results: Iterable[Result],
    *,
    top_k: int = 1,
    images: Collection[str] = (),
    assumed_facts: Mapping[str, Sequence[str]] | None = None,
    advance: Callable[[int], None] = lambda count: None,
) -> int:
    """Write ``path`` (.csv or .parquet) and return the number of rows.

    Columns: classifier, id (of the model's version), setting, image, label, top1 ... (keys of classes), confidence,
    correct, assumed (facts about the model that nobody gave), training_images (how many images of the setting the
    model was trained on). Empty are the label of an image without one, the answers for a skipped image, and what is
    not known. ``images`` keeps these ids only. ``assumed_facts`` are those of models by the hash of their version; by
    default what the records of runs say.
    """
    target = place(path)
    if target.suffix.lower() not in _FORMATS:
        raise StoreError(
            "predictions can't be exported in that format",
            found=target.name,
            expected=f"a file name that ends in {' or '.join(_FORMATS)}",
        )
    results = list(results)
    history = RunHistory.of(workspace, ModelVersions.of(workspace, results).current_hashes)
    if assumed_facts is None:
        assumed_facts = history.assumed
    image_ids = frozenset(images)
    row_count = 0

    def read(result: Result) -> pa.Table:
        assumed = ", ".join(assumed_facts.get(result.spec.classifier.version, ()))
        training_images = history.training_images.get(result.relative.name)
        predictions = workspace.read(result, top_k=top_k, scores=False)
        return long_table(predictions, top_k, image_ids, result.model_id, assumed, training_images)

    def tables() -> Iterator[pa.Table]:
        """The tables of all results in order; the next few are read while one is written."""
        reading: deque[Future[pa.Table]] = deque()
        with ThreadPoolExecutor(_AHEAD) as pool:
            for result in results:
                reading.append(pool.submit(read, result))
                if len(reading) > _AHEAD:
                    yield reading.popleft().result()
            while reading:
                yield reading.popleft().result()

    def write(temporary: Path) -> None:
        nonlocal row_count
        if target.suffix.lower() == ".csv":
            opened = pacsv.CSVWriter(temporary, _schema(top_k))
        else:
            opened = pq.ParquetWriter(temporary, _schema(top_k), compression="zstd")
        with opened as writer:
            for table in tables():
                writer.write_table(table)
                row_count += len(table)
                advance(1)

    write_atomically(target, write)
    return row_count


def _schema(top_k: int) -> pa.Schema:
    answers = [f"top{k + 1}" for k in range(top_k)]
    text_columns = ["classifier", "id", "setting", "image", "label", *answers]
    return pa.schema(
        [
            *((name, pa.string()) for name in text_columns),
            ("confidence", pa.float32()),
            ("correct", pa.bool_()),
            ("assumed", pa.string()),
            ("training_images", pa.int64()),
        ]
    )


def long_table(
    predictions: Predictions,
    top_k: int,
    images: Collection[str],
    model_id: str,
    assumed: str,
    training_images: int | None,
) -> pa.Table:
    """The rows of one result; if ``images`` is not empty, only those of these ids."""
    ids = predictions.ids
    rows: NDArray[np.int64] = np.arange(len(predictions))
    if images:
        rows = np.array([row for row, image in enumerate(predictions.ids) if image in images], np.int64)
        ids = [predictions.ids[row] for row in rows]
    top = predictions.top[rows]
    labels = predictions.labels[rows]
    confidence = predictions.confidence[rows]

    def repeated(value: pa.Scalar) -> pa.Array:
        return pa.repeat(value, len(rows))

    return pa.Table.from_arrays(
        [
            repeated(pa.scalar(predictions.classifier)),
            repeated(pa.scalar(model_id)),
            repeated(pa.scalar(predictions.setting)),
            pa.array(ids, pa.string()),
            _label_column(predictions, rows),
            *_answer_columns(predictions, rows, top_k),
            pa.array(confidence, mask=np.isnan(confidence)),
            pa.array(top[:, 0] == labels, mask=~predictions.valid[rows]),
            repeated(pa.scalar(assumed)),
            repeated(pa.scalar(training_images, pa.int64())),
        ],
        schema=_schema(top_k),
    )


def _label_column(predictions: Predictions, rows: NDArray[np.int64]) -> pa.Array:
    """The class of each image, or all its classes separated by spaces where images may have several."""
    keys = predictions.space.keys
    if predictions.label_sets is None:
        return class_column(keys, predictions.labels[rows])
    texts = []
    for row in rows:
        classes = predictions.label_sets[row]
        texts.append(" ".join(keys[i] for i in classes) or None)
    return pa.array(texts, pa.string())


def _answer_columns(predictions: Predictions, rows: NDArray[np.int64], top_k: int) -> list[pa.Array]:
    """The columns top1, top2, ...; those beyond the stored answers are empty."""
    columns = []
    for k in range(top_k):
        if k < predictions.top.shape[1]:
            columns.append(class_column(predictions.space.keys, predictions.top[rows, k]))
        else:
            columns.append(pa.nulls(len(rows), pa.string()))
    return columns


def class_column(names: Sequence[str], classes: NDArray[np.int32]) -> pa.Array:
    """The names of classes; null where an image has no class (-1)."""
    return pa.array(names, pa.string()).take(pa.array(classes, mask=classes < 0))
