"""Open a dataset by its name, or by what lies at a path; inspect what lies there.

A built-in kind of dataset is one module that defines a ``DatasetKind``, and one row of ``_KINDS``. Third parties add
theirs with::

    dataset_kinds.add("raw", DatasetKind(recognise=recognise_raw, open=open_raw))

and a named dataset with ``@named_datasets.register("my-set")`` on a function that opens it.
"""

from __future__ import annotations

import difflib
import inspect
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from shiftbench.datasets.base import DataReport, Dataset, DatasetKind, LazyKind, entry_names
from shiftbench.errors import DatasetError, LabelError, ShiftbenchError, UnknownClassesError, argument, listed
from shiftbench.grouping import by_key
from shiftbench.io.cache import local_copy, unpacked
from shiftbench.io.downloads import fetched, is_web_address, missing_object, web_copy
from shiftbench.io.paths import Location, is_object, place
from shiftbench.labels.catalogue import FOLDERS, LabelsArgument, find_label_space, label_space
from shiftbench.labels.space import AskedSpace
from shiftbench.registry import Registry

#: How many nested folders are searched for a dataset.
_DEPTH = 3
OpenFunction = Callable[..., Dataset]
#: Kinds of dataset, in the order in which they are tried.
dataset_kinds: Registry[DatasetKind] = Registry("kind of dataset")
#: Datasets that are opened by a name of their own.
named_datasets: Registry[OpenFunction] = Registry("dataset")

#: Kind, where it is defined, and the names that mark it (see ``LazyKind``). Special kinds come before general ones:
#: class folders with a tar file beside them are not shards.
_KINDS = (
    ("archive", "official:ARCHIVE", "*.tar *.tar.gz *.tgz *.zip"),
    ("cifar", "cifar:CIFAR", "/test_batch* /data_batch_* /test /train /test.bin /train.bin"),
    ("cifar-10.1", "cifar:CIFAR_10_1", "cifar10.1_* /cifar10.1_*"),
    ("cifar-c", "cifar:CIFAR_C", "*.npy /labels.npy"),
    ("cifar-10.2", "cifar:CIFAR_10_2", "cifar102_* /cifar102_*"),
    (
        "icons",
        "icons.opening:KIND",
        "icons-50.npy *.train *.seen *.test /icons.json /arrow_directions /emotion_face /marine_animals /prohibit_sign",
    ),
    ("subtypes", "subtypes:KIND", "subtypes*"),
    ("array", "arrays:KIND", "*.npy *.npz /images.npy"),
    ("huggingface", "huggingface:KIND", "*.parquet *.arrow /*.parquet /dataset_dict.json /state.json /data"),
    ("objectnet", "official:OBJECTNET", "*objectnet* /images /alarm_clock /banana /umbrella"),
    ("vid-robust", "videos:VID_ROBUST", "imagenet?vid?robust /pmsets.json /metadata /*-robust_metadata"),
    ("ytbb-robust", "videos:YTBB_ROBUST", "ytbb?robust /pmk_labels.json /metadata /*-robust_metadata"),
    (
        "imagenet-c",
        "official:IMAGENET_C",
        "/*_noise /*_blur /snow /frost /fog /brightness /contrast /elastic_transform /pixelate /jpeg_compression "
        "/spatter /saturate",
    ),
    ("imagenet-val", "official:UNSORTED_VAL", "/ILSVRC2012_val_*"),
    ("deepfashion2", "factors:DEEPFASHION2", "/train /validation"),
    ("factors", "factors:KIND", ""),  # never guessed: factors:PROTOCOL:TABLE/SET
    ("imagenetv2", "official:IMAGENETV2", "imagenet*v2*"),
    ("folder", "folder:FOLDER", "/*"),
    ("anomalies", "anomalies:KIND", ""),
    ("unlabelled", "folder:UNLABELLED", ""),  # never guessed: missing labels are more likely a mistake
    ("webdataset", "webdataset:KIND", "*.tar /*.tar"),
    ("manifest", "manifest:KIND", "*.csv *.tsv *.jsonl *.ndjson"),
)
for _name, _home, _marks in _KINDS:
    dataset_kinds.add(_name, LazyKind(_home, _marks))


@named_datasets.register("demo")
def _open_demo(*, name: str | None = None) -> Dataset:
    """114 labelled photographs, from registry packages."""
    from shiftbench.datasets.demo import open_demo

    return open_demo(name=name)


def _packed_cifar10(split: str, *, name: str | None = None) -> Dataset:
    from shiftbench.datasets.cifar import open_packed_cifar10

    return open_packed_cifar10(split, name=name)


