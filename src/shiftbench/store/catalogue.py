"""The catalogue: the specs of many results in one file, so that a large workspace is listed without opening each.

A result's file is named by the hash of its spec, so an entry is right or, when its text does not have that hash,
ignored: the catalogue can't go stale, and may be deleted at any time. Files that it lacks are opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import pyarrow as pa

from shiftbench.errors import StoreError
from shiftbench.store.sealed import SealedFiles
from shiftbench.store.spec import spec_key

_FILE = "catalogue.parquet"


def read_catalogue(files: SealedFiles) -> Mapping[str, str]:
    """Specs as canonical JSON, by key; empty where there is no catalogue, or a damaged one."""
    try:
        state = (files.root / _FILE).stat()
    except OSError:
        return {}
    return _read(files, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=4)
def _read(files: SealedFiles, changed: int, size: int) -> Mapping[str, str]:
    try:
        table = files.read_table(files.root / _FILE)
        pairs = zip(table.column("key").to_pylist(), table.column("spec").to_pylist(), strict=True)
    except (OSError, KeyError, StoreError):
        return {}
    return {key: spec for key, spec in pairs if spec_key(spec) == key}


def write_catalogue(files: SealedFiles, specs: Mapping[str, str]) -> None:
    table = pa.table({"key": pa.array(specs.keys(), pa.string()), "spec": pa.array(specs.values(), pa.string())})
    files.write_table(files.root / _FILE, table)
