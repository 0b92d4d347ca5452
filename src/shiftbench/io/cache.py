"""Where fetched packages, unpacked arrays, copies of objects and file hashes are kept between runs."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from shiftbench.io.paths import is_object


def cache_folder(*parts: str) -> Path:
    """``$SHIFTBENCH_CACHE``, else ``shiftbench`` in the user's cache folder; made if missing."""
    base = os.environ.get("SHIFTBENCH_CACHE")
    if not base:
        base = str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shiftbench")
    folder = Path(base).expanduser().joinpath(*parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_atomically(path: Path, data: bytes) -> None:
    """All of it or nothing, also when two processes write at once."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@lru_cache(maxsize=4096)
def local_copy(path: Path) -> Path:
    """The file itself, or of one in an object store a copy on this machine, fetched once.

    For what is read here and there many times: shards and arrays. A changed object is fetched anew by the next run.
    """
    if not is_object(path):
        return path
    state = path.stat()
    key = hashlib.blake2b(f"{path}|{state.st_size}|{state.st_mtime_ns}".encode(), digest_size=12).hexdigest()
    target = cache_folder("objects", key) / path.name
    with locked(target.parent / ".lock"):
        if not target.exists():
            temporary = target.with_name(".part")
            with path.open("rb") as source, temporary.open("wb") as file:
                shutil.copyfileobj(source, file, 1 << 22)
            temporary.replace(target)
    return target


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time; where the system has no file locks the work may be done twice, harmlessly."""
    try:
        import fcntl
    except ImportError:  # pragma: no cover
        yield
        return
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
