"""Atomic writes: a file exists completely or not at all."""

from __future__ import annotations

import errno
import json
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from shiftbench.io.paths import Location, UnwritableError, is_object

#: Windows refuses to replace a file while anybody reads it, which takes a moment: attempts, and seconds between them.
_REPLACE_ATTEMPTS = 100 if sys.platform == "win32" else 1
_REPLACE_PAUSE = 0.05
#: The disk is full or read-only: no other file could be written there either.
_REFUSALS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG}


def write_atomically(
    path: Location, write: Callable[[Path], object], *, durable: bool = True, exclusive: bool = False
) -> None:
    """Call ``write`` with a temporary neighbour of ``path``, then rename it into place.

    A reader, or a run that restarts after ``kill -9``, sees the old file, the new one or none. Writers do not disturb
    each other, because each has its own temporary file. ``durable`` waits for the disk, so that the file survives a
    power failure; files with a digest that can be recomputed do not need it. ``exclusive`` keeps a file that another
    writer has created in the meantime, where the file system has hard links.

    In an object store, where an object is visible only when complete, the file is written locally and uploaded.
    """
    if is_object(path):
        with tempfile.TemporaryDirectory(prefix="shiftbench-") as folder:
            file = Path(folder) / path.name
            write(file)
            path.upload(file)
        return
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:  # A file is in the way, or no folder can be made there.
        raise UnwritableError(path.parent, os.strerror(error.errno or 0)) from error
    with named_refusals(path):
        try:
            # Arrow takes a relative path such as run:1/table.parquet for a URL.
            write(temporary.absolute())
            if durable:
                to_disk(temporary)
            is_in_place = exclusive and _linked(temporary, path)
            if not is_in_place:
                _replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


@contextmanager
def named_refusals(path: Path) -> Iterator[None]:
    """Turn the errors of a full or read-only disk into an UnwritableError for ``path``."""
    try:
        yield
    except OSError as error:
        if error.errno in _REFUSALS:
            raise UnwritableError(path, os.strerror(error.errno)) from error
        raise


def check_writable(path: Path) -> None:
    """Raise now if no file can be written there, rather than after hours of work."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise UnwritableError(path, os.strerror(error.errno or 0)) from error


def to_disk(path: Path) -> None:
    """Flush a file to disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _replace(temporary: Path, path: Path) -> None:
    for _ in range(_REPLACE_ATTEMPTS - 1):
        try:
            temporary.replace(path)
            return
        except PermissionError:
            time.sleep(_REPLACE_PAUSE)
    temporary.replace(path)


def _linked(temporary: Path, path: Path) -> bool:
    """Whether a file exists at ``path`` now, this one or another; False if hard links are not supported."""
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        pass
    except OSError:
        return False
    temporary.unlink()
    return True


def write_bytes(path: Location, data: bytes | memoryview, *, durable: bool = False) -> None:
    """Write a file of these bytes atomically."""
    write_atomically(path, lambda temporary: temporary.write_bytes(data), durable=durable)


def write_private(path: Path, data: bytes) -> None:
    """Write a file atomically that only its owner may read: it may hold a command with credentials."""

    def write(temporary: Path) -> None:
        temporary.touch(mode=0o600)
        temporary.write_bytes(data)

    write_atomically(path, write, durable=False)


def write_json(path: Location, value: Any, *, exclusive: bool = False) -> None:
    """Write a JSON file atomically; equal values give equal bytes."""
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    write_atomically(path, lambda temporary: temporary.write_bytes(text.encode()), exclusive=exclusive)


def read_json(path: Location) -> Any:
    """The value in a JSON file; raises ValueError if it is not JSON."""
    return _loads(path.read_text(encoding="utf-8"))


def parse_json(text: str | bytes) -> Any:
    """The value of JSON that people write; raises ValueError if it is not JSON, or a key occurs twice in an object.

    The parser of Python would silently take the last one.
    """

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        entries = dict(pairs)
        if len(entries) < len(pairs):
            raise ValueError(f"a key occurs twice among {', '.join(entries)}")
        return entries

    return _loads(text, object_pairs_hook=unique)


def _loads(text: str | bytes, **options: Any) -> Any:
    """The value of JSON; raises ValueError for all that the parser cannot read."""
    try:
        return json.loads(text, **options)
    except RecursionError as error:
        raise ValueError("its brackets are nested too deeply") from error
