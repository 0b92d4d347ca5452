"""Open a dataset by its name, or by what lies at a path; inspect what lies there.

A built-in kind of dataset is one module that defines a ``DatasetKind``, and one row of ``_KINDS``. Third parties add
theirs with::

    dataset_kinds.add("raw", DatasetKind(recognise=recognise_raw, open=open_raw))

and a named dataset with ``@named_datasets.register("my-set")`` on a function that opens it.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from shiftbench.datasets.base import DataReport, Dataset, DatasetKind, LazyKind, entry_names
from shiftbench.errors import DatasetError, LabelError, ShiftbenchError, UnknownClassesError, argument, listed
from shiftbench.grouping import by_key
from shiftbench.io.cache import local_copy, unpacked
from shiftbench.io.downloads import fetched, is_web_address, missing_object, web_copy
from shiftbench.io.hub import hub_dataset, is_hub_address
from shiftbench.io.paths import Location, forget_open_objects, is_object, place
from shiftbench.labels.catalogue import FOLDERS, LabelsArgument, find_label_space, label_space
from shiftbench.labels.space import AskedSpace
from shiftbench.registry import Registry

#: How many nested folders are searched for a dataset.
_DEPTH = 3
_ARCHIVE_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".zip")
_IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")
#: Folders of splits, in the order in which they are suggested for evaluation.
_SPLITS = ("val", "validation", "test", "train")
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


for _split, _description in (("test", "The 10,000 test images"), ("train", "The 50,000 training images")):
    _opener = partial(_packed_cifar10, _split)
    _opener.__doc__ = f"{_description} of CIFAR-10, from a registry package."
    named_datasets.add(f"cifar-10-{_split}", _opener)


class Recognised(NamedTuple):
    """The kind of dataset at a path, and a short description of what was found there."""

    kind: str
    seen: str


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
    kind = _stated_kind(text)
    if kind is not None:
        path = listed_path(text.removeprefix(f"{kind}:"))
        return _open(kind, path, space=space, name=name, **options)
    path = listed_path(text)
    recognised = recognise_path(path)
    if recognised is None and path.suffix.lower() == ".zip" and path.is_file():
        name = name or path.stem
        if is_object(path):
            path = fetched(str(path)).path
        path = unpacked(path)
        recognised = recognise_path(path)
    if recognised is None:
        raise unrecognised(path)
    try:
        return _open(recognised.kind, path, space=space, name=name, **options)
    except LabelError as error:
        raise error.about(path) from error


def listed_path(path: str | Location) -> Location:
    """Return the location of a path; an object store is listed once, as a dataset does not change while it is read."""
    if is_web_address(path):
        return web_copy(str(path))
    if is_hub_address(path):
        return place(hub_dataset(str(path), DatasetError))
    location = place(path)
    if not is_object(location):
        return location
    local_copy.cache_clear()  # what was fetched may have changed since
    forget_open_objects()
    return location.as_listed_now()


def _open(kind: str, path: Location, **options: object) -> Dataset:
    """Open a path as a dataset of the given kind; a single object that the kind can't read by URL is fetched first."""
    dataset_kind = dataset_kinds.get(kind)
    if is_object(path) and not dataset_kind.by_url and path.is_file():
        path = fetched(str(path)).path  # a single file, such as a Parquet table
    if is_object(path) and not dataset_kind.by_url:
        url_kinds = [name for name, registered in dataset_kinds if registered.by_url]
        raise DatasetError(
            f"{path} can't be opened by URL: the kind {kind!r} is read from a disk",
            expected=f"one of {', '.join(url_kinds)}",
            hint="copy it to a local folder and open that",
        )
    return _call(kind, dataset_kind.open, path, **options)


def open_named(which: str, *, space: AskedSpace = None, name: str | None = None, **options: object) -> Dataset:
    """Open a dataset by its name, even if a file of that name exists.

    Another ``space`` than the dataset's own selects the images whose class it has.
    """
    dataset = _call(which, named_datasets.get(which), name=name or which, **options)
    if isinstance(space, str):
        space = label_space(space)
    if space is None or space.keys == dataset.space.keys:
        return dataset
    from shiftbench.datasets.subset import of_classes

    return of_classes(dataset, space)


def recognise_path(path: Location) -> Recognised | None:
    """Find the kind of dataset at a path; None if no kind fits."""
    names = {path.name.casefold(), path.resolve().name.casefold()}
    entries = list(entry_names(path))
    for kind, candidate in sorted(dataset_kinds, key=lambda entry: not entry[1].first):
        if not candidate.may_be(names, entries):
            continue
        seen = candidate.recognise(path)
        if seen is not None:
            return Recognised(kind, seen)
    return _recognise_split(path)


