"""Manifests: CSV, TSV or JSONL files with one image path and label per row, and further columns as metadata."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from typing import Any

from shiftbench.datasets.base import DatasetKind
from shiftbench.datasets.stored import FileDataset
from shiftbench.errors import DatasetError, argument, raising
from shiftbench.grouping import repeated
from shiftbench.io.atomic import parse_json
from shiftbench.io.paths import Location, place
from shiftbench.labels.guard import recognise_folders
from shiftbench.labels.space import AskedSpace

SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson")
PATH_COLUMNS = ("path", "file", "filename", "file_name", "image")
LABEL_COLUMNS = ("label", "class", "wnid", "target", "class_name")


def open_manifest(
    path: str | Location,
    *,
    space: AskedSpace = None,
    name: str | None = None,
    root: str | Location | None = None,
    label: str | None = None,
    allow_outside: bool = False,
) -> FileDataset:
    """A CSV, TSV or JSONL list of image paths and labels; further columns become metadata.

    Paths are relative to ``root``, else to the manifest's folder, and stay below it. ``allow_outside`` permits
    absolute paths and ``..``: only for manifests that you wrote. ``label`` names the column; an empty label means none.
    """
    path = place(path)
    rows = read_rows(path)
    columns = list(rows[0]) if rows else []
    path_column = _find_column(path, columns, PATH_COLUMNS)
    label_column = _find_column(path, columns, (label,) if label else LABEL_COLUMNS)
    files = [str(row.get(path_column) or "") for row in rows]
    _check_files(path, files, allow_outside)
    label_texts = [_label_text(row.get(label_column)) for row in rows]
    classes = {text for text in label_texts if text is not None}
    if not classes:
        raise DatasetError(f"no line of {path.name} has a label", expected=f"values in the column {label_column!r}")
    target, index = recognise_folders(classes, space)
    metadata = {}
    for column in columns:
        if column not in (path_column, label_column):
            metadata[column] = [row.get(column) for row in rows]
    folder = path.parent if root is None else place(root)
    labels = [-1 if text is None else index[text] for text in label_texts]
    # Ids are the same on every system, so that results on one can be compared with those on another.
    ids = [file.replace(os.sep, "/") for file in files]
    return FileDataset(name or path.stem, target, folder, files, labels, ids=ids, metadata=metadata)


def _find_column(path: Location, columns: Sequence[str], names: Sequence[str]) -> str:
    """The first of the names that is a column of the manifest; a DatasetError is raised if none is."""
    for name in names:
        if name in columns:
            return name
    raise DatasetError(
        f"{path.name} lacks a column",
        found=f"columns {', '.join(columns) or 'none'}",
        expected=f"one named {' or '.join(names)}",
    )


def _check_files(path: Location, files: Sequence[str], allow_outside: bool) -> None:
    """Raise a DatasetError if an entry of the manifest has no path, a forbidden one, or that of another entry."""
    for line, file in enumerate(files, start=1):
        if not file:
            raise DatasetError(f"entry {line} of {path.name} has no path")
        if leads_outside(file) and not allow_outside:
            raise DatasetError(
                f"entry {line} of {path.name} points outside the manifest's folder",
                found=file,
                expected="a relative path below it",
                hint=f"copy the images below that folder; if you trust the manifest, {argument('allow_outside', True)} "
                "is accepted by `eval`, `gate` and `data check`, and by evaluate and open_dataset",
            )
    repeated = len(files) - len(set(files))
    if repeated:
        hint = "for an image with two candidate classes (testset import), list the second in another manifest"
        raise DatasetError(f"{path.name} lists {repeated} images twice", expected="one row per image", hint=hint)


def recognise_manifest(path: Location) -> str | None:
    if path.suffix.lower() in SUFFIXES and path.is_file():
        return "a manifest"
    return None


KIND = DatasetKind(recognise_manifest, open_manifest, by_url=True)


def leads_outside(path: str) -> bool:
    """Whether a path may point outside its folder, also on Windows: a manifest is equally safe on every machine."""
    parts = path.replace("\\", "/").split("/")
    return path.startswith(("/", "\\")) or ":" in parts[0] or ".." in parts or "\0" in path


def read_rows(path: Location) -> list[dict[str, Any]]:
    """The rows of a CSV, TSV or JSONL file; a DatasetError is raised for a file that is damaged or uneven."""
    with raising(DatasetError, f"the manifest {path} can't be read", OSError, UnicodeDecodeError):
        text = path.read_text(encoding="utf-8-sig")
    if path.suffix.lower() == ".tsv":
        return _separated_rows(path, text, "\t")
    if path.suffix.lower() == ".csv":
        return _separated_rows(path, text, ",")
    return _json_rows(path, text)


def _separated_rows(path: Location, text: str, delimiter: str) -> list[dict[str, Any]]:
    # The text is not split by splitlines(), which also splits at characters that file names may have.
    reader = csv.DictReader(io.StringIO(text, None), delimiter=delimiter)
    shared_names = repeated(reader.fieldnames or ())
    if shared_names:
        raise DatasetError(f"several columns of {path.name} have one name", found=", ".join(shared_names))
    rows = list(reader)
    for line, row in enumerate(rows, start=2):
        if None in row or None in row.values():
            raise DatasetError(f"line {line} of {path.name} has a different number of fields than the first")
    return rows


def _json_rows(path: Location, text: str) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        with raising(DatasetError, f"line {number} of {path.name} is not JSON", ValueError):
            value = parse_json(line)
        if not isinstance(value, dict):
            raise DatasetError(f"line {number} of {path.name} is not an object", found=type(value).__name__)
        rows.append(value)
    return rows


def _label_text(value: object) -> str | None:
    """A label as text; None for an empty label."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()  # as JSON writes it
    if isinstance(value, float) and value.is_integer():  # 3.0, as tools write integers with gaps
        value = int(value)
    return str(value).strip() or None
