"""Inspect a path: a published dataset, a folder of several, or a dataset of the user's own."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from shiftbench.datasets.base import DataReport, Dataset
from shiftbench.datasets.catalogue import dataset_kinds, listed_path, open_dataset, recognise_path, unrecognised
from shiftbench.datasets.stored import UNREADABLE, ContentDataset
from shiftbench.datasets.subset import Subset
from shiftbench.errors import DatasetError, ShiftbenchError, UnknownClassesError, argument, listed
from shiftbench.io.paths import Location, is_object, place
from shiftbench.labels.catalogue import FOLDERS
from shiftbench.labels.space import AskedSpace

#: How many nested folders are searched for a dataset.
_DEPTH = 3


def inspect_data(path: str | Location, *, space: AskedSpace = None, **options: Any) -> DataReport:
    """Recognise what lies at a path and compare it with the published dataset, without decoding an image.

    Args:
        path: Folder or file.
        space: A label space, or "folders": the path is opened as the user's own data.
        options: Options of the kind of dataset; with any, the path is opened as the user's own data.
    """
    root = place(path)
    if _named_kind(path):
        return _own(path, space=space, own_classes=True, **options)
    if not root.exists():
        raise DatasetError(f"{root} does not exist", hint="name an existing folder or file")
    if space is not None or options:
        return _own(root, space=space, **options)
    archives = [one for one in _inside(root) if one.name.casefold().endswith((".tar", ".tar.gz", ".tgz", ".zip"))]
    packed = [report for report in map(_published, archives) if report is not None]
    found = _published(root) if packed else _found(root, _DEPTH)
    if found is not None:
        return found
    # Not a dataset itself: perhaps its folders are.
    parts = [part for part in (_found(folder, _DEPTH) for folder in _folders(root)) if part is not None]
    # An archive whose unpacked folder is present is no longer needed.
    parts += [one for one in packed if not any((part.what or "").startswith(one.what or "-") for part in parts)]
    if parts:
        return DataReport(str(root), None, f"a folder of {len(parts)} datasets", parts=parts)
    return _own(root, own_classes=True)


def describe_path(
    path: str | Location, *, space: AskedSpace = None, own_classes: bool = False, **options: Any
) -> DataReport:
    """Recognise and open a path without reading its images; report what it holds or why it can't be used.

    Args:
        path: Folder or file.
        space: Label space, if it is not recognised.
        own_classes: Whether classes of no known label space are the dataset's own, as in ``evaluate``.
        options: Options of the kind of dataset.
    """
    named = _named_kind(path)
    path = path if named else listed_path(path)
    found = (named, f"of the kind {named}, as named") if named else recognise_path(place(path))
    if found is None:
        return DataReport(str(path), None, "no dataset", missing=[str(unrecognised(place(path)))])
    report = DataReport(str(path), None, found[1], kind=found[0])
    try:
        dataset = open_dataset(path, space=space, **options)
    except ShiftbenchError as error:
        if isinstance(error, UnknownClassesError) and own_classes and space is None:
            own = describe_path(path, space=FOLDERS, **options)
            note = (
                f"{error.message}; the {own.classes} classes in sorted order are used for models with {own.classes} "
                f"outputs that name none ({argument('labels', FOLDERS)}); for models of ImageNet's 1,000 classes, "
                "`shiftbench data labels` proposes a mapping"
            )
            own.notes.insert(0, note)
            return own
        report.missing.append(str(error))
        return report
    report.count(dataset)
    absent = len(dataset.space) - report.classes
    report.classes_expected = None  # a dataset of one's own need not have all classes of its space
    if absent:
        report.notes.append(f"{absent} of {len(dataset.space)} classes have no image")
    report.notes += [*dataset.remarks, *copy_remarks(dataset)]
    if report.kind == "folder" and not named:
        from shiftbench.datasets.folder import list_classes

        listing = list_classes(place(path))
        if listing.strays:
            report.notes.append(f"skipped (hidden, or left by other programs): {listed(listing.strays)}")
        if others := listing.others:
            report.notes.append(f"{len(others)} files are not images and are ignored, such as {others[0]}")
        if empty := [folder for folder, files in listing.classes.items() if not files]:
            report.notes.append(f"{len(empty)} class folders are empty, such as {empty[0]}")
    unlabelled = int((dataset.labels < 0).sum())
    if unlabelled:
        report.notes.append(f"{unlabelled} images have no label")
    return report


def _named_kind(path: str | Location) -> str | None:
    """The kind of ``kind:path``."""
    kind, _, rest = str(path).partition(":")
    return kind if rest and kind in dataset_kinds else None


def _found(path: Location, depth: int) -> DataReport | None:
    """A published dataset, complete or not; a usable one of the user's own; or the only folder below, if it is one."""
    report = _published(path)
    if report is None:
        own = _own(path)
        report = None if own.missing else own
    folders = _folders(path)
    if report is not None or not depth or len(folders) != 1:
        return report
    below = _found(folders[0], depth - 1)
    if below is not None and below.path == str(folders[0]):
        below.notes.insert(0, f"the dataset is in a subfolder of the path you gave: use {below.path}")
    return below


def _published(path: Location) -> DataReport | None:
    found = recognise_path(path)
    kind = dataset_kinds.get(found[0]) if found else None
    if found is None or kind is None or (is_object(path) and not kind.by_url):
        return None
    report = kind.check(path)
    if report is not None:
        report.kind = found[0]
    return report


def _own(path: str | Location, **options: Any) -> DataReport:
    report = describe_path(path, **options)
    if not report.missing:
        report.role, report.suite = "data", "clean"
    return report


def _folders(path: Location) -> list[Location]:
    return [entry for entry in _inside(path) if entry.is_dir()]


def _inside(path: Location) -> list[Location]:
    return sorted(entry for entry in path.iterdir() if not entry.name.startswith(".")) if path.is_dir() else []


def copy_remarks(dataset: Dataset) -> list[str]:
    """How many images repeat others, and how many have several classes; nothing for images that were asked for twice.

    Copies make intervals too narrow, as they are not independent; an image in two classes is wrong in one of them.
    """
    if not isinstance(dataset, ContentDataset):
        return []
    rows = range(len(dataset))
    if isinstance(dataset, Subset):
        rows = np.sort(np.unique(dataset.indices, return_index=True)[1]).tolist()
    digests = dataset.digests(rows)
    counts = Counter(digests)
    repeated = {digest for digest, count in counts.items() if count > 1 and digest != UNREADABLE}
    if not repeated:
        return []
    groups: dict[bytes, list[int]] = {}
    for row, digest in zip(rows, digests, strict=True):
        if digest in repeated:
            groups.setdefault(digest, []).append(row)
    found = []
    copies = sum(map(len, groups.values())) - len(groups)
    labels = dataset.labels
    mixed = {digest: group for digest, group in groups.items() if len(set(labels[group].tolist()) - {-1}) > 1}
    for what, count, own in (
        ("images are exact copies of others", copies, groups),
        ("images appear in several classes", len(mixed), mixed),
    ):
        if count:
            first = next(iter(own.values()))
            found.append(f"{count} {what}, such as {dataset.ids[first[0]]} and {dataset.ids[first[-1]]}")
    return found
