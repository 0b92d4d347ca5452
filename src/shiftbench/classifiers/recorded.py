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
from shiftbench.classifiers.options import (
    Options,
    existing_file,
    looks_like_probabilities,
    looks_like_sigmoids,
    space_for,
)
from shiftbench.classifiers.preprocessing import Preprocessing
from shiftbench.datasets.arrays import check_header
from shiftbench.errors import ClassifierError, ResultWarning, argument, listed, raising, warn_user
from shiftbench.grouping import by_key, repeated
from shiftbench.io.hashing import digest
from shiftbench.io.parquet import read_parquet
from shiftbench.labels.space import NO_ANSWER, LabelSpace, Scores

Top = NDArray[np.int32]
Confidence = NDArray[np.float32]
#: Scores as precise as they are recorded.
ScoreTable = NDArray[np.float32] | NDArray[np.float64]
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
_PROBABILITY_PREFIXES = ("prob_", "probability_")
_SCORE_PREFIXES = ("score_", "logit_", *_PROBABILITY_PREFIXES)
#: The scores of twenty models on all of ImageNet's validation set; a larger file is rejected.
_MOST_BYTES = 4 << 30
#: The number of best classes that are kept per image, the same as in a run.
_TOP = 5


class Lookup(NamedTuple):
    """One row per requested image: classes best first (-1 where unknown), confidence (nan), scores if recorded."""

    top: Top
    confidence: Confidence
    scores: Scores | None


