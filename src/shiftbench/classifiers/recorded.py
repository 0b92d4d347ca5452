"""Predictions computed elsewhere: per image the classes, with confidences or all scores if known.

Their files (CSV, Parquet, NPZ or NPY) hold one model or many, and may hold the true classes.

Nothing is unpickled, and compressed files that expand to more than 4 GiB are rejected.
"""

from __future__ import annotations

import csv
import re
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.classifiers.base import Classifier, Outputs
from shiftbench.classifiers.options import Options, existing_file, looks_like_probabilities, space_for
from shiftbench.classifiers.preprocessing import Preprocessing
from shiftbench.errors import ClassifierError, ResultWarning, argument, listed, raising, warn_user
from shiftbench.grouping import by_key
from shiftbench.io.hashing import digest
from shiftbench.labels.space import LabelSpace, Scores

Top = NDArray[np.int32]
Confidence = NDArray[np.float32]
Columns = Mapping[str, Any]
#: No class: the label or the prediction is missing.
MISSING = -1
_ID_COLUMNS = ("id", "image_id", "image", "filename", "file", "path")
_ID_ARRAYS = (*_ID_COLUMNS, "ids", "filenames")
_CLASS_COLUMNS = ("prediction", "predicted", "y_pred", "pred", "class", "top1", "top")
_CONFIDENCE_COLUMNS = ("confidence", "probability", "prob")
_TRUTH_COLUMNS = ("label", "labels", "truth", "target", "y_true", "ground_truth")
_MODEL_COLUMNS = ("model", "classifier")
_SETTING_COLUMN = "setting"
#: Arrays or lists with the scores of all classes.
_SCORE_ARRAYS = ("scores", "logits", "probabilities")
#: Columns of scores are called by one of these and a class, or its number: ``logit_cat``, ``score_0``.
_SCORE_PREFIXES = ("score_", "logit_", "prob_", "probability_")
#: The scores of twenty models on all of ImageNet's validation set; a larger file is rejected.
_MOST_BYTES = 4 << 30
#: As many as a run keeps.
_TOP = 5


class Lookup(NamedTuple):
    """One row per requested image: classes best first (-1 where unknown), confidence (nan), scores if recorded."""

    top: Top
    confidence: Confidence
    scores: Scores | None


