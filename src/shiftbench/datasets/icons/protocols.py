"""The three experiments of paper 002 with Icons-50, as splits of one set of icons.

=========  ==========================================================================================================
style      one vendor's icons are the test set, all others train; Microsoft's, as in the paper, or ``style-apple``, ...
subtype    50 subtypes are the test set, all others train: the classifier knows other birds, and no duck
version    one version of icons that have several is the test set (the paper's control: no shift but the redrawing).
           Rendition 2, as published; ``version-newest`` takes the last one, whatever its number
=========  ==========================================================================================================

The paper trains on all icons that are not tested. Here one in ten of them is set aside, so that there is a score on
seen styles and subtypes to compare with; ``seen_share=0`` trains as the paper does.

The published script finds the held-out subtypes as parts of the whole path. As ``books`` and ``monkey`` are also class
folders, it withholds these two classes altogether; ``subtype-published`` does the same.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shiftbench.datasets.base import Dataset
from shiftbench.datasets.icons.classes import HELD_OUT_SUBTYPES, is_held_out
from shiftbench.datasets.subset import Subset
from shiftbench.errors import DatasetError, UnknownNameError

#: The style that the paper holds out.
STYLE = "microsoft"
#: The rendition that the published script holds out.
RENDITION = "2"
SEEN_SHARE = 0.1
PARTS = ("train", "seen", "test")
_PROTOCOL = re.compile(r"(?P<kind>style|subtype|version)(?:-(?P<which>[a-z0-9-]+))?")


@dataclass(frozen=True)
class IconSplit:
    """Parts of a set of icons: to train on, to test on, and icons like those of training that stay unseen in it."""

    protocol: str
    train: Subset
    seen: Subset
    test: Subset

    @property
    def untrained(self) -> tuple[str, ...]:
        """Classes that are tested though no icon of them is in training."""
        known = set(self.train.labels.tolist())
        return tuple(self.test.space.keys[i] for i in sorted(set(self.test.labels.tolist()) - known))

    def part(self, name: str) -> Subset:
        if name not in PARTS:
            raise UnknownNameError("part of a split", name, PARTS)
        parts: dict[str, Subset] = {"train": self.train, "seen": self.seen, "test": self.test}
        return parts[name]


def split_icons(dataset: Dataset, protocol: str, *, seen_share: float = SEEN_SHARE, seed: int = 0) -> IconSplit:
    """``style``, ``style-<name>``, ``subtype``, ``subtype-published``, ``version`` or ``version-newest``."""
    match = _PROTOCOL.fullmatch(protocol)
    rule = _RULES.get((match["kind"], None if match["kind"] == "style" else match["which"])) if match else None
    if match is None or rule is None:
        known = ["style", "style-STYLE", *("-".join(filter(None, key)) for key in _RULES if key[0] != "style")]
        raise UnknownNameError("protocol of icons", protocol, known)
    if not 0 <= seen_share < 1:
        raise DatasetError("invalid share of icons to set aside", found=seen_share, expected="0 to below 1")
    lacking = [column for column in ("style", "rendition", "subtype") if column not in dataset.metadata]
    if lacking:
        raise DatasetError(
            f"{dataset.name!r} lacks the metadata that the protocol needs",
            found=f"no column {lacking[0]!r}",
            expected="icons, as `shiftbench data icons` writes them, or the original Icons-50",
        )
    tested = rule(dataset, match["which"])
    return _split(dataset, protocol, tested, seen_share, seed)


def _split(dataset: Dataset, protocol: str, tested: Sequence[bool], share: float, seed: int) -> IconSplit:
    others = [i for i, is_tested in enumerate(tested) if not is_tested]
    if len(others) in (0, len(dataset)):
        raise DatasetError(
            f"{protocol!r} does not split {dataset.name!r}",
            found="all icons are tested" if not others else "no icon is tested",
        )
    seen = _set_aside(dataset, others, share, seed)
    parts = {
        "train": [i for i in others if i not in seen],
        "seen": sorted(seen),
        "test": [i for i, is_tested in enumerate(tested) if is_tested],
    }
    return IconSplit(protocol, *(Subset(dataset, parts[p], name=f"{dataset.name}/{protocol}.{p}") for p in PARTS))


def _set_aside(dataset: Dataset, others: Sequence[int], share: float, seed: int) -> set[int]:
    """The same share of every class, rounded down, drawn by (seed, id): the same on every machine."""
    classes: dict[int, list[int]] = defaultdict(list)
    for i in others:
        classes[int(dataset.labels[i])].append(i)
    ranks = {i: hashlib.blake2b(f"{seed}/{dataset.ids[i]}".encode(), digest_size=8).digest() for i in others}
    return {i for own in classes.values() for i in sorted(own, key=ranks.__getitem__)[: int(share * len(own))]}


def _of_style(dataset: Dataset, which: str | None) -> list[bool]:
    styles = [str(style) for style in dataset.metadata["style"]]
    wanted = which or STYLE
    if wanted not in styles:
        raise UnknownNameError(f"style of {dataset.name!r}", wanted, sorted(set(styles)))
    return [style == wanted for style in styles]


def _of_subtypes(dataset: Dataset, which: str | None) -> list[bool]:
    return [is_held_out(str(subtype)) for subtype in dataset.metadata["subtype"]]


def _in_path(dataset: Dataset, which: str | None) -> list[bool]:
    return [any(name in image_id for name in HELD_OUT_SUBTYPES) for image_id in dataset.ids]


def _of_rendition(dataset: Dataset, which: str | None) -> list[bool]:
    """The held-out rendition of icons that have another one; one that is alone of its kind stays in training."""
    groups = _renditions(dataset)
    return [
        str(rendition) == RENDITION and len(groups[key]) > 1
        for key, rendition in zip(_drawings(dataset), dataset.metadata["rendition"], strict=True)
    ]


def _newest(dataset: Dataset, which: str | None) -> list[bool]:
    groups = _renditions(dataset)
    return [
        len(groups[key]) > 1 and int(rendition) == max(groups[key])
        for key, rendition in zip(_drawings(dataset), dataset.metadata["rendition"], strict=True)
    ]


def _drawings(dataset: Dataset) -> list[tuple[str, str]]:
    """What a vendor draws again from version to version."""
    metadata = dataset.metadata
    return [(str(style), str(subtype)) for style, subtype in zip(metadata["style"], metadata["subtype"], strict=True)]


def _renditions(dataset: Dataset) -> dict[tuple[str, str], list[int]]:
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for key, rendition in zip(_drawings(dataset), dataset.metadata["rendition"], strict=True):
        groups[key].append(int(rendition))
    return groups


Rule = Callable[[Dataset, str | None], list[bool]]
_RULES: dict[tuple[str, str | None], Rule] = {
    ("style", None): _of_style,
    ("subtype", None): _of_subtypes,
    ("subtype", "published"): _in_path,
    ("version", None): _of_rendition,
    ("version", "newest"): _newest,
}
