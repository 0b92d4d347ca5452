"""Under which name each picture is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from shiftbench.datasets.base import Dataset
from shiftbench.datasets.files import FileDataset
from shiftbench.errors import DatasetError, LabelError
from shiftbench.labels.guard import recognise_folders
from shiftbench.shifts.writing.encoding import Encoding, without_picture_suffix


def tree_paths(dataset: Dataset, encoding: Encoding) -> list[str]:
    """``class folder/file`` of every picture, unique also where a file system ignores case.

    A source of class folders keeps its folders and file names; other sources get the classes' keys as folders
    and their ids as file names. Two pictures that would get one name, ``a.png`` and ``a.jpg``, keep their old
    suffix inside the new name.
    """
    if (dataset.labels < 0).any():
        raise DatasetError(
            f"{int((dataset.labels < 0).sum())} pictures of {dataset.name!r} have no label, hence no class folder",
            hint="write shards: --format shards",
        )
    names = _names(dataset)
    places = [encoding.renamed(name) for name in names]
    taken = Counter(place.casefold() for place in places)
    for i, name in enumerate(names):
        if taken[places[i].casefold()] > 1 and places[i] != name:
            places[i] = f"{name}.{encoding.ending}"
    _check_unique(places, dataset)
    return places


def class_folders(dataset: Dataset) -> list[str]:
    """Folders to make even if they stay empty: where folders alone say what the classes are."""
    return [_part(key) for key in dataset.space.keys] if dataset.space.name == "folders" else []


def shard_keys(dataset: Dataset) -> list[str]:
    """WebDataset keys: the ids without suffix, and without dots in the file name, where a key would end.

    Ids that would share a key get their number as well.
    """
    keys = []
    for image_id in dataset.ids:
        folder, slash, file = without_picture_suffix(image_id).rpartition("/")
        keys.append(f"{folder}{slash}{file.replace('.', '_') or '_'}")
    shared = Counter(keys)
    return [key if shared[key] == 1 else f"{key}__{i:08d}" for i, key in enumerate(keys)]


def _names(dataset: Dataset) -> Sequence[str]:
    if has_class_folders(dataset):
        return dataset.paths if isinstance(dataset, FileDataset) else dataset.ids
    keys = dataset.space.keys
    labels = dataset.labels.tolist()
    return [f"{_part(keys[label])}/{_part(i)}" for i, label in zip(dataset.ids, labels, strict=True)]


def has_class_folders(dataset: Dataset) -> bool:
    """Whether the first part of every id names its class, as the reader of a class folder would see it."""
    if isinstance(dataset, FileDataset) and len(dataset.paths) != len(dataset.ids):
        return False
    paths = dataset.paths if isinstance(dataset, FileDataset) else dataset.ids
    if not all("/" in path and _inside(path) for path in paths):
        return False
    folders = [path.split("/", 1)[0] for path in paths]
    try:
        _, index = recognise_folders(folders, dataset.space)
    except LabelError:
        return False
    return all(index[folder] == label for folder, label in zip(folders, dataset.labels.tolist(), strict=True))


def _inside(path: str) -> bool:
    """A path that can't lead out of the folder it is put in, nor hide."""
    return all(part and not part.startswith(".") for part in path.split("/"))


def _part(text: str) -> str:
    """Any text as one visible component of a path."""
    flat = text.replace("/", "_").replace("\0", "_")
    return f"_{flat}" if flat.startswith(".") or not flat else flat


def _check_unique(places: Sequence[str], dataset: Dataset) -> None:
    for twice in _twice(places):
        both = [dataset.ids[i] for i, place in enumerate(places) if place.casefold() == twice]
        raise DatasetError(
            f"{len(both)} pictures of {dataset.name!r} would be written to one file",
            found=", ".join(both[:4]),
            expected="names that differ in more than upper and lower case",
        )


def _twice(places: Sequence[str]) -> Iterator[str]:
    return (place for place, count in Counter(p.casefold() for p in places).items() if count > 1)