class RecordedPredictions(Classifier):
    """A classifier of which only its answers are known; it has ``lookup`` in place of ``scores``."""

    engine = "recorded"

    def __init__(
        self,
        ids: Sequence[str],
        *,
        name: str,
        space: LabelSpace,
        top: object = None,
        confidence: object = None,
        scores: object = None,
        outputs: Outputs = "logits",
    ) -> None:
        self.name, self.space, self.outputs = name, space, outputs
        self.preprocessing = Preprocessing()
        self.ids = tuple(map(str, ids))
        self._rows = {image: row for row, image in enumerate(self.ids)}
        if len(self._rows) != len(self.ids):
            doubled = [image for image, count in Counter(self.ids).items() if count > 1]
            raise ClassifierError(f"{name} records {len(doubled)} images more than once", found=", ".join(doubled[:5]))
        self._elsewhere: dict[str, RecordedPredictions] = {}
        self.recorded_scores: Scores | None = None
        if scores is not None:
            table = np.ascontiguousarray(scores, dtype=np.float32)
            if table.shape != (len(self.ids), len(space)):
                expected = (len(self.ids), len(space))
                raise ClassifierError(f"{name} records scores of the wrong shape", found=table.shape, expected=expected)
            # -inf means that the model rules out a class; it cannot rule out all.
            if not ((table < np.inf).all() and (table.max(axis=1) > -np.inf).all()):
                raise ClassifierError(f"{name} records scores that are NaN or infinite")
            self.recorded_scores = table
            if top is None:
                top = np.argsort(-table, axis=1, kind="stable")[:, :_TOP]
                confidence = best_confidence(table, outputs) if confidence is None else confidence
        if top is None:
            raise ClassifierError(f"{name} records neither classes nor scores")
        self.top = _checked_top(top, len(self.ids), name, space)
        if self.recorded_scores is not None:
            best = np.take_along_axis(self.recorded_scores, np.maximum(self.top[:, :1], 0), axis=1)[:, 0]
            if wrong := int(((best < self.recorded_scores.max(axis=1)) & (self.top[:, 0] >= 0)).sum()):
                raise ClassifierError(  # a column `class` may hold the true ones
                    f"the recorded classes of {name} do not have the best score for {wrong} images",
                    hint="remove one of the two; true classes are in a column `label`",
                )
        self.confidence = np.full(len(self.ids), np.nan, np.float32)
        if confidence is not None:
            self.confidence[:] = _checked_confidence(confidence, len(self.ids), name)

    @cached_property
    def fingerprint(self) -> str:  # looked at for every setting, over all ids
        parts = [self.top.tobytes(), self.confidence.tobytes()]
        if self.recorded_scores is not None:
            parts.append(self.recorded_scores.tobytes())
        return digest("recorded", self.space.fingerprint, list(self.ids), self.outputs, *parts)

    @property
    def recorded(self) -> RecordedPredictions:
        return self

    @property
    def identity(self) -> dict[str, Any]:
        """What is the same of a model in all test sets, where only its answers are known: its name and classes."""
        named = digest("recorded", self.name, self.space.fingerprint)
        return {**self.describe(), "fingerprint": named, "outputs": "as recorded"}

    def describe(self) -> dict[str, object]:
        return {**super().describe(), "preprocessing": {"unknown": "the predictions were made elsewhere"}}

    def scores(self, images: Pixels) -> Scores:
        raise ClassifierError(
            f"{self.name} has recorded predictions only and cannot be run on new images",
            hint="evaluate it only on the dataset it was computed on",
        )

    def lookup(self, ids: Sequence[str], space: LabelSpace | None = None) -> Lookup:
        """The recorded rows in the order of ``ids``, over ``space`` if it is another than the record's own.

        Where only ranks were recorded, the best class of a smaller space is the first recorded one that belongs
        to it; that is exact, or an error where the ranks do not reach so far. The confidence is lost then.
        """
        if tuple(ids) == self.ids:  # as files mostly have them, and much quicker
            rows: NDArray[np.int64] = np.arange(len(self.ids))
        else:
            rows = np.array([self._rows.get(image, MISSING) for image in ids], dtype=np.int64)
        known = rows != MISSING
        source, own = self, rows[known]
        if space is not None and space.keys != self.space.keys:
            if space.fingerprint not in self._elsewhere:  # once: a run asks block by block
                self._elsewhere[space.fingerprint] = self._project(space)
            source = self._elsewhere[space.fingerprint]
        unanswered = own[(source.top[own, 0] == MISSING) & (self.top[own, 0] != MISSING)]
        if len(unanswered):
            raise ClassifierError(
                f"{self.name} does not record the best class of {source.space.name!r} for {len(unanswered)} images",
                found=f"{self.top.shape[1]} recorded classes per image, e.g. for {self.ids[unanswered[0]]}",
                expected=f"scores, or ranks deep enough to reach one of the {len(source.space)} classes",
            )
        top = np.full((len(ids), source.top.shape[1]), MISSING, np.int32)
        confidence = np.full(len(ids), np.nan, np.float32)
        top[known], confidence[known] = source.top[own], source.confidence[own]
        if source.recorded_scores is None:
            return Lookup(top, confidence, None)
        scores = np.full((len(ids), len(source.space)), np.nan, np.float32)
        scores[known] = source.recorded_scores[own]
        return Lookup(top, confidence, scores)

    def _project(self, space: LabelSpace) -> RecordedPredictions:
        projection = space.projection_from(self.space)  # refuses spaces that have nothing to do with each other
        if self.recorded_scores is not None:
            scores = projection(self.recorded_scores)
            return RecordedPredictions(self.ids, name=self.name, space=space, scores=scores, outputs=self.outputs)
        classes = np.append(space.relabel_from(self.space), MISSING)[self.top]
        best = np.array([next((c for c in row if c != MISSING), MISSING) for row in classes.tolist()], np.int32)
        return RecordedPredictions(self.ids, name=self.name, space=space, top=best)

    def check_ids(self, ids: Sequence[str]) -> None:
        """No common image at all means that the two sides name them differently."""
        if len(ids) and not any(image in self._rows for image in ids):
            raise ClassifierError(
                f"{self.name} has no prediction for any of the {len(ids)} images",
                found=f"ids such as {', '.join(self.ids[:3])}",
                expected=f"ids such as {', '.join(list(ids)[:3])}",
                hint="name the images as the dataset does",
            )

    def coverage(self, ids: Sequence[str]) -> tuple[list[str], list[str]]:
        """The images that have no record, and the recorded ones that are not among ``ids``."""
        asked = set(ids)
        return [image for image in ids if image not in self._rows], [i for i in self.ids if i not in asked]


