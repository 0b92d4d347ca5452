"""Where fetched packages, unpacked arrays and file hashes are kept between runs."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


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
