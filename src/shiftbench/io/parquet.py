"""Parquet files of strangers: read without unpacking more than a limit, whatever their footer says.

A file of a few hundred bytes can stand for gigabytes: a dictionary states a value once, and runs of indices repeat it.
Texts and bytes are therefore read as dictionaries, which are as small in memory as in the file, and counted before they
are written out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shiftbench.errors import StoreError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

#: The most bytes that a table may have in memory.
MOST_BYTES = 4 << 30
#: The most rows of a table.
MOST_ROWS = 100_000_000
#: Rows that are read at once: the size is checked after each of these.
_BATCH_ROWS = 8192


class ExpansionError(StoreError):
    """A compressed file would need far more memory or disk than its size suggests."""

    def __init__(self, name: str, found: str, limit: str) -> None:
        super().__init__(
            f"{name} was not unpacked: it expands too far (a decompression bomb?)",
            found=found,
            expected=f"at most {limit}",
            hint="if it is what you want, unpack it yourself, or split it into several files",
        )


def open_parquet(path: Path) -> pq.ParquetFile:
    """A Parquet file whose texts and bytes are read as dictionaries, without copies of repeated values."""
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(path)
    if metadata.num_rows > MOST_ROWS:
        raise ExpansionError(path.name, f"{metadata.num_rows:,} rows", f"{MOST_ROWS:,} rows")
    return pq.ParquetFile(path, read_dictionary=_text_columns(metadata))


def _text_columns(metadata: pq.FileMetaData) -> list[str]:
    """The paths of the columns of texts and bytes, within structs and lists as well."""
    columns = [metadata.schema.column(i) for i in range(metadata.num_columns)]
    return [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]


def read_parquet(path: Path, columns: Sequence[str] | None = None, *, most_bytes: int = MOST_BYTES) -> pa.Table:
    """The table of a Parquet file; raises ExpansionError if it needs more memory than ``most_bytes``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pq.read_schema(path)
    names = schema.names if columns is None else list(columns)
    schema = pa.schema([schema.field(name) for name in names], metadata=schema.metadata)
    size = 0
    batches = []
    with open_parquet(path) as file:
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=names, use_threads=False):
            size += sum(_decoded_bytes(column) for column in batch.columns)
            if size > most_bytes:
                raise ExpansionError(path.name, f"more than {most_bytes:,} bytes", f"{most_bytes:,} bytes")
            batches.append(pa.table(batch.columns, names=batch.schema.names).select(names).cast(schema))
    if not batches:
        return schema.empty_table()
    return pa.concat_tables(batches)


def _decoded_bytes(array: Any) -> int:
    """The bytes of an array once the values of its dictionary are written out."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_struct(array.type):
        return sum(_decoded_bytes(field) for field in array.flatten())
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        return int(array.offsets.nbytes) + _decoded_bytes(array.flatten())
    if not pa.types.is_dictionary(array.type) or not len(array.dictionary):
        return int(array.nbytes)
    lengths = pc.binary_length(array.dictionary)
    total = pc.sum(pc.cast(lengths.take(array.indices), pa.int64())).as_py()
    return int(array.indices.nbytes) + int(total or 0)
