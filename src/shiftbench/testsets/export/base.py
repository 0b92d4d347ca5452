"""Writing a whole folder, or nothing; and the formats by name."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from shiftbench.registry import Registry
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.frozen import FrozenSet

#: ``function(frozen, folder)`` fills an empty folder.
Exporter = Callable[[FrozenSet, Path], None]
exporters: Registry[Exporter] = Registry(
    "export format",
    builtin=(
        "shiftbench.testsets.export.folder",
        "shiftbench.testsets.export.webdataset",
        "shiftbench.testsets.export.huggingface",
    ),
)


def export(frozen: FrozenSet, format: str, target: str | Path) -> Path:
    """Write a frozen set as ``folder``, ``webdataset`` or ``huggingface``, with its card, into a new folder."""
    target = Path(target)
    write = exporters.get(format)
    frozen.open()  # whole and unchanged, or nothing is passed on

    def fill(folder: Path) -> None:
        write(frozen, folder)
        shutil.copyfile(frozen.folder / "README.md", folder / "README.md")

    fill_folder(target, fill)
    return target


def export_images(frozen: FrozenSet, ids: Sequence[str], target: str | Path) -> Path:
    """Some images of a frozen set, one folder a class, in a new folder."""

    def fill(folder: Path) -> None:
        for image in ids:  # the ids of a frozen set are its files
            place_file(frozen.folder / "images" / image, folder / image)

    fill_folder(Path(target), fill)
    return Path(target)


def fill_folder(target: Path, fill: Callable[[Path], None]) -> None:
    """Call ``fill`` with an empty neighbour of ``target``, then rename it into place."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise WorkshopError(f"{target} is there already", hint="choose a new folder")
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.tmp")
    temporary.mkdir(parents=True)
    try:
        fill(temporary)
        if target.exists():
            target.rmdir()
        temporary.rename(target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def place_file(source: Path, target: Path) -> None:
    """The same file under another name, or a copy where the file system can't."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