class RecordedPredictions(Classifier):
    """A classifier of which only the answers are known; it has ``lookup`` in place of ``scores``.

    It is made from the best classes of each image (``top``), from ``scores``, or from both if they agree.
    """

    engine = "recorded"
    #: Whether the answers are to images that this package shifted, under the setting's own generator and seed.
    of_shifted_images = False

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
        self.name = name
        self.space = space
        self.outputs = outputs
        self.preprocessing = Preprocessing()
        self.ids = tuple(map(str, ids))
        self._rows = {image: row for row, image in enumerate(self.ids)}
        if len(self._rows) != len(self.ids):
            doubled = repeated(self.ids)
            raise ClassifierError(f"{name} records {len(doubled)} images more than once", found=", ".join(doubled[:5]))
        self._by_space: dict[str, RecordedPredictions] = {}
        self.recorded_scores: Scores | None = None
        if scores is not None:
            exact = _precise(scores)
            table = _checked_scores(exact, len(self.ids), name, space)
            self.recorded_scores = table
            _warn_if_rounded(exact, table, name)
            if top is None:
                top = np.argsort(-exact, axis=1, kind="stable")[:, :_TOP]
                if confidence is None:
                    confidence = best_confidence(exact, outputs)
        if top is None:
            raise ClassifierError(f"{name} records neither classes nor scores")
        self.top = _checked_top(top, len(self.ids), name, space)
        if self.recorded_scores is not None:
            _check_agreement(self.top, self.recorded_scores, name)
        self.confidence = np.full(len(self.ids), np.nan, np.float32)
        if confidence is not None:
            self.confidence[:] = _checked_confidence(confidence, len(self.ids), name)

    @cached_property
    def fingerprint(self) -> str:
        # A run reads this for every setting, and the hash covers all images; therefore it is computed only once.
        parts = [self.top.tobytes(), self.confidence.tobytes()]
        if self.recorded_scores is not None:
            parts.append(self.recorded_scores.tobytes())
        return digest("recorded", self.space.fingerprint, list(self.ids), self.outputs, *parts)

    @property
    def recorded(self) -> RecordedPredictions:
        return self

    @property
    def identity(self) -> dict[str, Any]:
        """A description that is the same for all records of one model, on whichever test set they were made.

        Since only answers are known, a model is recognised by its name and its classes.
        """
        fingerprint = digest("recorded", self.name, self.space.fingerprint)
        return {**self.describe(), "fingerprint": fingerprint, "outputs": "as recorded"}

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
        if tuple(ids) == self.ids:  # Most files are in this order, and then no image has to be looked up.
            rows: NDArray[np.int64] = np.arange(len(self.ids))
        else:
            rows = np.array([self._rows.get(image, MISSING) for image in ids], dtype=np.int64)
        is_recorded = rows != MISSING
        recorded_rows = rows[is_recorded]
        source = self._in_space(space)
        has_no_answer = source.top[recorded_rows, 0] == MISSING
        had_an_answer = self.top[recorded_rows, 0] != MISSING
        unanswered = recorded_rows[has_no_answer & had_an_answer]
        if len(unanswered):
            raise ClassifierError(
                f"{self.name} does not record the best class of {source.space.name!r} for {len(unanswered)} images",
                found=f"{self.top.shape[1]} recorded classes per image, e.g. for {self.ids[unanswered[0]]}",
                expected=f"scores, or ranks deep enough to reach one of the {len(source.space)} classes",
            )
        top = np.full((len(ids), source.top.shape[1]), MISSING, np.int32)
        confidence = np.full(len(ids), np.nan, np.float32)
        top[is_recorded] = source.top[recorded_rows]
        confidence[is_recorded] = source.confidence[recorded_rows]
        if source.recorded_scores is None:
            return Lookup(top, confidence, None)
        scores = np.full((len(ids), len(source.space)), np.nan, np.float32)
        scores[is_recorded] = source.recorded_scores[recorded_rows]
        return Lookup(top, confidence, scores)

    def _in_space(self, space: LabelSpace | None) -> RecordedPredictions:
        """This record over ``space``; it is projected only once, since a run asks for one block after the other."""
        if space is None or space.keys == self.space.keys:
            return self
        if space.fingerprint not in self._by_space:
            self._by_space[space.fingerprint] = self._project(space)
        return self._by_space[space.fingerprint]

    def _project(self, space: LabelSpace) -> RecordedPredictions:
        projection = space.projection_from(self.space)  # raises if the two spaces have nothing in common
        if self.recorded_scores is not None:
            scores = projection(self.recorded_scores)
            return RecordedPredictions(self.ids, name=self.name, space=space, scores=scores, outputs=self.outputs)
        # The last entries of the table are for the indices -2 and -1, so that no answer and a missing class stay so.
        classes = np.append(space.relabel_from(self.space), [NO_ANSWER, MISSING])[self.top]
        best = np.array([_first_class(row) for row in classes.tolist()], np.int32)
        return RecordedPredictions(self.ids, name=self.name, space=space, top=best)

    def check_ids(self, ids: Sequence[str]) -> None:
        """Raise ClassifierError if none of the images is recorded: then the two sides name their images differently."""
        if len(ids) and not any(image in self._rows for image in ids):
            raise ClassifierError(
                f"{self.name} has no prediction for any of the {len(ids)} images",
                found=f"ids such as {', '.join(self.ids[:3])}",
                expected=f"ids such as {', '.join(list(ids)[:3])}",
                hint="name the images as the dataset does",
            )

    def coverage(self, ids: Sequence[str]) -> tuple[list[str], list[str]]:
        """The images that have no record, and the recorded ones that are not among ``ids``."""
        requested = set(ids)
        unrecorded = [image for image in ids if image not in self._rows]
        not_requested = [image for image in self.ids if image not in requested]
        return unrecorded, not_requested


def _first_class(classes: Sequence[int]) -> int:
    """The first class that is not missing, or MISSING."""
    for index in classes:
        if index != MISSING:
            return index
    return MISSING


