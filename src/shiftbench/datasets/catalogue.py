"""Open a dataset by its name, or by what lies at a path.

A built-in kind of dataset is one module that defines a ``DatasetKind``, and one row of ``_KINDS``. Third parties add
theirs with::

    dataset_kinds.add("raw", DatasetKind(recognise=recognise_raw, open=open_raw))

and a named dataset with ``@named_datasets.register("my-set")`` on a function that opens it.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from shiftbench.datasets.base import Dataset, DatasetKind, LazyKind, entry_names
from shiftbench.errors import DatasetError, LabelError, listed
from shiftbench.io.paths import Location, is_object, place
from shiftbench.labels.catalogue import label_space
from shiftbench.labels.space import AskedSpace
from shiftbench.registry import Registry

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
    ("objectnet", "objectnet:KIND", "*objectnet* /images /alarm_clock /banana /umbrella"),
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
    spec: str | Location | Dataset, *, space: AskedSpace = None, name: str | None = None, **options: Any
) -> Dataset:
    """Open a dataset from a name ("demo"), a path or URL, or ``kind:path`` to choose the kind explicitly.

    Args:
        spec: A name (``"demo"``), path, URL, ``kind:path``, or a dataset.
        space: Label space: a name, a file, a ``LabelSpace``, or ``"folders"`` for the folders' own names.
        name: The dataset's name in tables; default: from the path.
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
    # A file or folder of that name comes first, if it is a dataset at all.
    if text in named_datasets and (not Path(text).exists() or recognise_path(Path(text)) is None):
        return open_named(text, space=space, name=name, **options)
    kind, _, rest = text.partition(":")
    if rest and kind in dataset_kinds:
        return _open(kind, listed_path(rest), space=space, name=name, **options)
    path = listed_path(text)
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
    where = place(path)
    return where.as_listed_now() if is_object(where) else where


def _open(kind: str, path: Location, **options: Any) -> Dataset:
    chosen = dataset_kinds.get(kind)
    if is_object(path) and not chosen.by_url:
        raise DatasetError(
            f"{path} can't be opened by URL: the kind {kind!r} is read from a disk",
            expected=f"one of {', '.join(name for name, one in dataset_kinds if one.by_url)}",
            hint="copy it to a local folder and open that",
        )
    return _call(kind, chosen.open, path, **options)


def open_named(which: str, *, space: AskedSpace = None, name: str | None = None, **options: Any) -> Dataset:
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
    return None


def _call(kind: str, function: OpenFunction, *args: Any, **options: Any) -> Dataset:
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
    if not path.exists():
        near = difflib.get_close_matches(str(path), named_datasets.names(), n=1)
        return DatasetError(
            f"unknown dataset {str(path)!r}",
            found="no file or folder of that name",
            expected=f"a path, or one of {', '.join(named_datasets.names())}",
            hint=f"did you mean {near[0]!r}?" if near else None,
        )
    if not path.is_dir():
        return DatasetError(f"{path} is not a dataset", found="a file", expected=_LAYOUTS)
    entries = sorted(p.name for p in path.iterdir() if not p.name.startswith("."))
    split = next(
        (one for one in ("val", "validation", "test", "train") if one in entries and (path / one).is_dir()), None
    )
    arrays = [name for name in entries if name.endswith((".npy", ".npz"))]
    hint = None
    if split:
        hint = f"open one split: {path / split}"
    elif len(entries) == 1 and (path / entries[0]).is_dir() and recognise_path(path / entries[0]):
        hint = f"the dataset is one folder deeper: {path / entries[0]}"
    elif arrays:
        hint = f"open one of the files, such as {path / arrays[0]}"
    elif any(name.lower().endswith((".jpg", ".jpeg", ".png")) for name in entries):
        hint = "images outside class folders have no label: sort them into class folders, or write a manifest"
    found = listed(entries, 6) or "an empty folder"
    return DatasetError(f"{path} is not a dataset", found=found, expected=_LAYOUTS, hint=hint)
