"""Hugging Face: ``data/test-00000-of-00001.parquet``, which ``datasets.load_dataset(FOLDER)`` opens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shiftbench.testsets.export.base import exporters
from shiftbench.testsets.export.records import Record, read_records
from shiftbench.testsets.frozen import FrozenSet

#: Pictures in one file.
PART_SIZE = 2000
#: Columns beside image and label, and their types in Arrow's and in Hugging Face's words.
_COLUMNS = {
    "selection_frequency": ("double", "float64"),
    "selected": ("int32", "int32"),
    "annotations": ("int32", "int32"),
    "keyword": ("string", "string"),
    "date": ("string", "string"),
    "licence": ("string", "string"),
    "author": ("string", "string"),
    "url": ("string", "string"),
    "source": ("string", "string"),
}


@exporters.register("huggingface")
def write_tables(frozen: FrozenSet, folder: Path) -> None:
    """Parquet files for Hugging Face's datasets library, in the set's random order."""
    from pyarrow import parquet

    records = read_records(frozen)
    parts = max(1, -(-len(records) // PART_SIZE))
    (folder / "data").mkdir()
    for part in range(parts):
        table = _table(frozen, records[part * PART_SIZE : (part + 1) * PART_SIZE])
        # small row groups: a reader of one picture need not decode them all
        parquet.write_table(table, folder / "data" / f"test-{part:05d}-of-{parts:05d}.parquet", row_group_size=100)


def _table(frozen: FrozenSet, records: Sequence[Record]) -> Any:
    import pyarrow as pa

    columns: dict[str, Any] = {
        "image": pa.array(
            [{"bytes": record.path.read_bytes(), "path": record.path.name} for record in records],
            type=pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
        ),
        "label": pa.array([record.label for record in records], type=pa.int64()),
    }
    for name, (kind, _) in _COLUMNS.items():
        columns[name] = pa.array([record.details.get(name) for record in records], type=pa.type_for_alias(kind))
    features = {
        "image": {"_type": "Image"},
        "label": {"names": list(frozen.space.keys), "_type": "ClassLabel"},
        **{name: {"dtype": words, "_type": "Value"} for name, (_, words) in _COLUMNS.items()},
    }
    table = pa.table(columns)
    return table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
