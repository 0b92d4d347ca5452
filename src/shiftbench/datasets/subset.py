"""Subsets of a dataset: by class, with a number of images per class, by a seeded sample, or by indices."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Sequence
from copy import copy
from importlib.resources import files
from typing import Any, Self

import numpy as np

from shiftbench.datasets.base import Dataset, DecodedImage, Decoding
from shiftbench.datasets.stored import ContentDataset, digest_bytes
from shiftbench.errors import DatasetError, LabelError
from shiftbench.grouping import by_key
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

    #: Of a published list of images: its name.
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
        self.base, self.indices = base, positions
        self.name, self.space, self.remarks = name or base.name, space or base.space, base.remarks
        chosen, seen = positions.tolist(), defaultdict[str, int](int)
        self.ids = []
        for image_id in (base.ids[i] for i in chosen):
            seen[image_id] += 1
            self.ids.append(_copy_id(image_id, seen[image_id]))
        labels = base.labels[positions]
        if space is not None and space.keys != base.space.keys:
            table = np.append(space.relabel_from(base.space), np.int32(-1))  # -1 stays -1
            labels = table[labels]
        self.labels = labels.astype(np.int32)
        if base.label_sets is not None:
            self.label_sets = relabel_sets([base.label_sets[i] for i in chosen], base.space, self.space)
            self.labels = single_labels(self.label_sets)
        self.metadata = {column: [values[i] for i in chosen] for column, values in base.metadata.items()}

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), **({"list": self.list_name} if self.list_name else {})}

    def decoded_as(self, decoding: Decoding) -> Self:
        view = copy(self)
        view.base = self.base.decoded_as(decoding)
        return view

    def read(self, index: int) -> DecodedImage:
        return self.base.read(int(self.indices[index]))

    def digests(self, indices: Sequence[int]) -> list[bytes]:
        chosen = [int(self.indices[i]) for i in indices]
        if isinstance(self.base, ContentDataset):
            return self.base.digests(chosen)
        whole = self.base.fingerprint.encode()
        return [digest_bytes(whole + self.base.ids[i].encode()) for i in chosen]


def _copy_id(image_id: str, copy: int) -> str:
    return image_id if copy == 1 else f"{image_id}#{copy}"


def rows_of(dataset: Dataset, ids: Sequence[str]) -> list[int]:
    """The positions of a subset's images in its dataset, copies included; -1 for ids that are unknown there."""
    rows, wanted, copy = dict[str, int](), set(ids), 1
    while found := {name: i for i, one in enumerate(dataset.ids) if (name := _copy_id(one, copy)) in wanted}:
        rows, copy = found | rows, copy + 1
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
    wanted = set(np.flatnonzero(space.relabel_from(dataset.space) >= 0).tolist())
    chosen = [i for i, own in enumerate(_classes_of(dataset)) if wanted.intersection(own)]
    if not chosen:
        raise LabelError(
            f"{dataset.name!r} has no image of the classes of {space.name!r}",
            found=f"classes of {dataset.space.name!r} such as {dataset.space.keys[0]}",
            expected=f"classes such as {space.keys[0]}",
        )
    return Subset(dataset, chosen, name=name, space=space)


def with_classes(dataset: Dataset, keys: Iterable[str], *, name: str | None = None) -> Subset:
    """The images of some classes, named by key; the label space stays.

    Args:
        dataset: The dataset.
        keys: Keys of the classes.
        name: Name of the subset.
    """
    wanted = {dataset.space.index(key) for key in keys}
    chosen = [i for i, own in enumerate(_classes_of(dataset)) if wanted.intersection(own)]
    return Subset(dataset, chosen, name=name)


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
    classes = by_key((label, i) for i, own in enumerate(_classes_of(dataset)) for label in own)
    chosen = {i for members in classes.values() for i in sorted(members, key=ranks.__getitem__)[:count]}
    return Subset(dataset, sorted(chosen), name=name)


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
    return Subset(dataset, sorted(sorted(range(len(dataset)), key=ranks.__getitem__)[:count]), name=name)


def balanced(dataset: Dataset, count: int, *, seed: int = 0, name: str | None = None) -> Subset:
    """``count`` labelled images, as many of each class as of any other while a class has more, in the dataset's order.

    As with ``sample``, a larger choice contains the smaller one.
    """
    ranks, classes = _ranks(dataset, seed), _classes_of(dataset)
    labelled = [i for i, own in enumerate(classes) if own]
    order = in_turns([ranks[i] for i in labelled], [classes[i][0] for i in labelled])
    return Subset(dataset, sorted(labelled[i] for i in order[:count]), name=name)


def testbed_tenth(dataset: Dataset) -> Subset | None:
    """The 10 % list of the ImageNet testbed (001): attacks, and corruptions of most models, were evaluated on it.

    Five draws from the 50 validation images of each class in the order of their names, with repetitions: 5,000 images,
    4,799 of them different. None for a dataset that is not 50 images of each of ImageNet's classes.
    """
    text = files("shiftbench.datasets").joinpath("testbed_tenth.csv").read_text(encoding="utf-8")
    members: dict[str, list[int]] = defaultdict(list)
    for i in sorted(range(len(dataset)), key=lambda i: dataset.ids[i].rpartition("/")[2]):
        if dataset.labels[i] >= 0:
            members[dataset.space.keys[dataset.labels[i]]].append(i)
    chosen = []
    for row in csv.DictReader(text.splitlines()):
        if len(members[row["class"]]) != 50:
            return None
        chosen += [members[row["class"]][int(place)] for place in row["images"].split()]
    part = Subset(dataset, chosen)
    part.list_name = TESTBED_LIST
    return part


def in_turns(ranks: Sequence[bytes], classes: Sequence[int]) -> list[int]:
    """Rows in the order in which classes take turns: the first of each class by rank, then the second of each, ..."""
    drawn: dict[int, int] = defaultdict(int)
    turns = []
    for row in sorted(range(len(ranks)), key=ranks.__getitem__):
        turns.append((drawn[classes[row]], ranks[row], row))
        drawn[classes[row]] += 1
    return [row for *_, row in sorted(turns)]


def _classes_of(dataset: Dataset) -> LabelSets:
    """Of every image; none where it has no label."""
    if dataset.label_sets is not None:
        return dataset.label_sets
    return [(label,) if label >= 0 else () for label in dataset.labels.tolist()]


def _ranks(dataset: Dataset, seed: int) -> list[bytes]:
    return [seeded_rank(seed, image_id) for image_id in dataset.ids]
