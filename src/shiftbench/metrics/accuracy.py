"""Top-1 and top-5 accuracy, error, and the accuracy of every class.

Only rows that count enter: images that could be read and have a label in the setting's space. Whether the
other classes of a 1,000-class classifier compete (unmasked) or not (masked to 200) is decided by
the setting and shown by its name; here the predictions are taken as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import IntArray
from shiftbench.errors import ShiftbenchError
from shiftbench.metrics.base import Needs, Score, metric
from shiftbench.metrics.intervals import clopper_pearson
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
    # Compared whole and thinned out last: a mask over flags is far cheaper than one over rows of classes.
    found: NDArray[np.bool_] = predictions.top[:, 0] == predictions.labels
    for rank in range(1, needed):
        found |= predictions.top[:, rank] == predictions.labels
    return found if predictions.valid.all() else found[predictions.valid]


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
    low, high = clopper_pearson(k, n, level)
    value = k / n if n else float("nan")
    return Score(name, value, low, high, n, level, provenance=predictions.provenance, higher_is_better=higher_is_better)


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


@dataclass(frozen=True)
class ClassAccuracy:
    """One class's top-1 accuracy; nan in [0, 1] where the setting has no image of the class."""

    key: str
    name: str
    correct: int
    n: int
    value: float
    low: float
    high: float


def class_counts(predictions: Predictions) -> tuple[IntArray, IntArray]:
    """For each class of the space: how many of its images are right, and how many count."""
    labels, size = predictions.labels[predictions.valid], len(predictions.space)
    n = np.bincount(labels, minlength=size)
    return np.bincount(labels[predictions.correct], minlength=size), n


def per_class(predictions: Predictions, *, level: float = 0.95) -> list[ClassAccuracy]:
    """Every class of the space, in its order, each with its own interval at ``level``."""
    correct, n = class_counts(predictions)
    low, high = clopper_pearson(correct, n, level)
    space = predictions.space
    return [
        ClassAccuracy(key, name, int(k), int(m), int(k) / int(m) if m else float("nan"), float(lo), float(hi))
        for key, name, k, m, lo, hi in zip(space.keys, space.names, correct, n, low, high, strict=True)
    ]


def worst_classes(predictions: Predictions, count: int = 10, *, level: float = 0.95) -> list[ClassAccuracy]:
    """The classes with the lowest accuracy, worst first; among equals the one with more images first."""
    present = [row for row in per_class(predictions, level=level) if row.n]
    return sorted(present, key=lambda row: (row.value, -row.n))[:count]


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
