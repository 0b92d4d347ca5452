"""Would cross-validation have predicted the drop on a new test set? (004 appendices B.2.7 and C.3.1)

The training set is split into class-balanced folds. Each fold in turn is the test set; the rest of the training set and
the original test set are used for training. If accuracies on the folds match those on the original test set, neither
its images nor the split explain a drop on new images.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from msgspec import convert
from numpy.typing import NDArray

from shiftbench.arrays import IntArray
from shiftbench.classifiers.base import Classifier
from shiftbench.datasets.base import Dataset, DecodedImage
from shiftbench.datasets.catalogue import open_dataset
from shiftbench.datasets.stored import ContentDataset
from shiftbench.datasets.subset import Subset
from shiftbench.errors import DatasetError, MissingExtraError, ShiftbenchError
from shiftbench.io.atomic import read_json, write_json
from shiftbench.io.hashing import seeded_rank
from shiftbench.jobs.blocks import ComputeOptions
from shiftbench.jobs.progress import progress_bar
from shiftbench.labels.space import AskedSpace, LabelSpace
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.reports.table import Column, Table
from shiftbench.testsets.filtration import look_at
from shiftbench.testsets.near_duplicates.descriptors import Descriptor, describe, descriptor

Rows = NDArray[np.generic]
Group = TypeVar("Group", bound=Hashable)


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
    #: What opens the training set and the original test set.
    sources: tuple[str, ...] = ()

    def write(self, path: str | Path) -> Path:
        write_json(Path(path), asdict(self))
        return Path(path)

    @classmethod
    def read(cls, path: str | Path) -> Split:
        try:
            return convert(read_json(Path(path)), cls)
        except (OSError, ValueError) as error:
            expected = "a file written by Split.write"
            raise DatasetError(f"{path} is not a valid split", found=error, expected=expected) from error

    def training_set(self, train: Dataset, test: Dataset) -> ConcatenatedDataset:
        chosen = (train, self.train), (test, self.train_from_test)
        parts = [images_by_id(dataset, ids, "split") for dataset, ids in chosen]
        return ConcatenatedDataset(parts, name=f"{self.name} train")

    def test_set(self, train: Dataset) -> Subset:
        return images_by_id(train, self.test, "split", f"{self.name} test")


def open_split(path: str | Path, *, space: AskedSpace = None) -> Dataset:
    """The training images of a file that ``Split.write`` wrote; FILE/test opens the images that it holds out."""
    path = Path(path)
    held_out = path.name == "test"
    split = Split.read(path.parent if held_out else path)
    if len(split.sources) != 2:
        raise DatasetError(f"{path} does not name its data", hint="write it with `testset follow-up splits --write`")
    train, test = split.sources
    learnt = open_dataset(train, space=space)
    return split.test_set(learnt) if held_out else split.training_set(learnt, open_dataset(test, space=learnt.space))


def cross_validation_splits(
    train: Dataset,
    test: Dataset,
    *,
    folds: int = 5,
    fold_size: int | None = None,
    seed: int = 0,
    sources: tuple[str, ...] = (),
) -> list[Split]:
    """``folds`` splits with class-balanced held-out folds of the training set.

    Without ``fold_size`` the folds partition the training set (004 for CIFAR-10). Otherwise each fold has that many
    images, the same number per class, and the remaining images are always used for training (004 for ImageNet: 50,000).
    """
    if folds < 2:
        raise ShiftbenchError("invalid number of folds", found=folds, expected="2 or more")
    if train.space.keys != test.space.keys:
        found = f"{train.space.name} and {test.space.name}"
        raise ShiftbenchError("the training and the test set have different classes", found=found)
    if (train.labels < 0).any():
        raise DatasetError(f"{train.name!r} has images without a label, which cannot be balanced over classes")
    labels = train.labels.tolist()
    fold = np.full(len(train), -1, np.int64)
    if fold_size is None:
        fold = deal(train.ids, labels, folds, seed)
    else:
        classes = shuffled_groups(train.ids, labels, seed)
        each, rest = divmod(fold_size, len(classes))
        least = min(len(members) for members in classes.values())
        if rest or not 1 <= each * folds <= least:
            raise DatasetError(
                f"cannot balance {folds} folds of {fold_size} images",
                found=f"{len(classes)} classes, the smallest of {least} images",
                expected=f"a multiple of {len(classes)}, at most {least // folds * len(classes)}",
            )
        for members in classes.values():
            for i in range(folds):
                fold[members[i * each : (i + 1) * each]] = i
    ids = np.array(train.ids, dtype=object)
    return [
        Split(f"split {i + 1}", seed, tuple(ids[fold != i]), tuple(test.ids), tuple(ids[fold == i]), sources)
        for i in range(folds)
    ]


@dataclass(frozen=True)
class Measured:
    model: str
    test_set: str
    correct: int
    n: int


def count_correct(classifier: Classifier, dataset: Dataset) -> tuple[int, int]:
    """Correct predictions, and how many images count: readable ones with a label."""
    views = look_at(dataset, dataset.labels, [classifier], dataset.space, ten=False)[0]
    counts = views.readable & (dataset.labels >= 0)
    return int(views.rows["right"][counts].sum()), int(counts.sum())


def measure_splits(
    train_model: Callable[[Dataset], Classifier],
    train: Dataset,
    test: Dataset,
    splits: Sequence[Split],
    new: Dataset | None = None,
    *,
    model: str = "model",
) -> list[Measured]:
    """Train once on the original training set and once per split, and count correct predictions on the test sets."""

    def measured(classifier: Classifier, dataset: Dataset, name: str) -> Measured:
        return Measured(model, name, *count_correct(classifier, dataset))

    trained = train_model(train)
    found = [measured(trained, test, "original")]
    found += [
        measured(train_model(split.training_set(train, test)), split.test_set(train), split.name) for split in splits
    ]
    return [*found, measured(trained, new, "new")] if new is not None else found


def measure_linear_splits(
    train: Dataset,
    test: Dataset,
    splits: Sequence[Split],
    new: Dataset | None = None,
    *,
    by: str | Classifier | Descriptor = "pixels-normalised",
    seed: int = 0,
    workers: int | None = None,
    show: bool = False,
) -> list[Measured]:
    """As ``measure_splits``, with a linear model: descriptors are computed once, and only the last layer is trained.

    On the features of a network, this retrains its head. The network must not have been trained on the images of the
    folds, or every fold is as easy as its training set. Unreadable and unlabelled images do not count.
    """
    described, options = descriptor(by), ComputeOptions(None, workers, show=show)
    rows: dict[tuple[int, str], tuple[NDArray[Any], int]] = {}
    for dataset in (train, test, new):
        if dataset is None:
            continue
        if dataset.space.keys != train.space.keys:
            raise DatasetError(
                f"{dataset.name!r} and {train.name!r} have different classes",
                found=", ".join(dataset.space.keys[:3]),
                expected=", ".join(train.space.keys[:3]),
            )
        found = describe(dataset, [described], options)[0]
        for i in np.flatnonzero(found.readable & (dataset.labels >= 0)).tolist():
            rows[id(dataset), dataset.ids[i]] = found.rows[i], int(dataset.labels[i])

    def part(*parts: tuple[Dataset, Sequence[str]]) -> tuple[Rows, IntArray]:
        keys = [(id(dataset), image) for dataset, ids in parts for image in ids]
        chosen = [rows[key] for key in keys if key in rows]
        return np.stack([row for row, _ in chosen]), np.array([label for _, label in chosen])

    trials = [("original", part((train, train.ids)), part((test, test.ids)))]
    for split in splits:
        learnt = part((train, split.train), (test, split.train_from_test))
        trials.append((split.name, learnt, part((train, split.test))))
    if new is not None:
        trials.append(("new", trials[0][1], part((new, new.ids))))
    name, measured = f"logistic on {described.name}", []
    with progress_bar(f"training {name}", len(trials), show=show) as advance:
        for test_set, learnt, (judged, classes) in trials:
            right = by_logistic_regression(*learnt, judged, seed) == classes
            measured.append(Measured(name, test_set, int(right.sum()), len(right)))
            advance(1)
    return measured


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


class SplitComparison(Table):
    def __init__(self, measured: Sequence[Measured], *, level: float = 0.95) -> None:
        if not measured:
            raise ShiftbenchError("no accuracies to compare")
        self.measured = list(measured)
        rows, lead = [], []
        for model in dict.fromkeys(one.model for one in measured):
            found = self.accuracies(model)
            text = f"{model}: the splits range over {100 * self.spread(model):.2f} points"
            if {"original", "new"} <= found.keys():
                text += f"; the new test set drops by {100 * (found['original'] - found['new']):.2f}"
            lead.append(text)
        for one in measured:
            original = self.accuracies(one.model).get("original")
            rows.append({**asdict(one), **accuracy_values(one.correct, one.n, level, original)})
        columns = [Column("model", "model"), Column("test_set", "test set"), *ACCURACY_COLUMNS]
        super().__init__(columns, rows, title="Cross-validation splits", lead=lead)

    def accuracies(self, model: str) -> dict[str, float]:
        return {one.test_set: one.correct / one.n for one in self.measured if one.model == model and one.n}

    def spread(self, model: str) -> float:
        """The difference between the best and the worst split."""
        splits = [value for name, value in self.accuracies(model).items() if name not in ("original", "new")]
        return max(splits) - min(splits) if splits else float("nan")


class ConcatenatedDataset(ContentDataset):
    """Images of several sets; with ``origins``, a class for each set, these are their labels. Ids that two sets share
    are told apart by the number of the set."""

    def __init__(self, parts: Sequence[ContentDataset], *, name: str, origins: LabelSpace | None = None) -> None:
        self.parts, self.name, self.space = list(parts), name, origins or parts[0].space
        self.ids = [image for part in parts for image in part.ids]
        if origins or len(set(self.ids)) < len(self.ids):  # two folders often have the same file names
            names = origins.keys if origins else [str(i + 1) for i in range(len(parts))]
            self.ids = [f"{name}/{image}" for name, part in zip(names, parts, strict=True) for image in part.ids]
        labels = [np.full(len(part), i, np.int32) if origins else part.labels for i, part in enumerate(parts)]
        self.labels = np.concatenate(labels)
        self._places = [(part, i) for part in parts for i in range(len(part))]

    def read(self, index: int) -> DecodedImage:
        part, inside = self._places[index]
        return part.read(inside)

    def digests(self, indices: Sequence[int]) -> list[bytes]:
        return [part.digests([inside])[0] for part, inside in (self._places[index] for index in indices)]


def images_by_id(dataset: Dataset, ids: Sequence[str], what: str, name: str | None = None) -> Subset:
    """These images, in the order of the dataset; an error if it has not all of them."""
    places = {image: i for i, image in enumerate(dataset.ids)}
    missing = [image for image in ids if image not in places]
    if missing:
        message = f"{len(missing)} images of the {what} are missing in {dataset.name!r}"
        raise DatasetError(message, found=f"no {missing[0]}", expected=f"the dataset that the {what} was made from")
    return Subset(dataset, sorted(places[image] for image in ids), name=name)


def accuracy_values(right: int, n: int, level: float, before: float | None = None) -> dict[str, Any]:
    """An accuracy with its interval and its change, as values of a row; None if there is none."""
    low, high = clopper_pearson(right, n, level)
    accuracy = right / n if n else None
    change = None if accuracy is None or before is None else accuracy - before
    return {"n": n, "accuracy": accuracy, "low": low, "high": high, "change": change}


#: The columns of :func:`accuracy_values`.
ACCURACY_COLUMNS = (
    Column("n", "images", "count"),
    Column("accuracy", "accuracy %", "number", ends=("low", "high"), times=100),
    Column("change", "change", "points", times=100),
)


def shuffled_groups(ids: Sequence[str], groups: Iterable[Group], seed: int) -> dict[Group, list[int]]:
    """The images of each group, in a random order that depends only on the seed and their ids."""
    members: dict[Group, list[int]] = defaultdict(list)
    for i, group in enumerate(groups):
        members[group].append(i)
    return {group: sorted(found, key=lambda i: seeded_rank(seed, ids[i])) for group, found in members.items()}


def deal(ids: Sequence[str], groups: Iterable[Hashable], folds: int, seed: int) -> IntArray:
    """The fold of every image. Fold sizes differ by at most one, both within each group and in total."""
    order = [i for members in shuffled_groups(ids, groups, seed).values() for i in members]
    fold = np.empty(len(ids), np.int64)
    fold[order] = np.arange(len(order)) % folds
    return fold
