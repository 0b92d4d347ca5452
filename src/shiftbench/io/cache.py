"""The cache folder: fetched packages, unpacked arrays, copies of objects and file hashes."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs

from shiftbench.errors import StoreError, raising
from shiftbench.io.atomic import write_atomically
from shiftbench.io.hashing import file_digest
from shiftbench.io.locks import file_lock
from shiftbench.io.parquet import ExpansionError
from shiftbench.io.paths import Location, inside, is_object, remove_tree

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Archives with more bytes than this when unpacked are refused.
MOST_UNPACKED = 50_000_000_000
#: Files with at most this many bytes when unpacked are accepted, however small they are when packed.
ALWAYS_UNPACKED = 256 << 20
#: Larger ones are refused if they are more than this many times as large as packed: photographs expand far less.
MOST_TIMES_LARGER = 100
#: The folders of the cache whose content can be made or fetched again; records of jobs are not among them.
_KINDS = (
    "archives",
    "arrays",
    "baselines",
    "downloads",
    "hardening/copies",
    "hashes",
    "networks",
    "objects",
    "onnx",
    "packages",
    "shards",
    "texts",
)
#: Bytes that the cache may hold unless the user states otherwise.
_DEFAULT_LIMIT = 100_000_000_000
#: Seconds that an entry stays after its last use, whatever the limit is.
_KEPT_SECONDS = 86_400
#: What the reader of zip archives raises for damaged or unusual ones.
_UNPACKING_ERRORS = (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError, zlib.error)


def cache_folder(*parts: str) -> Path:
    """``$SHIFTBENCH_CACHE``, else ``shiftbench`` in the user's cache folder; created if missing."""
    base = os.environ.get("SHIFTBENCH_CACHE") or platformdirs.user_cache_dir("shiftbench", appauthor=False)
    folder = Path(base).expanduser().joinpath(*parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@dataclass(frozen=True)
class CacheEntry:
    """A file or folder of the cache that is made, used and removed as a whole."""

    kind: str  #: The name of its folder: "arrays", "archives", ...
    path: Path
    bytes: int
    last_used: float  #: Seconds since the epoch.

    @property
    def name(self) -> str:
        return self.path.name


def cache_limit() -> int:
    """The most bytes that the cache may hold: ``$SHIFTBENCH_CACHE_LIMIT`` in GB, else 100 GB."""
    text = os.environ.get("SHIFTBENCH_CACHE_LIMIT")
    if not text:
        return _DEFAULT_LIMIT
    try:
        gigabytes = float(text)
    except ValueError:
        gigabytes = -1.0
    if not gigabytes >= 0:
        raise StoreError("SHIFTBENCH_CACHE_LIMIT is not a size", found=text, expected="a number of GB, such as 20")
    return int(gigabytes * 1e9)


def cache_entries() -> list[CacheEntry]:
    """What the cache holds and can be made or fetched again; links are counted as links."""
    entries = []
    for kind in _KINDS:
        folder = cache_folder() / kind
        if not folder.is_dir():
            continue
        for path in sorted(folder.iterdir()):
            if path.suffix != ".lock":
                entries.append(_entry(kind, path))
    return entries


def _entry(kind: str, path: Path) -> CacheEntry:
    """An entry with its size and the time of the last use of any of its files."""
    files = [path]
    if path.is_dir() and not path.is_symlink():
        for parent, _, names in os.walk(path):
            files += [Path(parent, name) for name in names]
    size = 0
    last_used = 0.0
    for file in files:
        with suppress(FileNotFoundError):
            state = file.lstat()
            size += state.st_size
            last_used = max(last_used, state.st_mtime)
    return CacheEntry(kind, path, size, last_used)


def remove_entry(entry: CacheEntry) -> None:
    """Remove an entry; of a link, only the link."""
    inside(entry.path, cache_folder())
    if entry.path.is_dir():
        remove_tree(entry.path)
    else:
        entry.path.unlink(missing_ok=True)


def mark_used(path: Path) -> None:
    """Note that a file or folder of the cache is used now, so that it stays there longer than others."""
    with suppress(OSError):  # The cache may be read-only.
        os.utime(path)


def trim_cache() -> None:
    """Remove what was not used for the longest time, until the cache is within its limit.

    What was used on the last day stays, even beyond the limit: a run may be using it.
    """
    entries = sorted(cache_entries(), key=lambda entry: entry.last_used)
    excess = sum(entry.bytes for entry in entries) - cache_limit()
    in_use = time.time() - _KEPT_SECONDS
    for entry in entries:
        if excess <= 0 or entry.last_used > in_use:
            return
        remove_entry(entry)
        excess -= entry.bytes


def unpacked(archive: Path) -> Path:
    """The content of a zip archive in the cache, unpacked once: its only folder, or the folder of everything in it.

    Raises:
        StoreError: It is damaged, or too large when unpacked.
    """
    folder = cache_folder("archives", file_digest(archive))
    content = folder / "content"
    with file_lock(folder / ".lock", wait=True):
        if not content.is_dir():
            trim_cache()
            temporary = folder / ".part"
            shutil.rmtree(temporary, ignore_errors=True)
            try:
                with raising(StoreError, f"{archive} can't be unpacked", *_UNPACKING_ERRORS):
                    _unpack(archive, temporary)
                temporary.replace(content)
            except BaseException:
                # Nothing of a bad archive stays in the cache.
                shutil.rmtree(temporary, ignore_errors=True)
                raise
    mark_used(content)
    entries = [entry for entry in content.iterdir() if not entry.name.startswith((".", "__MACOSX"))]
    if len(entries) == 1 and entries[0].is_dir():
        return entries[0]
    return content


def cached_array(path: Path, make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    """The array in a file of the cache; made anew, and stored, if there is none or its checksum is wrong.

    Args:
        path: The file, whose name ends in ``.npz``.
        make: Makes the array.
    """
    import numpy as np

    with suppress(*_UNPACKING_ERRORS, KeyError, ValueError, EOFError), np.load(path, allow_pickle=False) as arrays:
        # The reader of zip archives compares the checksum of each member that is read to its end.
        values: NDArray[Any] = arrays["values"]
        mark_used(path)
        return values
    values = make()

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez(file, values=values)

    write_atomically(path, write, durable=False)
    return values


def check_expansion(name: str, packed: int, unpacked: int) -> None:
    """Raise ExpansionError if a compressed file is too large, or expands as no images do, before it is unpacked.

    The sizes that an archive states can be used: its reader never returns more bytes than stated.
    """
    if unpacked > MOST_UNPACKED:
        raise ExpansionError(name, f"{unpacked:,} bytes", f"{MOST_UNPACKED:,} bytes")
    if unpacked > ALWAYS_UNPACKED and unpacked > MOST_TIMES_LARGER * packed:
        raise ExpansionError(
            name, f"{unpacked:,} bytes in {packed:,}", f"{MOST_TIMES_LARGER} times the packed size beyond 256 MiB"
        )


def _unpack(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as opened:
        size = sum(member.file_size for member in opened.infolist())
        check_expansion(archive.name, archive.stat().st_size, size)
        opened.extractall(folder)  # This keeps every member below the folder, whatever its name.


@lru_cache(maxsize=4096)
def local_copy(path: Location) -> Path:
    """The file itself or, for one in an object store, a copy on this machine, fetched once.

    For files with random access, such as shards and arrays. Opening a dataset checks whether its objects have changed.
    """
    if not is_object(path):
        return path
    state = path.stat()
    key = hashlib.blake2b(f"{path}|{state.st_size}|{state.st_mtime_ns}".encode(), digest_size=12).hexdigest()
    target = cache_folder("objects", key) / path.name
    with file_lock(target.parent / ".lock", wait=True):
        if not target.exists():
            trim_cache()
            temporary = target.with_name(".part")
            try:
                with path.open("rb") as source, temporary.open("wb") as file:
                    shutil.copyfileobj(source, file, 1 << 22)
                temporary.replace(target)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
    mark_used(target)
    return target
