"""Predictions computed elsewhere: per image the classes, with confidences or all scores if known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.classifiers.base import Classifier, Outputs
from shiftbench.classifiers.options import Options, looks_like_probabilities, space_for
from shiftbench.classifiers.preprocessing import Preprocessing
from shiftbench.classifiers.recorded_files import (
    MISSING,
    Answers,
    Confidence,
    Top,
    class_indices,
    read_predictions,
    unnamed,
)
from shiftbench.errors import ClassifierError, argument
from shiftbench.io.hashing import digest
from shiftbench.labels.space import LabelSpace, Scores

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
            if np.isnan(table).any():
                raise ClassifierError(f"{name} records scores that are no numbers")
            self.recorded_scores = table
            if top is None:
                top = np.argsort(-table, axis=1, kind="stable")[:, :_TOP]
                confidence = _confidence(table, outputs) if confidence is None else confidence
        if top is None:
            raise ClassifierError(f"{name} records neither classes nor scores")
        self.top = _checked_top(top, len(self.ids), name, space)
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
                f"{self.name} does not tell the best class of {source.space.name!r} for {len(unanswered)} images",
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
                f"{self.name} knows none of the {len(ids)} images",
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
    names or numbers, with an optional ``confidence``; or one column of scores for each class, named by its key
    or ``score_0``, ``score_1``, ... Parquet and NPZ may hold lists ``top`` and ``scores`` instead.
    """
    labels = options.own_labels
    file = read_predictions(target, labels)
    if len(file.answers) != 1:
        raise ClassifierError(
            f"{file.source} records {len(file.answers)} models, and a classifier is one",
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
    name, scores, space = name or answers.model, answers.scores, labels
    if scores is not None:
        space = space_for(name, scores.shape[1], labels)
    if space is None:
        raise ClassifierError(f"unknown label space of {source}", hint=argument("labels", "imagenet-1k"))
    likely: Outputs = "probabilities" if scores is not None and looks_like_probabilities(scores) else "logits"
    top = None if answers.classes is None else class_indices(answers.classes, space, source)
    given: dict[str, Any] = {"top": top, "confidence": answers.confidence, "scores": scores}
    return RecordedPredictions(ids, name=name, space=space, outputs=outputs or likely, **given)


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
            f"{name} records {len(outside)} confidences that are no probabilities",
            found=float(outside[0]),
            expected="0 to 1, or empty where there is none",
        )
    return values


def _confidence(scores: Scores, outputs: Outputs) -> Confidence:
    """The softmax probability of the best class; probabilities over fewer classes are shared out anew."""
    best = scores.max(axis=1).astype(np.float64)
    if outputs == "logits":
        return np.asarray(1 / np.exp(scores - best[:, None]).sum(axis=1), np.float32)
    return np.asarray(best / scores.sum(axis=1, dtype=np.float64), np.float32)
