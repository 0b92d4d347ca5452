"""Broad classes with some of their subtypes held out: CIFAR-100 and ImageNet-22K as in paper 002.

CIFAR-100 has 20 broad classes of five fine ones each. Of each, 1, 2, 3 or 4 are held out: a classifier is trained on
the others to tell the broad classes, and tested on both. The order in which they are held out is the published one.

ImageNet-22K has 25 broad classes, synsets with all that lies below them in WordNet 3.0. A subtype is seen if
ImageNet-1K has it, so that any ImageNet classifier can be tested: the score of a broad class is the best of its seen
subtypes.

A part is named below the data, as if it were a file of it: ``cifar-100-python/subtypes-2.unseen``,
``imagenet-22k/subtypes.unseen``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shiftbench.datasets.base import Dataset
from shiftbench.datasets.cifar import find_layout, open_cifar
from shiftbench.datasets.files import FileDataset
from shiftbench.datasets.folder import EXTENSIONS
from shiftbench.datasets.subset import Subset
from shiftbench.errors import DatasetError
from shiftbench.labels.catalogue import label_space
from shiftbench.labels.space import LabelSpace

CIFAR_SPACE, IMAGENET_SPACE = "cifar-100-20", "imagenet-22k-25"
_PART = re.compile(r"subtypes(?:-(?P<held_out>[1-4]))?\.(?P<part>train|seen|unseen)")


@dataclass(frozen=True)
class SubtypeSplit:
    """Images with broad labels: of seen subtypes to train on and to test on, and of unseen ones to test on."""

    train: Dataset
    seen: Dataset
    unseen: Dataset


def held_out_subtypes(held_out: int) -> frozenset[str]:
    """The fine classes of CIFAR-100 that are not trained on, so many of each broad class.

    >>> len(held_out_subtypes(2)), sorted(held_out_subtypes(1))[:3]
    (40, ['bicycle', 'boy', 'butterfly'])
    """
    if held_out not in range(1, 5):
        raise DatasetError("so many subtypes can't be held out", found=held_out, expected="1 to 4 of the five")
    members = label_space(CIFAR_SPACE).members or ()
    return frozenset(name for group in members for name in group[:held_out])


def cifar_100_subtypes(path: str | Path, held_out: int = 1) -> SubtypeSplit:
    """From the official files: training images of the seen subtypes, test images of the seen and of the unseen."""
    return SubtypeSplit(*(open_cifar_part(path, part, held_out=held_out) for part in ("train", "seen", "unseen")))


def open_cifar_part(path: str | Path, part: str, *, held_out: int = 1, name: str | None = None) -> Subset:
    """``train``, ``seen`` or ``unseen``."""
    base = open_cifar(path, split="train" if part == "train" else "test", space="cifar-100")
    unseen = {base.space.index(key) for key in held_out_subtypes(held_out)}
    wanted = np.isin(base.labels, sorted(unseen), invert=part != "unseen")
    title = name or f"cifar-100/subtypes-{held_out}.{part}"
    return Subset(base, np.flatnonzero(wanted).tolist(), name=title, space=label_space(CIFAR_SPACE))


def seen_synsets() -> frozenset[str]:
    """The subtypes of the 25 broad classes that ImageNet-1K has.

    >>> len(seen_synsets())
    543
    """
    known = label_space("imagenet-1k")
    return frozenset(wnid for group in label_space(IMAGENET_SPACE).members or () for wnid in group if wnid in known)


def open_imagenet_22k(path: str | Path, part: str, *, name: str | None = None) -> FileDataset:
    """``seen`` (``train`` means the same) or ``unseen`` images of a folder with one folder a synset.

    Synsets below none of the 25 broad classes are left alone. The subtype of each image is metadata.
    """
    root = Path(path)
    space = label_space(IMAGENET_SPACE)
    members = {wnid: i for i, group in enumerate(space.members or ()) for wnid in group}
    seen = seen_synsets()
    present = [wnid for wnid in _folders(root) if wnid in members and (wnid in seen) == (part != "unseen")]
    files = [(wnid, file) for wnid in present for file in _pictures(root / wnid)]
    if not files:
        raise DatasetError(
            f"{root} has no image of {part} subtypes",
            found=f"{len(present)} folders of them",
            expected="folders of synsets below the 25 broad classes, such as n01639765/<picture>",
        )
    return FileDataset(
        name or f"imagenet-22k/subtypes.{part}",
        space,
        root,
        [f"{wnid}/{file}" for wnid, file in files],
        [members[wnid] for wnid, _ in files],
        metadata={"subtype": [wnid for wnid, _ in files]},
    )


def seen_subtypes(path: Path) -> str | None:
    """What a path is, if it names a part of CIFAR-100 or ImageNet-22K by subtypes."""
    match = _PART.fullmatch(path.name)
    if match is None or path.exists():
        return None
    if match["held_out"]:
        layout = find_layout(path.parent)
        return f"{match['part']} subtypes of CIFAR-100" if layout and layout.space == "cifar-100" else None
    known = {wnid for group in label_space(IMAGENET_SPACE).members or () for wnid in group}
    found = path.parent.is_dir() and any(folder in known for folder in _folders(path.parent))
    return f"{match['part']} subtypes of ImageNet-22K" if found else None


def open_subtypes(path: str | Path, *, space: LabelSpace | str | None = None, name: str | None = None) -> Dataset:
    """``FOLDER/subtypes-N.PART`` of CIFAR-100, ``FOLDER/subtypes.PART`` of ImageNet-22K."""
    place = Path(path)
    match = _PART.fullmatch(place.name)
    if match is None:
        raise DatasetError(
            f"{place} names no part by subtypes",
            expected="FOLDER/subtypes-1.seen (CIFAR-100, 1 to 4 held out) or FOLDER/subtypes.seen (ImageNet-22K)",
        )
    own = label_space(CIFAR_SPACE if match["held_out"] else IMAGENET_SPACE)
    asked = label_space(space) if isinstance(space, str) else space
    if asked is not None and asked.keys != own.keys:
        raise DatasetError("the labels are broad classes", found=f"the label space {asked.name!r}", expected=own.name)
    if match["held_out"]:
        return open_cifar_part(place.parent, match["part"], held_out=int(match["held_out"]), name=name)
    return open_imagenet_22k(place.parent, match["part"], name=name)


def _folders(root: Path) -> list[str]:
    return sorted(_names(root, folders=True))


def _pictures(folder: Path) -> list[str]:
    return sorted(name for name in _names(folder, folders=False) if name.lower().endswith(EXTENSIONS))


def _names(folder: Path, *, folders: bool) -> Iterable[str]:
    """Only one level: 22,000 folders hold 14 million pictures."""
    try:
        with os.scandir(folder) as entries:
            return [e.name for e in entries if not e.name.startswith(".") and e.is_dir() == folders]
    except OSError as error:
        raise DatasetError(f"the folder {folder} can't be listed", found=error.strerror) from error
