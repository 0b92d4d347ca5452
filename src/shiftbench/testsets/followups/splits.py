"""Would cross-validation have foretold the drop on a new test set? (004 appendices B.2.7 and C.3.1)

The training set is dealt into class-balanced folds. Each fold in turn becomes a test set, and the rest of the
training set together with the original test set trains. If accuracies on the folds are those on the original test
set, neither its images nor the way they were split explain a drop on new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shiftbench.classifiers.base import Classifier
from shiftbench.datasets.base import Dataset, DecodedImage
from shiftbench.datasets.fingerprint import ContentDataset
from shiftbench.datasets.subset import Subset
from shiftbench.errors import DatasetError, ShiftbenchError
from shiftbench.io.atomic import read_json, write_json
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.reports.table import Column, Table
from shiftbench.testsets.filtration.views import look_at
from shiftbench.testsets.followups.folds import deal, shuffled_groups

#: Trains on a data set.
Fit = Callable[[Dataset], Classifier]


@dataclass(frozen=True)
class Split:
    """Which images train and which test, by id: a file of it makes an experiment repeatable anywhere."""

    name: str
    seed: int
    #: Of the training set, and of the original test set.
    train: tuple[str, ...]
    train_from_test: tuple[str, ...]
    #: Of the training set.
    test: tuple[str, ...]

    def write(self, path: str | Path) -> Path:
        path = Path(path)
        write_json(path, asdict(self))
        return path

    @classmethod
    def read(cls, path: str | Path) -> Split:
        try:
            value = read_json(Path(path))
            lists = {key: tuple(map(str, value[key])) for key in ("train", "train_from_test", "test")}
            return cls(str(value["name"]), int(value["seed"]), **lists)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DatasetError(f"{path} is no split", found=error, expected="what Split.write wrote") from error

    def training_set(self, train: Dataset, test: Dataset) -> Joined:
        return Joined([_chosen(train, self.train), _chosen(test, self.train_from_test)], name=f"{self.name} train")

    def test_set(self, train: Dataset) -> Subset:
        return _chosen(train, self.test, name=f"{self.name} test")


def cross_validation_splits(
    train: Dataset, test: Dataset, *, folds: int = 5, fold_size: int | None = None, seed: int = 0
) -> list[Split]:
    """``folds`` splits with class-balanced held-out folds of the training set.

    Without ``fold_size`` the folds share out the whole training set (004 for CIFAR-10). With it each fold has that
    many images, the same number of every class, and what no fold takes always trains (004 for ImageNet: 50,000).
    """
    _check(train, test, folds)
    fold = _folds(train, folds, fold_size, seed)
    ids = np.array(train.ids, dtype=object)
    return [
        Split(f"split {i + 1}", seed, tuple(ids[fold != i]), tuple(test.ids), tuple(ids[fold == i]))
        for i in range(folds)
    ]


def _folds(train: Dataset, folds: int, fold_size: int | None, seed: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The fold of each image; -1 for those in none."""
    labels = train.labels.tolist()
    if fold_size is None:
        return deal(train.ids, labels, folds, seed)
    classes = shuffled_groups(train.ids, labels, seed)
    each, rest = divmod(fold_size, len(classes))
    least = min(len(members) for members in classes.values())
    if rest or not 1 <= each * folds <= least:
        raise DatasetError(
            f"{folds} folds of {fold_size} images can't be balanced",
            found=f"{len(classes)} classes, the smallest of {least} images",
            expected=f"a multiple of {len(classes)}, at most {least // folds * len(classes)}",
        )
    fold = np.full(len(train), -1, np.int64)
    for members in classes.values():
        for i in range(folds):
            fold[members[i * each : (i + 1) * each]] = i
    return fold


@dataclass(frozen=True)
class Measured:
    """One model on one test set."""

    model: str
    test_set: str
    correct: int
    n: int


def measure_splits(
    fit: Fit,
    train: Dataset,
    test: Dataset,
    splits: Sequence[Split],
    new: Dataset | None = None,
    *,
    model: str = "model",
) -> list[Measured]:
    """Train once on the original training set and once on each split, and count what is right on the test sets."""
    trained = fit(train)
    measured = [_measured(trained, test, model, "original")]
    measured += [
        _measured(fit(split.training_set(train, test)), split.test_set(train), model, split.name) for split in splits
    ]
    return [*measured, _measured(trained, new, model, "new")] if new is not None else measured


