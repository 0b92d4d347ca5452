"""The cache folder: fetched packages, unpacked arrays, copies of objects and file hashes."""

from __future__ import annotations

import hashlib
import os
import shutil
import zipfile
from functools import lru_cache
from pathlib import Path

import platformdirs

from shiftbench.errors import StoreError, raising
from shiftbench.io.hashing import file_digest
from shiftbench.io.locks import file_lock
from shiftbench.io.paths import Location, is_object

#: Archives with more bytes than this when unpacked are refused.
MOST_UNPACKED = 50_000_000_000


def cache_folder(*parts: str) -> Path:
    """``$SHIFTBENCH_CACHE``, else ``shiftbench`` in the user's cache folder; created if missing."""
    base = os.environ.get("SHIFTBENCH_CACHE") or platformdirs.user_cache_dir("shiftbench", appauthor=False)
    folder = Path(base).expanduser().joinpath(*parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def unpacked(archive: Path) -> Path:
    """The content of a zip archive in the cache, unpacked once: its only folder, or the folder of everything in it.

    Raises:
        StoreError: It is damaged, or too large when unpacked.
    """
    folder = cache_folder("archives", file_digest(archive))
    content = folder / "content"
    with file_lock(folder / ".lock", wait=True):
        if not content.is_dir():
            temporary = folder / ".part"
            shutil.rmtree(temporary, ignore_errors=True)
            with raising(StoreError, f"{archive} can't be unpacked", OSError, zipfile.BadZipFile, NotImplementedError):
                _unpack(archive, temporary)
            temporary.replace(content)
    entries = [entry for entry in content.iterdir() if not entry.name.startswith((".", "__MACOSX"))]
    if len(entries) == 1 and entries[0].is_dir():
        return entries[0]
    return content


def _unpack(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as opened:
        size = sum(member.file_size for member in opened.infolist())
        if size > MOST_UNPACKED:
            raise OSError(f"{size:,} bytes, more than {MOST_UNPACKED:,}")
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
            temporary = target.with_name(".part")
            with path.open("rb") as source, temporary.open("wb") as file:
                shutil.copyfileobj(source, file, 1 << 22)
            temporary.replace(target)
    return target
