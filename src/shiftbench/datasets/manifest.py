"""Manifests: CSV, TSV or JSONL files with one image path and label per row, and further columns as metadata."""

from __future__ import annotations

import csv
import json
import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

from shiftbench.datasets.files import FileDataset
from shiftbench.datasets.images import MAX_PIXELS
from shiftbench.datasets.kind import DatasetKind
from shiftbench.errors import DatasetError, argument
from shiftbench.io.paths import Location, place
from shiftbench.labels.guard import recognise_folders
from shiftbench.labels.space import AskedSpace

SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson")
PATH_COLUMNS = ("path", "file", "filename", "file_name", "image")
LABEL_COLUMNS = ("label", "class", "wnid", "target")


def open_manifest(
    path: str | Location,
    *,
    space: AskedSpace = None,
    name: str | None = None,
    root: str | Location | None = None,
    label: str | None = None,
    allow_outside: bool = False,
    max_pixels: int = MAX_PIXELS,
) -> FileDataset:
    """A CSV, TSV or JSONL list of image paths and labels; further columns become metadata.

    Paths are relative to ``root``, else to the manifest's folder, and stay below it. ``allow_outside`` permits
    absolute paths and ``..``: only for manifests that you wrote. ``label`` names the column; an empty label means none.
    """
    path = place(path)
    rows = read_rows(path)
    columns = list(rows[0]) if rows else []
    path_column = _column(path, columns, PATH_COLUMNS)
    label_column = label if label in columns else _column(path, columns, (label,) if label else LABEL_COLUMNS)
    files = [str(row.get(path_column) or "") for row in rows]
    for line, file in enumerate(files, start=1):
        _check_path(path, line, file, allow_outside)
    repeated = len(files) - len(set(files))
    if repeated:
        raise DatasetError(f"{path.name} lists {repeated} images twice", expected="one row per image")
    values = [_label_text(row.get(label_column)) for row in rows]
    known = {value for value in values if value is not None}
    if not known:
        raise DatasetError(f"no line of {path.name} has a label", expected=f"values in the column {label_column!r}")
    target, index = recognise_folders(known, space)
    return FileDataset(
        name or path.stem,
        target,
        place(root) if root is not None else path.parent,
        files,
        [-1 if value is None else index[value] for value in values],
        ids=[file.replace(os.sep, "/") for file in files],
        metadata={c: [row.get(c) for row in rows] for c in columns if c not in (path_column, label_column)},
        max_pixels=max_pixels,
    )


KIND = DatasetKind(
    lambda path: "a manifest" if path.suffix.lower() in SUFFIXES and path.is_file() else None,
    open_manifest,
    by_url=True,
)


def read_rows(path: Location) -> list[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"the manifest {path} can't be read", found=error) from error
    if path.suffix.lower() in (".csv", ".tsv"):
        delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
        reader = csv.DictReader(text.splitlines(), delimiter=delimiter)
        repeated = [name for name, count in Counter(reader.fieldnames or ()).items() if count > 1]
        if repeated:
            raise DatasetError(f"several columns of {path.name} have one name", found=", ".join(repeated))
        rows = list(reader)
        ragged = next((i for i, row in enumerate(rows, start=2) if None in row or None in row.values()), None)
        if ragged is not None:
            raise DatasetError(f"line {ragged} of {path.name} has a different number of fields than the first")
        return rows
    return [_json_row(path, i, line) for i, line in enumerate(text.splitlines(), start=1) if line.strip()]


def _json_row(path: Location, number: int, line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise DatasetError(f"line {number} of {path.name} is not JSON", found=error) from error
    if not isinstance(value, dict):
        raise DatasetError(f"line {number} of {path.name} is not an object", found=type(value).__name__)
    return value


def _column(path: Location, columns: Sequence[str], wanted: Sequence[str]) -> str:
    for name in wanted:
        if name in columns:
            return name
    raise DatasetError(
        f"{path.name} lacks a column",
        found=f"columns {', '.join(columns) or 'none'}",
        expected=f"one named {' or '.join(wanted)}",
    )


def _check_path(manifest: Location, line: int, file: str, allow_outside: bool) -> None:
    if not file:
        raise DatasetError(f"entry {line} of {manifest.name} has no path")
    if allow_outside:
        return
    # Windows paths too, so that a manifest is equally safe on every machine
    parts = file.replace("\\", "/").split("/")
    if file.startswith(("/", "\\")) or ":" in parts[0] or ".." in parts or "\0" in file:
        raise DatasetError(
            f"entry {line} of {manifest.name} points outside the manifest's folder",
            found=file,
            expected="a relative path below it",
            hint=f"if you trust the manifest: {argument('allow_outside', True)}",
        )


def _label_text(value: Any) -> str | None:
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():  # 3.0, as tools write integers with gaps
        value = int(value)
    return str(value).strip() or None