def load_recorded(target: str, options: Options) -> RecordedPredictions:
    """CSV, Parquet or NPZ.

    Columns (CSV, Parquet): ``id``; then ``prediction`` (or ``top1``, ``top2``, ... best first) as class keys,
    names or numbers, with an optional ``confidence``; or one column of scores for each class, named by its key,
    ``score_0``, ``score_1``, ... or ``logit_cat``, ``logit_dog``, ... Parquet and NPZ may hold lists ``top`` and
    ``scores`` instead.
    """
    labels = options.own_labels
    file = read_predictions(target, labels)
    if len(file.answers) != 1:
        raise ClassifierError(
            f"{file.source} records {len(file.answers)} models, expected one",
            found=", ".join(answers.model for answers in file.answers[:5]),
            hint="put all of them into a workspace at once: shiftbench import FILE --setting NAME",
        )
    answers = file.answers[0]
    if answers.ids is None:
        raise unnamed(file.source, file.titles)
    return record(answers, answers.ids, labels, file.source, name=options.name, outputs=options.outputs)


def record(
    answers: Answers,
    ids: Sequence[str],
    labels: LabelSpace | None,
    source: str,
    *,
    name: str | None = None,
    outputs: Outputs | None = None,
) -> RecordedPredictions:
    """The answers of one model as a classifier, its classes read as those of ``labels``."""
    name = name or answers.model
    scores = answers.scores
    space = labels
    if scores is not None and answers.score_classes is not None:
        if space is None:
            space = LabelSpace("own classes", answers.score_classes)
        scores = _in_class_order(scores, answers.score_classes, space, source)
    elif scores is not None:
        space = space_for(name, scores.shape[1], labels)
    if space is None:
        raise ClassifierError(f"unknown label space of {source}", hint=argument("labels", "imagenet-1k"))
    likely: Outputs = "probabilities" if scores is not None and looks_like_probabilities(scores) else "logits"
    top = None if answers.classes is None else class_indices(answers.classes, space, source)
    given: dict[str, object] = {"top": top, "confidence": answers.confidence, "scores": scores}
    return RecordedPredictions(ids, name=name, space=space, outputs=outputs or likely, **given)


def _in_class_order(scores: Scores, classes: Sequence[str], space: LabelSpace, source: str) -> Scores:
    """Columns of scores that are named by their classes, in the order of a label space."""
    order = class_indices(classes, space, source)
    missing = sorted(set(range(len(space))) - set(order.tolist()))
    if missing or len(order) != len(space):
        raise ClassifierError(
            f"{source} does not have one column of scores for each class of {space.name!r}",
            found=f"{len(classes)} columns: {listed(classes)}",
            expected=f"{len(space)} classes: {listed(space.names)}",
        )
    ordered = np.empty_like(scores)
    ordered[:, order] = scores
    return ordered


def _checked_top(top: object, count: int, name: str, space: LabelSpace) -> Top:
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


def _checked_confidence(confidence: object, count: int, name: str) -> Confidence:
    values = np.asarray(confidence, np.float32)
    if values.shape != (count,):
        raise ClassifierError(f"{name} needs one confidence per image", found=values.shape, expected=f"({count},)")
    outside = values[(values < 0) | (values > 1)]
    if len(outside):
        raise ClassifierError(
            f"{name} records {len(outside)} confidences outside 0 to 1",
            found=float(outside[0]),
            expected="0 to 1, or empty where there is none",
        )
    return values


def best_confidence(scores: Scores, outputs: str) -> Confidence:
    """The softmax probability of the best class; probabilities over fewer classes are shared out anew."""
    best = scores.max(axis=1).astype(np.float64)
    if outputs == "logits":
        return np.asarray(1 / np.exp(scores - best[:, None]).sum(axis=1), np.float32)
    return np.asarray(best / scores.sum(axis=1, dtype=np.float64), np.float32)


