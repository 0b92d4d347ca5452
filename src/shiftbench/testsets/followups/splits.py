"""Would cross-validation have predicted the drop on a new test set? (004 appendices B.2.7 and C.3.1)

The training set is split into class-balanced folds. Each fold in turn is the test set; the rest of the training set and
the original test set are used for training. If accuracies on the folds match those on the original test set, neither
its images nor the split explain a drop on new images.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from shiftbench.arrays import IntArray
from shiftbench.classifiers.base import Classifier
from shiftbench.datasets.base import Dataset, DecodedImage
from shiftbench.datasets.stored import ContentDataset
from shiftbench.datasets.subset import Subset
from shiftbench.errors import DatasetError, ShiftbenchError
from shiftbench.io.atomic import read_json, write_json
from shiftbench.io.hashing import seeded_rank
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.reports.table import Column, Table
from shiftbench.testsets.filtration.views import look_at

#: Trains a classifier on a dataset.
TrainFunction = Callable[[Dataset], Classifier]


@dataclass(frozen=True)
class Split:
    """Ids of training and test images; written to a file, it makes an experiment reproducible."""

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
            raise DatasetError(
                f"{path} is not a valid split", found=error, expected="a file written by Split.write"
            ) from error

    def training_set(self, train: Dataset, test: Dataset) -> ConcatenatedDataset:
        return ConcatenatedDataset(
            [_chosen(train, self.train), _chosen(test, self.train_from_test)], name=f"{self.name} train"
        )

    def test_set(self, train: Dataset) -> Subset:
        return _chosen(train, self.test, name=f"{self.name} test")


def cross_validation_splits(
    train: Dataset, test: Dataset, *, folds: int = 5, fold_size: int | None = None, seed: int = 0
) -> list[Split]:
    """``folds`` splits with class-balanced held-out folds of the training set.

    Without ``fold_size`` the folds partition the training set (004 for CIFAR-10). Otherwise each fold has that many
    images, the same number per class, and the remaining images are always used for training (004 for ImageNet: 50,000).
    """
    _check(train, test, folds)
    fold = _folds(train, folds, fold_size, seed)
    ids = np.array(train.ids, dtype=object)
    return [
        Split(f"split {i + 1}", seed, tuple(ids[fold != i]), tuple(test.ids), tuple(ids[fold == i]))
        for i in range(folds)
    ]


def _folds(train: Dataset, folds: int, fold_size: int | None, seed: int) -> IntArray:
    """The fold of each image, or -1."""
    labels = train.labels.tolist()
    if fold_size is None:
        return deal(train.ids, labels, folds, seed)
    classes = shuffled_groups(train.ids, labels, seed)
    each, rest = divmod(fold_size, len(classes))
    least = min(len(members) for members in classes.values())
    if rest or not 1 <= each * folds <= least:
        raise DatasetError(
            f"cannot balance {folds} folds of {fold_size} images",
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
    """The result of one model on one test set."""

    model: str
    test_set: str
    correct: int
    n: int


def measure_splits(
    train_model: TrainFunction,
    train: Dataset,
    test: Dataset,
    splits: Sequence[Split],
    new: Dataset | None = None,
    *,
    model: str = "model",
) -> list[Measured]:
    """Train once on the original training set and once per split, and count correct predictions on the test sets."""
    trained = train_model(train)
    measured = [_measured(trained, test, model, "original")]
    measured += [
        _measured(train_model(split.training_set(train, test)), split.test_set(train), model, split.name)
        for split in splits
    ]
    return [*measured, _measured(trained, new, model, "new")] if new is not None else measured


def _measured(classifier: Classifier, dataset: Dataset, model: str, name: str) -> Measured:
    space = dataset.space
    views = look_at(dataset, dataset.labels, [classifier], space, ten=False)[0]
    counts = views.readable & (dataset.labels >= 0)
    return Measured(model, name, int(views.rows["right"][counts].sum()), int(counts.sum()))


class SplitComparison(Table):
    """Test sets by models, as in table 4 of 004."""

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
                Column("change", "change", "points", times=100),
            ],
            self._with_changes(rows),
            title="Cross-validation splits",
            lead=[self._summary(model) for model in dict.fromkeys(one.model for one in measured)],
        )

    def accuracies(self, model: str) -> dict[str, float]:
        """By test set."""
        return {one.test_set: one.correct / one.n for one in self.measured if one.model == model}

    def spread(self, model: str) -> float:
        """The difference between the best and the worst split."""
        splits = [value for name, value in self.accuracies(model).items() if name not in ("original", "new")]
        return max(splits) - min(splits) if splits else float("nan")

    def _summary(self, model: str) -> str:
        found = self.accuracies(model)
        text = f"{model}: the splits range over {100 * self.spread(model):.2f} points"
        if {"original", "new"} <= found.keys():
            text += f"; the new test set drops by {100 * (found['original'] - found['new']):.2f}"
        return text

    def _with_changes(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, object]]:
        original: Mapping[str, float] = {row["model"]: row["accuracy"] for row in rows if row["test_set"] == "original"}
        return [
            {**row, "change": row["accuracy"] - original[row["model"]] if row["model"] in original else None}
            for row in rows
        ]


def _row(one: Measured, level: float) -> dict[str, object]:
    low, high = clopper_pearson(one.correct, one.n, level)
    return {**asdict(one), "accuracy": one.correct / one.n if one.n else None, "low": low, "high": high}


class ConcatenatedDataset(ContentDataset):
    """Datasets of one label space, concatenated."""

    def __init__(self, parts: Sequence[ContentDataset], *, name: str) -> None:
        self.parts, self.name, self.space = list(parts), name, parts[0].space
        self.ids = [image for part in parts for image in part.ids]
        self.labels = np.concatenate([part.labels for part in parts])
        self._starts = np.cumsum([0, *(len(part) for part in parts)])
        if len(set(self.ids)) < len(self.ids):
            raise DatasetError(
                f"duplicate image id in {name!r}",
                found=next(image for image in parts[-1].ids if image in set(parts[0].ids)),
                expected="ids that are unique over all parts, such as train/00001 and test/00001",
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
            f"{len(missing)} images of the split are missing in {dataset.name!r}",
            found=f"no {missing[0]}",
            expected="the datasets that the split was made from",
        )
    return Subset(dataset, [places[image] for image in ids], name=name)


def _check(train: Dataset, test: Dataset, folds: int) -> None:
    if folds < 2:
        raise ShiftbenchError("invalid number of folds", found=folds, expected="2 or more")
    if train.space.keys != test.space.keys:
        raise ShiftbenchError(
            "the training and the test set have different classes", found=f"{train.space.name} and {test.space.name}"
        )
    if (train.labels < 0).any():
        raise DatasetError(f"{train.name!r} has images without a label, which cannot be balanced over classes")


Group = TypeVar("Group", bound=Hashable)


def shuffled_groups(ids: Sequence[str], groups: Iterable[Group], seed: int) -> dict[Group, list[int]]:
    """The images of each group, in a random order that depends only on the seed and their ids.

    >>> shuffled_groups(["a", "b", "c"], ["x", "y", "x"], seed=0)
    {'x': [2, 0], 'y': [1]}
    """
    members: dict[Group, list[int]] = defaultdict(list)
    for i, group in enumerate(groups):
        members[group].append(i)
    return {group: sorted(found, key=lambda i: seeded_rank(seed, ids[i])) for group, found in members.items()}


def deal(ids: Sequence[str], groups: Iterable[Hashable], folds: int, seed: int) -> IntArray:
    """The fold of every image. Fold sizes differ by at most one, both within each group and in total.

    >>> deal(["a", "b", "c", "d"], "xxyy", 2, seed=0).tolist()
    [0, 1, 0, 1]
    """
    fold, turn = np.empty(len(ids), np.int64), 0
    for members in shuffled_groups(ids, groups, seed).values():
        for i in members:
            fold[i] = turn % folds
            turn += 1
    return fold
