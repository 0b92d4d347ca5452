"""Claims between processes: released by the system when their owner dies, however it dies."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shiftbench.io.paths import is_object


@contextmanager
def claim(path: Path, *, wait: bool) -> Iterator[bool]:
    """Hold the lock ``path``; yields False at once when another holds it and ``wait`` is False.

    Claims only keep two runs from doing the same work twice. Nothing depends on them for correctness: files
    are written atomically and the same work gives the same bytes. An object store has none: every claim succeeds.
    """
    if is_object(path):
        yield True
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError:  # full or read-only: whoever writes there says so more clearly
        yield True
        return
    try:
        yield _locked(descriptor, wait)
    finally:
        os.close(descriptor)


def _locked(descriptor: int, wait: bool) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        # A file system without locks: the work may be done twice, and gives the same files.
        if error.errno not in _NO_LOCKS:
            raise
    return True


_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}