def _recognise_split(path: Location) -> Recognised | None:
    """Recognise ``FOLDER/test`` as a split of the tables in a folder, though no such path exists."""
    if path.exists() or not path.parent.is_dir() or not path.name:
        return None
    from shiftbench.datasets.huggingface import recognise_tables, split_names

    if recognise_tables(path.parent) is None or path.name not in split_names(path.parent):
        return None
    return Recognised("huggingface", f"the split {path.name!r} of tables")


def _call(kind: str, function: OpenFunction, *args: object, **options: object) -> Dataset:
    """Call an open function; an unknown option is reported by its name, before it would cause a TypeError.

    An unknown option whose value is None is left out, so that callers may pass ``space=None`` to every function.
    """
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return function(*args, **options)
    accepted = {}
    for option, value in options.items():
        if option in parameters:
            accepted[option] = value
        elif value is not None:
            raise _unknown_option(kind, option, parameters)
    return function(*args, **accepted)


def _unknown_option(kind: str, option: str, parameters: Mapping[str, inspect.Parameter]) -> DatasetError:
    names = [name for name, parameter in parameters.items() if parameter.kind is inspect.Parameter.KEYWORD_ONLY]
    expected = "none"
    if names:
        expected = f"one of {', '.join(names)}"
    return DatasetError(f"{kind!r} has no option {option!r}", expected=expected)


_LAYOUTS = (
    "a folder of class folders, an npy or npz file, tar shards, Arrow or Parquet files, "
    "a CSV or JSONL manifest, or CIFAR files"
)


def unrecognised(path: Location) -> DatasetError:
    """Return the error for a path that no kind of dataset fits; its hint is the most likely remedy."""
    if is_object(path) and not path.exists():
        return DatasetError(
            f"nothing was found at {path}",
            found=missing_object(path),
            hint="check the spelling, and the endpoint and credentials (docs/workspace.md)",
        )
    if not path.exists():
        return _unknown_name(str(path))
    if not path.is_dir():
        hint = None
        if path.suffix.lower() in (".7z", ".rar", ".gz"):
            hint = "unpack it"
        return DatasetError(f"{path} is not a dataset", found="a file", expected=_LAYOUTS, hint=hint)
    entries = [entry.name for entry in _visible_entries(path)]
    return DatasetError(
        f"{path} is not a dataset",
        found=listed(entries, 6) or "an empty folder",
        expected=_LAYOUTS,
        hint=_folder_hint(path, entries),
    )


def _unknown_name(name: str) -> DatasetError:
    names = named_datasets.names()
    hint = None
    nearest = difflib.get_close_matches(name, names, n=1)
    if nearest:
        hint = f"did you mean {nearest[0]!r}?"
    return DatasetError(
        f"unknown dataset {name!r}",
        found="no file or folder of that name",
        expected=f"a path, or one of {', '.join(names)}",
        hint=hint,
    )


def _folder_hint(path: Location, entries: Sequence[str]) -> str | None:
    """Suggest what to open instead of a folder that is not a dataset; None if nothing in it looks useful."""
    for split in _SPLITS:
        if split in entries and (path / split).is_dir():
            return f"open one split: {path / split}"
    if len(entries) == 1 and _is_dataset_folder(path / entries[0]):
        return f"the dataset is one folder deeper: {path / entries[0]}"
    for name in entries:
        if name.endswith((".npy", ".npz")):
            return f"open one of the files, such as {path / name}"
    if any(name.lower().endswith(_IMAGE_SUFFIXES) for name in entries):
        return "images outside class folders have no label: sort them into class folders, or write a manifest"
    for name in entries:
        if _is_dataset_folder(path / name):
            return f"folder:{path} if {name} is a class with images in subfolders; {path / name} if it is a dataset"
    return None


def _is_dataset_folder(path: Location) -> bool:
    return path.is_dir() and recognise_path(path) is not None