def load_recorded(target: str, options: Options) -> RecordedPredictions:
    """Load the predictions of one model from a CSV, Parquet or NPZ file.

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
    if outputs is None:
        outputs = _outputs_of(scores, name)
    top = None
    if answers.classes is not None:
        top = class_indices(answers.classes, space, source)
    return RecordedPredictions(
        ids,
        name=name,
        space=space,
        outputs=outputs,
        top=top,
        confidence=answers.confidence,
        scores=scores,
    )


def _outputs_of(scores: ScoreTable | None, name: str) -> Outputs:
    """Whether recorded scores are probabilities or logits."""
    if scores is None:
        return "logits"
    if looks_like_probabilities(scores):
        return "probabilities"
    if looks_like_sigmoids(scores):
        # Read as logits, confidences would be far too low.
        text = f"the scores of {name} lie between 0 and 1 and do not sum to 1: they are read as probabilities of one "
        text += "sigmoid per class, divided by their sum. If they are anything else, their calibration means nothing"
        warn_user(ResultWarning(text, "assumed-outputs"))
        return "probabilities"
    return "logits"


def _in_class_order(scores: ScoreTable, classes: Sequence[str], space: LabelSpace, source: str) -> ScoreTable:
    """The scores, whose columns are named by their classes, in the order of a label space."""
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


def _checked_scores(scores: object, count: int, name: str, space: LabelSpace) -> Scores:
    """Scores as a table of float32; a ClassifierError if they have the wrong shape or are not numbers."""
    with np.errstate(over="ignore"):  # infinite scores are refused below
        table = np.ascontiguousarray(scores, dtype=np.float32)
    if table.shape != (count, len(space)):
        raise ClassifierError(
            f"{name} records scores of the wrong shape",
            found=table.shape,
            expected=(count, len(space)),
        )
    # -inf means that the model rules out a class; it cannot rule out all.
    if not ((table < np.inf).all() and (table.max(axis=1) > -np.inf).all()):
        raise ClassifierError(f"{name} records scores that are NaN or infinite")
    return table


def _warn_if_rounded(exact: ScoreTable, rounded: Scores, name: str) -> None:
    """Warn if rounding to float32 changes the best class of an image. Its class is right, but its scores are equal."""
    changed = int((exact.argmax(axis=1) != rounded.argmax(axis=1)).sum())
    if changed:
        text = f"{name} records {exact.dtype} scores. Rounded to float32, {changed} images have other best classes: "
        warn_user(ResultWarning(f"{text}subtract the largest score of each image", "rounded-scores"))


def _check_agreement(top: Top, scores: Scores, name: str) -> None:
    """Raise ClassifierError if the recorded class of an image does not have its best score.

    That happens if a column `class` holds the true classes.
    """
    top_scores = np.take_along_axis(scores, np.maximum(top[:, :1], 0), axis=1)[:, 0]
    is_wrong = (top_scores < scores.max(axis=1)) & (top[:, 0] >= 0)
    wrong = int(is_wrong.sum())
    if wrong:
        raise ClassifierError(
            f"the recorded classes of {name} do not have the best score for {wrong} images",
            hint="remove one of the two; true classes are in a column `label`",
        )


def _checked_top(top: object, count: int, name: str, space: LabelSpace) -> Top:
    """Classes as a table with one row per image; a ClassifierError if it has the wrong shape or unknown classes."""
    table = np.asarray(top)
    if table.ndim == 1:
        table = table[:, None]
    if table.ndim != 2 or len(table) != count:
        raise ClassifierError(f"{name} records classes of the wrong shape", found=table.shape, expected=f"({count}, k)")
    if table.size and (table.min() < NO_ANSWER or table.max() >= len(space)):
        raise ClassifierError(
            f"{name} records class numbers outside {space.name!r}",
            found=f"{table.min()} to {table.max()}",
            expected=f"0 to {len(space) - 1}, -1 for none, or -2 for an answer that is no class",
        )
    # Sorted, equal classes of an image stand beside each other.
    ordered = np.sort(table, axis=1)
    is_repeated = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    if is_repeated.any():
        row = int(np.flatnonzero(is_repeated.any(axis=1))[0])
        raise ClassifierError(
            f"{name} records one class more than once for {int(is_repeated.any(axis=1).sum())} images",
            found=f"{space.names[int(ordered[row, 1:][is_repeated[row]][0])]} among the best classes of row {row}",
            expected="different classes, best first",
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


def best_confidence(scores: ScoreTable, outputs: str) -> Confidence:
    """The softmax probability of the best class; probabilities that do not sum to one are divided by their sum.

    Answers have no confidence: nan.
    """
    if outputs == "answers":
        return np.full(len(scores), np.nan, np.float32)
    best = scores.max(axis=1).astype(np.float64)
    if outputs == "logits":
        return np.asarray(1 / np.exp(scores - best[:, None]).sum(axis=1), np.float32)
    return np.asarray(best / scores.sum(axis=1, dtype=np.float64), np.float32)


# -- files -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers of one model in a file; the classes are as the file writes them."""

    model: str
    ids: Sequence[str] | None  #: None: row i is the i-th image.
    classes: Any = None  #: (N,) or (N, k), best first; keys, names or numbers.
    confidence: ScoreTable | None = None
    scores: ScoreTable | None = None
    #: The classes of the columns of ``scores``, where the file names them; else they are in the label space's order.
    score_classes: tuple[str, ...] | None = None

    def __len__(self) -> int:
        if self.scores is not None:
            return len(self.scores)
        return len(self.classes)

    def only(self, rows: Sequence[int], model: str) -> Answers:
        """The answers in these rows, which are those of ``model``."""
        ids = self.ids
        if ids is not None:
            ids = [ids[row] for row in rows]
        classes = self.classes
        if classes is not None:
            classes = [classes[row] for row in rows]
        confidence = self.confidence
        if confidence is not None:
            confidence = confidence[rows]
        scores = self.scores
        if scores is not None:
            scores = scores[rows]
        return Answers(model, ids, classes, confidence, scores, self.score_classes)


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

    A table with a column ``model`` holds many models, with one row per model and image. A table without that column
    holds one, which has the file's name, or with ``wide`` one per column that has no other meaning. An NPZ file with
    ``models`` holds ``predictions`` (models, images) or (models, images, k), or another array of that shape by the name
    ``array``. Of a table that `shiftbench store export` wrote, the rows of ``setting`` are read.
    """
    path = Path(path)
    columns = read_columns(path)
    if array is not None and "models" not in columns:
        kind = "arrays" if path.suffix == ".npz" else "columns"
        raise ClassifierError(
            f"{path.name} has no array of several models",
            found=f"{kind} {listed(columns, 8)}",
            expected="an NPZ file with the arrays models and " + array,
        )
    if "models" in columns:
        return _stacked(path, columns, array or "predictions")
    if _is_export(columns):
        columns = _exported_columns(columns, setting, path.name)
    models = _column(columns, _MODEL_COLUMNS)
    # Columns with the names of classes are not taken as scores in a table of several models.
    answers = _table_answers(path.stem, columns, labels if models is None else None)
    has_answers = answers.scores is not None or answers.classes is not None
    if models is not None:
        models = [model.strip() if isinstance(model, str) else model for model in models]
        every_model = _answers_by_model(answers, models, path.name, tuple(columns))
    elif has_answers:
        every_model = (answers,)
    elif wide and path.suffix.lower() != ".npz":
        every_model = _answers_by_column(columns, answers.ids)
    else:
        raise ClassifierError(
            f"{path.name} records neither classes nor scores",
            found=f"columns {listed(columns, 8)}",
            expected="prediction, or top1, top2, ..., or scores",
        )
    return PredictionFile(path.name, every_model, _truth(path, columns, answers.ids), tuple(columns))


def _table_answers(model: str, columns: Columns, labels: LabelSpace | None) -> Answers:
    """All rows of a table, as the answers of one model."""
    scores, score_classes = _score_table(columns, labels)
    classes = _class_table(columns)
    confidence = _column(columns, _CONFIDENCE_COLUMNS)
    if confidence is not None:
        confidence = _numbers(confidence, "confidence")
    return Answers(
        model,
        _ids(columns),
        classes=classes,
        confidence=confidence,
        scores=scores,
        score_classes=score_classes,
    )


def _answers_by_model(
    answers: Answers, models: Sequence[object], source: str, titles: tuple[str, ...]
) -> tuple[Answers, ...]:
    """The rows of a table of several models, by the model that each row names."""
    if answers.ids is None:
        raise unnamed(source, titles)
    rows_by_model = by_key((str(model), row) for row, model in enumerate(models))
    return tuple(answers.only(rows, model) for model, rows in rows_by_model.items())


def _answers_by_column(columns: Columns, ids: Sequence[str] | None) -> tuple[Answers, ...]:
    """The columns of a table that has one column of classes per model."""
    reserved_titles = {*_ID_ARRAYS, *_TRUTH_COLUMNS}
    models = [title for title in columns if title.lower() not in reserved_titles]
    return tuple(Answers(model, ids, columns[model]) for model in models)


def _is_export(columns: Columns) -> bool:
    """Whether `shiftbench store export` wrote a table; in such a table, ``id`` is the id of the model."""
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
    setting_read = setting if setting in names else names[0]
    rows = [row for row, name in enumerate(settings) if name == setting_read]
    kept: dict[str, Any] = {}
    for title, values in columns.items():
        kept[title] = [values[row] for row in rows]
    kept["classifier"] = _unique_models(kept["classifier"], kept["id"])
    kept["id"] = kept.pop("image")
    return kept


def _unique_models(names: Sequence[str], versions: Sequence[str]) -> list[str]:
    """For each row the name of its model, or the version where several versions have this name."""
    versions_by_name = by_key(zip(names, versions, strict=True))
    models = []
    for name, version in zip(names, versions, strict=True):
        is_unique = len(set(versions_by_name[name])) == 1
        models.append(name if is_unique else version)
    return models


def _stacked(path: Path, columns: Columns, title: str) -> PredictionFile:
    """The models of an NPZ file, from its array ``title`` of shape (models, images) or (models, images, k)."""
    models = [str(name) for name in np.ravel(columns["models"]).tolist()]
    table = np.asarray(columns.get(title, ()))
    if table.ndim not in (2, 3) or len(table) != len(models):
        raise _no_such_array(path, columns, title, len(models))

    def matching_array(titles: Sequence[str], shape: tuple[int, ...]) -> NDArray[np.generic] | None:
        """For the array ``v4``, this is ``labels_v4``, else ``labels``, else None."""
        specific_titles = [f"{general_title}_{title}" for general_title in titles]
        array = _column(columns, [*specific_titles, *titles])
        if array is None:
            return None
        if np.shape(array) != shape:
            raise ClassifierError(
                f"the arrays of {path.name} do not fit together",
                found=f"{titles[0]} of shape {np.shape(array)}",
                expected=f"{shape}, as {title} has it",
            )
        return np.asarray(array)

    image_count = table.shape[1]
    id_array = matching_array(_ID_ARRAYS, (image_count,))
    label_array = matching_array(_TRUTH_COLUMNS, (image_count,))
    confidences = matching_array(_CONFIDENCE_COLUMNS, (len(models), image_count))
    ids = None
    if id_array is not None:
        ids = [str(image) for image in id_array.tolist()]
    every_model = []
    for i, model in enumerate(models):
        confidence = None
        if confidences is not None:
            confidence = _numbers(confidences[i], "confidence")
        every_model.append(Answers(model, ids, table[i], confidence))
    truth = None
    if label_array is not None:
        truth = Truth(path.name, ids, label_array)
    return PredictionFile(path.name, tuple(every_model), truth, tuple(columns))


def _no_such_array(path: Path, columns: Columns, title: str, model_count: int) -> ClassifierError:
    """The error about a missing array ``title``, which suggests the arrays that have its shape."""
    fitting = []
    for name, values in columns.items():
        if np.ndim(values) in (2, 3) and len(values) == model_count:
            fitting.append(name)
    hint = None
    if fitting:
        hint = f"name the array: {argument('array', ' or '.join(fitting))}"
    shapes = [f"{name} {np.shape(values)}" for name, values in columns.items()]
    return ClassifierError(
        f"{path.name} has no array {title!r} of {model_count} models",
        found=", ".join(shapes),
        expected=f"{title} of shape (models, images) or (models, images, k)",
        hint=hint,
    )


def read_truth(path: str | Path) -> Truth:
    """Read true classes from a table or NPZ file with ``id`` and ``label``, or from an NPY file of labels in order."""
    path = Path(path)
    if path.suffix.lower() == ".npy":
        [labels] = read_columns(path).values()
        return Truth(path.name, None, labels)
    columns = read_columns(path)
    truth = _truth(path, columns, _ids(columns))
    if truth is None:
        raise ClassifierError(
            f"{path.name} does not hold the true classes",
            found=f"columns {listed(columns, 8)}",
            expected=f"a column {' or '.join(_TRUTH_COLUMNS)}",
        )
    return truth


def _stripped_text(value: object) -> str:
    """A cell as text without spaces around it; empty for None, which tables have for an empty cell."""
    if value is None:
        return ""
    return str(value).strip()


def class_indices(classes: object, space: LabelSpace, source: str) -> Top:
    """The number of each class in ``space``; MISSING stays MISSING, and so does an empty text.

    Classes are read as keys, else as names, else as numbers. All classes of a file are read in the same way, so that
    "7" can't mean two things.
    """
    values = np.asarray(classes)
    if values.dtype.kind in "iu" and not any(key.isdecimal() for key in space.keys):
        outside = values[(values < MISSING) | (values >= len(space))]
        if outside.size:
            raise _unknown_classes(np.unique(outside).tolist(), space, source)
        return values.astype(np.int32)
    texts = [_stripped_text(value) for value in values.ravel().tolist()]
    words = set(texts) - {"", str(MISSING)}
    meaning = _meaning(words, space, source)
    meaning |= {"": MISSING, str(MISSING): MISSING}
    return np.array([meaning[text] for text in texts], np.int32).reshape(values.shape)


def _meaning(words: set[str], space: LabelSpace, source: str) -> dict[str, int]:
    """The number of the class that each word stands for; a ClassifierError if no reading fits all words."""
    if all(word in space for word in words):
        meaning = {word: space.index(word) for word in words}
        _warn_if_ambiguous(meaning, space, source)
        return meaning
    unique_names = _unique_names(space)
    if words <= unique_names.keys():
        return {word: unique_names[word] for word in words}
    if all(re.fullmatch(r"\d+\.0|\d+", word) for word in words):
        # A column with missing values is often read as floating-point numbers, such as "7.0".
        whole_numbers = {word: word.removesuffix(".0") for word in words}
        if set(whole_numbers.values()) != words:
            meaning = _meaning(set(whole_numbers.values()), space, source)
            return {word: meaning[number] for word, number in whole_numbers.items()}
        if max(map(int, words), default=0) < len(space):
            return {word: int(word) for word in words}
    unknown = {word for word in words - unique_names.keys() if word not in space and not word.isdigit()}
    raise _unknown_classes(sorted(unknown or words), space, source)


def _unique_names(space: LabelSpace) -> dict[str, int]:
    """The number of each class whose name no other class has."""
    counts = Counter(space.names)
    return {name: i for i, name in enumerate(space.names) if counts[name] == 1}


def _warn_if_ambiguous(meaning: Mapping[str, int], space: LabelSpace, source: str) -> None:
    """Warn if all keys could also be numbers of classes, and some would then mean another class."""
    differing = [word for word, index in meaning.items() if word != str(index)]
    if differing and all(_is_class_number(word, len(space)) for word in meaning):
        word = differing[0]
        text = f"{source}: its classes are read as names of classes of {space.name!r}, but may be meant as numbers"
        warn_user(ResultWarning(f"{text}: {word} is class number {meaning[word]}", "ambiguous-classes"))


def _is_class_number(word: str, class_count: int) -> bool:
    return word.isdecimal() and word == str(int(word)) and int(word) < class_count


def _unknown_classes(classes: Sequence[object], space: LabelSpace, source: str) -> ClassifierError:
    return ClassifierError(
        f"{source} predicts classes that {space.name!r} does not have",
        found=", ".join(map(str, classes[:5])),
        expected=f"keys such as {space.keys[0]}, names such as {space.names[0]}, or numbers below {len(space)}",
    )


def read_columns(path: Path) -> dict[str, object]:
    """The columns of a table as lists or arrays of one length, or the arrays of an NPZ or NPY file, by their titles."""
    readers = {".csv": _read_csv, ".parquet": _read_parquet, ".npz": _read_npz, ".npy": _read_npy}
    reader = readers.get(existing_file(path).suffix.lower())
    if reader is None:
        raise ClassifierError(
            f"{path.name} is not a file of predictions",
            found=path.suffix or "no suffix",
            expected=", ".join(readers),
        )
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
    types = {title: pyarrow.string() for title in _text_columns(header)}
    options = pyarrow.csv.ConvertOptions(column_types=types)
    return _columns_of(pyarrow.csv.read_csv(path, convert_options=options))


def _text_columns(header: Sequence[str]) -> list[str]:
    """The columns of a CSV file that are read as text.

    Ids and classes stay text: "0007.jpg" may be called "0007", and is not 7. Pyarrow finds out the types of scores.
    """
    # A table of so many columns holds scores in columns that are named by their classes.
    is_wide = len(header) >= 100
    text_titles = {*_ID_ARRAYS, *_CLASS_COLUMNS, *_TRUTH_COLUMNS, *_MODEL_COLUMNS}
    columns = []
    for title in header:
        is_score = re.fullmatch(r"score_\d+", title) is not None
        is_text = title.strip().lower() in text_titles or re.fullmatch(r"top\d+", title) is not None
        if not is_score and (is_text or not is_wide):
            columns.append(title)
    return columns


def _read_parquet(path: Path) -> dict[str, object]:
    return _columns_of(read_parquet(path, most_bytes=_MOST_BYTES))


def _columns_of(table: Any) -> dict[str, object]:
    """The columns of a table of pyarrow, by their titles."""
    import pyarrow.types

    titles = [title.strip() for title in table.column_names]
    shared_titles = repeated(title.lower() for title in titles)
    if shared_titles:
        raise ValueError(f"several columns are called {listed(map(repr, shared_titles))}")
    columns: dict[str, object] = {}
    for title, column in zip(titles, table.columns, strict=True):
        if pyarrow.types.is_list(column.type) or pyarrow.types.is_fixed_size_list(column.type):
            columns[title] = _array_of_lists(title, column)
        elif pyarrow.types.is_floating(column.type):
            columns[title] = column.to_numpy()
        else:
            columns[title] = column.to_pylist()
    return columns


def _array_of_lists(title: str, column: Any) -> NDArray[Any]:
    """A column of lists as one array, since conversion to lists of a thousand scores each would take very long.

    Raises ValueError if the lists have different lengths.
    """
    import pyarrow.compute

    lengths = set(pyarrow.compute.list_value_length(column).to_pylist())
    if len(lengths) > 1:
        texts = ["missing" if length is None else str(length) for length in sorted(lengths, key=str)]
        raise ValueError(f"the lists of the column {title!r} have different lengths: {listed(texts)}")
    values: NDArray[Any] = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return values.reshape(len(column), -1)


def _read_npz(path: Path) -> dict[str, object]:
    with zipfile.ZipFile(path) as archive:
        _check_size(sum(member.file_size for member in archive.infolist()))
        for member in archive.infolist():
            if member.filename.endswith(".npy"):
                check_header(archive, member)
    with np.load(path, allow_pickle=False) as arrays:
        return {title: arrays[title] for title in arrays.files}


def _read_npy(path: Path) -> dict[str, object]:
    """The file's only array, which has no name: the scores of all classes, or one class per image."""
    # An array that is mapped can't be larger than its file, whatever its header says.
    array = np.array(np.load(path, mmap_mode="r", allow_pickle=False))
    holds_scores = array.ndim == 2 and array.dtype.kind == "f"
    title = _SCORE_ARRAYS[0] if holds_scores else _CLASS_COLUMNS[0]
    return {title: array}


