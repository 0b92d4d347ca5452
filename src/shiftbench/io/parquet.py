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
#: The size is checked after each batch of this many bytes, as far as the footer tells, or of this many rows.
_BATCH_BYTES = 64 << 20
_BATCH_ROWS = 8192
#: Rows of a batch where the footer does not tell: each value may repeat the beginning of the one before.
_UNKNOWN_ROWS = 64
#: Bytes of a value, by its type in the file; texts and bytes are counted by the pages that hold them.
_VALUE_BYTES = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12}


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

    path = path.absolute()  # Arrow takes a relative path such as data:1/table.parquet for a URL.
    metadata = pq.read_metadata(path)
    if metadata.num_rows > MOST_ROWS:
        raise ExpansionError(path.name, f"{metadata.num_rows:,} rows", f"{MOST_ROWS:,} rows")
    return pq.ParquetFile(path, read_dictionary=_text_columns(metadata))


def _text_columns(metadata: pq.FileMetaData) -> list[str]:
    """The paths of the columns of texts and bytes, within structs and lists as well.

    Arrow cannot read dictionaries from columns that state differences.
    """
    paths = []
    for number in range(metadata.num_columns):
        column = metadata.schema.column(number)
        if column.physical_type == "BYTE_ARRAY" and not _states_differences(metadata, number):
            paths.append(column.path)
    return paths


def _states_differences(metadata: pq.FileMetaData, column: int) -> bool:
    """Whether values of a column are stored as differences from other values, in any row group."""
    for group in range(metadata.num_row_groups):
        encodings = metadata.row_group(group).column(column).encodings
        if any(encoding.startswith("DELTA_") and encoding.endswith("BYTE_ARRAY") for encoding in encodings):
            return True
    return False


def batch_rows(metadata: pq.FileMetaData) -> int:
    """How many rows can be read at once, so that their size is checked before they fill the memory."""
    rows = _BATCH_ROWS
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        size = sum(_stated_bytes(metadata, group.column(column), column) for column in range(metadata.num_columns))
        if size > _BATCH_BYTES:
            rows = min(rows, max(1, group.num_rows * _BATCH_BYTES // size))
    if any(_states_differences(metadata, column) for column in range(metadata.num_columns)):
        rows = min(rows, _UNKNOWN_ROWS)
    return rows


def _stated_bytes(metadata: pq.FileMetaData, chunk: pq.ColumnChunkMetaData, column: int) -> int:
    """The bytes of the values of one column in one row group, as far as the footer tells."""
    schema = metadata.schema.column(column)
    value_bytes = _VALUE_BYTES.get(schema.physical_type, 4)
    if schema.physical_type == "FIXED_LEN_BYTE_ARRAY":
        value_bytes = schema.length
    return max(int(chunk.total_uncompressed_size), int(chunk.num_values) * int(value_bytes))


def read_parquet(path: Path, columns: Sequence[str] | None = None, *, most_bytes: int = MOST_BYTES) -> pa.Table:
    """The table of a Parquet file; raises ExpansionError if it needs more memory than ``most_bytes``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pq.read_schema(path.absolute())
    names = schema.names if columns is None else list(columns)
    schema = pa.schema([schema.field(name) for name in names], metadata=schema.metadata)
    size = 0
    batches = []
    with open_parquet(path) as file:
        for batch in file.iter_batches(batch_size=batch_rows(file.metadata), columns=names, use_threads=False):
            size += sum(_decoded_bytes(column) for column in batch.columns)
            if size > most_bytes:
                raise ExpansionError(path.name, f"more than {most_bytes:,} bytes", f"{most_bytes:,} bytes")
            batches.append(pa.table(batch.columns, names=batch.schema.names).select(names).cast(schema))
    if not batches:
        return schema.empty_table()
    return pa.concat_tables(batches)


def read_row_group(file: pq.ParquetFile, name: str, group: int, column: str) -> pa.ChunkedArray:
    """A column of one row group of a file that ``open_parquet`` opened; repeated values are in memory once.

    Raises ExpansionError if it needs more than ``MOST_BYTES`` nevertheless; ``name`` is the file's.
    """
    import pyarrow as pa

    size = 0
    chunks = []
    rows = batch_rows(file.metadata)
    for batch in file.iter_batches(batch_size=rows, row_groups=[group], columns=[column], use_threads=False):
        chunks.append(batch.column(0))
        size += int(batch.nbytes)
        if size > MOST_BYTES:
            raise ExpansionError(name, f"more than {MOST_BYTES:,} bytes in a row group", f"{MOST_BYTES:,} bytes")
    return pa.chunked_array(chunks)


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
