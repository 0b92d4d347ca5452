"""Super-classes of ImageNet's classes: ObjectNet's 113, ImageNet-Vid-Robust's 30, YTBB-Robust's 24, and the 25 broad
classes of paper 002's subtype experiment.

A classifier's scores become scores of a super-class by the maximum over its members. The best super-class is then
the one that holds the best of all members, so that "the prediction is any class of the folder" (ObjectNet) and
"the projected argmax is right" (the video sets) are one rule.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources

from shiftbench.labels.catalogue import label_spaces
from shiftbench.labels.space import LabelSpace


@cache
def _table(file: str) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """(key, name, wnids of the members) of each class, in order."""
    text = resources.files("shiftbench.labels").joinpath(f"data/{file}.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return tuple((row["key"], row["name"], tuple(m for m in row["members"].split("|") if m)) for row in rows)


def _space(name: str, rows: tuple[tuple[str, str, tuple[str, ...]], ...]) -> LabelSpace:
    keys, names, members = zip(*rows, strict=True)
    return LabelSpace(name, keys, names, members)


def objectnet_folders() -> tuple[str, ...]:
    """The class folders of ObjectNet, all 313.

    >>> len(objectnet_folders())
    313
    """
    return tuple(key for key, _, _ in _table("objectnet"))


@label_spaces.register("objectnet-113")
@cache
def objectnet_113() -> LabelSpace:
    """The 113 classes of ObjectNet that ImageNet has too, as 125 ImageNet classes; keys are its folders.

    >>> space = objectnet_113()
    >>> space.names[space.index("alarm_clock")], len(space.members[space.index("alarm_clock")])
    ('Alarm clock', 2)
    """
    return _space("objectnet-113", tuple(row for row in _table("objectnet") if row[2]))


@label_spaces.register("vid-robust-30")
@cache
def vid_robust_30() -> LabelSpace:
    """The 30 classes of ImageNet-Vid-Robust, as 288 ImageNet classes."""
    return _space("vid-robust-30", _table("vid_robust"))


@label_spaces.register("ytbb-robust-24")
@cache
def ytbb_robust_24() -> LabelSpace:
    """The 24 classes of YTBB-Robust, 19 of them as 231 ImageNet classes; ImageNet lacks the other five."""
    return _space("ytbb-robust-24", _table("ytbb_robust"))


@label_spaces.register("imagenet-22k-25")
@cache
def imagenet_22k_25() -> LabelSpace:
    """25 broad classes of ImageNet-22K; members are the synsets below each in WordNet 3.0, 543 of them in ImageNet-1K.

    >>> space = imagenet_22k_25()
    >>> space.names[space.index("n02131653")], len(space.members[space.index("n02131653")])
    ('bear', 12)
    """
    return _space("imagenet-22k-25", _table("imagenet_22k"))
