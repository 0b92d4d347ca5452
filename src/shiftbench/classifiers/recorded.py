"""Predictions computed elsewhere: per image the classes, with confidences or all scores if known."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.classifiers.base import Classifier, Outputs, Pixels
from shiftbench.classifiers.hashing import digest
from shiftbench.classifiers.options import Options, looks_like_probabilities, space_for
from shiftbench.classifiers.preprocessing import Preprocessing
from shiftbench.errors import ClassifierError
from shiftbench.labels.space import LabelSpace, Scores

Top = NDArray[np.int32]
Confidence = NDArray[np.float32]
MISSING = -1
_TOP = 5
_ID_COLUMNS = ("id", "image_id", "image", "filename", "file", "path")
_CLASS_COLUMNS = ("prediction", "predicted", "class", "top1", "top")
_CONFIDENCE_COLUMNS = ("confidence", "probability")


@dataclass(frozen=True)
class Lookup:
    """One row an asked-for image: classes best first (-1 where unknown), confidence (nan), scores if recorded."""

    top: Top
    confidence: Confidence
    scores: Scores | None

    def __iter__(self) -> Any:
        return iter((self.top, self.confidence, self.scores))


class RecordedPredictions(Classifier):
    """A classifier of which only its answers are known; it has ``lookup`` in place of ``scores``.

    >>> pets = LabelSpace("pets", ("cat", "dog"))
    >>> known = RecordedPredictions(["a.jpg", "b.jpg"], top=[1, 0], name="survey", space=pets)
    >>> top, confidence, scores = known.lookup(["b.jpg", "z.jpg"])
    >>> top[:, 0].tolist(), scores is None
    ([0, -1], True)
    """

    engine = "recorded"

    def __init__(
        self,
        ids: Sequence[str],
        *,
        name: str,
        space: LabelSpace,
        top: Any = None,
        confidence: Any = None,
        scores: Any = None,
        outputs: Outputs = "logits",
    ) -> None:
        self.name, self.space, self.outputs = name, space, outputs
        self.preprocessing = Preprocessing()
        self.ids = tuple(map(str, ids))
        self._rows = _unique(self.ids, name)
        self._elsewhere: dict[str, RecordedPredictions] = {}
        self.recorded_scores = None if scores is None else _checked_scores(scores, len(self.ids), name, space)
        if self.recorded_scores is not None and top is None:
            top = np.argsort(-self.recorded_scores, axis=1, kind="stable")[:, :_TOP]
            confidence = _confidence(self.recorded_scores, outputs) if confidence is None else confidence
        if top is None:
            raise ClassifierError(f"{name} records neither classes nor scores")
        self.top = _checked_top(top, len(self.ids), name, space)
        self.confidence = np.full(len(self.ids), np.nan, np.float32)
        if confidence is not None:
            self.confidence[:] = np.asarray(confidence, np.float32)

    @property
    def fingerprint(self) -> str:
        parts = [self.top.tobytes(), self.confidence.tobytes()]
        if self.recorded_scores is not None:
            parts.append(self.recorded_scores.tobytes())
        return digest("recorded", self.space.fingerprint, list(self.ids), self.outputs, *parts)

    def scores(self, images: Pixels) -> Scores:
        raise ClassifierError(
            f"{self.name} is a record of predictions and can't see new pictures",
            hint="evaluate it only on the data set it was computed on",
        )

    def lookup(self, ids: Sequence[str], space: LabelSpace | None = None) -> Lookup:
        """The recorded rows in the order of ``ids``, over ``space`` if it is another than the record's own.

        Where only ranks were recorded, the best class of a smaller space is the first recorded one that belongs
        to it; that is exact, or an error where the ranks do not reach so far. The confidence is lost then.
        """
        rows = np.array([self._rows.get(image, MISSING) for image in ids], dtype=np.int64)
        known = rows != MISSING
        source = self if space is None or space.keys == self.space.keys else self._projected(space)
        self._check_answered(source, rows[known])
        top = np.full((len(ids), source.top.shape[1]), MISSING, np.int32)
        confidence = np.full(len(ids), np.nan, np.float32)
        top[known], confidence[known] = source.top[rows[known]], source.confidence[rows[known]]
        if source.recorded_scores is None:
            return Lookup(top, confidence, None)
        scores = np.full((len(ids), len(source.space)), np.nan, np.float32)
        scores[known] = source.recorded_scores[rows[known]]
        return Lookup(top, confidence, scores)

    def check_ids(self, ids: Sequence[str]) -> None:
        """No common image at all means that the two sides name them differently."""
        if len(ids) and not any(image in self._rows for image in ids):
            raise ClassifierError(
                f"{self.name} knows none of the {len(ids)} images",
                found=f"ids such as {', '.join(self.ids[:3])}",
                expected=f"ids such as {', '.join(list(ids)[:3])}",
                hint="name the images as the data set does",
            )

    def _projected(self, space: LabelSpace) -> RecordedPredictions:
        """The same record over another space, made once: a run asks block by block."""
        if space.fingerprint not in self._elsewhere:
            self._elsewhere[space.fingerprint] = self._project(space)
        return self._elsewhere[space.fingerprint]

    def _project(self, space: LabelSpace) -> RecordedPredictions:
        if self.recorded_scores is not None:
            scores = space.projection_from(self.space)(self.recorded_scores)
            return RecordedPredictions(self.ids, name=self.name, space=space, scores=scores, outputs=self.outputs)
        space.projection_from(self.space)  # refuses spaces that have nothing to do with each other
        classes = np.append(space.relabel_from(self.space), MISSING)[self.top]
        best = np.array([next((c for c in row if c != MISSING), MISSING) for row in classes.tolist()], np.int32)
        return RecordedPredictions(self.ids, name=self.name, space=space, top=best)

    def _check_answered(self, projected: RecordedPredictions, rows: NDArray[np.int64]) -> None:
        """Ranks that never reach a class of the smaller space do not tell its best one."""
        unanswered = rows[(projected.top[rows, 0] == MISSING) & (self.top[rows, 0] != MISSING)]
        if len(unanswered):
            raise ClassifierError(
                f"{self.name} does not tell the best class of {projected.space.name!r} for {len(unanswered)} images",
                found=f"{self.top.shape[1]} recorded classes an image, e.g. for {self.ids[unanswered[0]]}",
                expected=f"scores, or ranks deep enough to reach one of the {len(projected.space)} classes",
            )

    def coverage(self, ids: Sequence[str]) -> tuple[list[str], list[str]]:
        """The images that have no record, and the recorded ones that are not among ``ids``."""
        asked = set(ids)
        return [image for image in ids if image not in self._rows], [i for i in self.ids if i not in asked]


def load_recorded(target: str, options: Options) -> RecordedPredictions:
    """CSV, Parquet or NPZ.

    Columns (CSV, Parquet): ``id``; then ``prediction`` (or ``top1``, ``top2``, ... best first) as class keys,
    names or numbers, with an optional ``confidence``; or one column of scores for each class, named by its key
    or ``score_0``, ``score_1``, ... Parquet and NPZ may hold lists ``top`` and ``scores`` instead.
    """
    path = Path(target)
    if not path.is_file():
        raise ClassifierError(f"there is no file {target}")
    try:
        columns = _READERS[path.suffix.lower()](path)
    except (OSError, ValueError, UnicodeDecodeError, csv.Error) as error:
        raise ClassifierError(f"{path.name} can't be read", found=f"{type(error).__name__}: {error}") from error
    name = options.name or path.stem
    ids = _column(columns, (*_ID_COLUMNS, "ids"))
    if ids is None:
        raise ClassifierError(
            f"{path.name} does not name its images",
            found=f"columns {', '.join(list(columns)[:8])}",
            expected=f"a column {' or '.join(_ID_COLUMNS)}",
        )
    scores = _score_table(columns, options.labels)
    classes = _class_table(columns)
    if scores is not None:
        space = space_for(name, scores.shape[1], options.labels)
    elif options.labels is not None:
        space = options.labels
    else:
        raise ClassifierError(
            f"nothing says which classes {path.name} is about", hint="pass labels=... (--labels imagenet-1k)"
        )
    outputs = options.outputs or (
        "probabilities" if scores is not None and looks_like_probabilities(scores) else "logits"
    )
    confidence = _column(columns, _CONFIDENCE_COLUMNS)
    return RecordedPredictions(
        [str(image) for image in ids],
        name=name,
        space=space,
        top=None if classes is None else _indices(classes, space, path.name),
        confidence=None if confidence is None else _numbers(confidence, "confidence"),
        scores=scores,
        outputs=outputs,
    )


def _read_csv(path: Path) -> dict[str, Any]:
    import pyarrow.csv

    with path.open(newline="", encoding="utf-8-sig") as stream:
        header = next(csv.reader(stream), [])
    if not header:
        raise ValueError("the file is empty")
    # Ids and classes stay text: "0007.jpg" may be called "0007", and is not 7.
    text = {title: pyarrow.string() for title in header if not re.fullmatch(r"score_\d+", title)}
    types = pyarrow.csv.ConvertOptions(column_types=text if len(header) < 100 else {header[0]: pyarrow.string()})
    return _columns_of(pyarrow.csv.read_csv(path, convert_options=types))


def _read_parquet(path: Path) -> dict[str, Any]:
    import pyarrow.parquet

    return _columns_of(pyarrow.parquet.read_table(path))


def _columns_of(table: Any) -> dict[str, Any]:
    """Lists of equal length as one array, since a list of lists of a thousand scores takes forever."""
    import pyarrow

    columns: dict[str, Any] = {}
    for title, column in zip(table.column_names, table.columns, strict=True):
        if pyarrow.types.is_list(column.type) or pyarrow.types.is_fixed_size_list(column.type):
            values = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
            columns[title.strip()] = values.reshape(len(column), -1)
        elif pyarrow.types.is_floating(column.type):
            columns[title.strip()] = column.to_numpy()
        else:
            columns[title.strip()] = column.to_pylist()
    return columns


def _read_npz(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as arrays:
        return {title: arrays[title] for title in arrays.files}


_READERS = {".csv": _read_csv, ".parquet": _read_parquet, ".npz": _read_npz}


def _column(columns: Mapping[str, Any], titles: Sequence[str]) -> Any:
    by_title = {title.lower(): title for title in columns}
    return next((columns[by_title[title]] for title in titles if title in by_title), None)


def _score_table(columns: Mapping[str, Any], labels: LabelSpace | None) -> Scores | None:
    for title in ("scores", "logits", "probabilities"):
        if title in columns:
            return np.asarray(list(columns[title]), dtype=np.float32)
    numbered = [title for title in columns if re.fullmatch(r"score_\d+", title)]
    titles = sorted(numbered, key=lambda title: int(title.removeprefix("score_")))
    if not titles and labels is not None and all(key in columns for key in labels.keys):
        titles = list(labels.keys)
    if not titles:
        return None
    return np.stack([_numbers(columns[title], title) for title in titles], axis=1)


def _class_table(columns: Mapping[str, Any]) -> list[list[Any]] | None:
    ranked = sorted((t for t in columns if re.fullmatch(r"top\d+", t)), key=lambda title: int(title[3:]))
    if ranked:
        return [list(row) for row in zip(*(columns[title] for title in ranked), strict=True)]
    single = _column(columns, _CLASS_COLUMNS)
    if single is None:
        return None
    return [list(row) if isinstance(row, (list, tuple, np.ndarray)) else [row] for row in single]


def _indices(classes: list[list[Any]], space: LabelSpace, source: str) -> list[list[int]]:
    """Keys, else names, else numbers: one reading for the whole file, so that "7" can't mean two things."""
    values = {str(value).strip() for row in classes for value in row}
    names = {name: i for i, name in enumerate(space.names)}
    if all(value in space for value in values):
        meaning = {value: space.index(value) for value in values}
    elif all(value in names for value in values):
        meaning = {value: names[value] for value in values}
    elif all(re.fullmatch(r"\d+(\.0)?", value) and float(value) < len(space) for value in values):
        meaning = {value: int(float(value)) for value in values}
    else:
        strange = sorted(v for v in values if v not in space and v not in names and not v.isdigit()) or sorted(values)
        raise ClassifierError(
            f"{source} predicts classes that {space.name!r} does not have",
            found=", ".join(strange[:5]),
            expected=f"keys such as {space.keys[0]}, names such as {space.names[0]}, or numbers below {len(space)}",
        )
    return [[meaning[str(value).strip()] for value in row] for row in classes]


