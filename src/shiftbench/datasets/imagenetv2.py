"""ImageNetV2 in its two packings, told apart.

The official archives hold folders 0 to 999 (class indices, so that sorting them as text would give wrong labels)
of ten JPEG files each. Re-packings have wnid folders. They may differ in the JPEG files too: in the ImageNet
testbed the accuracies of one model on two packings lie 0.11 points apart in the middle and 0.55 at most. So the
name of the data set, which every score carries, says which one it was.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from shiftbench.datasets.files import FileDataset
from shiftbench.datasets.folder import open_folder
from shiftbench.io.paths import place
from shiftbench.labels.space import LabelSpace

Packing = Literal["integers", "wnids"]
_NAME = re.compile(r"imagenet-?v2", re.IGNORECASE)


def packing_of(path: Path) -> Packing | None:
    """Which packing of ImageNetV2 a folder is, by its own name and those of its class folders; else None."""
    if not path.is_dir() or not _NAME.match(path.resolve().name):
        return None
    folders = [entry.name for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith(".")]
    if folders and all(name.isascii() and name.isdecimal() for name in folders):
        return "integers"
    if folders and all(re.fullmatch(r"n\d{8}", name) for name in folders):
        return "wnids"
    return None


def open_imagenetv2(path: str | Path, *, space: LabelSpace | str | None = None, name: str | None = None) -> FileDataset:
    """Class folders over all 1,000 classes; integers are read by value."""
    root = place(path)
    packing = packing_of(root)
    title = name or root.resolve().name
    if packing == "wnids":
        title += " (wnid folders)"
    return open_folder(root, space=space or "imagenet-1k", name=title)
