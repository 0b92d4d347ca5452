"""Cross-validation splits with a linear model: descriptors are computed once, and only the last layer is trained.

On the features of a network, this retrains its head. The network must not have been trained on the images of the folds,
or every fold is as easy as its training set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import BoolArray, IntArray
from shiftbench.classifiers.base import Classifier
from shiftbench.datasets.base import Dataset
from shiftbench.errors import DatasetError, MissingExtraError
from shiftbench.jobs.blocks import ComputeOptions
from shiftbench.jobs.progress import progress_bar
from shiftbench.testsets.followups.splits import Measured, Split
from shiftbench.testsets.near_duplicates.descriptors import Descriptor, describe, descriptor

Rows = NDArray[np.generic]


def by_logistic_regression(rows: Rows, classes: IntArray, others: Rows, seed: int) -> IntArray:
    """Predict the classes of ``others``; standardised features and strong regularisation, as there are often more
    features than images. Runs on one thread, so that the result depends on the seed alone.
    """
    try:
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingExtraError("scikit-learn", "sklearn", "logistic regression") from error
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=300, random_state=seed))
    with threadpool_limits(1):
        model.fit(rows.astype(np.float32), classes)
        return np.asarray(model.predict(others.astype(np.float32)))


@dataclass(frozen=True)
class _Described:
    """Rows and classes of a dataset, by image id; unreadable and unlabelled images do not count."""

    rows: Rows
    classes: IntArray
    counts: BoolArray
    places: dict[str, int]

    def part(self, ids: Sequence[str]) -> tuple[Rows, IntArray]:
        chosen = np.array([self.places[image] for image in ids], np.int64)
        chosen = chosen[self.counts[chosen]]
        return self.rows[chosen], self.classes[chosen]


def measure_linear_splits(
    train: Dataset,
    test: Dataset,
    splits: Sequence[Split],
    new: Dataset | None = None,
    *,
    by: str | Classifier | Descriptor = "pixels-normalised",
    seed: int = 0,
    folder: str | Path | None = None,
    workers: int | None = None,
    show: bool = False,
) -> list[Measured]:
    """Train on the original training set and on each split, and count correct predictions on the test sets."""
    described = descriptor(by)
    name = f"logistic on {described.name}"
    options = ComputeOptions(folder, workers, show=show)
    sets = {id(one): _described(one, train, described, options) for one in (train, test, new) if one is not None}
    old, original = sets[id(train)], sets[id(test)]
    trials = [("original", [old.part(train.ids)], original.part(test.ids))]
    for split in splits:
        learnt = [old.part(split.train), original.part(split.train_from_test)]
        trials.append((split.name, learnt, old.part(split.test)))
    if new is not None:
        trials.append(("new", [old.part(train.ids)], sets[id(new)].part(new.ids)))
    measured = []
    with progress_bar(f"training {name}", len(trials), show=show) as advance:
        for test_set, learnt, (rows, classes) in trials:
            known, labels = (np.concatenate(parts) for parts in zip(*learnt, strict=True))
            right = by_logistic_regression(known, labels, rows, seed) == classes
            measured.append(Measured(name, test_set, int(right.sum()), len(right)))
            advance(1)
    return measured


def _described(dataset: Dataset, like: Dataset, described: Descriptor, options: ComputeOptions) -> _Described:
    if dataset.space.keys != like.space.keys:
        raise DatasetError(
            f"{dataset.name!r} and {like.name!r} have different classes",
            found=", ".join(dataset.space.keys[:3]),
            expected=", ".join(like.space.keys[:3]),
        )
    found = describe(dataset, [described], options)[0]
    places = {image: i for i, image in enumerate(dataset.ids)}
    labels = np.asarray(dataset.labels, np.int64)
    return _Described(found.rows, labels, found.readable & (labels >= 0), places)
