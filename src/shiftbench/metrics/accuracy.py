"""Top-1 and top-5 accuracy, error, and the accuracy of every class.

Only rows that count enter: images that could be read and have a label in the setting's space. Whether the
other classes of a 1,000-class classifier compete (unmasked) or not (masked to 200) is decided by
the setting and shown by its name; here the predictions are taken as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftbench.arrays import FloatArray, IntArray
from shiftbench.errors import ShiftbenchError
from shiftbench.metrics.arrays import truths
from shiftbench.metrics.base import Needs, Score, metric
from shiftbench.metrics.intervals import Interval, clopper_pearson, share_interval
from shiftbench.store.predictions import Predictions


def hits(predictions: Predictions, k: int = 1) -> NDArray[np.bool_]:
    """For each row that counts, whether its label is among the k best classes."""
    needed = min(k, len(predictions.space))
    stored = predictions.top.shape[1]
    if stored < needed:
        raise ShiftbenchError(
            f"top-{k} of {predictions.classifier!r} in {predictions.setting!r} needs more stored classes",
            found=f"the best {stored} of each image",
            expected=f"the best {needed}",
            hint="rerun eval with this metric, so that the run stores what it needs",
        )
    # All rows are compared, and invalid ones removed last: masking flags is far cheaper than masking rows of classes.
    is_hit: NDArray[np.bool_] = predictions.top[:, 0] == predictions.labels
    for rank in range(1, needed):
        is_hit |= predictions.top[:, rank] == predictions.labels
    if predictions.valid.all():
        return is_hit
    return is_hit[predictions.valid]


def proportion(
    name: str, k: int, predictions: Predictions, *, n: int, level: float, higher_is_better: bool = True
) -> Score:
    """k of n as a score with its Clopper-Pearson interval; nan in [0, 1] when no image counts.

    Args:
        name: Name of the metric.
        k: Number of hits.
        predictions: Where provenance comes from.
        n: Number of images that count.
        level: Confidence level of the intervals.
        higher_is_better: Whether a larger value is better.
    """
    low, high = _proportion_interval(k, n, level)
    value = k / n if n else float("nan")
    return Score(name, value, low, high, n, level, provenance=predictions.provenance, higher_is_better=higher_is_better)


@lru_cache(maxsize=4096)
def _proportion_interval(k: int, n: int, level: float) -> Interval:
    """The interval of k of n; thousands of results of one workspace share a few hundred pairs of counts."""
    return clopper_pearson(k, n, level)


@metric("top1", needs=Needs(top_k=1, confidence=False))
def top1(predictions: Predictions, *, level: float = 0.95) -> Score:
    """The share of images whose best class is the label."""
    correct = hits(predictions, 1)
    return proportion("top1", int(correct.sum()), predictions, n=len(correct), level=level)


@metric("top5", needs=Needs(top_k=5, confidence=False))
def top5(predictions: Predictions, *, level: float = 0.95) -> Score:
    """The share of images whose label is among the five best classes (all of them in a smaller space)."""
    correct = hits(predictions, 5)
    return proportion("top5", int(correct.sum()), predictions, n=len(correct), level=level)


@metric("error", needs=Needs(top_k=1, confidence=False), higher_is_better=False)
def error(predictions: Predictions, *, level: float = 0.95) -> Score:
    """One minus top-1 accuracy."""
    wrong = ~hits(predictions, 1)
    return proportion("error", int(wrong.sum()), predictions, n=len(wrong), level=level, higher_is_better=False)


def class_counts(predictions: Predictions) -> tuple[IntArray, IntArray]:
    """For each class of the space: how many of its images are right, and how many count."""
    labels = predictions.labels[predictions.valid]
    classes = len(predictions.space)
    correct = np.bincount(labels[predictions.correct], minlength=classes)
    n = np.bincount(labels, minlength=classes)
    return correct, n


@metric("class_mean", needs=Needs(top_k=1, confidence=False))
def class_mean(predictions: Predictions, *, level: float = 0.95) -> Score:
    """The mean over classes of their accuracies, among the classes with images: each class counts alike."""
    _, n = class_counts(predictions)
    return weighted_class_accuracy("class_mean", predictions, (n > 0).astype(np.float64), level=level)


def weighted_class_accuracy(name: str, predictions: Predictions, weights: FloatArray, *, level: float = 0.95) -> Score:
    """The mean of the classes' accuracies with these weights, among the classes with images.

    Args:
        name: Name of the metric.
        predictions: Predictions of one model.
        weights: One for each class of the label space.
        level: Confidence level of the interval.
    """
    method = "class-weighted t on logit scale"
    correct, n = class_counts(predictions)
    weights = np.where(n > 0, weights, 0.0)
    if not weights.sum():
        return Score(name, float("nan"), 0.0, 1.0, 0, level, method, predictions.provenance)
    weights = weights / weights.sum()
    accuracies = correct / np.maximum(n, 1)
    value = float(weights @ accuracies)
    labels = predictions.labels[predictions.valid]
    # By how much each image moves the mean, times the number of images.
    deviations = predictions.correct - accuracies[labels]
    influence = len(labels) * weights[labels] / n[labels] * deviations
    low, high = share_interval(value, influence, level)
    return Score(name, value, low, high, len(labels), level, method, predictions.provenance)


@metric("worst_class", needs=Needs(top_k=1, confidence=False))
def worst_class(predictions: Predictions, *, level: float = 0.95) -> Score:
    """The accuracy of the class that does worst, among the classes with images."""
    correct, n = class_counts(predictions)
    return lowest_accuracy(
        "worst_class", correct[n > 0], n[n > 0], "classes", level=level, provenance=predictions.provenance
    )


def lowest_accuracy(
    name: str, correct: IntArray, n: IntArray, kind: str, *, level: float, provenance: str = ""
) -> Score:
    """The lowest of K accuracies, with a simultaneous interval; ``n`` is the images of all K.

    The lowest of K noisy numbers looks worse than it is: each gets a Clopper-Pearson interval at level^(1/K)
    (Šidák 1967), all K hold together at ``level``, and then the true minimum lies between the least low and the
    least high end.
    """
    method = f"clopper-pearson, simultaneous over {kind}"
    if not len(n):
        return Score(name, float("nan"), 0.0, 1.0, 0, level, method, provenance)
    low, high = clopper_pearson(correct, n, level ** (1.0 / len(n)))
    value = float((correct / n).min())
    return Score(name, value, float(low.min()), float(high.min()), int(n.sum()), level, method, provenance)


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
    counts = _counts(correct, groups)
    lows, highs = clopper_pearson(counts.correct, counts.images, level)
    rows: list[GroupAccuracy] = []
    for i, name in enumerate(counts.names):
        right = int(counts.correct[i])
        images = int(counts.images[i])
        rows.append(GroupAccuracy(name, right, images, right / images, float(lows[i]), float(highs[i])))
    return rows


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
    counts = _counts(correct, groups)
    return lowest_accuracy("worst_group", counts.correct, counts.images, "groups", level=level, provenance=provenance)


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


class _GroupCounts(NamedTuple):
    """The names of all groups, and the number of correct and of all images of each."""

    names: list[str]
    correct: IntArray
    images: IntArray


def _counts(correct: ArrayLike, groups: Groups) -> _GroupCounts:
    """The images of each group; raises ShiftbenchError for an image without one."""
    hits = truths("correct", correct)
    for group in groups:
        if group is None or (isinstance(group, float) and np.isnan(group)):
            raise ShiftbenchError(
                "an image without a group",
                found=group,
                expected="a group for each image",
                hint='give it a name such as "unknown"',
            )
    column = np.array([str(group) for group in groups], dtype=object)
    if hits.shape != column.shape:
        raise ShiftbenchError(
            "hits and groups differ in number",
            found=f"{hits.shape} and {column.shape}",
            expected="one of each per image",
        )
    names = sorted(set(column), key=_group_order)
    position = {name: i for i, name in enumerate(names)}
    positions = np.array([position[name] for name in column], dtype=np.int64)
    correct_counts = np.bincount(positions[hits], minlength=len(names))
    image_counts = np.bincount(positions, minlength=len(names))
    return _GroupCounts(names, correct_counts, image_counts)


def _group_order(name: str) -> tuple[bool, int, str]:
    """Whole numbers come first, by their size; the other names follow in alphabetical order."""
    if name.isascii() and name.isdecimal():
        return False, int(name), name
    return True, 0, name


def groups_of_images(predictions: Predictions, groups: Groups | Mapping[str, object]) -> list[object]:
    """The group of every image in the predictions' order; raises ShiftbenchError if an image has none."""
    if isinstance(groups, Mapping):
        missing = [name for name in predictions.ids if name not in groups]
        if missing:
            raise ShiftbenchError(
                "images without a group", found=f"{len(missing)} of {len(predictions)}, the first is {missing[0]}"
            )
        return [groups[name] for name in predictions.ids]
    if len(groups) != len(predictions):
        raise ShiftbenchError(
            "groups and predictions differ in number",
            found=f"{len(groups)} and {len(predictions)}",
            expected="one group per image",
        )
    return list(groups)


def _column(predictions: Predictions, groups: Groups | Mapping[str, object]) -> NDArray[np.generic]:
    """The groups of the rows that count."""
    column = np.empty(len(predictions), dtype=object)
    column[:] = groups_of_images(predictions, groups)
    return column[predictions.valid]
