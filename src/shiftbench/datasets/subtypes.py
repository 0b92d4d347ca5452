"""Broad classes with some of their subtypes held out: CIFAR-100 and ImageNet-22K as in paper 002.

CIFAR-100 has 20 broad classes of five fine ones each. Of each, 1 to 4 are held out: a model is trained to predict the
broad classes on the others, and tested on both. The order in which they are held out is the published one.

ImageNet-22K has 25 broad classes: synsets with all synsets below them in WordNet 3.0. A subtype is seen if ImageNet-1K
has it, so any ImageNet model can be tested: the score of a broad class is the best of its seen subtypes.

A part is named like a file in the dataset: ``cifar-100-python/subtypes-2.unseen``, ``imagenet-22k/subtypes.unseen``.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np

from shiftbench.datasets.base import Dataset, DatasetKind, own_space
from shiftbench.datasets.cifar import find_files, open_cifar
from shiftbench.datasets.folder import EXTENSIONS
from shiftbench.datasets.stored import FileDataset
from shiftbench.datasets.subset import Subset
from shiftbench.errors import DatasetError
from shiftbench.io.paths import Location
from shiftbench.labels.catalogue import label_space
from shiftbench.labels.space import AskedSpace

CIFAR_SPACE, IMAGENET_SPACE = "cifar-100-20", "imagenet-22k-25"
_PART = re.compile(r"subtypes(?:-(?P<held_out>[1-4]))?\.(?P<part>train|seen|unseen)")


def held_out_subtypes(held_out: int) -> frozenset[str]:
    """The fine classes of CIFAR-100 that are not trained on, ``held_out`` of each broad class."""
    if held_out not in range(1, 5):
        raise DatasetError("invalid number of held-out subtypes", found=held_out, expected="1 to 4 of the five")
    members = label_space(CIFAR_SPACE).members or ()
    return frozenset(name for group in members for name in group[:held_out])


def open_cifar_part(path: str | Path, part: str, *, held_out: int = 1, name: str | None = None) -> Subset:
    base = open_cifar(path, split="train" if part == "train" else "test", space="cifar-100")
    unseen = {base.space.index(key) for key in held_out_subtypes(held_out)}
    wanted = np.isin(base.labels, sorted(unseen), invert=part != "unseen")
    title = name or f"cifar-100/subtypes-{held_out}.{part}"
    return Subset(base, np.flatnonzero(wanted).tolist(), name=title, space=label_space(CIFAR_SPACE))


def seen_synsets() -> frozenset[str]:
    """The subtypes of the 25 broad classes that ImageNet-1K has."""
    return frozenset(_broad_classes()).intersection(label_space("imagenet-1k").keys)


def open_imagenet_22k(path: str | Path, part: str, *, name: str | None = None) -> FileDataset:
    """``seen`` (``train`` means the same) or ``unseen`` images of a folder with one folder per synset.

    Synsets outside the 25 broad classes are ignored. The subtype of each image is metadata.
    """
    root, members, seen = Path(path), _broad_classes(), seen_synsets()
    present = [wnid for wnid in _names(root, folders=True) if wnid in members and (wnid in seen) == (part != "unseen")]
    images = [(wnid, file) for wnid in present for file in _names(root / wnid) if file.lower().endswith(EXTENSIONS)]
    if not images:
        raise DatasetError(
            f"{root} has no image of {part} subtypes",
            found=f"{len(present)} folders of them",
            expected="folders of synsets below the 25 broad classes, such as n01639765/<image>",
        )
    subtypes = [wnid for wnid, _ in images]
    return FileDataset(
        name or f"imagenet-22k/subtypes.{part}",
        label_space(IMAGENET_SPACE),
        root,
        [f"{wnid}/{file}" for wnid, file in images],
        [members[wnid] for wnid in subtypes],
        metadata={"subtype": subtypes},
    )


def _broad_classes() -> dict[str, int]:
    """Each synset to the broad class of ImageNet-22K that it belongs to."""
    return {wnid: i for i, group in enumerate(label_space(IMAGENET_SPACE).members or ()) for wnid in group}


def recognise_subtypes(path: Location) -> str | None:
    match = _PART.fullmatch(path.name)
    if match is None or not isinstance(path, Path) or path.exists():
        return None
    if match["held_out"]:
        files = find_files(path.parent)
        return f"{match['part']} subtypes of CIFAR-100" if files and files.space == "cifar-100" else None
    found = path.parent.is_dir() and not _broad_classes().keys().isdisjoint(_names(path.parent, folders=True))
    return f"{match['part']} subtypes of ImageNet-22K" if found else None


def open_subtypes(path: str | Path, *, space: AskedSpace = None, name: str | None = None) -> Dataset:
    """Seen or unseen subtypes: PATH/subtypes-1.unseen of CIFAR-100, PATH/subtypes.unseen of ImageNet-22K."""
    place = Path(path)
    match = _PART.fullmatch(place.name)
    if match is None:
        raise DatasetError(
            f"{place} is not a subtype split",
            expected="FOLDER/subtypes-1.seen (CIFAR-100, 1 to 4 held out) or FOLDER/subtypes.seen (ImageNet-22K)",
        )
    own_space(CIFAR_SPACE if match["held_out"] else IMAGENET_SPACE, space)
    if match["held_out"]:
        return open_cifar_part(place.parent, match["part"], held_out=int(match["held_out"]), name=name)
    return open_imagenet_22k(place.parent, match["part"], name=name)


KIND = DatasetKind(recognise_subtypes, open_subtypes)


def _names(folder: Path, *, folders: bool = False) -> list[str]:
    """Sorted; only one level: 22,000 folders hold 14 million images."""
    try:
        with os.scandir(folder) as entries:
            return sorted(e.name for e in entries if not e.name.startswith(".") and e.is_dir() == folders)
    except OSError as error:
        raise DatasetError(f"the folder {folder} can't be listed", found=error.strerror) from error