for _split, _about in (("test", "The 10,000 test images"), ("train", "The 50,000 training images")):
    _opener = partial(_packed_cifar10, _split)
    _opener.__doc__ = f"{_about} of CIFAR-10, from a registry package."
    named_datasets.add(f"cifar-10-{_split}", _opener)


def open_dataset(
    spec: str | Location | Dataset,
    *,
    labels: LabelsArgument = None,
    name: str | None = None,
    space: LabelsArgument = None,
    **options: Any,
) -> Dataset:
    """Open a dataset from a name ("demo"), a path or URL, or ``kind:path`` to choose the kind explicitly.

    Args:
        spec: A name (``"demo"``), path, URL, ``kind:path``, or a dataset. A split of Hugging Face tables is
            ``FOLDER/SPLIT``.
        labels: Label space: a name, a file, a ``LabelSpace``, the names of the classes in order, or ``"folders"`` for
            the folders' own names. For an array of images also the .npy file with the label of each.
        name: The dataset's name in tables; default: from the path.
        space: The same as ``labels``, under an older name.
        options: Those of the kind, such as ``severity`` for CIFAR-10-C or ``split`` for a Hugging Face folder.

    Raises:
        DatasetError: No kind of dataset fits.

    Example:
        >>> open_dataset("demos")
        Traceback (most recent call last):
        shiftbench.errors.DatasetError: unknown dataset 'demos'
          found:    no file or folder of that name
          expected: a path, or one of demo, cifar-10-test, cifar-10-train
          try:      did you mean 'demo'?
    """
    if isinstance(spec, Dataset):
        return spec
    text = str(spec)
    if isinstance(labels, str | Path) and str(labels).endswith(".npy"):
        options["labels"] = labels  # the label of each image of an array, not the names of the classes
    elif labels is not None:
        space = labels
    space = find_label_space(space)
    # A file or folder of that name comes first, if it is a dataset at all.
    if text in named_datasets and (not Path(text).exists() or recognise_path(Path(text)) is None):
        return open_named(text, space=space, name=name, **options)
    kind, _, rest = text.partition(":")
    if rest and kind in dataset_kinds:
        return _open(kind, listed_path(rest), space=space, name=name, **options)
    path = listed_path(text)
    found = recognise_path(path)
    if found is None and path.suffix.lower() == ".zip" and path.is_file():
        name = name or path.stem
        path = unpacked(fetched(str(path)).path if is_object(path) else path)
        found = recognise_path(path)
    if found is None:
        raise unrecognised(path)
    try:
        return _open(found[0], path, space=space, name=name, **options)
    except LabelError as error:
        message = f"{path}: {error.message}"
        raise type(error)(message, found=error.found, expected=error.expected, hint=error.hint) from error


def listed_path(path: str | Location) -> Location:
    """A path as it is now: an object store is listed once, since a dataset does not change while it is read."""
    if is_web_address(path):
        return web_copy(str(path))
    where = place(path)
    if is_object(where):
        local_copy.cache_clear()  # what was fetched may have changed since
    return where.as_listed_now() if is_object(where) else where


def _open(kind: str, path: Location, **options: object) -> Dataset:
    chosen = dataset_kinds.get(kind)
    if is_object(path) and not chosen.by_url and path.is_file():
        path = fetched(str(path)).path  # a single file, such as a Parquet table
    if is_object(path) and not chosen.by_url:
        raise DatasetError(
            f"{path} can't be opened by URL: the kind {kind!r} is read from a disk",
            expected=f"one of {', '.join(name for name, one in dataset_kinds if one.by_url)}",
            hint="copy it to a local folder and open that",
        )
    return _call(kind, chosen.open, path, **options)


def open_named(which: str, *, space: AskedSpace = None, name: str | None = None, **options: object) -> Dataset:
    """Open a dataset by its name, even if a file of that name exists.

    Another ``space`` than the dataset's own selects the images whose class it has.
    """
    dataset = _call(which, named_datasets.get(which), name=name or which, **options)
    target = label_space(space) if isinstance(space, str) else space
    if target is None or target.keys == dataset.space.keys:
        return dataset
    from shiftbench.datasets.subset import of_classes

    return of_classes(dataset, target)


def recognise_path(path: Location) -> tuple[str, str] | None:
    """The kind of a path and a short description of what was found there, or None."""
    own = {path.name.casefold(), path.resolve().name.casefold()}
    entries = list(entry_names(path))
    for kind, candidate in sorted(dataset_kinds, key=lambda entry: not entry[1].first):
        seen = candidate.recognise(path) if candidate.may_be(own, entries) else None
        if seen is not None:
            return kind, seen
    return _recognise_split(path)