# -- files -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Answers:
    """What a file records of one model; classes as they are written there."""

    model: str
    ids: Sequence[str] | None  #: None: row i is the i-th image.
    classes: Any = None  #: (N,) or (N, k), best first; keys, names or numbers.
    confidence: Confidence | None = None
    scores: Scores | None = None
    #: The classes of the columns of ``scores``, where the file names them; else they are in the label space's order.
    score_classes: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.classes) if self.scores is None else len(self.scores)


@dataclass(frozen=True, eq=False)
class Truth:
    """The true class of each image, as it is written in a file."""

    source: str
    ids: Sequence[str] | None
    labels: Any


@dataclass(frozen=True, eq=False)
class PredictionFile:
    """What a file of predictions holds; ``titles`` are its columns or arrays, for messages."""

    source: str
    answers: tuple[Answers, ...]
    truth: Truth | None
    titles: tuple[str, ...]


def read_predictions(
    path: str | Path,
    labels: LabelSpace | None,
    *,
    array: str | None = None,
    wide: bool = False,
    setting: str | None = None,
) -> PredictionFile:
    """The models of a file, and the true classes if it holds them.

    A table with a column ``model`` holds many, one row per model and image; one without holds one, which has the file's
    name, or with ``wide`` one per column that has no other meaning. An NPZ file with ``models`` holds ``predictions``
    (models, images) or (models, images, k), or another array of that shape by the name ``array``. Of a table that
    `shiftbench store export` wrote, the rows of ``setting`` are read.
    """
    path = Path(path)
    columns = read_columns(path)
    if array is not None and "models" not in columns:
        raise ClassifierError(
            f"{path.name} has no array of several models",
            found=f"{'arrays' if path.suffix == '.npz' else 'columns'} {listed(columns, 8)}",
            expected="an NPZ file with the arrays models and " + array,
        )
    if "models" in columns:
        return _stacked(path, columns, array or "predictions")
    if _is_export(columns):
        columns = _exported_columns(columns, setting, path.name)
    ids = _ids(columns)
    models = _column(columns, _MODEL_COLUMNS)
    scores, score_classes = _score_table(columns, labels if models is None else None)
    confidence = _column(columns, _CONFIDENCE_COLUMNS)
    answers = Answers(
        path.stem,
        ids,
        _class_table(columns),
        None if confidence is None else _numbers(confidence, "confidence"),
        scores,
        score_classes,
    )
    has_answers = answers.scores is not None or answers.classes is not None
    if models is not None:
        every_model = _answers_by_model(answers, models, path.name, tuple(columns))
    elif has_answers:
        every_model = (answers,)
    elif wide and path.suffix.lower() != ".npz":
        known = {*_ID_ARRAYS, *_TRUTH_COLUMNS}
        every_model = tuple(Answers(title, ids, columns[title]) for title in columns if title.lower() not in known)
    else:
        raise ClassifierError(
            f"{path.name} records neither classes nor scores",
            found=f"columns {listed(columns, 8)}",
            expected="prediction, or top1, top2, ..., or scores",
        )
    return PredictionFile(path.name, every_model, _truth(path, columns, ids), tuple(columns))


def _answers_by_model(
    answers: Answers, models: Sequence[object], source: str, titles: tuple[str, ...]
) -> tuple[Answers, ...]:
    """The rows of a table of several models, by the model that each row names."""
    if answers.ids is None:
        raise unnamed(source, titles)
    by_model = []
    for model, rows in by_key((str(model), row) for row, model in enumerate(models)).items():
        by_model.append(
            Answers(
                model,
                [answers.ids[row] for row in rows],
                None if answers.classes is None else [answers.classes[row] for row in rows],
                None if answers.confidence is None else answers.confidence[rows],
                None if answers.scores is None else answers.scores[rows],
                answers.score_classes,
            )
        )
    return tuple(by_model)


def _is_export(columns: Columns) -> bool:
    """Whether a table is one that `shiftbench store export` wrote, in which ``id`` is that of the model."""
    return all(title in columns for title in ("classifier", "id", _SETTING_COLUMN, "image"))


