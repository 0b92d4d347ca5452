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

from shiftbench import Classifier, Dataset, LabelSpace, load_classifier
from shiftbench.datasets import take
from shiftbench.extend.tables import Column, Table
from shiftbench.hardening.recipe import Recipe
from shiftbench.hardening.training.train import train
from shiftbench.metrics import clopper_pearson
from shiftbench.testsets.followups.discriminator import Discriminated, balanced_sides
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
    old: Dataset,
    new: Dataset,
    recipe: Recipe,
    out: str | Path,
    *,
    name: str,
    folds: int = 5,
    per_class: int | None = None,
    seed: int = 0,
    level: float = 0.95,
    show: bool = False,
) -> Discriminated:
    """Can the recipe's network distinguish the old set from the new one? A network of the other folds tests each fold.

    004 trains ResNet-32 and ResNet-110, from scratch and from CIFAR-10 weights (``train.start``).
    """
    sides = balanced_sides(old, new, per_class, seed)
    train_model = trained_by(recipe, out, show=show)
    folds_of_sides = [deal(side.ids, side.labels.tolist(), folds, seed) for side in sides]

    def origins(fold: int, *, held_out: bool) -> ConcatenatedDataset:
        """The images of both sides inside or outside a fold, with their side as label."""
        sides_of_fold = []
        for side, fold_of_image in zip(sides, folds_of_sides, strict=True):
            selected = (fold_of_image == fold) == held_out
            sides_of_fold.append(take(side, np.flatnonzero(selected).tolist()))
        return ConcatenatedDataset(sides_of_fold, name="origins", origins=ORIGINS)

    correct = 0
    total = 0
    for fold in range(folds):
        model = train_model(origins(fold, held_out=False))
        fold_correct, fold_images = count_correct(model, origins(fold, held_out=True))
        correct += fold_correct
        total += fold_images
    low, high = clopper_pearson(correct, total, level)
    return Discriminated(name, correct, total, low, high)


def train_on_half(
    train_set: Dataset,
    new: Dataset,
    recipe: Recipe,
    out: str | Path,
    *,
    draws: int = 2,
    seed: int = 0,
    level: float = 0.95,
    show: bool = False,
) -> Table:
    """Does training on a class-balanced half of the new set help on the other half? (B.2.6; 004: 84.9 to 85.1, 85.4)"""
    train_model = trained_by(recipe, out, show=show)
    all_training_images = take(train_set, range(len(train_set)))
    rows: list[dict[str, object]] = []
    for draw in range(draws):
        half = deal(new.ids, new.labels.tolist(), 2, seed + draw)
        added = take(new, np.flatnonzero(half == 0).tolist())
        tested = take(new, np.flatnonzero(half == 1).tolist())
        extended = ConcatenatedDataset([all_training_images, added], name=f"{train_set.name} and half")
        before: float | None = None
        for trained_on, data in (("the training set", train_set), ("with half of the new set", extended)):
            correct, images = count_correct(train_model(data), tested)
            values = accuracy_values(correct, images, level, before)
            rows.append({"draw": draw + 1, "trained_on": trained_on, **values})
            before = values["accuracy"]
    columns = [Column("draw", "draw", "count"), Column("trained_on", "trained on"), *ACCURACY_COLUMNS]
    lead = [f"accuracy on the other half of {new.name}, of {recipe.architecture.name}"]
    return Table(columns, rows, title="Training on half of the new set", lead=lead)