def _measured(classifier: Classifier, dataset: Dataset, model: str, name: str) -> Measured:
    space = dataset.space
    views = look_at(dataset, dataset.labels, [classifier], space, ten=False)[0]
    counts = views.readable & (dataset.labels >= 0)
    return Measured(model, name, int(views.rows["right"][counts].sum()), int(counts.sum()))


class SplitComparison(Table):
    """Test sets by models, as table 4 of 004."""

    def __init__(self, measured: Sequence[Measured], *, level: float = 0.95) -> None:
        if not measured:
            raise ShiftbenchError("no accuracies to compare")
        self.measured = list(measured)
        rows = [_row(one, level) for one in self.measured]
        super().__init__(
            [
                Column("model", "model"),
                Column("test_set", "test set"),
                Column("n", "images", "count"),
                Column("accuracy", "accuracy %", "number", ends=("low", "high"), times=100),
                Column("change", "against the original", "points", times=100),
            ],
            self._with_changes(rows),
            title="Cross-validation splits",
            lead=[self._summary(model) for model in dict.fromkeys(one.model for one in measured)],
        )

    def accuracies(self, model: str) -> dict[str, float]:
        """By test set."""
        return {one.test_set: one.correct / one.n for one in self.measured if one.model == model}

    def spread(self, model: str) -> float:
        """Between the best and the worst of the splits."""
        splits = [value for name, value in self.accuracies(model).items() if name not in ("original", "new")]
        return max(splits) - min(splits) if splits else float("nan")

    def _summary(self, model: str) -> str:
        found = self.accuracies(model)
        text = f"{model}: the splits spread over {100 * self.spread(model):.2f} points"
        if {"original", "new"} <= found.keys():
            text += f"; the new test set drops by {100 * (found['original'] - found['new']):.2f}"
        return text

    def _with_changes(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        original: Mapping[str, float] = {row["model"]: row["accuracy"] for row in rows if row["test_set"] == "original"}
        return [
            {**row, "change": row["accuracy"] - original[row["model"]] if row["model"] in original else None}
            for row in rows
        ]


def _row(one: Measured, level: float) -> dict[str, Any]:
    low, high = clopper_pearson(one.correct, one.n, level)
    return {**asdict(one), "accuracy": one.correct / one.n if one.n else None, "low": low, "high": high}


class Joined(ContentDataset):
    """Data sets of one label space, one after the other."""

    def __init__(self, parts: Sequence[ContentDataset], *, name: str) -> None:
        self.parts, self.name, self.space = list(parts), name, parts[0].space
        self.ids = [image for part in parts for image in part.ids]
        self.labels = np.concatenate([part.labels for part in parts])
        self._starts = np.cumsum([0, *(len(part) for part in parts)])
        if len(set(self.ids)) < len(self.ids):
            raise DatasetError(
                f"{name!r} would have two images of one id",
                found=next(image for image in parts[-1].ids if image in set(parts[0].ids)),
                expected="ids that name the set, such as train/00001 and test/00001",
            )

    def read(self, index: int) -> DecodedImage:
        part, inside = self._place(index)
        return self.parts[part].read(inside)

    def digests(self, indices: Sequence[int]) -> list[bytes]:
        places = [self._place(index) for index in indices]
        return [self.parts[part].digests([inside])[0] for part, inside in places]

    def _place(self, index: int) -> tuple[int, int]:
        part = int(np.searchsorted(self._starts, index, side="right")) - 1
        return part, index - int(self._starts[part])


def _chosen(dataset: Dataset, ids: Sequence[str], name: str | None = None) -> Subset:
    places = {image: i for i, image in enumerate(dataset.ids)}
    missing = [image for image in ids if image not in places]
    if missing:
        raise DatasetError(
            f"{dataset.name!r} lacks {len(missing)} images of the split",
            found=f"no {missing[0]}",
            expected="the data sets that the split was made of",
        )
    return Subset(dataset, [places[image] for image in ids], name=name)


def _check(train: Dataset, test: Dataset, folds: int) -> None:
    if folds < 2:
        raise ShiftbenchError("bad number of folds", found=folds, expected="2 or more")
    if train.space.keys != test.space.keys:
        raise ShiftbenchError(
            "the training and the test set have other classes", found=f"{train.space.name} and {test.space.name}"
        )
    if (train.labels < 0).any():
        raise DatasetError(f"{train.name!r} has images without a label, which can't be dealt out by class")