def _check_size(unpacked: int) -> None:
    if unpacked > _MOST_BYTES:
        raise ValueError(f"it unpacks to {unpacked / (1 << 30):.0f} GiB, more than the {_MOST_BYTES >> 30} allowed")


def _truth(path: Path, columns: Columns, ids: Sequence[str] | None) -> Truth | None:
    labels = _column(columns, _TRUTH_COLUMNS)
    if labels is None:
        return None
    return Truth(path.name, ids, labels)


def _ids(columns: Columns) -> list[str] | None:
    ids = _column(columns, _ID_ARRAYS)
    if ids is None:
        return None
    return [str(image) for image in ids]


def unnamed(source: str, titles: Sequence[str], hint: str | None = None) -> ClassifierError:
    """The error about a file that does not say which images it is about."""
    return ClassifierError(
        f"{source} does not name its images",
        found=f"columns {listed(titles, 8)}",
        expected=f"a column {' or '.join(_ID_COLUMNS)}",
        hint=hint,
    )


def _column(columns: Columns, titles: Sequence[str]) -> Any:
    """The first column that has one of these titles, in capitals or not; None if there is none."""
    by_lower_title = {title.lower(): title for title in columns}
    for title in titles:
        if title in by_lower_title:
            return columns[by_lower_title[title]]
    return None


