"""Subsets of a dataset: by class, with a number of images per class, by a seeded sample, or by indices."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Sequence
from copy import copy
from importlib.resources import files
from typing import Any, Self

import numpy as np

from shiftbench.arrays import FloatArray
from shiftbench.datasets.base import Dataset, DecodedImage, Decoding, StorageGroups
from shiftbench.datasets.stored import ContentDataset, digest_bytes
from shiftbench.errors import DatasetError, LabelError
from shiftbench.io.hashing import seeded_rank
from shiftbench.labels.space import LabelSets, LabelSpace, relabel_sets, single_labels

#: Name of the ImageNet testbed's list of images.
TESTBED_LIST = "testbed-10percent"


class Subset(ContentDataset):
    """Images ``indices`` of another dataset, in that order.

    An image may be taken more than once, as the 10 % lists of the testbed do; its further copies get the
    ids ``...#2``, ``...#3``.

    Args:
        base: The other dataset.
        indices: Positions in it.
        name: Name of the subset; default: that of the other dataset.
        space: Label space of the subset; default: that of the other dataset.
    """

    #: Name of the published list of images that the subset follows, if any.
    list_name: str | None = None

    def __init__(
        self, base: Dataset, indices: Sequence[int], *, name: str | None = None, space: LabelSpace | None = None
    ) -> None:
        positions = np.asarray(indices, dtype=np.int64).reshape(-1)
        outside = positions[(positions < 0) | (positions >= len(base))]
        if len(outside):
            raise DatasetError(
                f"{len(outside)} indices lie outside {base.name!r}",
                found=int(outside[0]),
                expected=f"0 to {len(base) - 1}",
            )
        self.base = base
        self.indices = positions
        self.name = name or base.name
        self.space = space or base.space
        self.remarks = base.remarks
        rows = positions.tolist()
        self.ids = _numbered_copies([base.ids[i] for i in rows])
        labels = base.labels[positions]
        if space is not None and space.keys != base.space.keys:
            table = np.append(space.relabel_from(base.space), np.int32(-1))  # -1 stays -1
            labels = table[labels]
        self.labels = labels.astype(np.int32)
        if base.label_sets is not None:
            self.label_sets = relabel_sets([base.label_sets[i] for i in rows], base.space, self.space)
            self.labels = single_labels(self.label_sets)
        metadata = {}
        for column, values in base.metadata.items():
            metadata[column] = [values[i] for i in rows]
        self.metadata = metadata

    def describe(self) -> dict[str, Any]:
        description = super().describe()
        if self.list_name:
            description["list"] = self.list_name
        return description

    def decoded_as(self, decoding: Decoding) -> Self:
        view = copy(self)
        view.base = self.base.decoded_as(decoding)
        return view

    def storage_groups(self) -> StorageGroups | None:
        groups = self.base.storage_groups()
        if groups is None:
            return None
        return StorageGroups(groups.numbers[self.indices], groups.kept)

    def read(self, index: int) -> DecodedImage:
        return self.base.read(int(self.indices[index]))

    def digests(self, indices: Sequence[int]) -> list[bytes]:
        base_rows = [int(self.indices[i]) for i in indices]
        if isinstance(self.base, ContentDataset):
            return self.base.digests(base_rows)
        # The base can't tell the digest of one image: its fingerprint and the id stand for the content.
        fingerprint = self.base.fingerprint.encode()
        return [digest_bytes(fingerprint + self.base.ids[i].encode()) for i in base_rows]


def _numbered_copies(ids: Iterable[str]) -> list[str]:
    """Make ids unique: the second copy of an id gets the suffix ``#2``, and so on."""
    copies: dict[str, int] = defaultdict(int)
    unique_ids = []
    for image_id in ids:
        copies[image_id] += 1
        unique_ids.append(_copy_id(image_id, copies[image_id]))
    return unique_ids


def _copy_id(image_id: str, copy: int) -> str:
    if copy == 1:
        return image_id
    return f"{image_id}#{copy}"


