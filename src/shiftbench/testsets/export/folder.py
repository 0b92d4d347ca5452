"""Class folders: ``CLASS/DIGEST.jpg``, as torchvision's ImageFolder and everything else reads."""

from __future__ import annotations

import shutil
from pathlib import Path

from shiftbench.testsets.export.base import exporters
from shiftbench.testsets.frozen import FrozenSet


@exporters.register("folder")
def write_folder(frozen: FrozenSet, folder: Path) -> None:
    """Class folders (ImageFolder), the files as they are."""
    shutil.copytree(frozen.folder / "images", folder, dirs_exist_ok=True)
    shutil.copyfile(frozen.folder / "images.jsonl", folder / "images.jsonl")
