"""Open a data set by its name or by what lies at a path.

Third parties add a kind of data set with one decorated function::

    @dataset_openers.register("raw")
    @opener(lambda path: "a raw file" if path.suffix == ".raw" else None)
    def open_raw(path, *, space=None, name=None): ...

and a named one with ``@named_datasets.register("my-set")`` on a function that opens it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from shiftbench.datasets.base import Dataset
from shiftbench.errors import DatasetError, LabelError, ShiftbenchError
from shiftbench.io.paths import is_object, place
from shiftbench.labels.catalogue import label_space
from shiftbench.labels.space import LabelSpace
from shiftbench.registry import Registry

OpenFunction = Callable[..., Dataset]
#: Says in a few words what a path is, if it is of this kind, else None. It looks at names, not at contents.
Recogniser = Callable[[Path], str | None]


@dataclass(frozen=True)
class Opener:
    """How a kind of path is recognised and opened."""

    recognises: Recogniser
    open: OpenFunction
    #: Whether it opens ``shiftbench.io.paths.place(path)``, and so s3://bucket/folder as well.
    by_url: bool = False
    #: Whether it is tried before the kinds that come with the package.
    first: bool = False


def opener(recognises: Recogniser, *, by_url: bool = False, first: bool = False) -> Callable[[OpenFunction], Opener]:
    """Decorator: ``function(path, *, space, name, ...)`` becomes the opener of what ``recognises`` knows."""
    return lambda function: Opener(recognises, function, by_url, first)


#: Kinds of path, in the order in which they are tried.
dataset_openers: Registry[Opener] = Registry("kind of data set", builtin=("shiftbench.datasets.openers",))
#: Data sets that have a name of their own.
named_datasets: Registry[OpenFunction] = Registry("data set", builtin=("shiftbench.datasets.openers",))


def open_dataset(
    spec: str | Path | Dataset,
    *,
    space: LabelSpace | str | None = None,
    name: str | None = None,
    **options: Any,
) -> Dataset:
    """A data set from a name ("demo"), a path or URL, or ``kind:path`` where the kind should not be guessed.

    ``space`` names the label space (a registered one, a file of classes, or "folders"); ``options`` are
    those of the kind, such as ``severity`` for CIFAR-10-C or ``split`` for a Hugging Face folder.

    >>> open_dataset("demos")
    Traceback (most recent call last):
    shiftbench.errors.DatasetError: there is no data set 'demos'
      found:    no file or folder of that name
      expected: a path, or one of demo, cifar-10-test, cifar-10-train
      try:      did you mean 'demo'?
    """
    if isinstance(spec, Dataset):
        return spec
    text = str(spec)
    # A file or folder of that name goes first, if it is a data set at all.
    if text in named_datasets and (not Path(text).exists() or recognise_path(Path(text)) is None):
        return open_named(text, space=space, name=name, **options)
    kind, _, rest = text.partition(":")
    if rest and kind in dataset_openers:
        where = _listed(place(rest))
        return _call(kind, _open_function(kind, where), where, space=space, name=name, **options)
    path = _listed(place(text))
    found = recognise_path(path)
    if found is None:
        raise _unrecognised(path)
    try:
        return _call(found[0], _open_function(found[0], path), path, space=space, name=name, **options)
    except LabelError as error:
        message = f"{path}: {error.message}"
        raise LabelError(message, found=error.found, expected=error.expected, hint=error.hint) from error


def _listed(path: Path) -> Path:
    """In an object store, what lies there now: a data set does not change while it is read."""
    return cast(Path, path.as_listed_now()) if is_object(path) else path


def _open_function(kind: str, path: Path) -> OpenFunction:
    chosen = dataset_openers.get(kind)
    if is_object(path) and not chosen.by_url:
        able = [name for name, one in dataset_openers if one.by_url]
        raise DatasetError(
            f"{path} can't be opened where it is: the kind {kind!r} is read from a disk",
            expected=f"one of {', '.join(able)}",
            hint="copy it to a folder, and name that",
        )
    return chosen.open


def open_named(
    which: str, *, space: LabelSpace | str | None = None, name: str | None = None, **options: Any
) -> Dataset:
    """A data set by its name, whatever files of that name may lie about."""
    return _in_space(_call(which, named_datasets.get(which), name=name or which, **options), space)


def _in_space(dataset: Dataset, space: LabelSpace | str | None) -> Dataset:
    """A named data set knows its own classes: another space asks for those of its images that fit it."""
    target = label_space(space) if isinstance(space, str) else space
    if target is None or target.keys == dataset.space.keys:
        return dataset
    from shiftbench.datasets.subset import of_classes

    return of_classes(dataset, target)


def recognise_path(path: Path) -> tuple[str, str] | None:
    """The kind of a path and what was seen there, or None."""
    for kind, candidate in sorted(dataset_openers, key=lambda entry: not entry[1].first):
        words = candidate.recognises(path)
        if words is not None:
            return kind, words
    return None


@dataclass
class PathDescription:
    """What lies at a path, for a person about to use it."""

    path: str
    kind: str | None
    seen: str
    images: int = 0
    classes: int = 0
    space: str | None = None
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.kind is not None and not self.problems


def describe_path(path: str | Path, *, space: LabelSpace | str | None = None, **options: Any) -> PathDescription:
    """Recognise and open a path without reading its pictures; tell what it holds or why it can't be used."""
    path = _listed(place(path))
    found = recognise_path(path)
    if found is None:
        return PathDescription(str(path), None, "unknown", problems=[str(_unrecognised(path))])
    description = PathDescription(str(path), *found)
    try:
        dataset = open_dataset(path, space=space, **options)
    except ShiftbenchError as error:
        description.problems.append(str(error))
        return description
    description.images, description.space = len(dataset), dataset.space.name
    present = {label for label in dataset.labels.tolist() if label >= 0}
    description.classes = len(present)
    if len(present) < len(dataset.space):
        description.notes.append(f"{len(dataset.space) - len(present)} of {len(dataset.space)} classes have no image")
    if description.kind == "folder":
        description.notes += _folder_notes(path)
    unlabelled = int((dataset.labels < 0).sum())
    if unlabelled:
        description.notes.append(f"{unlabelled} images have no label")
    return description