def inspect_data(path: str | Location, *, space: AskedSpace = None, **options: object) -> DataReport:
    """Recognise what lies at a path and compare it with the published dataset, without decoding an image.

    Args:
        path: Folder or file.
        space: A label space, or "folders": the path is opened as the user's own data.
        options: Options of the kind of dataset; with any, the path is opened as the user's own data.
    """
    root = place(path)
    if _stated_kind(path):
        return _own_data(path, space=space, own_classes=True, **options)
    if not root.exists():
        # A split of tables has a path of its own, and no folder.
        if recognise_path(root) is None:
            raise DatasetError(f"{root} does not exist", hint="name an existing folder or file")
        return _own_data(root, space=space, own_classes=True, **options)
    if space is not None or options:
        return _own_data(root, space=space, **options)
    packed = _packed_datasets(root)
    # Where a folder holds archives of published datasets, their unpacked folders are not classes of one dataset.
    if packed:
        report = _published(root)
    else:
        report = _dataset_at(root, _DEPTH)
    if report is not None:
        return report
    reports = _datasets_below(root, packed)
    if reports:
        return DataReport(str(root), None, f"a folder of {len(reports)} datasets", parts=reports)
    return _own_data(root, own_classes=True)


def _datasets_below(root: Location, packed: Sequence[DataReport]) -> list[DataReport]:
    """Reports on the datasets in the folders below ``root``, and on those that are only there as an archive."""
    reports = []
    for folder in _folders(root):
        report = _dataset_at(folder, _DEPTH)
        if report is not None:
            reports.append(report)
    # An archive whose unpacked folder is present is no longer needed.
    unpacked_titles = [report.what or "" for report in reports]
    for archive in packed:
        title = archive.what or "-"
        if not any(unpacked_title.startswith(title) for unpacked_title in unpacked_titles):
            reports.append(archive)
    return reports


def _packed_datasets(root: Location) -> list[DataReport]:
    """Reports on the archives of published datasets that lie in a folder."""
    reports = []
    for entry in _visible_entries(root):
        if entry.name.casefold().endswith(_ARCHIVE_SUFFIXES):
            report = _published(entry)
            if report is not None:
                reports.append(report)
    return reports


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
    kind = _stated_kind(path)
    if kind is not None:
        recognised: Recognised | None = Recognised(kind, f"of the kind {kind}, as named")
    else:
        path = listed_path(path)
        recognised = recognise_path(path)
    if recognised is None:
        return DataReport(str(path), None, "no dataset", missing=[str(unrecognised(place(path)))])
    report = DataReport(str(path), None, recognised.seen, kind=recognised.kind)
    try:
        dataset = open_dataset(path, space=space, **options)
    except ShiftbenchError as error:
        if isinstance(error, UnknownClassesError) and own_classes and space is None:
            return _describe_own_classes(path, error, **options)
        report.missing.append(str(error))
        return report
    report.count(dataset)
    absent = len(dataset.space) - report.classes
    report.classes_expected = None  # a dataset of one's own need not have all classes of its space
    if absent:
        report.notes.append(f"{absent} of {len(dataset.space)} classes have no image")
    report.notes += file_remarks(dataset)
    report.notes += copy_remarks(dataset)
    if recognised.kind == "folder" and kind is None:
        report.notes += _folder_notes(place(path))
    unlabelled = _count_unlabelled(dataset)
    if unlabelled:
        report.notes.append(f"{unlabelled} images have no label")
    return report


def _describe_own_classes(path: str | Location, error: UnknownClassesError, **options: Any) -> DataReport:
    """Describe a path whose classes are of no known label space, and note what that means for models."""
    report = describe_path(path, space=FOLDERS, **options)
    note = (
        f"{error.message}; the {report.classes} classes in sorted order are used for models with {report.classes} "
        f"outputs that name none ({argument('labels', FOLDERS)}); for models of ImageNet's 1,000 classes, "
        "`shiftbench data labels` proposes a mapping"
    )
    report.notes.insert(0, note)
    return report


def _folder_notes(path: Location) -> list[str]:
    """Notes on the files and class folders of an image folder that add no image to the dataset."""
    from shiftbench.datasets.folder import list_classes

    listing = list_classes(path)
    notes = []
    if listing.strays:
        notes.append(f"skipped (hidden, or left by other programs): {listed(listing.strays)}")
    if listing.other_files:
        notes.append(
            f"{len(listing.other_files)} files are not images and are ignored, such as {listing.other_files[0]}"
        )
    empty = [folder for folder, files in listing.classes.items() if not files]
    if empty:
        notes.append(f"{len(empty)} class folders are empty, such as {empty[0]}")
    return notes


def _count_unlabelled(dataset: Dataset) -> int:
    if dataset.label_sets is None:
        return int((dataset.labels < 0).sum())
    return sum(not classes for classes in dataset.label_sets)