def _exported_columns(columns: Columns, setting: str | None, source: str) -> dict[str, Any]:
    """The rows of an export that are about one setting, with ``id`` naming the image as in other tables.

    Versions of one model are told apart by their ids.
    """
    settings = list(map(str, columns[_SETTING_COLUMN]))
    names = sorted(set(settings))
    if setting not in names and len(names) > 1:
        raise ClassifierError(
            f"{source} holds the predictions of {len(names)} settings, and none is {setting!r}",
            found=listed(names),
            hint=f"import one of them: {argument('setting', names[0])}",
        )
    wanted = setting if setting in names else names[0]
    rows = [row for row, name in enumerate(settings) if name == wanted]
    kept: dict[str, Any] = {}
    for title, values in columns.items():
        kept[title] = [values[row] for row in rows]
    versions = by_key(zip(kept["classifier"], kept["id"], strict=True))
    kept["classifier"] = [
        name if len(set(versions[name])) == 1 else version
        for name, version in zip(kept["classifier"], kept["id"], strict=True)
    ]
    kept["id"] = kept.pop("image")
    return kept


def _stacked(path: Path, columns: Columns, title: str) -> PredictionFile:
    models = [str(name) for name in np.ravel(columns["models"]).tolist()]
    table = np.asarray(columns.get(title, ()))
    if table.ndim not in (2, 3) or len(table) != len(models):
        fitting = [name for name, values in columns.items() if np.ndim(values) in (2, 3) and len(values) == len(models)]
        raise ClassifierError(
            f"{path.name} has no array {title!r} of {len(models)} models",
            found=", ".join(f"{name} {np.shape(values)}" for name, values in columns.items()),
            expected=f"{title} of shape (models, images) or (models, images, k)",
            hint=f"name the array: {argument('array', ' or '.join(fitting))}" if fitting else None,
        )

    def beside(titles: Sequence[str], shape: tuple[int, ...]) -> NDArray[np.generic] | None:
        """``labels_v4``, else ``labels``, for the array ``v4``."""
        found = _column(columns, [f"{one}_{title}" for one in titles] + list(titles))
        if found is not None and np.shape(found) != shape:
            raise ClassifierError(
                f"the arrays of {path.name} do not fit together",
                found=f"{titles[0]} of shape {np.shape(found)}",
                expected=f"{shape}, as {title} has it",
            )
        return None if found is None else np.asarray(found)

    images = table.shape[1]
    ids, truth = beside(_ID_ARRAYS, (images,)), beside(_TRUTH_COLUMNS, (images,))
    sure = beside(_CONFIDENCE_COLUMNS, (len(models), images))
    names = None if ids is None else [str(name) for name in ids.tolist()]
    answers = tuple(
        Answers(model, names, table[i], None if sure is None else _numbers(sure[i], "confidence"))
        for i, model in enumerate(models)
    )
    labels = None if truth is None else Truth(path.name, names, truth)
    return PredictionFile(path.name, answers, labels, tuple(columns))


def read_truth(path: str | Path) -> Truth:
    """True classes: a table or NPZ file with ``id`` and ``label``, or an NPY file of labels in order."""
    path = Path(path)
    if path.suffix.lower() == ".npy":
        [labels] = read_columns(path).values()
        return Truth(path.name, None, labels)
    columns = read_columns(path)
    found = _truth(path, columns, _ids(columns))
    if found is None:
        raise ClassifierError(
            f"{path.name} does not hold the true classes",
            found=f"columns {listed(columns, 8)}",
            expected=f"a column {' or '.join(_TRUTH_COLUMNS)}",
        )
    return found


