"""Small files of a workspace that carry a digest of their content and of their place in it.

File and digest are one file, written by one rename: no manifest can lag behind, and runs do not wait for each other.
JSON has the digest under ``digest``, a table in its Parquet metadata. The place counts, so that a file copied over
another, or a folder under another name, is noticed. Format 1 (version 0.1) had no digests.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from shiftbench.errors import ShiftbenchError, StoreError
from shiftbench.io.atomic import write_atomically, write_json
from shiftbench.io.hashing import digest
from shiftbench.io.paths import Location, inside, relative
from shiftbench.store.spec import ResultSpec, spec_key

_DIGEST = "digest"
_TABLE_DIGEST = b"shiftbench.digest"
_CATALOGUE = "catalogue.parquet"
#: Entries of the catalogue that become Python objects at once.
_CATALOGUE_BATCH = 1000
#: The JSON files of a workspace that carry a digest.
JSON_FILES = (
    "names.json",
    "datasets/*/*.json",
    "datasets/*/problems/*.json",
    "spaces/*.json",
    "runs/*.json",
    "monitors/*.json",
    "behaviour/*.json",
    "gates/*.json",
)
#: The tables that carry one.
TABLES = (
    "catalogue.parquet",
    "datasets/*/*.parquet",
    "images/*/*/*.parquet",
    "shards/*/*/*/*.images",
)


def damaged(path: Location, reason: object) -> StoreError:
    """The error for a file that is not as it was written."""
    return StoreError(
        f"{path} is damaged or was changed: {reason}",
        hint="rerun the same eval, which computes it again; `shiftbench store verify` lists and `store repair` removes "
        "everything that is damaged",
    )


def check_is_file(path: Location) -> None:
    """Raise StoreError for what a stranger may have put in place of a file: a pipe is waited for forever, and a device
    may never end."""
    if isinstance(path, Path) and not stat.S_ISREG(path.stat().st_mode):
        raise damaged(path, "it is not a file")


def file_content(path: Location) -> bytes:
    """The bytes of a file of a workspace; raises StoreError if it is no file, or a link to none."""
    check_is_file(path)
    return path.read_bytes()


@contextmanager
def explained(path: Location) -> Iterator[None]:
    """Report any exception inside as damage of the file: parsers raise nearly every exception for damaged bytes."""
    try:
        yield
    except (ShiftbenchError, FileNotFoundError, NotADirectoryError):
        raise
    except Exception as error:
        raise damaged(path, f"{type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class SealedFiles:
    """The JSON files and tables of one workspace."""

    root: Location
    required: bool  #: Whether a file without a digest is damaged; in format 1 no file has one.

    def write_json(self, path: Location, value: Mapping[str, object], *, exclusive: bool = False) -> None:
        inside(path, self.root)
        write_json(path, {**value, _DIGEST: digest(self._place(path), value)}, exclusive=exclusive)

    def read_json(self, path: Location) -> dict[str, Any]:
        """Raises FileNotFoundError, or StoreError if it is damaged."""
        with explained(path):
            value = json.loads(file_content(path))
            if isinstance(value, list) and not self.required:
                value = {"problems": value}  # Format 1 keeps problems as a list.
            content: dict[str, Any] = value
            written = content.pop(_DIGEST, None)
            if self._has_digest(path, written):
                self._check_digest(path, written, digest(self._place(path), content))
        return content

    def write_table(self, path: Location, table: pa.Table) -> None:
        inside(path, self.root)
        marked = table.replace_schema_metadata({_TABLE_DIGEST: self._table_digest(path, table)})
        write_atomically(path, lambda temporary: pq.write_table(marked, temporary, compression="zstd"))

    def read_table(self, path: Location) -> pa.Table:
        """Raises FileNotFoundError, or StoreError if it is damaged."""
        with explained(path):
            # This thread reads alone: a thread of Arrow may still hold the file when the interpreter ends, and aborts.
            file = pq.ParquetFile(pa.BufferReader(file_content(path)), pre_buffer=False)
            table = file.read(use_threads=False)
            written = (table.schema.metadata or {}).get(_TABLE_DIGEST)
            if self._has_digest(path, written):
                self._check_digest(path, written, self._table_digest(path, table))
        return table.replace_schema_metadata(None)

    def _has_digest(self, path: Location, written: object) -> bool:
        """Whether a digest was written with the file; raises StoreError if there is none where one is required."""
        if written is None and self.required:
            raise damaged(path, "it has no digest")
        return written is not None

    def _check_digest(self, path: Location, written: object, computed: object) -> None:
        if written != computed:
            raise damaged(path, "it does not have the digest written with it, or is in another place")

    def _place(self, path: Location) -> str:
        """The name of the file within the workspace, which its digest covers."""
        return relative(path, self.root).as_posix()

    def _table_digest(self, path: Location, table: pa.Table) -> bytes:
        columns = []
        for name, column in zip(table.column_names, table.columns, strict=True):
            values = column.to_pylist()
            if pa.types.is_binary(column.type):
                values = [content.hex() for content in values]  # JSON, which is hashed, has no bytes.
            columns.append((name, values))
        return digest(self._place(path), columns).encode()


def read_catalogue(files: SealedFiles) -> Mapping[str, ResultSpec]:
    """Specs by key; empty where there is no catalogue, or a damaged one.

    A result's file is named by the hash of its spec, so an entry is right or, when its text does not have that hash,
    ignored: the catalogue can't go stale, and may be deleted at any time. Files that it lacks are opened.
    """
    try:
        state = (files.root / _CATALOGUE).stat()
    except OSError:
        return {}
    return _read_catalogue(files, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=4)
def _read_catalogue(files: SealedFiles, changed: int, size: int) -> Mapping[str, ResultSpec]:
    """Read the catalogue; the time of its change and its size make the cache read a changed file again.

    Results hold the same objects, so that the cache takes no memory of its own, as the texts would.
    """
    try:
        specs = _specs_in(files.read_table(files.root / _CATALOGUE))
    except (OSError, KeyError, StoreError):
        return {}
    # Arrow would keep the memory of the texts, 80 MB of 40,000 results, for the tables that it reads next.
    pa.default_memory_pool().release_unused()
    return specs


def _specs_in(table: pa.Table) -> dict[str, ResultSpec]:
    specs: dict[str, ResultSpec] = {}
    for batch in table.select(["key", "spec"]).to_batches(max_chunksize=_CATALOGUE_BATCH):
        for key, text in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if spec_key(text) == key:
                specs[key] = ResultSpec.from_text(text, key)
    return specs


def write_catalogue(files: SealedFiles, specs: Mapping[str, str]) -> None:
    """The specs of many results in one file, so that a large workspace is listed without opening each."""
    table = pa.table({"key": pa.array(specs.keys(), pa.string()), "spec": pa.array(specs.values(), pa.string())})
    files.write_table(files.root / _CATALOGUE, table)