def _stated_kind(path: str | Location) -> str | None:
    """The kind that ``kind:path`` states; None for a plain path."""
    kind, _, location = str(path).partition(":")
    if location and kind in dataset_kinds:
        return kind
    return None


def _dataset_at(path: Location, depth: int) -> DataReport | None:
    """Report on the dataset at a path, or in its only subfolder down to ``depth``; None if there is none.

    A published dataset is reported even if it is incomplete, one of the user's own only if it can be used.
    """
    report = _published(path)
    if report is not None:
        return report
    report = _own_data(path)
    if not report.missing:
        return report
    folders = _folders(path)
    if not depth or len(folders) != 1:
        return None
    report = _dataset_at(folders[0], depth - 1)
    if report is not None and report.path == str(folders[0]):
        report.notes.insert(0, f"the dataset is in a subfolder of the path you gave: use {report.path}")
    return report


def _published(path: Location) -> DataReport | None:
    """Compare a path with the published dataset that it holds; None if it holds none."""
    recognised = recognise_path(path)
    if recognised is None:
        return None
    kind = dataset_kinds.get(recognised.kind)
    if is_object(path) and not kind.by_url:
        return None
    report = kind.check(path)
    if report is not None:
        report.kind = recognised.kind
    return report


def _own_data(path: str | Location, **options: Any) -> DataReport:
    """Describe a path as the user's own data, which the suite ``clean`` evaluates."""
    report = describe_path(path, **options)
    if not report.missing:
        report.role = "data"
        report.suite = "clean"
    return report


def _folders(path: Location) -> list[Location]:
    return [entry for entry in _visible_entries(path) if entry.is_dir()]


def _visible_entries(path: Location) -> list[Location]:
    """The entries of a folder in order, without hidden ones; none for a file."""
    if not path.is_dir():
        return []
    return sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))


def file_remarks(dataset: Dataset) -> list[str]:
    """Remarks on unusual files, and on the images without a label if only some of the images have none."""
    remarks = list(dataset.remarks)
    if dataset.label_sets is None:
        unlabelled = int((dataset.labels < 0).sum())
        if 0 < unlabelled < len(dataset):
            remarks.append(f"{unlabelled:,} of {len(dataset):,} images have no label, and are not scored")
    return remarks


def copy_remarks(dataset: Dataset) -> list[str]:
    """Remarks on images that repeat others, and on images that appear in several classes.

    Copies make intervals too narrow, as they are not independent; an image in two classes is wrong in one of them.
    An image that a subset takes twice is not counted as a copy, and neither is a video frame in several rows.
    """
    from shiftbench.datasets.stored import UNREADABLE, ContentDataset

    if not isinstance(dataset, ContentDataset):
        return []
    rows = _distinct_rows(dataset)
    digests = dataset.digests(rows)
    rows_by_digest = by_key(zip(digests, rows, strict=True))
    # All unreadable images have the same digest, but nobody knows whether they are copies.
    rows_by_digest.pop(UNREADABLE, None)
    copies = [same_rows for same_rows in rows_by_digest.values() if len(same_rows) > 1]
    if not copies:
        return []
    further_copies = sum(map(len, copies)) - len(copies)
    remarks = [f"{further_copies} images are exact copies of others, {_example(dataset, copies[0])}"]
    mixed = []
    for same_rows in copies:
        classes = set(dataset.labels[same_rows].tolist()) - {-1}
        if len(classes) > 1:
            mixed.append(same_rows)
    if mixed:
        remarks.append(f"{len(mixed)} images appear in several classes, {_example(dataset, mixed[0])}")
    return remarks


def _distinct_rows(dataset: Dataset) -> Sequence[int]:
    """The first row of each image, where some are in several rows on purpose; otherwise all rows."""
    from shiftbench.datasets.stored import FileDataset
    from shiftbench.datasets.subset import Subset

    images: Sequence[Any] = range(len(dataset))
    base = dataset
    if isinstance(dataset, Subset):
        images = dataset.indices.tolist()
        base = dataset.base
    if isinstance(base, FileDataset) and base.repeats_files:
        images = [base.paths[row] for row in images]
    first_rows: dict[object, int] = {}
    for row, image in enumerate(images):
        first_rows.setdefault(image, row)
    return list(first_rows.values())


def _example(dataset: Dataset, rows: Sequence[int]) -> str:
    return f"such as {dataset.ids[rows[0]]} and {dataset.ids[rows[-1]]}"