def rows_of(dataset: Dataset, ids: Sequence[str]) -> list[int]:
    """The positions of a subset's images in its dataset, copies included; -1 for ids that are unknown there."""
    rows: dict[str, int] = {}
    unique_ids = set(ids)
    copy = 1
    while True:
        copy_rows = {}
        for row, image_id in enumerate(dataset.ids):
            copy_id = _copy_id(image_id, copy)
            if copy_id in unique_ids:
                copy_rows[copy_id] = row
        if not copy_rows:
            break
        # An image whose own id ends in "#2" takes precedence over the second copy of another image.
        rows = copy_rows | rows
        copy += 1
    return [rows.get(image_id, -1) for image_id in ids]


def take(dataset: Dataset, indices: Sequence[int], *, name: str | None = None) -> Subset:
    """The images at ``indices``, repetitions included.

    Args:
        dataset: The dataset.
        indices: Positions in the dataset.
        name: Name of the subset.
    """
    return Subset(dataset, indices, name=name)


def of_classes(dataset: Dataset, space: LabelSpace, *, name: str | None = None) -> Subset:
    """The images whose class ``space`` has, with labels in ``space``: ImageNet's validation set on the 200
    classes of ImageNet-A, for example.

    Args:
        dataset: The dataset.
        space: Classes to keep; labels of the subset are in it.
        name: Name of the subset.
    """
    kept_classes = set(np.flatnonzero(space.relabel_from(dataset.space) >= 0).tolist())
    rows = _rows_with_any(dataset, kept_classes)
    if not rows:
        raise LabelError(
            f"{dataset.name!r} has no image of the classes of {space.name!r}",
            found=f"classes of {dataset.space.name!r} such as {dataset.space.keys[0]}",
            expected=f"classes such as {space.keys[0]}",
        )
    return Subset(dataset, rows, name=name, space=space)


def with_classes(dataset: Dataset, keys: Iterable[str], *, name: str | None = None) -> Subset:
    """The images of some classes, named by key; the label space stays.

    Args:
        dataset: The dataset.
        keys: Keys of the classes.
        name: Name of the subset.
    """
    kept_classes = {dataset.space.index(key) for key in keys}
    return Subset(dataset, _rows_with_any(dataset, kept_classes), name=name)


def _rows_with_any(dataset: Dataset, kept_classes: set[int]) -> list[int]:
    """The rows of the images that have at least one of the classes."""
    return [row for row, classes in enumerate(_classes_of(dataset)) if not kept_classes.isdisjoint(classes)]


def per_class(dataset: Dataset, count: int, *, seed: int = 0, name: str | None = None) -> Subset:
    """``count`` images of each class (all of a class that has fewer), in the order of the dataset.

    For multi-label images, one that is chosen for one class may add to another class.

    Args:
        dataset: The dataset.
        count: Images per class.
        seed: Seed of the choice.
        name: Name of the subset.
    """
    ranks = _ranks(dataset, seed)
    rows_by_class: dict[int, list[int]] = defaultdict(list)
    for row, classes in enumerate(_classes_of(dataset)):
        for label in classes:
            rows_by_class[label].append(row)
    drawn: set[int] = set()
    for rows in rows_by_class.values():
        drawn.update(sorted(rows, key=ranks.__getitem__)[:count])
    return Subset(dataset, sorted(drawn), name=name)


def sample(dataset: Dataset, count: int, *, seed: int = 0, name: str | None = None) -> Subset:
    """``count`` images at random, in the order of the dataset.

    Each image draws its rank from (seed, id) alone: the choice is the same on every machine
    and in every version, it does not depend on the order of the dataset, and a larger sample contains the smaller one.

    Args:
        dataset: The dataset.
        count: Number of images.
        seed: Seed of the choice.
        name: Name of the subset.
    """
    ranks = _ranks(dataset, seed)
    by_rank = sorted(range(len(dataset)), key=ranks.__getitem__)
    return Subset(dataset, sorted(by_rank[:count]), name=name)


