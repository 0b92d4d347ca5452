"""Small Parquet tables of a workspace, on a disk or in an object store."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from shiftbench.io.atomic import write_atomically
from shiftbench.io.paths import Location


def read_table(path: Location, columns: Sequence[str] | None = None) -> pa.Table:
    """By this thread alone: one of Arrow's own may still hold the Python file when the interpreter ends, and aborts."""
    with path.open("rb") as file:
        return pq.ParquetFile(file, pre_buffer=False).read(
            columns=None if columns is None else list(columns), use_threads=False
        )


def write_table(path: Location, table: pa.Table) -> None:
    write_atomically(path, lambda temporary: pq.write_table(table, temporary, compression="zstd"))
