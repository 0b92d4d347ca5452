"""Broad classes with some of their subtypes held out: CIFAR-100 and ImageNet-22K as in paper 002.

CIFAR-100 has 20 broad classes of five fine ones each. Of each, 1 to 4 are held out: a model is trained to predict the
broad classes on the others, and tested on both. The order in which they are held out is the published one.

ImageNet-22K has 25 broad classes: synsets with those below them in WordNet 3.0 that the released lists name. A subtype
is seen if ImageNet-1K has it, so any ImageNet model can be tested: the score of a broad class is the best of its seen
subtypes.

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

CIFAR_SPACE = "cifar-100-20"
IMAGENET_SPACE = "imagenet-22k-25"
_PART = re.compile(r"subtypes(?:-(?P<held_out>[1-4]))?\.(?P<part>train|seen|unseen)")


def held_out_subtypes(held_out: int) -> frozenset[str]:
    """The fine classes of CIFAR-100 that are not trained on, ``held_out`` of each broad class."""
    if held_out not in range(1, 5):
        raise DatasetError("invalid number of held-out subtypes", found=held_out, expected="1 to 4 of the five")
    unseen: set[str] = set()
    for fine_classes in label_space(CIFAR_SPACE).members or ():
        unseen.update(fine_classes[:held_out])
    return frozenset(unseen)


def open_cifar_part(path: str | Path, part: str, *, held_out: int = 1, name: str | None = None) -> Subset:
    """Open the images of CIFAR-100 whose fine class is held out (``unseen``) or not (``train``, ``seen``)."""
    base = open_cifar(path, split="train" if part == "train" else "test", space="cifar-100")
    unseen = {base.space.index(key) for key in held_out_subtypes(held_out)}
    in_part = np.isin(base.labels, sorted(unseen), invert=part != "unseen")
    title = name or f"cifar-100/subtypes-{held_out}.{part}"
    return Subset(base, np.flatnonzero(in_part).tolist(), name=title, space=label_space(CIFAR_SPACE))


def seen_synsets() -> frozenset[str]:
    """The subtypes of the 25 broad classes that ImageNet-1K has."""
    return frozenset(_broad_classes()).intersection(label_space("imagenet-1k").keys)


def open_imagenet_22k(path: str | Path, part: str, *, name: str | None = None) -> FileDataset:
    """``seen`` (``train`` means the same) or ``unseen`` images of a folder with one folder per synset.

    Synsets outside the 25 broad classes are ignored. The subtype of each image is metadata.
    """
    root = Path(path)
    broad_classes = _broad_classes()
    synsets = broad_classes.keys() & seen_synsets()
    if part == "unseen":
        synsets = broad_classes.keys() - synsets
    present = [wnid for wnid in _names(root, folders=True) if wnid in synsets]
    paths = []
    subtypes = []
    for wnid in present:
        for file in _names(root / wnid):
            if file.lower().endswith(EXTENSIONS):
                paths.append(f"{wnid}/{file}")
                subtypes.append(wnid)
    if not paths:
        raise DatasetError(
            f"{root} has no image of {part} subtypes",
            found=f"{len(present)} folders of them",
            expected="folders of synsets below the 25 broad classes, such as n01639765/<image>",
        )
    return FileDataset(
        name or f"imagenet-22k/subtypes.{part}",
        label_space(IMAGENET_SPACE),
        root,
        paths,
        [broad_classes[wnid] for wnid in subtypes],
        metadata={"subtype": subtypes},
    )


def _broad_classes() -> dict[str, int]:
    """For each synset the index of the broad class of ImageNet-22K that it belongs to."""
    broad_classes: dict[str, int] = {}
    for i, synsets in enumerate(label_space(IMAGENET_SPACE).members or ()):
        broad_classes |= dict.fromkeys(synsets, i)
    return broad_classes


def recognise_subtypes(path: Location) -> str | None:
    match = _PART.fullmatch(path.name)
    if match is None or not isinstance(path, Path) or path.exists():
        return None
    if match["held_out"]:
        files = find_files(path.parent)
        if files and files.space == "cifar-100":
            return f"{match['part']} subtypes of CIFAR-100"
    elif path.parent.is_dir() and not _broad_classes().keys().isdisjoint(_names(path.parent, folders=True)):
        return f"{match['part']} subtypes of ImageNet-22K"
    return None


def open_subtypes(path: str | Path, *, space: AskedSpace = None, name: str | None = None) -> Dataset:
    """Seen or unseen subtypes: PATH/subtypes-1.unseen of CIFAR-100, PATH/subtypes.unseen of ImageNet-22K."""
    path = Path(path)
    match = _PART.fullmatch(path.name)
    if match is None:
        raise DatasetError(
            f"{path} is not a subtype split",
            expected="FOLDER/subtypes-1.seen (CIFAR-100, 1 to 4 held out) or FOLDER/subtypes.seen (ImageNet-22K)",
        )
    if match["held_out"]:
        own_space(CIFAR_SPACE, space)  # raises for another label space
        return open_cifar_part(path.parent, match["part"], held_out=int(match["held_out"]), name=name)
    own_space(IMAGENET_SPACE, space)
    return open_imagenet_22k(path.parent, match["part"], name=name)


KIND = DatasetKind(recognise_subtypes, open_subtypes)


def _names(folder: Path, *, folders: bool = False) -> list[str]:
    """The names of the files, or of the folders, in a folder, sorted.

    Subfolders are not listed: 22,000 folders hold 14 million images.
    """
    try:
        with os.scandir(folder) as entries:
            of_kind = [entry.name for entry in entries if entry.is_dir() == folders]
        return sorted(name for name in of_kind if not name.startswith("."))
    except OSError as error:
        raise DatasetError(f"the folder {folder} can't be listed", found=error.strerror) from error
