"""Locks between processes: released by the system when their owner dies, however it dies."""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from shiftbench.io.paths import Location, is_object

#: Messages about waiting are logged: warnings would be shown by the command line only after the run.
_log = logging.getLogger(__name__)
#: Seconds between two checks whether to continue waiting.
_CHECK_INTERVAL = 0.5
#: Seconds until the user is informed what a run waits for.
_SILENT = 5.0


@contextmanager
def file_lock(
    path: Location, *, wait: bool | float, while_waiting: Callable[[], object] = lambda: None
) -> Iterator[bool]:
    """Hold the lock ``path``; yields False at once if another process holds it and ``wait`` is False.

    Locks only keep two runs from doing the same work twice. Correctness does not depend on them: files are written
    atomically and the same work gives the same bytes. Object stores have no locks, so every lock is granted there. A
    ``wait`` in seconds ends without the lock, as its owner may be suspended. ``while_waiting`` is called repeatedly and
    may raise to stop waiting.

    The file names the owner and the time, and is removed with the lock.
    """
    if is_object(path):
        yield True
        return
    lock = FileLock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            path.unlink()  # Opening it would empty the file that the link points to.
        is_acquired = _acquired(lock, path, wait, while_waiting)
    except (OSError, NotImplementedError):
        # The disk is full or read-only, which the following write reports more clearly, or the file system has no
        # locks. The work may be done twice, with the same result.
        yield True
        return
    if not is_acquired:
        yield wait is not False
        return
    try:
        with suppress(OSError):
            path.write_text(_describe_owner(), encoding="utf-8", newline="\n")
        yield True
    finally:
        # The file is removed while the lock is held: processes that wait for it notice and create a new one.
        with suppress(OSError):
            path.unlink()
        lock.release()


def _describe_owner() -> str:
    """This process, its machine and the present time, for processes that wait for its lock."""
    program = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"
    since = datetime.now(UTC).isoformat(sep=" ", timespec="seconds")
    return f"process {os.getpid()} ({program}) on {socket.gethostname()}, since {since}"


def _acquired(lock: FileLock, path: Path, wait: bool | float, while_waiting: Callable[[], object]) -> bool:
    """Acquire the lock; returns False if another process holds it and the wait is over."""
    began = time.monotonic()
    reported = False
    while True:
        with suppress(Timeout):
            lock.acquire(timeout=0 if wait is False else _CHECK_INTERVAL)
            return True
        if wait is False:
            return False
        while_waiting()
        waited = time.monotonic() - began
        if wait is not True and waited >= wait:
            _log.warning("no longer waiting for %s: its part is computed here as well", _owner(path))
            return False
        if waited >= _SILENT and not reported:
            reported = True
            _log.warning("waiting for %s (%s); press Ctrl-C to stop, finished work is kept", _owner(path), path)


def _owner(path: Path) -> str:
    """What the file of a lock says about its owner."""
    with suppress(OSError, ValueError):
        return path.read_text(encoding="utf-8")[:200] or "another process"
    return "another process"
