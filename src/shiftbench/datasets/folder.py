"""Class folders: ``root/<class>/<picture>``, the layout of ImageNet, ImageNetV2, -A, -O, -R and -Sketch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from shiftbench.datasets.files import FileDataset
from shiftbench.datasets.images import MAX_PIXELS
from shiftbench.errors import DatasetError
from shiftbench.io.paths import is_object, place
from shiftbench.labels.catalogue import FOLDERS, label_space
from shiftbench.labels.guard import recognise_folders
from shiftbench.labels.space import LabelSpace
from shiftbench.outputs.encoding import EXTENSIONS as EXTENSIONS


@dataclass
class Listing:
    """What lies in a folder of classes."""

    #: For each class folder the paths of its pictures, relative to it, in order.
    classes: dict[str, list[str]] = field(default_factory=dict)
    #: Files that are no pictures by their name.
    others: list[str] = field(default_factory=list)

    @property
    def images(self) -> int:
        return sum(map(len, self.classes.values()))


def open_folder(
    path: str | Path,
    *,
    space: LabelSpace | str | None = None,
    name: str | None = None,
    max_pixels: int = MAX_PIXELS,
) -> FileDataset:
    """Every sub-folder is a class; its name must fit a label space (see ``shiftbench.labels.guard``).

    Images come in the order of their class's index, then of their path; ids are ``class/file``. Hidden
    files and folders, and files that no picture's extension marks, are left out.
    """
    root = place(path)
    listing = list_classes(root)
    if not listing.images:
        raise DatasetError(
            f"no pictures in class folders under {root}",
            found=f"{len(listing.classes)} folders, {len(listing.others)} other files",
            expected=f"{root.name}/<class>/<picture>, with one of {' '.join(EXTENSIONS)}",
        )
    target, index = recognise_folders(listing.classes, space)
    ordered = sorted(listing.classes, key=lambda folder: index[folder])
    paths = [f"{folder}/{file}" for folder in ordered for file in listing.classes[folder]]
    labels = [index[folder] for folder in ordered for _ in listing.classes[folder]]
    return FileDataset(name or root.resolve().name, target, root, paths, labels, max_pixels=max_pixels)


def open_unlabelled(
    path: str | Path,
    *,
    space: LabelSpace | str | None = None,
    name: str | None = None,
    max_pixels: int = MAX_PIXELS,
) -> FileDataset:
    """Every picture below a folder, in whatever sub-folders, without a label; ids are the paths.

    ``space`` says over which classes a classifier answers.
    """
    root = place(path)
    if not root.is_dir():
        raise DatasetError(f"{root} is not a folder", found="a file" if root.exists() else "nothing there")
    if space is None or space == FOLDERS:
        raise DatasetError(
            "pictures without labels do not say over which classes a classifier should answer",
            expected="the label space of the known pictures",
            hint="name it: --labels imagenet-1k",
        )
    pictures = [file for file in _walk(root) if file.lower().endswith(EXTENSIONS)]
    if not pictures:
        raise DatasetError(f"no pictures under {root}", expected=f"files with one of {' '.join(EXTENSIONS)}")
    target = label_space(space) if isinstance(space, str) else space
    labels = [-1] * len(pictures)
    return FileDataset(name or root.resolve().name, target, root, pictures, labels, max_pixels=max_pixels)


def list_classes(root: Path) -> Listing:
    """All class folders with their pictures; a folder without any still names a class."""
    if not root.is_dir():
        raise DatasetError(f"{root} is not a folder", found="a file" if root.exists() else "nothing there")
    listing = Listing()
    files, folders = _entries(root)
    listing.others += files
    for folder in folders:
        pictures = listing.classes.setdefault(folder, [])
        for file in _walk(root / folder):
            if file.lower().endswith(EXTENSIONS):
                pictures.append(file)
            else:
                listing.others.append(f"{folder}/{file}")
    return listing


def _walk(folder: Path, prefix: str = "", above: frozenset[tuple[int, int]] = frozenset()) -> Iterator[str]:
    """Files below ``folder``: those in it first, then those of its sub-folders, each sorted by name."""
    files, folders = _entries(folder)
    here = _identity(folder)
    if here in above:  # a link back to a folder above would never end
        return
    yield from (prefix + name for name in files)
    for name in folders:
        yield from _walk(folder / name, f"{prefix}{name}/", above | {here})


def _identity(folder: Path) -> tuple[int, int]:
    if is_object(folder):  # no links there: a name is the thing itself
        return 0, hash(folder)
    status = folder.stat()
    return status.st_dev, status.st_ino


def _entries(folder: Path) -> tuple[list[str], list[str]]:
    """The names of files and of folders, sorted; a link that leads nowhere is a file that can't be read."""
    files: list[str] = []
    folders: list[str] = []
    if is_object(folder):
        for path in folder.iterdir():
            if not path.name.startswith("."):
                (folders if path.is_dir() else files).append(path.name)
        return files, folders
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.startswith("."):
                    (folders if _is_folder(entry) else files).append(entry.name)
    except OSError as error:
        raise DatasetError(f"the folder {folder} can't be listed", found=error.strerror) from error
    return sorted(files), sorted(folders)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False