def _score_table(columns: Columns, labels: LabelSpace | None) -> tuple[ScoreTable | None, tuple[str, ...] | None]:
    """The scores of all classes as they are recorded, and the classes of their columns where the file names them."""
    for title in _SCORE_ARRAYS:
        if title in columns:
            return _precise(list(columns[title])), None
    for prefix in _SCORE_PREFIXES:
        titles = _numbered(columns, prefix, first=0)
        if titles:
            return _scores_called(prefix, columns, titles), None
        titles = [title for title in columns if title.startswith(prefix) and title != prefix]
        if len(titles) > 1:
            classes = tuple(title.removeprefix(prefix) for title in titles)
            return _scores_called(prefix, columns, titles), classes
    if labels is not None and all(key in columns for key in labels.keys):
        return _stacked_columns(columns, labels.keys), None
    return None, None


def _scores_called(prefix: str, columns: Columns, titles: Sequence[str]) -> ScoreTable:
    """The scores in some columns; raises ClassifierError if they are called probabilities and cannot be."""
    scores = _stacked_columns(columns, titles)
    answered = scores[~np.isnan(scores).any(axis=1)]
    may_be_probabilities = looks_like_probabilities(answered) or looks_like_sigmoids(answered)
    if prefix in _PROBABILITY_PREFIXES and not may_be_probabilities:
        raise ClassifierError(
            f"the columns {prefix}... hold no probabilities",
            found=f"values from {answered.min(initial=0):.4g} to {answered.max(initial=0):.4g}",
            expected="0 to 1, or percentages that sum to 100; columns of logits are called logit_...",
        )
    return scores