def class_indices(classes: object, space: LabelSpace, source: str) -> Top:
    """Keys, else names, else numbers: one reading for the whole file, so that "7" can't mean two things."""

    def unknown(strange: Sequence[object]) -> ClassifierError:
        return ClassifierError(
            f"{source} predicts classes that {space.name!r} does not have",
            found=", ".join(map(str, strange[:5])),
            expected=f"keys such as {space.keys[0]}, names such as {space.names[0]}, or numbers below {len(space)}",
        )

    values = np.asarray(classes)
    if values.dtype.kind in "iu" and not any(key.isdecimal() for key in space.keys):
        outside = values[(values < MISSING) | (values >= len(space))]
        if outside.size:
            raise unknown(np.unique(outside).tolist())
        return values.astype(np.int32)
    texts = ["" if value is None else str(value).strip() for value in values.ravel().tolist()]
    words = set(texts) - {"", str(MISSING)}
    several = {name for name, count in Counter(space.names).items() if count > 1}
    names = {name: i for i, name in enumerate(space.names) if name not in several}
    if all(word in space for word in words):
        meaning = {word: space.index(word) for word in words}
        other = [word for word, index in meaning.items() if word != str(index)]
        if other and all(word.isdecimal() and word == str(int(word)) and int(word) < len(space) for word in words):
            text = f"{source}: its classes are read as names of classes of {space.name!r}, but may be meant as numbers"
            warn_user(ResultWarning(f"{text}: {other[0]} is class number {meaning[other[0]]}", "ambiguous-classes"))
    elif all(word in names for word in words):
        meaning = {word: names[word] for word in words}
    elif all(re.fullmatch(r"\d+(\.0)?", word) and float(word) < len(space) for word in words):
        meaning = {word: int(float(word)) for word in words}
    else:
        strange = sorted(w for w in words if w not in space and w not in names and not w.isdigit())
        raise unknown(strange or sorted(words))
    meaning |= {"": MISSING, str(MISSING): MISSING}
    return np.array([meaning[text] for text in texts], np.int32).reshape(values.shape)


def read_columns(path: Path) -> dict[str, object]:
    """Titles to lists or arrays of one length per file, or to arrays of any shape for NPZ and NPY."""
    readers = {".csv": _read_csv, ".parquet": _read_parquet, ".npz": _read_npz, ".npy": _read_npy}
    reader = readers.get(existing_file(path).suffix.lower())
    if reader is None:
        found, expected = path.suffix or "no suffix", ", ".join(readers)
        raise ClassifierError(f"{path.name} is not a file of predictions", found=found, expected=expected)
    try:
        return reader(path)
    except (OSError, ValueError, csv.Error, EOFError, zipfile.BadZipFile) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> ClassifierError:
    return ClassifierError(f"{path.name} cannot be read", found=f"{type(error).__name__}: {error}")


def _read_csv(path: Path) -> dict[str, object]:
    import pyarrow.csv

    with path.open(newline="", encoding="utf-8-sig") as stream:
        header = next(csv.reader(stream), [])
    if not header:
        raise ValueError("the file is empty")
    # Ids and classes stay text: "0007.jpg" may be called "0007", and is not 7.
    wide = len(header) >= 100  # columns of scores that are named by their classes
    known = {*_ID_ARRAYS, *_CLASS_COLUMNS, *_TRUTH_COLUMNS, *_MODEL_COLUMNS}
    text = [title for title in header if title.strip().lower() in known or re.fullmatch(r"top\d+", title) or not wide]
    types = {title: pyarrow.string() for title in text if not re.fullmatch(r"score_\d+", title)}
    options = pyarrow.csv.ConvertOptions(column_types=types)
    return _columns_of(pyarrow.csv.read_csv(path, convert_options=options))


def _read_parquet(path: Path) -> dict[str, object]:
    import pyarrow.parquet

    footer = pyarrow.parquet.read_metadata(path)
    _check_size(sum(footer.row_group(i).total_byte_size for i in range(footer.num_row_groups)))
    return _columns_of(pyarrow.parquet.read_table(path))


def _columns_of(table: Any) -> dict[str, object]:
    """Lists of equal length as one array, since a list of lists of a thousand scores takes forever."""
    import pyarrow.compute

    titles = [title.strip() for title in table.column_names]
    if twice := [title for title, count in Counter(map(str.lower, titles)).items() if count > 1]:
        raise ValueError(f"several columns are called {listed(map(repr, twice))}")
    columns: dict[str, object] = {}
    for title, column in zip(titles, table.columns, strict=True):
        if pyarrow.types.is_list(column.type) or pyarrow.types.is_fixed_size_list(column.type):
            lengths = set(pyarrow.compute.list_value_length(column).to_pylist())
            if len(lengths) > 1:
                found = listed("missing" if length is None else str(length) for length in sorted(lengths, key=str))
                raise ValueError(f"the lists of the column {title!r} have different lengths: {found}")
            values = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
            columns[title] = values.reshape(len(column), -1)
        else:
            columns[title] = column.to_numpy() if pyarrow.types.is_floating(column.type) else column.to_pylist()
    return columns


