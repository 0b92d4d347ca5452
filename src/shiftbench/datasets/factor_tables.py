"""Tables of metadata, with one row per image or object: CSV, TSV, JSONL, Parquet, or DeepFashion2's folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shiftbench.datasets.deepfashion2 import deepfashion2_rows, is_deepfashion2
from shiftbench.datasets.manifest import PATH_COLUMNS, SUFFIXES, read_rows
from shiftbench.errors import DatasetError

Row = Mapping[str, Any]
#: A Parquet file of a few kilobytes can hold billions of equal rows.
_MOST_ROWS = 20_000_000


def read_table(source: str | Path) -> tuple[Sequence[Row], Path]:
    """The rows, and the folder that their paths are relative to."""
    path = Path(source)
    if is_deepfashion2(path):
        return deepfashion2_rows(path), path
    if path.suffix.lower() == ".parquet" and path.is_file():
        return _parquet_rows(path), path.parent
    if path.suffix.lower() in SUFFIXES and path.is_file():
        return read_rows(path), path.parent
    found = "a folder" if path.is_dir() else "a file of another kind" if path.exists() else "nothing of that name"
    raise DatasetError(
        f"{path} is not a table of images and factors",
        found=found,
        expected=f"a file that ends in {', '.join(SUFFIXES)} or .parquet, or DeepFashion2's folder",
    )


def column_of_paths(row: Row) -> str:
    """The column of image paths."""
    for column in PATH_COLUMNS:
        if column in row:
            return column
    raise DatasetError(
        "the table has no column of image paths",
        found=f"columns {', '.join(row)}",
        expected=f"a column {PATH_COLUMNS[0]!r}",
    )


def inside(path: str) -> str:
    """A table may come from anyone: its paths stay below the root, on Windows too."""
    parts = path.replace("\\", "/").split("/")
    if not path or path.startswith(("/", "\\")) or ":" in parts[0] or ".." in parts or "\0" in path:
        raise DatasetError("a path in the table points outside its folder", found=path, expected="a path below it")
    return path


def text_of(value: Any) -> str:
    """The text by which values are compared: CSV has no other type, and tools write 2019 as 2019.0 beside gaps.

    >>> text_of(2019.0), text_of(" US "), text_of(None)
    ('2019', 'US', '')
    """
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()


def _parquet_rows(path: Path) -> list[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        count = file.metadata.num_rows
        if count > _MOST_ROWS:
            raise DatasetError(f"{path} is too long", found=f"{count:,} rows", expected=f"up to {_MOST_ROWS:,}")
        # Nested and binary columns are not factors; images inside the table are not read.
        plain = [field.name for field in file.schema_arrow if not _is_bulky(field.type)]
        rows: list[Row] = file.read(columns=plain).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise DatasetError(f"the table {path} can't be read", found=error) from error
    return rows


def _is_bulky(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
