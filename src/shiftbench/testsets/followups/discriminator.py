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

from shiftbench import Classifier, Dataset, ShiftbenchError
from shiftbench.datasets import take
from shiftbench.extend.jobs import ComputeOptions
from shiftbench.extend.tables import Column, Table
from shiftbench.extend.types import IntArray
from shiftbench.jobs import progress_bar
from shiftbench.metrics import clopper_pearson
from shiftbench.testsets.followups.splits import by_logistic_regression, deal, shuffled_groups
from shiftbench.testsets.near_duplicates.descriptors import Descriptor, describe, descriptor


@dataclass(frozen=True)
class Discriminated:
    """How many held-out images a discriminator attributed to the right set, with the interval of that share."""

    name: str
    correct: int
    #: Held-out images of both sets.
    n: int
    #: The ends of the interval of the accuracy.
    low: float
    high: float

    @property
    def accuracy(self) -> float:
        return self.correct / self.n

    @property
    def sees_a_difference(self) -> bool:
        return self.low > 0.5


class Discrimination(Table):
    """The accuracy of every discriminator between two sets."""

    def __init__(self, found: Sequence[Discriminated], old: Dataset, new: Dataset, each: int, folds: int) -> None:
        self.found = list(found)
        rows = [
            {
                "discriminator": result.name,
                "correct": result.correct,
                "n": result.n,
                "accuracy": result.accuracy,
                "low": result.low,
                "high": result.high,
                "difference": "detected" if result.sees_a_difference else "not detected",
            }
            for result in found
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
    sides = balanced_sides(old, new, per_class, seed)
    options = ComputeOptions(None, workers, show=show)
    results = []
    for spec in by:
        features = descriptor(spec)
        name = f"logistic on {features.name}"
        images = _gathered(sides, features, folds, seed, options)
        # Every image is judged by the model that was trained on the other folds.
        guesses = np.full(len(images.rows), -1)
        with progress_bar(f"discriminating by {name}", len(images.rows), show=show) as advance:
            for number in np.unique(images.fold).tolist():
                held_out = images.fold == number
                training = ~held_out
                guesses[held_out] = by_logistic_regression(
                    images.rows[training], images.origins[training], images.rows[held_out], seed
                )
                advance(int(held_out.sum()))
        correct = int((guesses == images.origins).sum())
        low, high = clopper_pearson(correct, len(guesses), level)
        results.append(Discriminated(name, correct, len(guesses), low, high))
    return Discrimination(results, old, new, len(sides[0]), folds)


def balanced_sides(old: Dataset, new: Dataset, per_class: int | None, seed: int) -> tuple[Dataset, Dataset]:
    """The same number of images per class from both sets; unlabelled images count as one class."""
    old_groups = shuffled_groups(old.ids, _class_keys(old), seed)
    new_groups = shuffled_groups(new.ids, _class_keys(new), seed)
    old_indices: list[int] = []
    new_indices: list[int] = []
    for key, old_members in old_groups.items():
        new_members = new_groups.get(key, [])
        count = min(len(old_members), len(new_members), per_class or len(old))
        old_indices += old_members[:count]
        new_indices += new_members[:count]
    if len(old_indices) < 2:
        raise ShiftbenchError(
            f"{old.name!r} and {new.name!r} have no classes in common",
            found=f"{', '.join(list(old_groups)[:3])} and {', '.join(list(new_groups)[:3])}",
            expected="images of the same classes",
        )
    return take(old, sorted(old_indices)), take(new, sorted(new_indices))


def _class_keys(dataset: Dataset) -> list[str]:
    """The class key of every image; "" without a label."""
    return [dataset.space.keys[label] if label >= 0 else "" for label in dataset.labels.tolist()]


@dataclass(frozen=True)
class _LabelledByOrigin:
    """Descriptor rows of the readable images of both sets, the set that each is from (0 or 1), and its fold."""

    rows: NDArray[np.generic]
    origins: IntArray
    fold: IntArray


def _gathered(
    sides: tuple[Dataset, Dataset], features: Descriptor, folds: int, seed: int, options: ComputeOptions
) -> _LabelledByOrigin:
    """Describe both sets, and deal them into folds that are balanced over sets and classes."""
    rows = []
    origins = []
    fold = []
    for origin, side in enumerate(sides):
        described = describe(side, [features], options)[0]
        readable = np.flatnonzero(described.readable)
        rows.append(described.rows[readable])
        origins.append(np.full(len(readable), origin))
        fold.append(deal(side.ids, side.labels.tolist(), folds, seed)[readable])
    return _LabelledByOrigin(np.concatenate(rows), np.concatenate(origins), np.concatenate(fold))
