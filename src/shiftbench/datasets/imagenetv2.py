"""ImageNetV2 as released and repackaged.

The official archives hold folders 0 to 999 (class indices: sorting them as text would give wrong labels) of ten JPEG
files each. Repackaged versions have wnid folders, and their JPEG files may differ: in the ImageNet testbed the
accuracies of one model on both differ by 0.11 points in the median and 0.55 at most. So the name of the dataset, which
is part of every score's provenance, tells them apart.
"""

from __future__ import annotations

import re
from typing import Literal

from shiftbench.datasets.files import FileDataset
from shiftbench.datasets.folder import check_folder, open_folder
from shiftbench.datasets.kind import DatasetKind, entry_names
from shiftbench.io.paths import Location, place
from shiftbench.labels.space import LabelSpace

Packing = Literal["integers", "wnids"]
_NAME = re.compile(r"imagenet-?v2", re.IGNORECASE)


def packing_of(path: Location) -> Packing | None:
    """Which packing of ImageNetV2 a folder is, by its own name and those of its class folders; else None."""
    if not path.is_dir() or not _NAME.match(path.resolve().name):
        return None
    folders = [name for name in entry_names(path) if not name.startswith(".") and (path / name).is_dir()]
    if folders and all(name.isascii() and name.isdecimal() for name in folders):
        return "integers"
    if folders and all(re.fullmatch(r"n\d{8}", name) for name in folders):
        return "wnids"
    return None


def open_imagenetv2(
    path: str | Location, *, space: LabelSpace | str | None = None, name: str | None = None
) -> FileDataset:
    """ImageNetV2: folders 0 to 999 as released, or repackaged in wnid folders."""
    root = place(path)
    packing = packing_of(root)
    title = name or root.resolve().name
    if packing == "wnids":
        title += " (wnid folders)"
    return open_folder(root, space=space or "imagenet-1k", name=title)


def recognise_imagenetv2(path: Location) -> str | None:
    packing = packing_of(path)
    return f"ImageNetV2, {'folders 0 to 999' if packing == 'integers' else 'wnid folders'}" if packing else None


KIND = DatasetKind(recognise_imagenetv2, open_imagenetv2, check_folder, by_url=True)
