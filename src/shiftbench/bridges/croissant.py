"""Datasets that a Croissant file describes (MLCommons, JSON-LD), read by MLCommons' own library.

Only files beside the description are read: an address in it is not followed, because a description can name any.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Protocol, cast

import numpy as np

from shiftbench import Dataset
from shiftbench.bridges.torch_data import from_torch_dataset
from shiftbench.errors import DatasetError
from shiftbench.extend.datasets import FileDataset, recognise_names
from shiftbench.extend.errors import listed, required
from shiftbench.extend.io import Location
from shiftbench.extend.types import AskedSpace

_IMAGE_FIELDS = ("image", "img", "path", "file", "filename", "image_path", "file_name")
_LABEL_FIELDS = ("label", "labels", "class", "category", "target")

Record = Mapping[str, object]


class _RecordSet(Protocol):
    id: str


class _Metadata(Protocol):
    record_sets: Sequence[_RecordSet]


class _Croissant(Protocol):
    """What is used of ``mlcroissant.Dataset``."""

    metadata: _Metadata

    def records(self, record_set: str) -> Sequence[Record]: ...


def recognise_croissant(path: Location) -> str | None:
    """What a path is if it is a Croissant file by its name; else None.

    Args:
        path: The path.
    """
    if path.suffix == ".json" and "croissant" in path.name.lower() and path.is_file():
        return "a Croissant description"
    return None


def open_croissant(path: str | Path, *, space: AskedSpace = None, name: str | None = None) -> Dataset:
    """The first record set of a Croissant file that has images (or their paths) and labels.

    Args:
        path: The file.
        space: Label space, if the labels do not tell.
        name: The name in tables; default: that of the description.

    Raises:
        DatasetError: It has no such record set, or names files elsewhere.
    """
    library = required("mlcroissant", "croissant", "a Croissant description")
    path = Path(path)
    content = _content(path)
    try:
        described = cast("_Croissant", library.Dataset(jsonld=str(path)))
        for record_set in described.metadata.record_sets:
            records = [_plain(record) for record in described.records(record_set.id)]
            fields = _fields(records)
            if fields is not None:
                return _dataset(path.parent, records, fields, space, name or str(content.get("name") or path.stem))
    except DatasetError:
        raise
    except Exception as error:  # The library raises many kinds of errors.
        raise DatasetError(f"{path.name} can't be read", found=f"{type(error).__name__}: {error}"[:300]) from error
    raise DatasetError(
        f"{path.name} describes no images with labels",
        found=listed(record_set.id for record_set in described.metadata.record_sets) or "no record set",
        expected=f"a record set with one of {', '.join(_IMAGE_FIELDS)} and one of {', '.join(_LABEL_FIELDS)}",
    )


def _content(path: Path) -> Mapping[str, object]:
    """The description; an address of files elsewhere is an error."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path.name} is not a Croissant description", found=str(error)) from error
    if not isinstance(content, Mapping):
        raise DatasetError(f"{path.name} is not a Croissant description", found=type(content).__name__)
    context = content.get("@context")
    if not isinstance(context, Mapping) or "@import" in context:
        raise DatasetError(
            f"{path.name} leaves its vocabulary elsewhere", found=f"@context: {context!r}"[:200], expected="an object"
        )
    distribution = content.get("distribution", [])
    for entry in distribution if isinstance(distribution, list) else [distribution]:
        place = str(entry.get("contentUrl", "")) if isinstance(entry, Mapping) else ""
        if "://" in place or place.startswith("/") or ".." in PurePosixPath(place).parts:
            raise DatasetError(
                f"{path.name} names a file elsewhere",
                found=place,
                expected="files beside the description",
                hint="download it into the folder of the description, and state its name there as contentUrl",
            )
    return content


def _plain(record: Record) -> dict[str, object]:
    """A record with the names of its fields alone, and texts for bytes."""
    plain: dict[str, object] = {}
    for key, value in record.items():
        plain[key.rpartition("/")[2]] = value.decode() if isinstance(value, bytes) and len(value) < 4096 else value
    return plain


def _fields(records: Sequence[Record]) -> tuple[str, str] | None:
    """The fields of the image and of the label."""
    if not records:
        return None
    image = next((field for field in _IMAGE_FIELDS if field in records[0]), None)
    label = next((field for field in _LABEL_FIELDS if field in records[0]), None)
    if image is None or label is None:
        return None
    return image, label


def _dataset(folder: Path, records: Sequence[Record], fields: tuple[str, str], space: AskedSpace, name: str) -> Dataset:
    """The records as a dataset: of files where they hold paths, else of the images that the library decodes."""
    image_field, label_field = fields
    values = [record[label_field] for record in records]
    if all(isinstance(value, int | np.integer) for value in values):
        classes = [str(number) for number in range(1 + max(int(cast("int", value)) for value in values))]
    else:
        classes = sorted({str(value) for value in values})
    target, positions = recognise_names(classes, space, own=name)
    index = dict(zip(classes, positions, strict=True))
    labels = [index[str(value)] for value in values]
    paths = [record[image_field] for record in records]
    if all(isinstance(path, str) for path in paths):
        texts = [str(path) for path in paths]
        for text in texts:
            if text.startswith("/") or ".." in PurePosixPath(text).parts:
                raise DatasetError("a record names a file elsewhere", found=text, expected=f"a file below {folder}")
        return FileDataset(name, target, folder, texts, labels)
    return from_torch_dataset(list(zip(paths, labels, strict=True)), labels=target, name=name)
