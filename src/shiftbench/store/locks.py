"""Claims between processes: released by the system when their owner dies, however it dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def claim(path: Path, *, wait: bool) -> Iterator[bool]:
    """Hold the lock ``path``; yields False at once when another holds it and ``wait`` is False.

    Claims only keep two runs from doing the same work twice. Nothing depends on them for correctness: files
    are written atomically and the same work gives the same bytes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(descriptor)
