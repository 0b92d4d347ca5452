"""The follow-up experiments of 004 with networks that recipes train (appendices B.2.6 to B.2.8).

Each training has a folder of its own below ``out``, named after its images, so that a rerun of the same call continues.
Cross-validation is ``measure_splits(trained_by(recipe, out), ...)``; the grid of B.2.3 is the experiment
``hyper-parameters``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from msgspec import structs

from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.loading import load_classifier
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.subset import take
from shiftbench.hardening.recipe import Recipe
from shiftbench.hardening.training.train import train
from shiftbench.labels.space import LabelSpace
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.reports.table import Column, Table
from shiftbench.testsets.followups.discriminator import Discriminated, _balanced
from shiftbench.testsets.followups.splits import (
    ACCURACY_COLUMNS,
    ConcatenatedDataset,
    accuracy_values,
    count_correct,
    deal,
)

ORIGINS = LabelSpace("origin", ("old", "new"))


def trained_by(recipe: Recipe, out: str | Path, *, show: bool = False) -> Callable[[Dataset], Classifier]:
    """A function from a dataset to the classifier that the recipe trains on it."""
    # The data bring their own classes, and nothing is selected by looking at other data.
    plain = structs.replace(recipe, data=structs.replace(recipe.data, labels="", validation=""))

    def train_model(dataset: Dataset) -> Classifier:
        folder = train(plain, Path(out) / dataset.fingerprint[:16], data=dataset, progress=show).folder
        return load_classifier(f"hardened:{folder}")

    return train_model


def discriminate_by_recipe(
    old: Dataset, new: Dataset, recipe: Recipe, out: str | Path, *, name: str, folds: int = 5,
    per_class: int | None = None, seed: int = 0, level: float = 0.95, show: bool = False,
) -> Discriminated:  # fmt: skip
    """Can the recipe's network distinguish the old set from the new one? Each fold by a network of the others.

    004 trains ResNet-32 and ResNet-110, from scratch and from CIFAR-10 weights (``train.start``).
    """
    sides, train_model = _balanced(old, new, per_class, seed), trained_by(recipe, out, show=show)
    dealt = [deal(side.ids, side.labels.tolist(), folds, seed) for side in sides]
    right = total = 0
    for fold in range(folds):
        learnt, asked = (
            ConcatenatedDataset([take(side, np.flatnonzero((own == fold) == held).tolist())
                                 for side, own in zip(sides, dealt, strict=True)], name="origins", origins=ORIGINS)
            for held in (False, True)
        )  # fmt: skip
        correct, images = count_correct(train_model(learnt), asked)
        right, total = right + correct, total + images
    return Discriminated(name, right, total, *clopper_pearson(right, total, level))


def train_on_half(
    train_set: Dataset, new: Dataset, recipe: Recipe, out: str | Path, *, draws: int = 2, seed: int = 0,
    level: float = 0.95, show: bool = False,
) -> Table:  # fmt: skip
    """Does training on a class-balanced half of the new set help on the other half? (B.2.6; 004: 84.9 to 85.1, 85.4)"""
    train_model, rows = trained_by(recipe, out, show=show), list[dict[str, object]]()
    whole = take(train_set, range(len(train_set)))
    for draw in range(draws):
        half = deal(new.ids, new.labels.tolist(), 2, seed + draw)
        added, rest = (take(new, np.flatnonzero(half == which).tolist()) for which in (0, 1))
        before: float | None = None
        for what, data in (
            ("the training set", train_set),
            ("with half of the new set", ConcatenatedDataset([whole, added], name=f"{train_set.name} and half")),
        ):
            values = accuracy_values(*count_correct(train_model(data), rest), level, before)
            rows.append({"draw": draw + 1, "trained_on": what, **values})
            before = values["accuracy"]
    columns = [Column("draw", "draw", "count"), Column("trained_on", "trained on"), *ACCURACY_COLUMNS]
    lead = [f"accuracy on the other half of {new.name}, of {recipe.architecture.name}"]
    return Table(columns, rows, title="Training on half of the new set", lead=lead)