def _read_npz(path: Path) -> dict[str, object]:
    with zipfile.ZipFile(path) as archive:
        _check_size(sum(member.file_size for member in archive.infolist()))
    with np.load(path, allow_pickle=False) as arrays:
        return {title: arrays[title] for title in arrays.files}


def _read_npy(path: Path) -> dict[str, object]:
    """One array without a name: the scores of all classes, or one class per image."""
    array = np.load(path, allow_pickle=False)
    title = _SCORE_ARRAYS[0] if array.ndim == 2 and array.dtype.kind == "f" else _CLASS_COLUMNS[0]
    return {title: array}


def _check_size(unpacked: int) -> None:
    if unpacked > _MOST_BYTES:
        raise ValueError(f"it unpacks to {unpacked / (1 << 30):.0f} GiB, more than the {_MOST_BYTES >> 30} allowed")


def _truth(path: Path, columns: Columns, ids: Sequence[str] | None) -> Truth | None:
    labels = _column(columns, _TRUTH_COLUMNS)
    return None if labels is None else Truth(path.name, ids, labels)


def _ids(columns: Columns) -> list[str] | None:
    found = _column(columns, _ID_ARRAYS)
    return None if found is None else [str(image) for image in found]


def unnamed(source: str, titles: Sequence[str], hint: str | None = None) -> ClassifierError:
    """For a file that does not say which images it is about."""
    found, expected = f"columns {listed(titles, 8)}", f"a column {' or '.join(_ID_COLUMNS)}"
    return ClassifierError(f"{source} does not name its images", found=found, expected=expected, hint=hint)


def _column(columns: Columns, titles: Sequence[str]) -> Any:
    by_title = {title.lower(): title for title in columns}
    return next((columns[by_title[title]] for title in titles if title in by_title), None)


def _score_table(columns: Columns, labels: LabelSpace | None) -> tuple[Scores | None, tuple[str, ...] | None]:
    """The scores of all classes, and the classes of its columns where the file names them."""
    for title in _SCORE_ARRAYS:
        if title in columns:
            return np.asarray(list(columns[title]), dtype=np.float32), None
    for prefix in _SCORE_PREFIXES:
        titles = _numbered(columns, prefix, first=0)
        if titles:
            return _stacked_columns(columns, titles), None
        titles = [title for title in columns if title.startswith(prefix) and title != prefix]
        if len(titles) > 1:
            classes = tuple(title.removeprefix(prefix) for title in titles)
            return _stacked_columns(columns, titles), classes
    if labels is not None and all(key in columns for key in labels.keys):
        return _stacked_columns(columns, labels.keys), None
    return None, None


def _stacked_columns(columns: Columns, titles: Sequence[str]) -> Scores:
    return np.stack([_numbers(columns[title], title) for title in titles], axis=1)


def _class_table(columns: Columns) -> Any:
    if ranked := _numbered(columns, "top", first=1):
        return [list(row) for row in zip(*(columns[title] for title in ranked), strict=True)]
    return _column(columns, _CLASS_COLUMNS)


def _numbered(columns: Columns, prefix: str, first: int) -> list[str]:
    """Columns such as score_0, score_1, ...: a gap would give every score after it to another class."""
    matching = [title for title in columns if re.fullmatch(rf"{prefix}\d+", title)]
    titles = sorted(matching, key=lambda title: int(title.removeprefix(prefix)))
    expected = [f"{prefix}{number}" for number in range(first, first + len(titles))]
    if titles != expected:
        message = f"the columns {prefix}N do not count from {first} without gaps"
        raise ClassifierError(message, found=listed(titles), expected=listed(expected))
    return titles


def _numbers(values: Any, column: str) -> NDArray[np.float32]:
    with raising(ClassifierError, f"the column {column!r} is not numeric", TypeError, ValueError):
        if isinstance(values, np.ndarray):
            return values.astype(np.float32)
        return np.array([np.nan if value in ("", None) else float(value) for value in values], np.float32)
