"""Can a classifier tell the old test set from the new one? (004 appendices B.2.8 and C.3.3)

From either set the same number of images of every class is drawn. In each of a few folds a discriminator is trained
on the other folds and asked where the images of this one come from. An accuracy near one half means that it sees no
difference; 004's best were 53.1 % for CIFAR-10 and 50.7 % for ImageNet.

Discriminators: logistic regression on what a descriptor sees (pixels, or a classifier's features, which stands for a
pre-trained network), and ``network``, a small convolutional network from random weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.classifiers.base import Classifier
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.subset import take
from shiftbench.errors import ShiftbenchError
from shiftbench.jobs.progress import progress_bar
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.reports.table import Column, Table
from shiftbench.testsets.followups.folds import deal, shuffled_groups
from shiftbench.testsets.followups.linear import by_logistic_regression
from shiftbench.testsets.near_duplicates.descriptors import SIDE, Descriptor, PixelDescriptor, describe, descriptor

Rows = NDArray[Any]
Origins = NDArray[np.int64]
#: Trained on rows and their origins, then the origins of other rows.
Discriminate = Callable[[Rows, Origins, Rows, int], Origins]

NETWORK = "network"
FOLDS = 5


@dataclass(frozen=True)
class Discriminated:
    """One discriminator's answers on images that it was not trained on."""

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
        """Whether one half lies below its interval."""
        return self.low > 0.5


class Discrimination(Table):
    """One row a discriminator, as tables 5 and 14 of 004."""

    def __init__(self, found: Sequence[Discriminated], old: Dataset, new: Dataset, each: int, folds: int) -> None:
        self.found = list(found)
        rows = [
            {"discriminator": one.name, "correct": one.correct, "n": one.n, "accuracy": one.accuracy, "low": one.low,
             "high": one.high, "difference": "seen" if one.sees_a_difference else "not seen"}
            for one in found
        ]  # fmt: skip
        super().__init__(
            [
                Column("discriminator", "discriminator"),
                Column("accuracy", "accuracy %", "number", ends=("low", "high"), times=100, places=1),
                Column("difference", "difference"),
            ],
            rows,
            title=f"{old.name} or {new.name}?",
            lead=[f"{each:,} images of either set, as many of each class, {folds}-fold cross-validation"],
            notes=["images of one fold are judged by one model: the interval is a little too narrow for that"],
        )


def discriminate(
    old: Dataset,
    new: Dataset,
    *,
    by: Sequence[str | Classifier | Descriptor] = ("pixels", NETWORK),
    folds: int = FOLDS,
    per_class: int | None = None,
    seed: int = 0,
    level: float = 0.95,
    folder: str | Path | None = None,
    workers: int | None = None,
    show: bool = False,
) -> Discrimination:
    """Train discriminators between two sets and count what they get right on held-out images.

    ``by``: "pixels", "pixels-normalised", a classifier or its spec (logistic regression on its features), or
    "network". ``per_class`` limits the images of a class that are drawn from either set.
    """
    if folds < 2:
        raise ShiftbenchError("bad number of folds", found=folds, expected="2 or more")
    sides = _balanced(old, new, per_class, seed)
    found = []
    for spec in by:
        described, name, method = _discriminator(spec)
        rows, origins, fold = _gathered(sides, described, folds, seed, folder, workers, show)
        right = _held_out(rows, origins, fold, method, f"discriminating by {name}", seed, show) == origins
        low, high = clopper_pearson(int(right.sum()), len(right), level)
        found.append(Discriminated(name, int(right.sum()), len(right), low, high))
    return Discrimination(found, old, new, len(sides[0]), folds)


def _discriminator(spec: str | Classifier | Descriptor) -> tuple[Descriptor, str, Discriminate]:
    if spec == NETWORK:
        from shiftbench.testsets.followups.discriminator_network import by_network

        return PixelDescriptor(), NETWORK, lambda rows, *rest: by_network(rows, *rest, side=SIDE)
    described = descriptor(spec)
    return described, f"logistic on {described.name}", by_logistic_regression


def _balanced(old: Dataset, new: Dataset, per_class: int | None, seed: int) -> tuple[Dataset, Dataset]:
    """The same number of images of every class from both; of all, where neither has labels."""
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
    sides: tuple[Dataset, Dataset],
    described: Descriptor,
    folds: int,
    seed: int,
    folder: str | Path | None,
    workers: int | None,
    show: bool,
) -> tuple[Rows, Origins, NDArray[np.int64]]:
    """Rows of both sides, where they come from, and their folds, which are balanced over sets and classes."""
    kept = None if folder is None else Path(folder)
    rows, origins, fold = [], [], []
    for origin, side in enumerate(sides):
        found = describe(side, [described], folder=kept, workers=workers, show=show)[0]
        readable = np.flatnonzero(found.readable)
        rows.append(found.rows[readable])
        origins.append(np.full(len(readable), origin))
        fold.append(deal(side.ids, side.labels.tolist(), folds, seed)[readable])
    return np.concatenate(rows), np.concatenate(origins), np.concatenate(fold)


def _held_out(
    rows: Rows, origins: Origins, fold: NDArray[np.int64], method: Discriminate, what: str, seed: int, show: bool
) -> Origins:
    """Every image's origin as guessed by the model that was not trained on it."""
    guesses = np.full(len(rows), -1)
    with progress_bar(what, len(rows), show=show) as advance:
        for one in np.unique(fold).tolist():
            here = fold == one
            guesses[here] = method(rows[~here], origins[~here], rows[here], seed)
            advance(int(here.sum()))
    return guesses
