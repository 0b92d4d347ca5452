"""Manifests: CSV, TSV or JSONL files with one image path and label per row, and further columns as metadata."""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from typing import Any

from shiftbench.datasets.base import DatasetKind
from shiftbench.datasets.stored import FileDataset
from shiftbench.errors import DatasetError, argument, raising
from shiftbench.io.atomic import parse_json
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
) -> FileDataset:
    """A CSV, TSV or JSONL list of image paths and labels; further columns become metadata.

    Paths are relative to ``root``, else to the manifest's folder, and stay below it. ``allow_outside`` permits
    absolute paths and ``..``: only for manifests that you wrote. ``label`` names the column; an empty label means none.
    """
    path = place(path)
    rows = read_rows(path)
    columns = list(rows[0]) if rows else []
    used = []
    for wanted in (PATH_COLUMNS, (label,) if label else LABEL_COLUMNS):
        found = next((column for column in wanted if column in columns), None)
        if found is None:
            raise DatasetError(
                f"{path.name} lacks a column",
                found=f"columns {', '.join(columns) or 'none'}",
                expected=f"one named {' or '.join(wanted)}",
            )
        used.append(found)
    files = [str(row.get(used[0]) or "") for row in rows]
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
    if repeated := len(files) - len(set(files)):
        hint = "for an image with two candidate classes (testset import), list the second in another manifest"
        raise DatasetError(f"{path.name} lists {repeated} images twice", expected="one row per image", hint=hint)
    values = [_label_text(row.get(used[1])) for row in rows]
    known = {value for value in values if value is not None}
    if not known:
        raise DatasetError(f"no line of {path.name} has a label", expected=f"values in the column {used[1]!r}")
    target, index = recognise_folders(known, space)
    return FileDataset(
        name or path.stem,
        target,
        place(root) if root is not None else path.parent,
        files,
        [-1 if value is None else index[value] for value in values],
        ids=[file.replace(os.sep, "/") for file in files],
        metadata={column: [row.get(column) for row in rows] for column in columns if column not in used},
    )


KIND = DatasetKind(
    lambda path: "a manifest" if path.suffix.lower() in SUFFIXES and path.is_file() else None,
    open_manifest,
    by_url=True,
)


def leads_outside(path: str) -> bool:
    """Also checks Windows paths, so that a manifest is equally safe on every machine."""
    parts = path.replace("\\", "/").split("/")
    return path.startswith(("/", "\\")) or ":" in parts[0] or ".." in parts or "\0" in path


def read_rows(path: Location) -> list[dict[str, Any]]:
    with raising(DatasetError, f"the manifest {path} can't be read", OSError, UnicodeDecodeError):
        text = path.read_text(encoding="utf-8-sig")
    rows: list[dict[str, object]] = []
    if path.suffix.lower() in (".csv", ".tsv"):
        # Not by splitlines(), which also splits at characters that file names may have.
        reader = csv.DictReader(io.StringIO(text, None), delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
        repeated = [name for name, count in Counter(reader.fieldnames or ()).items() if count > 1]
        if repeated:
            raise DatasetError(f"several columns of {path.name} have one name", found=", ".join(repeated))
        rows += reader
        ragged = next((i for i, row in enumerate(rows, start=2) if None in row or None in row.values()), None)
        if ragged is not None:
            raise DatasetError(f"line {ragged} of {path.name} has a different number of fields than the first")
        return rows
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            with raising(DatasetError, f"line {number} of {path.name} is not JSON", ValueError):
                value = parse_json(line)
            if not isinstance(value, dict):
                raise DatasetError(f"line {number} of {path.name} is not an object", found=type(value).__name__)
            rows.append(value)
    return rows


def _label_text(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()  # as JSON writes it
    if isinstance(value, float) and value.is_integer():  # 3.0, as tools write integers with gaps
        value = int(value)
    return str(value).strip() or None
