"""Predictions as one long table for other tools: one row per image, classifier and setting.

Written result by result, so that a billion rows need no more memory than one result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
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
    advance: Callable[[int], None] = lambda count: None,
) -> int:
    """Write ``path`` (.csv or .parquet) and return the number of rows.

    Columns: classifier, id (of the model's version), setting, image, label, top1 ... (keys of classes), confidence,
    correct, assumed (facts about the model that nobody gave), training_images (how many images of the setting the
    model was trained on). Empty are the label of an image without one, the answers for a skipped image, and what is
    not known. ``images`` keeps these ids only.
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
    rows = 0
    wanted = frozenset(images)

    def read(result: Result) -> pa.Table:
        facts = ", ".join(history.assumed.get(result.spec.classifier.version, ()))
        seen = history.training_images.get(result.relative.name)
        found = workspace.read(result, top_k=top_k, scores=False)
        return long_table(found, top_k, wanted, result.model_id, facts, seen)

    def tables() -> Iterator[pa.Table]:
        """Of all results in order, a few of them read while the last one is written."""
        reading: deque[Future[pa.Table]] = deque()
        with ThreadPoolExecutor(_AHEAD) as pool:
            for result in results:
                reading.append(pool.submit(read, result))
                if len(reading) > _AHEAD:
                    yield reading.popleft().result()
            while reading:
                yield reading.popleft().result()

    def write(temporary: Path) -> None:
        nonlocal rows
        is_csv, schema = target.suffix.lower() == ".csv", _schema(top_k)
        opened = (
            pacsv.CSVWriter(temporary, schema) if is_csv else pq.ParquetWriter(temporary, schema, compression="zstd")
        )
        with opened as writer:
            for table in tables():
                writer.write_table(table)
                rows += len(table)
                advance(1)

    write_atomically(target, write)
    return rows


def _schema(top_k: int) -> pa.Schema:
    words = ["classifier", "id", "setting", "image", "label", *(f"top{k + 1}" for k in range(top_k))]
    numbers = [("confidence", pa.float32()), ("correct", pa.bool_())]
    facts = [("assumed", pa.string()), ("training_images", pa.int64())]
    return pa.schema([*((word, pa.string()) for word in words), *numbers, *facts])


def long_table(
    found: Predictions, top_k: int, images: Collection[str], model_id: str, assumed: str, training_images: int | None
) -> pa.Table:
    """The rows of one result, or those of some of its images."""
    rows: NDArray[np.int64] = np.arange(len(found))
    if images:
        rows = np.array([row for row, image in enumerate(found.ids) if image in images], np.int64)
    top, labels, confidence = found.top[rows], found.labels[rows], found.confidence[rows]
    if found.label_sets is None:
        shown = class_column(found.space.keys, labels)
    else:
        sets = [found.label_sets[row] for row in rows]
        shown = pa.array([" ".join(found.space.keys[own] for own in classes) or None for classes in sets], pa.string())
    answers = [
        class_column(found.space.keys, top[:, k]) if k < top.shape[1] else pa.nulls(len(rows), pa.string())
        for k in range(top_k)
    ]
    about = (found.classifier, model_id, found.setting)
    return pa.Table.from_arrays(
        [
            *(pa.repeat(pa.scalar(one), len(rows)) for one in about),
            pa.array(found.ids if len(rows) == len(found) else [found.ids[row] for row in rows], pa.string()),
            shown,
            *answers,
            pa.array(confidence, mask=np.isnan(confidence)),
            pa.array(top[:, 0] == labels, mask=~found.valid[rows]),
            pa.repeat(pa.scalar(assumed), len(rows)),
            pa.repeat(pa.scalar(training_images, pa.int64()), len(rows)),
        ],
        schema=_schema(top_k),
    )


def class_column(names: Sequence[str], classes: NDArray[np.int32]) -> pa.Array:
    """What classes are called; nothing where there is none (-1)."""
    return pa.array(names, pa.string()).take(pa.array(classes, mask=classes < 0))
