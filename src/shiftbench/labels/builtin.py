"""The built-in label spaces: ImageNet, its subsets and super-classes, CIFAR, Icons-50, DeepFashion2 and StoreFronts.

Their classes are the tables in ``data/``. The index of an ImageNet class is the position of its wnid among the sorted
wnids. Three short names are shared by two synsets each (crane, cardigan, maillot); here a suffix in brackets is added.
CIFAR-100's fine classes are in the order in which paper 002's subtype experiment holds them out.

A model's score of a super-class is the maximum over its members. The best super-class is then the one that holds the
best of all members, so that "the prediction is any class of the folder" (ObjectNet) and "the projected argmax is
correct" (the video datasets) are the same rule.
"""

from __future__ import annotations

import csv
from functools import cache, partial
from importlib import resources

from shiftbench.labels.catalogue import label_space, label_spaces
from shiftbench.labels.space import LabelSpace


@cache
def _table(file: str) -> list[dict[str, str]]:
    text = resources.files("shiftbench.labels").joinpath(f"data/{file}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _space(name: str, table: str, subset: str) -> LabelSpace:
    """Make a label space of a table.

    ``subset`` is the letter of a subset of ImageNet, or "with members": the classes that ImageNet has, too.
    """
    rows = _table(table)
    if table == "imagenet_1k" and subset:
        wnids = tuple(row["key"] for row in rows if subset in row["subsets"])
        return label_space("imagenet-1k").subset(wnids, name)
    if subset:
        rows = [row for row in rows if row["members"]]
    keys = tuple(row["key"] for row in rows)
    names = tuple(row["name"] for row in rows)
    members = None
    if "members" in rows[0]:
        members = tuple(_split(row["members"]) for row in rows)
    return LabelSpace(name, keys, names, members)


def _split(text: str) -> tuple[str, ...]:
    """The members in a cell of a table; none for an empty cell."""
    return tuple(filter(None, text.split("|")))


for _row in _table("spaces"):
    _build = cache(partial(_space, _row["name"], _row["table"], _row["subset"]))
    _build.__doc__ = _row["about"]
    label_spaces.add(_row["name"], _build)


@cache
def imagenet_synonyms() -> dict[str, tuple[str, ...]]:
    """The other names of each ImageNet class in WordNet, by wnid."""
    return {row["key"]: tuple(row["synonyms"].split("|")) for row in _table("imagenet_1k") if row["synonyms"]}


def objectnet_folders() -> tuple[str, ...]:
    """The class folders of ObjectNet, all 313."""
    return tuple(row["key"] for row in _table("objectnet"))
