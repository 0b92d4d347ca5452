"""Class folders: ``root/<class>/<image>``, the layout of ImageNet, ImageNetV2, -A, -O, -R and -Sketch."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from shiftbench.datasets.base import DataReport, DatasetKind, counted_remarks, entry_names
from shiftbench.datasets.stored import FileDataset
from shiftbench.errors import DatasetError, argument
from shiftbench.io.paths import Location, is_object, local, place
from shiftbench.labels.catalogue import FOLDERS, label_space
from shiftbench.labels.guard import recognise_folders
from shiftbench.labels.space import AskedSpace
from shiftbench.outputs.encoding import EXTENSIONS as EXTENSIONS

#: Extensions of images that are not read, and none at all.
_OTHER_IMAGES = (
    "",
    ".gif",
    ".avif",
    ".heic",
    ".heif",
    ".jp2",
    ".jxl",
    ".svg",
    ".dng",
    ".raw",
    ".jfif",
    ".jpe",
)
#: Names that other programs leave beside data; never a class and never an image.
STRAY_NAMES = frozenset({"__MACOSX", "__pycache__", "@eaDir", "$RECYCLE.BIN", "lost+found", "Thumbs.db", "desktop.ini"})


@dataclass
class Listing:
    """The files of a folder of class folders."""

    #: For each class folder the paths of its images, relative to it, in order.
    classes: dict[str, list[str]] = field(default_factory=dict)
    #: Files without an image extension.
    other_files: list[str] = field(default_factory=list)
    #: Folders and files at the top that other programs leave, such as __MACOSX.
    strays: list[str] = field(default_factory=list)
    #: Pipes, sockets and devices, which are never opened.
    special: list[str] = field(default_factory=list)
    #: Links back to a folder above.
    loops: list[str] = field(default_factory=list)
    #: Links to files and folders outside the folder.
    outside: list[str] = field(default_factory=list)

    @property
    def remarks(self) -> list[str]:
        """Remarks on entries that were skipped or look unusual, each with an example."""
        empty_classes = [name for name, images in self.classes.items() if not images]
        # Images beside the class folders have no class in any case.
        files_of_classes = [name for name in self.other_files if "/" in name]
        ignored_images = [name for name in files_of_classes if PurePath(name).suffix.lower() in _OTHER_IMAGES]
        names_by_remark = {
            "pipes, sockets or devices are skipped": self.special,
            "links lead back to a folder above and are not followed": self.loops,
            "links lead to files outside the folder": self.outside,
            "class folders have no images": empty_classes,
            f"files are ignored, images of formats other than {' '.join(EXTENSIONS)} or without extension": (
                ignored_images
            ),
        }
        return counted_remarks(names_by_remark)

    @property
    def images(self) -> int:
        """The number of images in all class folders."""
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
            found=f"{len(listing.classes)} folders, {len(listing.other_files)} other files",
            expected=f"{root.name}/<class>/<image>, with one of {' '.join(EXTENSIONS)}",
        )
    target, index = recognise_folders(listing.classes, space)
    paths: list[str] = []
    labels: list[int] = []
    for folder in sorted(listing.classes, key=lambda folder: index[folder]):
        files = listing.classes[folder]
        paths += [f"{folder}/{file}" for file in files]
        labels += [index[folder]] * len(files)
    metadata = {}
    styles = _imagenet_r_styles(root, listing, paths)
    if styles is not None:
        metadata["style"] = styles
    dataset = FileDataset(name or root.resolve().name, target, root, paths, labels, metadata=metadata)
    dataset.remarks = listing.remarks
    return dataset


def _imagenet_r_styles(root: Location, listing: Listing, paths: Sequence[str]) -> list[str] | None:
    """The rendition of each image of ImageNet-R, whose files are named by it (art_0.jpg); None for other datasets."""
    styles = []
    for path in paths:
        stem = path.rpartition("/")[2].rpartition(".")[0]
        match = re.fullmatch(r"(\D+)_\d+", stem)
        if match is None:
            return None
        styles.append(match[1])
    from shiftbench.datasets.official import identify

    official = identify(root, listing)
    if official is None or official.role != "imagenet-r":
        return None
    return styles


def open_unlabelled(path: str | Location, *, space: AskedSpace = None, name: str | None = None) -> FileDataset:
    """All images below a folder, without labels, for out-of-distribution detection; ids are the paths.

    ``space`` is the label space of the model's predictions.
    """
    root = place(path)
    _require_folder(root)
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
    if isinstance(space, str):
        space = label_space(space)
    dataset = FileDataset(name or root.resolve().name, space, root, images, [-1] * len(images))
    dataset.remarks = listing.remarks
    return dataset


def recognise_folder(path: Location) -> str | None:
    """Recognise class folders: at least one of the folders at the path holds an image."""
    paths = [path / name for name in entry_names(path) if not _is_stray(name)]
    folders = [entry for entry in paths if entry.is_dir()]
    if not any(_holds_image(folder) for folder in folders):
        return None
    if len(folders) == 1:
        return "a folder of 1 class folder"
    return f"a folder of {len(folders)} class folders"


def _holds_image(folder: Location) -> bool:
    visible_names = (name for name in entry_names(folder) if not name.startswith("."))
    return any(name.lower().endswith(EXTENSIONS) for name in visible_names)


def check_folder(path: Location) -> DataReport | None:
    from shiftbench.datasets.official import check_class_folders

    return check_class_folders(path)


FOLDER = DatasetKind(recognise_folder, open_folder, check_folder, by_url=True)
UNLABELLED = DatasetKind(lambda path: None, open_unlabelled, by_url=True)


def list_classes(root: Location) -> Listing:
    """List all class folders with their images; an empty folder still names a class."""
    _require_folder(root)
    listing = Listing()
    files, folders = _entries(root, listing, root)
    listing.strays += sorted(name for name in entry_names(root) if _is_stray(name))
    listing.other_files += files
    for folder in folders:
        prefix = f"{folder}/"
        images = []
        for file in _walk(root, listing, root / folder, prefix, frozenset({_identity(root)})):
            if file.lower().endswith(EXTENSIONS):
                images.append(file.removeprefix(prefix))
            else:
                listing.other_files.append(file)
        listing.classes[folder] = images
    return listing


def _require_folder(root: Location) -> None:
    if not root.is_dir():
        raise DatasetError(f"{root} is not a folder", found="a file" if root.exists() else "nothing there")


def _walk(
    root: Location,
    listing: Listing,
    folder: Location,
    prefix: str = "",
    above: frozenset[tuple[int, int]] = frozenset(),
) -> Iterator[str]:
    """The files below ``folder``: those in it first, then those of its sub-folders, each sorted by name.

    Entries that are skipped are noted in ``listing``. ``above`` identifies the folders that contain this one.
    """
    identity = _identity(folder)
    if identity in above:  # a link back to a folder above would never end, and give other classes' images this label
        listing.loops.append(prefix.rstrip("/"))
        return
    files, folders = _entries(folder, listing, root, prefix)
    for name in files:
        yield prefix + name
    for name in folders:
        yield from _walk(root, listing, folder / name, f"{prefix}{name}/", above | {identity})


def _identity(folder: Location) -> tuple[int, int]:
    """Two folders with the same identity are the same, whatever links lead to them."""
    if is_object(folder):  # an object store has no links
        return 0, hash(folder)
    status = folder.stat()
    return status.st_dev, status.st_ino


def _entries(folder: Location, listing: Listing, root: Location, prefix: str = "") -> tuple[list[str], list[str]]:
    """The names of files and of folders, sorted; a link that leads nowhere is a file that can't be read."""
    files: list[str] = []
    folders: list[str] = []
    if is_object(folder):
        for path in folder.iterdir():
            if _is_stray(path.name):
                continue
            if path.is_dir():
                folders.append(path.name)
            else:
                files.append(path.name)
        return files, folders
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if _is_stray(entry.name):
                    continue
                if _is_special(entry):
                    listing.special.append(prefix + entry.name)
                    continue
                if _is_folder(entry):
                    folders.append(entry.name)
                else:
                    files.append(entry.name)
                if entry.is_symlink() and not _is_inside(Path(entry.path), local(root)):
                    listing.outside.append(prefix + entry.name)
    except OSError as error:
        raise DatasetError(f"the folder {folder} can't be listed", found=error.strerror) from error
    return sorted(files), sorted(folders)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _is_special(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a pipe, a socket or a device."""
    try:
        if entry.is_dir() or entry.is_file():
            return False
        entry.stat()  # raises for a link to nothing, which is neither a file nor special
    except OSError:
        return False
    return True


def _is_stray(name: str) -> bool:
    return name.startswith(".") or name in STRAY_NAMES


def _is_inside(link: Path, root: Path) -> bool:
    try:
        return link.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):  # a link to itself leads nowhere
        return True
