"""Accuracy by group: per country, year, camera, photographer, or any other column; and of the worst group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftbench.arrays import IntArray
from shiftbench.errors import ShiftbenchError
from shiftbench.metrics.accuracy import lowest_accuracy
from shiftbench.metrics.arrays import truths
from shiftbench.metrics.base import Score
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.store.predictions import Predictions

#: One group per image: a list, or a column of any type.
Groups = Sequence[object] | NDArray[Any]


@dataclass(frozen=True)
class GroupAccuracy:
    """One group's accuracy with its own Clopper-Pearson interval."""

    group: str
    correct: int
    n: int
    value: float
    low: float
    high: float


def group_accuracy(correct: ArrayLike, groups: Groups, *, level: float = 0.95) -> list[GroupAccuracy]:
    """Every group that has an image, in order (9 before 10), each with its own interval at ``level``.

    Args:
        correct: Whether each prediction is correct.
        groups: Group of each image.
        level: Confidence level of the intervals.

    Example:
        >>> [(row.group, row.value) for row in group_accuracy([1, 0, 1], ["fr", "us", "us"])]
        [('fr', 1.0), ('us', 0.5)]
    """
    names, right, n = _counts(correct, groups)
    low, high = clopper_pearson(right, n, level)
    return [
        GroupAccuracy(name, int(k), int(m), int(k) / int(m), float(lo), float(hi))
        for name, k, m, lo, hi in zip(names, right, n, low, high, strict=True)
    ]


def worst_group_accuracy(correct: ArrayLike, groups: Groups, *, level: float = 0.95, provenance: str = "") -> Score:
    """The accuracy of the group that does worst.

    The interval is simultaneous (see ``accuracy.lowest_accuracy``). Groups of few images have low ends near 0 and
    so make it wide. ``n`` is all images.

    Args:
        correct: Whether each prediction is correct.
        groups: Group of each image.
        level: Confidence level of the intervals.
        provenance: Where the numbers come from; one line that is kept with the score.

    Example:
        >>> score = worst_group_accuracy([1, 0, 1], ["fr", "us", "us"])
        >>> score.value, score.n
        (0.5, 3)
    """
    _, right, n = _counts(correct, groups)
    return lowest_accuracy("worst_group", right, n, "groups", level=level, provenance=provenance)


def per_group(
    predictions: Predictions, groups: Groups | Mapping[str, object], *, level: float = 0.95
) -> list[GroupAccuracy]:
    """Top-1 accuracy of every group; ``groups`` holds one per image, in the predictions' order or by image id.

    Args:
        predictions: The predictions of one model in one setting.
        groups: Group of each image, in the predictions' order or by image id.
        level: Confidence level of the intervals.
    """
    return group_accuracy(predictions.correct, _column(predictions, groups), level=level)


def worst_group(predictions: Predictions, groups: Groups | Mapping[str, object], *, level: float = 0.95) -> Score:
    """Top-1 accuracy of the group that does worst, with its simultaneous interval.

    Args:
        predictions: The predictions of one model in one setting.
        groups: Group of each image, in the predictions' order or by image id.
        level: Confidence level of the intervals.
    """
    column = _column(predictions, groups)
    return worst_group_accuracy(predictions.correct, column, level=level, provenance=predictions.provenance)


def _counts(correct: ArrayLike, groups: Groups) -> tuple[list[str], IntArray, IntArray]:
    """Names, hits and images of every group."""
    hits, column = truths("correct", correct), np.array([_name(group) for group in groups], dtype=object)
    if hits.shape != column.shape:
        raise ShiftbenchError(
            "hits and groups differ in number",
            found=f"{hits.shape} and {column.shape}",
            expected="one of each per image",
        )
    names = sorted(set(column), key=_in_order)
    place = {name: i for i, name in enumerate(names)}
    places = np.array([place[name] for name in column], dtype=np.int64)
    n = np.bincount(places, minlength=len(names))
    return names, np.bincount(places[hits], minlength=len(names)), n


def _in_order(name: str) -> tuple[bool, int, str]:
    """Whole numbers first, by their size; then the rest, as text."""
    number = name.isascii() and name.isdecimal()
    return (not number, int(name) if number else 0, name)


def _name(group: object) -> str:
    if group is None or (isinstance(group, float) and np.isnan(group)):
        raise ShiftbenchError(
            "an image without a group",
            found=group,
            expected="a group for each image",
            hint='give it a name such as "unknown"',
        )
    return str(group)


def _column(predictions: Predictions, groups: Groups | Mapping[str, object]) -> NDArray[Any]:
    """The groups of the rows that count."""
    if isinstance(groups, Mapping):
        missing = [name for name in predictions.ids if name not in groups]
        if missing:
            raise ShiftbenchError(
                "images without a group", found=f"{len(missing)} of {len(predictions)}, the first is {missing[0]}"
            )
        groups = [groups[name] for name in predictions.ids]
    if len(groups) != len(predictions):
        raise ShiftbenchError(
            "groups and predictions differ in number",
            found=f"{len(groups)} and {len(predictions)}",
            expected="one group per image",
        )
    column = np.empty(len(groups), dtype=object)
    column[:] = list(groups)
    return column[predictions.valid]
