"""Locks between processes: released by the system when their owner dies, however it dies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from filelock import FileLock, Timeout

from shiftbench.io.paths import Location, is_object, local


@contextmanager
def file_lock(path: Location, *, wait: bool) -> Iterator[bool]:
    """Hold the lock ``path``; yields False at once if another process holds it and ``wait`` is False.

    Locks only keep two runs from doing the same work twice. Nothing depends on them for correctness: files are
    written atomically and the same work gives the same bytes. An object store has no locks: every one is granted.
    """
    if is_object(path):
        yield True
        return
    lock = FileLock(local(path))
    try:
        local(path).parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(blocking=wait)
    except Timeout:
        yield False
        return
    except (OSError, NotImplementedError):
        # A full or read-only disk (whoever writes there reports it more clearly), or a file system without locks:
        # the work may be done twice, and gives the same files.
        yield True
        return
    try:
        yield True
    finally:
        lock.release()
