"""Can a model distinguish the old test set from the new one? (004 appendices B.2.8 and C.3.3)

The same number of images per class is drawn from both sets. With cross-validation, a discriminator predicts which set
the held-out images come from. An accuracy near one half means that it sees no difference; the best in 004 reached
53.1 % for CIFAR-10 and 50.7 % for ImageNet.

Discriminators here: logistic regression on a descriptor (pixels, or the features of a pretrained model). Networks are
trained by recipes: ``hardening.followups.discriminate_by_recipe``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import IntArray
from shiftbench.classifiers.base import Classifier
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.subset import take
from shiftbench.errors import ShiftbenchError
from shiftbench.jobs.blocks import ComputeOptions
from shiftbench.jobs.progress import progress_bar
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.reports.table import Column, Table
from shiftbench.testsets.followups.splits import by_logistic_regression, deal, shuffled_groups
from shiftbench.testsets.near_duplicates.descriptors import Descriptor, describe, descriptor


@dataclass(frozen=True)
class Discriminated:
    name: str
    correct: int
    n: int
    low: float
    high: float

    @property
    def accuracy(self) -> float:
        return self.correct / self.n

    @property
    def sees_a_difference(self) -> bool:
        return self.low > 0.5


class Discrimination(Table):
    def __init__(self, found: Sequence[Discriminated], old: Dataset, new: Dataset, each: int, folds: int) -> None:
        self.found = list(found)
        rows = [
            {
                "discriminator": one.name,
                "correct": one.correct,
                "n": one.n,
                "accuracy": one.accuracy,
                "low": one.low,
                "high": one.high,
                "difference": "detected" if one.sees_a_difference else "not detected",
            }
            for one in found
        ]
        columns = [
            Column("discriminator", "discriminator"),
            Column("accuracy", "accuracy %", "number", ends=("low", "high"), times=100, places=1),
            Column("difference", "difference"),
        ]
        super().__init__(
            columns,
            rows,
            title=f"{old.name} or {new.name}?",
            lead=[f"{each:,} images per set, balanced over classes, {folds}-fold cross-validation"],
            notes=["images of one fold share a model, so the interval is slightly too narrow"],
        )


def discriminate(
    old: Dataset,
    new: Dataset,
    *,
    by: Sequence[str | Classifier | Descriptor] = ("pixels",),
    folds: int = 5,
    per_class: int | None = None,
    seed: int = 0,
    level: float = 0.95,
    workers: int | None = None,
    show: bool = False,
) -> Discrimination:
    """Train discriminators between two sets and measure their accuracy on held-out images.

    ``by``: "pixels", "pixels-normalised", or a classifier or model spec (its features). ``per_class`` limits the images
    per class and set.
    """
    if folds < 2:
        raise ShiftbenchError("invalid number of folds", found=folds, expected="2 or more")
    sides, options = _balanced(old, new, per_class, seed), ComputeOptions(None, workers, show=show)
    found = []
    for spec in by:
        described = descriptor(spec)
        name = f"logistic on {described.name}"
        rows, origins, fold = _gathered(sides, described, folds, seed, options)
        guesses = np.full(len(rows), -1)
        with progress_bar(f"discriminating by {name}", len(rows), show=show) as advance:
            for one in np.unique(fold).tolist():  # every image by the model of its fold
                here = fold == one
                guesses[here] = by_logistic_regression(rows[~here], origins[~here], rows[here], seed)
                advance(int(here.sum()))
        right = guesses == origins
        low, high = clopper_pearson(int(right.sum()), len(right), level)
        found.append(Discriminated(name, int(right.sum()), len(right), low, high))
    return Discrimination(found, old, new, len(sides[0]), folds)


def _balanced(old: Dataset, new: Dataset, per_class: int | None, seed: int) -> tuple[Dataset, Dataset]:
    """The same number of images per class from both sets; unlabelled images count as one class."""
    groups = []
    for side in (old, new):
        keys = [side.space.keys[label] if label >= 0 else "" for label in side.labels.tolist()]
        groups.append(shuffled_groups(side.ids, keys, seed))
    shared = [key for key in groups[0] if key in groups[1]]
    counts = {key: min(len(groups[0][key]), len(groups[1][key]), per_class or len(old)) for key in shared}
    if sum(counts.values()) < 2:
        raise ShiftbenchError(
            f"{old.name!r} and {new.name!r} have no classes in common",
            found=f"{', '.join(list(groups[0])[:3])} and {', '.join(list(groups[1])[:3])}",
            expected="images of the same classes",
        )
    chosen = [sorted(i for key, count in counts.items() for i in group[key][:count]) for group in groups]
    return take(old, chosen[0]), take(new, chosen[1])


def _gathered(
    sides: tuple[Dataset, Dataset], described: Descriptor, folds: int, seed: int, options: ComputeOptions
) -> tuple[NDArray[np.generic], IntArray, IntArray]:
    """Rows of both sets, their origins, and their folds, which are balanced over sets and classes."""
    rows, origins, fold = [], [], []
    for origin, side in enumerate(sides):
        found = describe(side, [described], options)[0]
        readable = np.flatnonzero(found.readable)
        rows.append(found.rows[readable])
        origins.append(np.full(len(readable), origin))
        fold.append(deal(side.ids, side.labels.tolist(), folds, seed)[readable])
    return np.concatenate(rows), np.concatenate(origins), np.concatenate(fold)
