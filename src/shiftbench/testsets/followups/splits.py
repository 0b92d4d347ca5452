"""Would cross-validation have predicted the drop on a new test set? (004 appendices B.2.7 and C.3.1)

The training set is split into class-balanced folds. Each fold in turn is the test set; the rest of the training set and
the original test set are used for training. If accuracies on the folds match those on the original test set, neither
its images nor the split explain a drop on new images.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from copy import copy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from msgspec import convert
from numpy.typing import NDArray

from shiftbench import Classifier, Dataset, LabelSpace, ShiftbenchError, open_dataset
from shiftbench.datasets import DecodedImage, Decoding, Subset
from shiftbench.errors import DatasetError, MissingExtraError
from shiftbench.extend.datasets import ContentDataset
from shiftbench.extend.io import read_json, seeded_rank, write_json
from shiftbench.extend.jobs import ComputeOptions
from shiftbench.extend.tables import Column, Table
from shiftbench.extend.types import AskedSpace, IntArray
from shiftbench.jobs import progress_bar
from shiftbench.metrics import clopper_pearson
from shiftbench.testsets.filtration import look_at
from shiftbench.testsets.near_duplicates.descriptors import Descriptor, describe, descriptor

#: One descriptor row per image.
Rows = NDArray[np.generic]
#: What images are grouped by, such as their class.
Group = TypeVar("Group", bound=Hashable)


@dataclass(frozen=True)
class Split:
    """Ids of training and test images; written to a file, it makes an experiment reproducible."""

    name: str
    #: The seed that the images were dealt with.
    seed: int
    #: Training images from the training set, and from the original test set.
    train: tuple[str, ...]
    train_from_test: tuple[str, ...]
    #: Held-out images, from the training set.
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
        """The training images of this split, from the training set and the original test set."""
        parts = [
            images_by_id(train, self.train, "split"),
            images_by_id(test, self.train_from_test, "split"),
        ]
        return ConcatenatedDataset(parts, name=f"{self.name} train")

    def test_set(self, train: Dataset) -> Subset:
        """The held-out images, from the training set."""
        return images_by_id(train, self.test, "split", f"{self.name} test")


def open_split(path: str | Path, *, space: AskedSpace = None) -> Dataset:
    """The training images of a file that ``Split.write`` wrote; FILE/test opens the images that it holds out."""
    path = Path(path)
    held_out = path.name == "test"
    split = Split.read(path.parent if held_out else path)
    if len(split.sources) != 2:
        raise DatasetError(f"{path} does not name its data", hint="write it with `testset follow-up splits --write`")
    train_source, test_source = split.sources
    train = open_dataset(train_source, space=space)
    if held_out:
        return split.test_set(train)
    return split.training_set(train, open_dataset(test_source, space=train.space))


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
        raise ShiftbenchError(
            "the training and the test set have different classes",
            found=f"{train.space.name} and {test.space.name}",
        )
    if (train.labels < 0).any():
        raise DatasetError(f"{train.name!r} has images without a label, which cannot be balanced over classes")
    if fold_size is None:
        fold = deal(train.ids, train.labels.tolist(), folds, seed)
    else:
        fold = _deal_part(train, folds, fold_size, seed)
    # An array of objects, so that a mask can select ids, which stay Python strings.
    ids = np.array(train.ids, dtype=object)
    splits = []
    for i in range(folds):
        split = Split(
            name=f"split {i + 1}",
            seed=seed,
            train=tuple(ids[fold != i]),
            train_from_test=tuple(test.ids),
            test=tuple(ids[fold == i]),
            sources=sources,
        )
        splits.append(split)
    return splits


def _deal_part(train: Dataset, folds: int, fold_size: int, seed: int) -> IntArray:
    """The fold of every image; -1 for images that are in no fold of ``fold_size`` images."""
    classes = shuffled_groups(train.ids, train.labels.tolist(), seed)
    per_class, remainder = divmod(fold_size, len(classes))
    smallest = min(len(members) for members in classes.values())
    if remainder or not 1 <= per_class * folds <= smallest:
        raise DatasetError(
            f"cannot balance {folds} folds of {fold_size} images",
            found=f"{len(classes)} classes, the smallest of {smallest} images",
            expected=f"a multiple of {len(classes)}, at most {smallest // folds * len(classes)}",
        )
    fold = np.full(len(train), -1, np.int64)
    for members in classes.values():
        for i in range(folds):
            fold[members[i * per_class : (i + 1) * per_class]] = i
    return fold


@dataclass(frozen=True)
class Measured:
    """How many images of a test set a model classifies correctly."""

    model: str
    #: "original", the name of a split, or "new".
    test_set: str
    correct: int
    #: Images that count: readable ones with a label.
    n: int


def count_correct(classifier: Classifier, dataset: Dataset) -> tuple[int, int]:
    """Correct predictions, and how many images count: readable ones with a label."""
    views = look_at(dataset, dataset.labels, [classifier], dataset.space, ten=False)[0]
    # Images without a label can be neither right nor wrong.
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
    original_classifier = train_model(train)
    measured = [Measured(model, "original", *count_correct(original_classifier, test))]
    for split in splits:
        classifier = train_model(split.training_set(train, test))
        measured.append(Measured(model, split.name, *count_correct(classifier, split.test_set(train))))
    if new is not None:
        measured.append(Measured(model, "new", *count_correct(original_classifier, new)))
    return measured


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
    features = descriptor(by)
    options = ComputeOptions(None, workers, show=show)
    train_images = _described_images(train, train, features, options)
    test_images = _described_images(test, train, features, options)
    trials = [_Trial("original", train_images, test_images)]
    for split in splits:
        training = train_images.subset(split.train).followed_by(test_images.subset(split.train_from_test))
        trials.append(_Trial(split.name, training, train_images.subset(split.test)))
    if new is not None:
        trials.append(_Trial("new", train_images, _described_images(new, train, features, options)))
    model = f"logistic on {features.name}"
    measured = []
    with progress_bar(f"training {model}", len(trials), show=show) as advance:
        for trial in trials:
            predicted = by_logistic_regression(trial.training.rows, trial.training.labels, trial.held_out.rows, seed)
            right = predicted == trial.held_out.labels
            measured.append(Measured(model, trial.test_set, int(right.sum()), len(right)))
            advance(1)
    return measured


@dataclass(frozen=True)
class _DescribedImages:
    """The descriptor rows and the labels of images that are readable and have a label."""

    ids: tuple[str, ...]
    #: One row and one label for each id.
    rows: Rows
    labels: IntArray

    def subset(self, ids: Sequence[str]) -> _DescribedImages:
        """These images in this order, without those that are unreadable or have no label."""
        position = {image: i for i, image in enumerate(self.ids)}
        described = [image for image in ids if image in position]
        indices = [position[image] for image in described]
        return _DescribedImages(tuple(described), self.rows[indices], self.labels[indices])

    def followed_by(self, other: _DescribedImages) -> _DescribedImages:
        rows = np.concatenate([self.rows, other.rows])
        labels = np.concatenate([self.labels, other.labels])
        return _DescribedImages((*self.ids, *other.ids), rows, labels)


@dataclass(frozen=True)
class _Trial:
    """The images to train on, and those to measure on."""

    test_set: str
    training: _DescribedImages
    held_out: _DescribedImages


def _described_images(
    dataset: Dataset, train: Dataset, features: Descriptor, options: ComputeOptions
) -> _DescribedImages:
    """Describe a dataset; raises DatasetError if its classes are not those of the training set."""
    if dataset.space.keys != train.space.keys:
        raise DatasetError(
            f"{dataset.name!r} and {train.name!r} have different classes",
            found=", ".join(dataset.space.keys[:3]),
            expected=", ".join(train.space.keys[:3]),
        )
    described = describe(dataset, [features], options)[0]
    indices = np.flatnonzero(described.readable & (dataset.labels >= 0))
    ids = tuple(dataset.ids[i] for i in indices.tolist())
    return _DescribedImages(ids, described.rows[indices], dataset.labels[indices].astype(np.int64))


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
    """The accuracies of models on the original test set, on the held-out folds, and on the new test set."""

    def __init__(self, measured: Sequence[Measured], *, level: float = 0.95) -> None:
        if not measured:
            raise ShiftbenchError("no accuracies to compare")
        self.measured = list(measured)
        models = dict.fromkeys(measurement.model for measurement in measured)
        rows = []
        for measurement in measured:
            original = self.accuracies(measurement.model).get("original")
            values = accuracy_values(measurement.correct, measurement.n, level, original)
            rows.append({**asdict(measurement), **values})
        columns = [Column("model", "model", "model"), Column("test_set", "test set"), *ACCURACY_COLUMNS]
        lead = [self._summary(model) for model in models]
        super().__init__(columns, rows, title="Cross-validation splits", lead=lead)

    def _summary(self, model: str) -> str:
        """How far the splits of a model differ, beside its drop on the new test set."""
        text = f"{model}: the splits range over {100 * self.spread(model):.2f} points"
        accuracies = self.accuracies(model)
        if "original" in accuracies and "new" in accuracies:
            text += f"; the new test set drops by {100 * (accuracies['original'] - accuracies['new']):.2f}"
        return text

    def accuracies(self, model: str) -> dict[str, float]:
        """The accuracies of a model by test set; a test set without images has none."""
        measurements = [measurement for measurement in self.measured if measurement.model == model]
        return {
            measurement.test_set: measurement.correct / measurement.n for measurement in measurements if measurement.n
        }

    def spread(self, model: str) -> float:
        """The difference between the best and the worst split."""
        splits = [value for name, value in self.accuracies(model).items() if name not in ("original", "new")]
        return max(splits) - min(splits) if splits else float("nan")


class ConcatenatedDataset(ContentDataset):
    """Images of several sets; with ``origins``, a class for each set, these are their labels. Ids that two sets share
    are told apart by the number of the set."""

    def __init__(self, parts: Sequence[ContentDataset], *, name: str, origins: LabelSpace | None = None) -> None:
        self.parts = list(parts)
        self.name = name
        self.space = origins or parts[0].space
        self.ids = []
        labels = []
        #: Where each image is: its set, and its index in that set.
        self._places: list[tuple[ContentDataset, int]] = []
        for number, part in enumerate(parts):
            self.ids += part.ids
            labels.append(np.full(len(part), number, np.int32) if origins else part.labels)
            self._places += [(part, i) for i in range(len(part))]
        self.labels = np.concatenate(labels)
        # Two folders often have the same file names.
        if origins or len(set(self.ids)) < len(self.ids):
            prefixes = origins.keys if origins else [str(number + 1) for number in range(len(parts))]
            self.ids = []
            for prefix, part in zip(prefixes, parts, strict=True):
                self.ids += [f"{prefix}/{image}" for image in part.ids]

    def decoded_as(self, decoding: Decoding) -> Self:
        view = copy(self)
        view.parts = [part.decoded_as(decoding) for part in self.parts]
        view._places = [(part, i) for part in view.parts for i in range(len(part))]
        return view

    def read(self, index: int) -> DecodedImage:
        part, index_in_part = self._places[index]
        return part.read(index_in_part)

    def digests(self, indices: Sequence[int]) -> list[bytes]:
        digests = []
        for index in indices:
            part, index_in_part = self._places[index]
            digests += part.digests([index_in_part])
        return digests


def images_by_id(dataset: Dataset, ids: Sequence[str], what: str, name: str | None = None) -> Subset:
    """These images, in the order of the dataset; raises DatasetError if it does not have all of them."""
    positions = {image: i for i, image in enumerate(dataset.ids)}
    missing = [image for image in ids if image not in positions]
    if missing:
        raise DatasetError(
            f"{len(missing)} images of the {what} are missing in {dataset.name!r}",
            found=f"no {missing[0]}",
            expected=f"the dataset that the {what} was made from",
        )
    return Subset(dataset, sorted(positions[image] for image in ids), name=name)


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
    members_by_group: dict[Group, list[int]] = defaultdict(list)
    for i, group in enumerate(groups):
        members_by_group[group].append(i)
    for members in members_by_group.values():
        members.sort(key=lambda i: seeded_rank(seed, ids[i]))
    return dict(members_by_group)


def deal(ids: Sequence[str], groups: Iterable[Hashable], folds: int, seed: int) -> IntArray:
    """The fold of every image. Fold sizes differ by at most one, both within each group and in total."""
    order = []
    for members in shuffled_groups(ids, groups, seed).values():
        order += members
    # Dealt like cards, group after group without a break: that keeps both kinds of sizes even.
    fold = np.empty(len(ids), np.int64)
    fold[order] = np.arange(len(order)) % folds
    return fold
