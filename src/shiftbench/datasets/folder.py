"""Class folders: ``root/<class>/<image>``, the layout of ImageNet, ImageNetV2, -A, -O, -R and -Sketch."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from shiftbench.datasets.base import DataReport, DatasetKind, entry_names
from shiftbench.datasets.stored import FileDataset
from shiftbench.errors import DatasetError, argument
from shiftbench.io.paths import Location, is_object, local, place
from shiftbench.labels.catalogue import FOLDERS, label_space
from shiftbench.labels.guard import recognise_folders
from shiftbench.labels.space import AskedSpace
from shiftbench.outputs.encoding import EXTENSIONS as EXTENSIONS

#: Extensions of images that are not read, and none at all.
_OTHER_IMAGES = (
    "", ".gif", ".avif", ".heic", ".heif", ".jp2", ".jxl", ".svg", ".dng", ".raw", ".jfif", ".jpe",
)  # fmt: skip
#: Names that other programs leave beside data; never a class and never an image.
STRAY_NAMES = frozenset({"__MACOSX", "__pycache__", "@eaDir", "$RECYCLE.BIN", "lost+found", "Thumbs.db", "desktop.ini"})


@dataclass
class Listing:
    #: For each class folder the paths of its images, relative to it, in order.
    classes: dict[str, list[str]] = field(default_factory=dict)
    #: Files without an image extension.
    others: list[str] = field(default_factory=list)
    #: Folders and files at the top that other programs leave, such as __MACOSX.
    strays: list[str] = field(default_factory=list)
    #: Pipes, sockets and devices, which are never opened; links back to a folder above; links to outside the folder.
    special: list[str] = field(default_factory=list)
    loops: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    @property
    def remarks(self) -> list[str]:
        found = {
            "pipes, sockets or devices are skipped": self.special,
            "links lead back to a folder above and are not followed": self.loops,
            "links lead to files outside the folder": self.outside,
            "class folders have no images": [name for name, images in self.classes.items() if not images],
            f"files are ignored, images of formats other than {' '.join(EXTENSIONS)} or without extension": [
                name for name in self.others if "/" in name and PurePath(name).suffix.lower() in _OTHER_IMAGES
            ],
        }
        return [f"{len(names)} {what}, such as {names[0]}" for what, names in found.items() if names]

    @property
    def images(self) -> int:
        return sum(map(len, self.classes.values()))


def open_folder(path: str | Location, *, space: AskedSpace = None, name: str | None = None) -> FileDataset:
    """One folder per class, named by an integer 0..K-1, a wnid or a class name.

    The names must fit a label space (see ``shiftbench.labels.guard``). Images are ordered by class index, then by
    path; ids are ``class/file``. Hidden entries, those that other programs leave (__MACOSX), and files without an
    image extension are ignored.
    """
    root = place(path)
    listing = list_classes(root)
    if not listing.images:
        raise DatasetError(
            f"no images in class folders under {root}",
            found=f"{len(listing.classes)} folders, {len(listing.others)} other files",
            expected=f"{root.name}/<class>/<image>, with one of {' '.join(EXTENSIONS)}",
        )
    target, index = recognise_folders(listing.classes, space)
    ordered = sorted(listing.classes, key=lambda folder: index[folder])
    paths = [f"{folder}/{file}" for folder in ordered for file in listing.classes[folder]]
    labels = [index[folder] for folder in ordered for _ in listing.classes[folder]]
    # Released ImageNet-R files are named by rendition (art_0.jpg): a column "style".
    names = [re.fullmatch(r"(\D+)_\d+", path.rpartition("/")[2].rpartition(".")[0]) for path in paths]
    styles: dict[str, list[str]] = {}
    if all(names):
        from shiftbench.datasets.official import identify

        known = identify(root, listing)
        if known is not None and known.role == "imagenet-r":
            styles = {"style": [found[1] for found in names if found]}
    dataset = FileDataset(name or root.resolve().name, target, root, paths, labels, metadata=styles)
    dataset.remarks = listing.remarks
    return dataset


def open_unlabelled(path: str | Location, *, space: AskedSpace = None, name: str | None = None) -> FileDataset:
    """All images below a folder, without labels, for out-of-distribution detection; ids are the paths.

    ``space`` is the label space of the model's predictions.
    """
    root = place(path)
    if not root.is_dir():
        raise DatasetError(f"{root} is not a folder", found="a file" if root.exists() else "nothing there")
    if space is None or space == FOLDERS:
        raise DatasetError(
            "unlabelled images need a label space for the predictions",
            expected="the label space of the labelled images",
            hint=argument("labels", "imagenet-1k"),
        )
    listing = Listing()
    images = [file for file in _walk(root, listing, root) if file.lower().endswith(EXTENSIONS)]
    if not images:
        raise DatasetError(f"no images under {root}", expected=f"files with one of {' '.join(EXTENSIONS)}")
    target = label_space(space) if isinstance(space, str) else space
    dataset = FileDataset(name or root.resolve().name, target, root, images, [-1] * len(images))
    dataset.remarks = listing.remarks
    return dataset


def recognise_folder(path: Location) -> str | None:
    """At least one folder in it holds an image."""
    folders = [path / name for name in entry_names(path) if _counts(name) and (path / name).is_dir()]
    for folder in folders:
        if any(name.lower().endswith(EXTENSIONS) and not name.startswith(".") for name in entry_names(folder)):
            return f"a folder of {len(folders)} class folder{'s' * (len(folders) != 1)}"
    return None


def check_folder(path: Location) -> DataReport | None:
    from shiftbench.datasets.official import check_class_folders

    return check_class_folders(path)


FOLDER = DatasetKind(recognise_folder, open_folder, check_folder, by_url=True)
UNLABELLED = DatasetKind(lambda path: None, open_unlabelled, by_url=True)


def list_classes(root: Location) -> Listing:
    """All class folders with their images; an empty folder still names a class."""
    if not root.is_dir():
        raise DatasetError(f"{root} is not a folder", found="a file" if root.exists() else "nothing there")
    listing = Listing()
    files, folders = _entries(root, listing, root)
    listing.strays += sorted(name for name in entry_names(root) if not _counts(name))
    listing.others += files
    for folder in folders:
        images = listing.classes.setdefault(folder, [])
        for file in _walk(root, listing, root / folder, f"{folder}/", frozenset({_identity(root)})):
            (images if file.lower().endswith(EXTENSIONS) else listing.others).append(file)
        listing.classes[folder] = [file.removeprefix(f"{folder}/") for file in images]
    return listing


def _walk(
    root: Location,
    listing: Listing,
    folder: Location,
    prefix: str = "",
    above: frozenset[tuple[int, int]] = frozenset(),
) -> Iterator[str]:
    """Files below ``folder``: those in it first, then those of its sub-folders, each sorted by name."""
    here = _identity(folder)
    if here in above:  # a link back to a folder above would never end, and give other classes' images this label
        listing.loops.append(prefix.rstrip("/"))
        return
    files, folders = _entries(folder, listing, root, prefix)
    yield from (prefix + name for name in files)
    for name in folders:
        yield from _walk(root, listing, folder / name, f"{prefix}{name}/", above | {here})


def _identity(folder: Location) -> tuple[int, int]:
    if is_object(folder):  # no links there: a name is the thing itself
        return 0, hash(folder)
    status = folder.stat()
    return status.st_dev, status.st_ino


def _entries(folder: Location, listing: Listing, root: Location, prefix: str = "") -> tuple[list[str], list[str]]:
    """The names of files and of folders, sorted; a link that leads nowhere is a file that can't be read."""
    files: list[str] = []
    folders: list[str] = []
    if is_object(folder):
        for path in folder.iterdir():
            if _counts(path.name):
                (folders if path.is_dir() else files).append(path.name)
        return files, folders
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not _counts(entry.name):
                    continue
                try:
                    is_folder, special = entry.is_dir(), not entry.is_dir() and not entry.is_file() and entry.stat()
                except OSError:  # a link to itself, or to nothing
                    is_folder, special = False, None
                if special:
                    listing.special.append(prefix + entry.name)
                    continue
                (folders if is_folder else files).append(entry.name)
                if entry.is_symlink() and not _is_inside(Path(entry.path), local(root)):
                    listing.outside.append(prefix + entry.name)
    except OSError as error:
        raise DatasetError(f"the folder {folder} can't be listed", found=error.strerror) from error
    return sorted(files), sorted(folders)


def _counts(name: str) -> bool:
    return not name.startswith(".") and name not in STRAY_NAMES


def _is_inside(link: Path, root: Path) -> bool:
    try:
        return link.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):  # a link to itself leads nowhere
        return True
