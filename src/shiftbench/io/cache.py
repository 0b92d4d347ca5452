"""The cache folder: fetched packages, unpacked arrays, copies of objects and file hashes."""

from __future__ import annotations

import hashlib
import os
import shutil
from functools import lru_cache
from pathlib import Path

import platformdirs

from shiftbench.io.locks import file_lock
from shiftbench.io.paths import Location, is_object


def cache_folder(*parts: str) -> Path:
    """``$SHIFTBENCH_CACHE``, else ``shiftbench`` in the user's cache folder; created if missing."""
    base = os.environ.get("SHIFTBENCH_CACHE") or platformdirs.user_cache_dir("shiftbench", appauthor=False)
    folder = Path(base).expanduser().joinpath(*parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


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