def _numbers(values: Any, column: str) -> NDArray[np.float32]:
    try:
        if isinstance(values, np.ndarray):
            return values.astype(np.float32)
        return np.array([np.nan if value in ("", None) else float(value) for value in values], np.float32)
    except (TypeError, ValueError) as error:
        raise ClassifierError(f"the column {column!r} holds something else than numbers", found=error) from error


def _unique(ids: Sequence[str], name: str) -> dict[str, int]:
    rows = {image: row for row, image in enumerate(ids)}
    if len(rows) != len(ids):
        doubled = [image for image, count in Counter(ids).items() if count > 1]
        raise ClassifierError(f"{name} records {len(doubled)} images more than once", found=", ".join(doubled[:5]))
    return rows


def _checked_scores(scores: Any, count: int, name: str, space: LabelSpace) -> Scores:
    table = np.ascontiguousarray(scores, dtype=np.float32)
    if table.shape != (count, len(space)):
        raise ClassifierError(
            f"{name} records scores of the wrong shape", found=table.shape, expected=(count, len(space))
        )
    if np.isnan(table).any():
        raise ClassifierError(f"{name} records scores that are no numbers")
    return table


def _checked_top(top: Any, count: int, name: str, space: LabelSpace) -> Top:
    table = np.asarray(top)
    table = table[:, None] if table.ndim == 1 else table
    if table.ndim != 2 or len(table) != count:
        raise ClassifierError(f"{name} records classes of the wrong shape", found=table.shape, expected=f"({count}, k)")
    if table.size and (table.min() < MISSING or table.max() >= len(space)):
        raise ClassifierError(
            f"{name} records class numbers outside {space.name!r}",
            found=f"{table.min()} to {table.max()}",
            expected=f"0 to {len(space) - 1}, or -1 for none",
        )
    return np.ascontiguousarray(table, dtype=np.int32)


def _confidence(scores: Scores, outputs: Outputs) -> Confidence:
    """The softmax probability of the best class; probabilities over fewer classes are shared out anew."""
    best = scores.max(axis=1).astype(np.float64)
    if outputs == "logits":
        return np.asarray(1 / np.exp(scores - best[:, None]).sum(axis=1), np.float32)
    return np.asarray(best / scores.sum(axis=1, dtype=np.float64), np.float32)