def _precise(values: object) -> ScoreTable:
    """An array of float32 as it is, other numbers as float64."""
    array = np.asarray(values)
    if array.dtype == np.float32:
        return np.asarray(array, np.float32)
    return np.asarray(array, np.float64)


def _stacked_columns(columns: Columns, titles: Sequence[str]) -> ScoreTable:
    return _precise(np.stack([_numbers(columns[title], title) for title in titles], axis=1))


def _class_table(columns: Columns) -> Any:
    """The predicted class of each image, or a list of its best classes; None if the file records no classes."""
    ranked_titles = _numbered(columns, "top", first=1)
    if ranked_titles:
        ranks = [columns[title] for title in ranked_titles]
        return [list(row) for row in zip(*ranks, strict=True)]
    return _column(columns, _CLASS_COLUMNS)


def _numbered(columns: Columns, prefix: str, first: int) -> list[str]:
    """Columns such as score_0, score_1, ..., in this order.

    Raises ClassifierError if a number is missing, since every score after the gap would belong to another class.
    """
    matching = [title for title in columns if re.fullmatch(rf"{prefix}\d+", title)]
    titles = sorted(matching, key=lambda title: int(title.removeprefix(prefix)))
    expected = [f"{prefix}{number}" for number in range(first, first + len(titles))]
    if titles != expected:
        message = f"the columns {prefix}N do not count from {first} without gaps"
        raise ClassifierError(message, found=listed(titles), expected=listed(expected))
    return titles


def _numbers(values: Any, column: str) -> ScoreTable:
    """The values of a column as numbers, NaN where one is missing; a ClassifierError if they are not numeric."""
    with raising(ClassifierError, f"the column {column!r} is not numeric", TypeError, ValueError):
        if isinstance(values, np.ndarray):
            return _precise(values)
        return np.array([np.nan if value in ("", None) else float(value) for value in values], np.float64)