def _folder_notes(path: Path) -> list[str]:
    from shiftbench.datasets.folder import list_classes

    listing = list_classes(path)
    empty = [folder for folder, files in listing.classes.items() if not files]
    notes = []
    if listing.others:
        notes.append(f"{len(listing.others)} files are left out as no pictures, such as {listing.others[0]}")
    if empty:
        notes.append(f"{len(empty)} class folders are empty, such as {empty[0]}")
    return notes


def _call(kind: str, function: OpenFunction, *args: Any, **options: Any) -> Dataset:
    """Refuse options that the opener doesn't have by name, before it would fail with a TypeError."""
    parameters = inspect.signature(function).parameters
    if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        for key in [k for k, value in options.items() if value is None and k not in parameters]:
            del options[key]
        unknown = [key for key in options if key not in parameters]
        if unknown:
            known = [n for n, p in parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY]
            raise DatasetError(
                f"{kind!r} has no option {unknown[0]!r}",
                expected=f"one of {', '.join(known)}" if known else "none",
            )
    return function(*args, **options)


def _unrecognised(path: Path) -> DatasetError:
    if not path.exists():
        import difflib

        near = difflib.get_close_matches(str(path), named_datasets.names(), n=1)
        return DatasetError(
            f"there is no data set {str(path)!r}",
            found="no file or folder of that name",
            expected=f"a path, or one of {', '.join(named_datasets.names())}",
            hint=f"did you mean {near[0]!r}?" if near else None,
        )
    if not path.is_dir():
        return DatasetError(f"{path} is not a data set", found="a file", expected=_KINDS)
    entries = sorted(p.name for p in path.iterdir() if not p.name.startswith("."))
    shown = ", ".join(entries[:6]) + (f", ... ({len(entries)} entries)" if len(entries) > 6 else "")
    return DatasetError(
        f"{path} is not a data set",
        found=shown or "an empty folder",
        expected=_KINDS,
        hint=_hint(path, entries),
    )


_KINDS = (
    "a folder of class folders, an npy or npz file, tar shards, Arrow or Parquet files, "
    "a CSV or JSONL manifest, or CIFAR files"
)


def _hint(path: Path, entries: list[str]) -> str | None:
    for split in ("val", "validation", "test", "train"):
        if split in entries and (path / split).is_dir():
            return f"open the part itself: {path / split}"
    if "fog" in entries or "gaussian_noise" in entries:
        return f"this looks like ImageNet-C; open one of its folders, such as {path / entries[0] / '1'}"
    if len(entries) == 1 and (path / entries[0]).is_dir() and recognise_path(path / entries[0]):
        return f"it lies one folder deeper: {path / entries[0]}"
    arrays = [name for name in entries if name.endswith((".npy", ".npz"))]
    if arrays:
        return f"open one of the files, such as {path / arrays[0]}"
    if any(name.lower().endswith((".jpg", ".jpeg", ".png")) for name in entries):
        return "pictures in no class folder have no label: sort them into class folders, or write a manifest"
    return None
