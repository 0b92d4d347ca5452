"""Blocks of models that may have changed since their last comparison.

A run compares the scores of a model on fixed images from time to time, and removes the blocks since the last comparison
if the model has changed (``runs.behaviour``). A run that is killed can't, so each process keeps a list of these blocks
in the workspace. Its owner holds a lock as long as it lives; the next run removes the blocks on lists without an owner.

The workers of a killed run live for a moment longer than the run. The next run waits for those that hold a list. A
worker looks whether its run still lives after it has taken a list, and writes no block if not: either it sees that its
run has ended, or the next run sees its list.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack

from shiftbench.errors import StoreError
from shiftbench.io.atomic import write_bytes
from shiftbench.io.locks import file_lock
from shiftbench.io.paths import Location, inside, is_object, relative
from shiftbench.store.run_records import is_alive
from shiftbench.store.sealed import file_content
from shiftbench.store.workspace import Workspace

#: Seconds in which the workers of a run that has ended must end; they look for it twice a second.
_WORKER_TIMEOUT = 60.0
_PREFIX = "unchecked-"


class UncheckedBlocks:
    """The list of one process: blocks that were written since the last comparison of their model.

    An object store has no locks, so nobody could tell whether the owner of a list is alive: no list is kept there.

    Args:
        workspace: Where the blocks and the list are.
        run: The id of the run; its lists are removed when the run has compared its models for the last time.
        host: For a worker of the run: the machine whose workers can see whether the run lives; empty if none can.
    """

    def __init__(self, workspace: Workspace, run: str, host: str = "") -> None:
        self.workspace = workspace
        self.run = run
        #: Some network file systems keep the locks of each machine apart.
        self._sees_run = host == socket.gethostname()
        self._names: set[str] = set()
        self._path: Location | None = None
        self._lock = ExitStack()

    def __reduce__(self) -> tuple[object, ...]:
        # Where locks do not work, even the run that sends this looks as if it had ended.
        host = socket.gethostname() if is_alive(self.workspace, self.run) else ""
        return UncheckedBlocks, (self.workspace, self.run, host)

    def add(self, blocks: Iterable[Location]) -> None:
        """Put blocks on the list, before they are written.

        Raises:
            StoreError: This is a worker of a run that has ended.
        """
        self._change(self._names | self._relative(blocks))

    def remove(self, blocks: Iterable[Location]) -> None:
        """Take blocks off the list, after a comparison or when they are withdrawn."""
        self._change(self._names - self._relative(blocks))

    def release(self) -> None:
        """Leave the list to the next run, which removes its blocks: this run ends before it has compared them."""
        self._lock.close()
        self._path = None
        self._names = set()

    def close_run(self) -> None:
        """Remove all lists of the run: its models were compared for the last time."""
        self._change(set())
        for path in _lists(self.workspace, self.run):
            path.unlink(missing_ok=True)

    def _relative(self, blocks: Iterable[Location]) -> set[str]:
        return {relative(block, self.workspace.root).as_posix() for block in blocks}

    def _change(self, names: set[str]) -> None:
        if names == self._names or is_object(self.workspace.root):
            return
        if self._path is None:
            owner = f"{_PREFIX}{self.run}-{os.getpid()}-{secrets.token_hex(4)}"
            lock = self.workspace.lock_path(owner)
            self._lock.enter_context(file_lock(lock, wait=False))
            if self._sees_run and not is_alive(self.workspace, self.run):
                self._lock.close()
                raise StoreError(f"the run {self.run} of this worker has ended, so that nobody would check its blocks")
            self._path = lock.with_suffix(".json")
        self._names = names
        if names:
            write_bytes(self._path, json.dumps(sorted(names)).encode())
        else:
            self._path.unlink(missing_ok=True)
            self._lock.close()
            self._path = None


def _lists(workspace: Workspace, run: str = "") -> list[Location]:
    return sorted(workspace.glob(f"locks/{_PREFIX}{run}*.json"))


def remove_unchecked_blocks(workspace: Workspace, while_waiting: Callable[[], object] = lambda: None) -> int:
    """Remove the blocks on lists whose owners were killed; returns their number.

    Workers of a run that has ended are waited for; ``while_waiting`` is called repeatedly and may raise to stop.

    Raises:
        StoreError: A worker does not end.
    """
    removed = 0
    if is_object(workspace.root):
        return removed
    deadline = time.monotonic() + _WORKER_TIMEOUT
    # A process that was killed between taking its lock and writing its list leaves a lock alone.
    lists = {lock.with_suffix(".json") for lock in workspace.glob(f"locks/{_PREFIX}*.lock")}
    for path in sorted(lists.union(_lists(workspace))):
        has_ended = not is_alive(workspace, _run_of(path))

        def wait_on(path: Location = path) -> None:
            while_waiting()
            if time.monotonic() > deadline:
                raise _unending_worker(path)

        with file_lock(path.with_suffix(".lock"), wait=has_ended, while_waiting=wait_on) as is_free:
            if not is_free:
                continue
            for name in _names_in(path):
                inside(workspace.root / name, workspace.root).unlink(missing_ok=True)
                removed += 1
            path.unlink(missing_ok=True)
    return removed


def _unending_worker(path: Location) -> StoreError:
    """The error about a process that holds a list although its run has ended."""
    process = path.stem.rsplit("-", 2)[1]
    return StoreError(
        "a worker of a run that has ended does not end, and may still write",
        found=f"process {process}, which holds {path.with_suffix('.lock')}",
        expected=f"its end within {_WORKER_TIMEOUT:g} seconds",
        hint="end this process, and run the command again",
    )


def _run_of(path: Location) -> str:
    """The id of the run to which a list belongs."""
    return path.stem.removeprefix(_PREFIX).rsplit("-", 2)[0]


def _names_in(path: Location) -> list[str]:
    """The blocks on a list."""
    try:
        names = json.loads(file_content(path))
    except (OSError, ValueError, StoreError):
        return []
    return [name for name in names if _is_of_block(str(name))]


def _is_of_block(name: str) -> bool:
    """Whether a name lies below the folder of blocks: what is on the list may be removed, and anybody may edit it."""
    return name.startswith("shards/") and ".." not in name.split("/")
