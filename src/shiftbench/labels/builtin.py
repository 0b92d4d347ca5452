"""The built-in label spaces: ImageNet, its subsets and super-classes, CIFAR, Icons-50, DeepFashion2 and StoreFronts.

Their classes are the tables in ``data/``. The index of an ImageNet class is the position of its wnid among the sorted
wnids. Three short names are shared by two synsets each (crane, cardigan, maillot); here they carry a word in brackets.
CIFAR-100's fine classes are in the order in which paper 002's subtype experiment holds them out.

A model's score of a super-class is the maximum over its members. The best super-class is then the one that holds the
best of all members, so that "the prediction is any class of the folder" (ObjectNet) and "the projected argmax is
correct" (the video datasets) are the same rule.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from functools import cache, partial
from importlib import resources

from shiftbench.labels.catalogue import label_space, label_spaces
from shiftbench.labels.space import LabelSpace


@cache
def _table(file: str) -> list[dict[str, str]]:
    text = resources.files("shiftbench.labels").joinpath(f"data/{file}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _imagenet(name: str) -> LabelSpace:
    rows = _table("imagenet_1k")
    return LabelSpace(name, tuple(row["wnid"] for row in rows), tuple(row["name"] for row in rows))


def _subset(letter: str, name: str) -> LabelSpace:
    wnids = tuple(row["wnid"] for row in _table("imagenet_1k") if letter in row["subsets"])
    return label_space("imagenet-1k").subset(wnids, name)


def _space(file: str, name: str) -> LabelSpace:
    rows = _table(file)
    members = [tuple(filter(None, row["members"].split("|"))) for row in rows] if "members" in rows[0] else None
    return LabelSpace(
        name, tuple(r["key"] for r in rows), tuple(r["name"] for r in rows), None if members is None else tuple(members)
    )


def _objectnet(name: str) -> LabelSpace:
    whole = _space("objectnet", name)
    shared = [row for row in zip(whole.keys, whole.names, whole.members or (), strict=True) if row[2]]
    return LabelSpace(name, *zip(*shared, strict=True))


#: Name, how it is made, and what `list spaces` shows.
_SPACES: tuple[tuple[str, Callable[[str], LabelSpace], str], ...] = (
    ("imagenet-1k", _imagenet, "The 1,000 classes of ImageNet (ILSVRC 2012); keys are wnids."),
    ("imagenet-a-200", partial(_subset, "a"), "The 200 classes of ImageNet-A (natural adversarial examples)."),
    (
        "imagenet-o-200",
        partial(_subset, "o"),
        "The 200 classes of ImageNet-O, which its out-of-distribution images are mistaken for.",
    ),
    ("imagenet-r-200", partial(_subset, "r"), "The 200 classes of ImageNet-R (renditions)."),
    (
        "imagenet-eighth-125",
        partial(_subset, "e"),
        "The 125 classes of the ImageNet testbed's `subsampled_class_1_8` settings.",
    ),
    (
        "objectnet-113",
        _objectnet,
        "The 113 classes of ObjectNet that ImageNet has too, as 125 ImageNet classes; keys are its folders.",
    ),
    ("vid-robust-30", partial(_space, "vid_robust"), "The 30 classes of ImageNet-Vid-Robust, as 288 ImageNet classes."),
    (
        "ytbb-robust-24",
        partial(_space, "ytbb_robust"),
        "The 24 classes of YTBB-Robust, 19 of them as 231 ImageNet classes; ImageNet lacks the other five.",
    ),
    (
        "imagenet-22k-25",
        partial(_space, "imagenet_22k"),
        "25 broad classes of ImageNet-22K; members are the synsets below each in WordNet 3.0, 543 of them in "
        "ImageNet-1K.",
    ),
    ("cifar-10", partial(_space, "cifar_10"), "The 10 classes of CIFAR-10."),
    ("cifar-100", partial(_space, "cifar_100"), "The 100 fine classes of CIFAR-100, in alphabetical order."),
    (
        "cifar-100-20",
        partial(_space, "cifar_100_broad"),
        "The 20 broad classes of CIFAR-100, each with its five fine ones.",
    ),
    ("icons-50", partial(_space, "icons"), "The 50 broad classes of Icons-50; keys are its folders."),
    (
        "deepfashion2-13",
        partial(_space, "deepfashion2"),
        "DeepFashion2's 13 categories of clothes, in the order of `category_id`, which counts from 1.",
    ),
    (
        "streetview-storefronts-20",
        partial(_space, "storefronts"),
        "The 20 kinds of business of StreetView StoreFronts (paper 000, appendix C).",
    ),
)
for _name, _make, _about in _SPACES:
    _build = cache(partial(_make, _name))
    _build.__doc__ = _about
    label_spaces.add(_name, _build)


@cache
def imagenet_synonyms() -> dict[str, tuple[str, ...]]:
    """The other names of each ImageNet class in WordNet, by wnid.

    >>> imagenet_synonyms()["n02123045"]
    ('tabby cat',)
    """
    return {row["wnid"]: tuple(row["synonyms"].split("|")) for row in _table("imagenet_1k") if row["synonyms"]}


def objectnet_folders() -> tuple[str, ...]:
    """The class folders of ObjectNet, all 313.

    >>> len(objectnet_folders())
    313
    """
    return tuple(row["key"] for row in _table("objectnet"))
