"""An exactly class-balanced variant of a test set, and what it changes (004 appendix B.2.9).

CIFAR-10.1 v4 has 8 % ships where CIFAR-10 has 10 %. If a set's balance mattered for its accuracies, those on a
balanced part of it, or the mean of the classes' own accuracies, would differ from the plain ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shiftbench.datasets.base import Dataset
from shiftbench.datasets.subset import Subset
from shiftbench.errors import DatasetError, ShiftbenchError
from shiftbench.labels.space import Labels, LabelSpace
from shiftbench.metrics.accuracy import class_counts
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.reports.table import Column, Table
from shiftbench.store.predictions import Predictions
from shiftbench.testsets.followups.folds import shuffled_groups


def class_balanced(dataset: Dataset, *, per_class: int | None = None, seed: int = 0, name: str | None = None) -> Subset:
    """The same number of images of every class that occurs, drawn by ``seed``: as many as the smallest class has, or
    ``per_class``. In the order of the data set; images without a label are left out."""
    chosen = balanced_indices(dataset.ids, dataset.labels, dataset.space, per_class, seed)
    return Subset(dataset, chosen.tolist(), name=name or f"{dataset.name} balanced")


def balanced_indices(
    ids: Sequence[str], labels: Labels, space: LabelSpace, per_class: int | None, seed: int
) -> NDArray[np.int64]:
    known = np.flatnonzero(labels >= 0)
    classes = shuffled_groups([ids[i] for i in known.tolist()], labels[known].tolist(), seed)
    if not classes:
        raise DatasetError("no image has a label, so that there are no classes to balance")
    smallest = min(classes, key=lambda label: (len(classes[label]), label))
    least = len(classes[smallest])
    count = least if per_class is None else per_class
    if not 1 <= count <= least:
        raise DatasetError(
            f"every class can't give {count} images",
            found=f"{least} of {space.names[smallest]!r}, the smallest class",
            expected=f"1 to {least} a class",
            hint="collect more of the small classes, or leave the number out",
        )
    return np.sort(known[np.concatenate([members[:count] for members in classes.values()])])


class BalanceEffect(Table):
    """Accuracy as it is, on a balanced part, and as the mean of the classes' accuracies."""


def balance_effect(
    predictions: Sequence[Predictions], *, per_class: int | None = None, seed: int = 0, level: float = 0.95
) -> BalanceEffect:
    """For every classifier. Images are drawn by id: where the same ones count, the balanced part is the same."""
    if not predictions:
        raise ShiftbenchError("no predictions to balance")
    rows = []
    for one in predictions:
        valid = np.flatnonzero(one.valid)
        ids = [one.ids[i] for i in valid.tolist()]
        part = balanced_indices(ids, one.labels[valid], one.space, per_class, seed)
        right, of_class = class_counts(one)
        here = of_class > 0
        k, n = int(one.correct.sum()), len(one.correct)
        balanced_k, balanced_n = int(one.correct[part].sum()), len(part)
        low, high = clopper_pearson(k, n, level)
        balanced_low, balanced_high = clopper_pearson(balanced_k, balanced_n, level)
        rows.append(
            {
                "model": one.classifier, "n": n, "accuracy": k / n, "low": low, "high": high,
                "balanced_n": balanced_n, "balanced": balanced_k / balanced_n,
                "balanced_low": balanced_low, "balanced_high": balanced_high,
                "change": balanced_k / balanced_n - k / n,
                "class_mean": float((right[here] / of_class[here]).mean()),
                "class_mean_change": float((right[here] / of_class[here]).mean()) - k / n,
            }
        )  # fmt: skip
    mean = float(np.mean([row["class_mean_change"] for row in rows]))
    return BalanceEffect(
        [
            Column("model", "model"),
            Column("accuracy", "as it is %", "number", ends=("low", "high"), times=100),
            Column("balanced", "balanced %", "number", ends=("balanced_low", "balanced_high"), times=100),
            Column("change", "change", "points", times=100),
            Column("class_mean", "mean of classes %", "number", times=100, optional=True),
            Column("class_mean_change", "its change", "points", times=100),
        ],
        rows,
        title=f"{predictions[0].setting}, exactly balanced",
        lead=[
            f"{rows[0]['n']:,} images as they are, {rows[0]['balanced_n']:,} balanced; mean change {100 * mean:+.2f}"
        ],
        notes=["the mean of the classes' accuracies needs no draw: its change is that of balance alone"],
    )