def _recognise_split(path: Location) -> tuple[str, str] | None:
    """``FOLDER/test`` is a split of the tables in a folder, though there is no such path."""
    if path.exists() or not path.parent.is_dir() or not path.name:
        return None
    from shiftbench.datasets.huggingface import recognise_tables, split_names

    if recognise_tables(path.parent) is None or path.name not in split_names(path.parent):
        return None
    return "huggingface", f"the split {path.name!r} of tables"


def _call(kind: str, function: OpenFunction, *args: object, **options: object) -> Dataset:
    """Report unknown options by name, before they would cause a TypeError."""
    parameters = inspect.signature(function).parameters
    if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        for key in [k for k, value in options.items() if value is None and k not in parameters]:
            del options[key]
        unknown = [key for key in options if key not in parameters]
        if unknown:
            known = [n for n, p in parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY]
            raise DatasetError(
                f"{kind!r} has no option {unknown[0]!r}", expected=f"one of {', '.join(known)}" if known else "none"
            )
    return function(*args, **options)


_LAYOUTS = (
    "a folder of class folders, an npy or npz file, tar shards, Arrow or Parquet files, "
    "a CSV or JSONL manifest, or CIFAR files"
)


def unrecognised(path: Location) -> DatasetError:
    if is_object(path) and not path.exists():
        return DatasetError(
            f"nothing was found at {path}",
            found=missing_object(path),
            hint="check the spelling, and the endpoint and credentials (docs/workspace.md)",
        )
    if not path.exists():
        near = difflib.get_close_matches(str(path), named_datasets.names(), n=1)
        return DatasetError(
            f"unknown dataset {str(path)!r}",
            found="no file or folder of that name",
            expected=f"a path, or one of {', '.join(named_datasets.names())}",
            hint=f"did you mean {near[0]!r}?" if near else None,
        )
    if not path.is_dir():
        hint = "unpack it" if path.suffix.lower() in (".7z", ".rar", ".gz") else None
        return DatasetError(f"{path} is not a dataset", found="a file", expected=_LAYOUTS, hint=hint)
    entries = sorted(p.name for p in path.iterdir() if not p.name.startswith("."))
    split = next(
        (one for one in ("val", "validation", "test", "train") if one in entries and (path / one).is_dir()), None
    )
    arrays, hint = [name for name in entries if name.endswith((".npy", ".npz"))], None
    if split:
        hint = f"open one split: {path / split}"
    elif len(entries) == 1 and (path / entries[0]).is_dir() and recognise_path(path / entries[0]):
        hint = f"the dataset is one folder deeper: {path / entries[0]}"
    elif arrays:
        hint = f"open one of the files, such as {path / arrays[0]}"
    elif any(name.lower().endswith((".jpg", ".jpeg", ".png")) for name in entries):
        hint = "images outside class folders have no label: sort them into class folders, or write a manifest"
    elif below := next((one for name in entries if (one := path / name).is_dir() and recognise_path(one)), None):
        hint = f"folder:{path} if {below.name} is a class with images in subfolders; {below} if it is a dataset"
    found = listed(entries, 6) or "an empty folder"
    return DatasetError(f"{path} is not a dataset", found=found, expected=_LAYOUTS, hint=hint)


def inspect_data(path: str | Location, *, space: AskedSpace = None, **options: object) -> DataReport:
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
    report.notes += [*file_remarks(dataset), *copy_remarks(dataset)]
    if report.kind == "folder" and not named:
        from shiftbench.datasets.folder import list_classes

        listing = list_classes(place(path))
        if listing.strays:
            report.notes.append(f"skipped (hidden, or left by other programs): {listed(listing.strays)}")
        if others := listing.others:
            report.notes.append(f"{len(others)} files are not images and are ignored, such as {others[0]}")
        if empty := [folder for folder, files in listing.classes.items() if not files]:
            report.notes.append(f"{len(empty)} class folders are empty, such as {empty[0]}")
    sets = dataset.label_sets
    unlabelled = int((dataset.labels < 0).sum()) if sets is None else sum(not own for own in sets)
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


def file_remarks(dataset: Dataset) -> list[str]:
    """What was odd about its files, and how many images are without a label among others that have one."""
    missing = int((dataset.labels < 0).sum()) if dataset.label_sets is None else 0
    some = [f"{missing:,} of {len(dataset):,} images have no label, and are not scored"]
    return [*dataset.remarks, *(some if 0 < missing < len(dataset) else [])]


def copy_remarks(dataset: Dataset) -> list[str]:
    """How many images repeat others, and how many have several classes; nothing for images that were asked for twice.

    Copies make intervals too narrow, as they are not independent; an image in two classes is wrong in one of them.
    """
    from shiftbench.datasets.stored import UNREADABLE, ContentDataset
    from shiftbench.datasets.subset import Subset

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
    groups = by_key((digest, row) for row, digest in zip(rows, digests, strict=True) if digest in repeated)
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