def proportional(dataset: Dataset, count: int, *, seed: int = 0, name: str | None = None) -> Subset:
    """``count`` labelled images, in the order of the dataset, among which each class has its share of the dataset.

    All labelled images are equally likely to be drawn, so the mean over the choice estimates the mean over the dataset
    without bias. As with ``sample``, a larger choice contains the smaller one. Classes of equal size take turns.
    """
    ranks = _ranks(dataset, seed)
    rows_by_class: dict[int, list[int]] = defaultdict(list)
    for row, classes in enumerate(_classes_of(dataset)):
        if classes:
            rows_by_class[classes[0]].append(row)
    turns: list[tuple[float, bytes, int]] = []
    for rows in rows_by_class.values():
        rows.sort(key=ranks.__getitem__)
        class_ranks = [ranks[row] for row in rows]
        turns += zip(_shares_before(class_ranks).tolist(), class_ranks, rows, strict=True)
    return Subset(dataset, sorted(row for *_, row in sorted(turns)[:count]), name=name)


def _shares_before(sorted_ranks: Sequence[bytes]) -> FloatArray:
    """For each image of a class, the share of the class that is drawn before it, with a random fraction of an image.

    The fraction is uniform on [0, 1], so that classes of all sizes have their share in choices of all sizes: without
    it, a class of one image would always be among the first or always among the last. It is the distribution function
    of the k-th smallest of n random ranks, which keeps the order of the ranks within a turn.
    """
    from scipy.special import betainc

    size = len(sorted_ranks)
    positions = np.arange(size)
    ranks = np.array([int.from_bytes(rank[:8]) / 2**64 for rank in sorted_ranks])
    fractions = betainc(positions + 1, size - positions, ranks)
    return np.asarray((positions + fractions) / size)


def testbed_tenth(dataset: Dataset) -> Subset | None:
    """The 10 % list of the ImageNet testbed (001): attacks, and corruptions of most models, were evaluated on it.

    The list has five draws with repetition from the 50 validation images of each class, in the order of their names:
    5,000 images, 4,799 of them different. The result is None if the dataset does not have 50 images of each of
    ImageNet's classes.
    """
    text = files("shiftbench.datasets").joinpath("testbed_tenth.csv").read_text(encoding="utf-8")
    members: dict[str, list[int]] = defaultdict(list)
    for i in sorted(range(len(dataset)), key=lambda i: dataset.ids[i].rpartition("/")[2]):
        if dataset.labels[i] >= 0:
            members[dataset.space.keys[dataset.labels[i]]].append(i)
    rows: list[int] = []
    for drawn in csv.DictReader(text.splitlines()):
        class_rows = members[drawn["class"]]
        if len(class_rows) != 50:
            return None
        rows += [class_rows[int(position)] for position in drawn["images"].split()]
    subset = Subset(dataset, rows)
    subset.list_name = TESTBED_LIST
    return subset


def in_turns(ranks: Sequence[bytes], classes: Sequence[int]) -> list[int]:
    """Order rows so that classes take turns: first the lowest rank of each class, then the second lowest, and so on."""
    drawn: dict[int, int] = defaultdict(int)
    turns = []
    for row in sorted(range(len(ranks)), key=ranks.__getitem__):
        turns.append((drawn[classes[row]], ranks[row], row))
        drawn[classes[row]] += 1
    return [row for *_, row in sorted(turns)]


def _classes_of(dataset: Dataset) -> LabelSets:
    """The classes of every image; an empty tuple for an image without a label."""
    if dataset.label_sets is not None:
        return dataset.label_sets
    return [(label,) if label >= 0 else () for label in dataset.labels.tolist()]


def _ranks(dataset: Dataset, seed: int) -> list[bytes]:
    return [seeded_rank(seed, image_id) for image_id in dataset.ids]
