"""Small Parquet tables of a workspace, on a disk or in an object store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from shiftbench.io.atomic import write_atomically


def read_table(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """By this thread alone: one of Arrow's own may still hold the Python file when the interpreter ends, and aborts."""
    with path.open("rb") as file:
        return pq.ParquetFile(file, pre_buffer=False).read(
            columns=None if columns is None else list(columns), use_threads=False
        )


def write_table(path: Path, table: pa.Table) -> None:
    write_atomically(path, lambda temporary: pq.write_table(table, temporary, compression="zstd"))
