"""The 1,000 classes of ImageNet (ILSVRC 2012) in order, the 200 of ImageNet-A, -O and -R, and a fixed eighth.

The index of a class is the position of its wnid among the sorted wnids. Three short names are shared by two
synsets each (crane, cardigan, maillot); here they carry a word in brackets.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources

from shiftbench.labels.catalogue import label_spaces
from shiftbench.labels.space import LabelSpace


@cache
def _table() -> list[dict[str, str]]:
    text = resources.files("shiftbench.labels").joinpath("data/imagenet_1k.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@label_spaces.register("imagenet-1k")
@cache
def imagenet_1k() -> LabelSpace:
    """
    >>> imagenet_1k().keys[0], imagenet_1k().names[999]
    ('n01440764', 'toilet tissue')
    """
    return LabelSpace("imagenet-1k", tuple(r["wnid"] for r in _table()), tuple(r["name"] for r in _table()))


def _subset(letter: str) -> LabelSpace:
    wnids = tuple(row["wnid"] for row in _table() if letter in row["subsets"])
    return imagenet_1k().subset(wnids, f"imagenet-{letter}-200")


@label_spaces.register("imagenet-a-200")
@cache
def imagenet_a_200() -> LabelSpace:
    """The classes of ImageNet-A (natural adversarial examples)."""
    return _subset("a")


@label_spaces.register("imagenet-o-200")
@cache
def imagenet_o_200() -> LabelSpace:
    """The classes that ImageNet-O's out-of-distribution pictures are confused with."""
    return _subset("o")


@label_spaces.register("imagenet-r-200")
@cache
def imagenet_r_200() -> LabelSpace:
    """The classes of ImageNet-R (renditions)."""
    return _subset("r")


@label_spaces.register("imagenet-eighth-125")
@cache
def imagenet_eighth_125() -> LabelSpace:
    """The 125 classes of the ImageNet testbed's ``subsampled_class_1_8`` settings."""
    wnids = tuple(row["wnid"] for row in _table() if "e" in row["subsets"])
    return imagenet_1k().subset(wnids, "imagenet-eighth-125")
