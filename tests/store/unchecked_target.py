"""A run and one of its workers, each a process that a test ends at a chosen moment."""

from __future__ import annotations

import os
import pickle
from multiprocessing.synchronize import Event
from pathlib import Path

from shiftbench.store.run_records import Call, recorded_run
from shiftbench.store.unchecked import UncheckedBlocks
from shiftbench.store.workspace import Workspace

BLOCK = "shards/d/m/clean-0/000000000.parquet"
#: Seconds after which a process ends by itself, if the test that started it was ended.
LIMIT = 120


def run_until_killed(root: Path, has_begun: Event, never: Event) -> None:
    """Begin a run, keep what its workers get in a file, and wait to be killed."""
    workspace = Workspace(root)
    with recorded_run(workspace, Call("evaluate", run_until_killed, {}), []) as record:
        (root / "sent").write_bytes(pickle.dumps(UncheckedBlocks(workspace, record.id)))
        has_begun.set()
        never.wait(LIMIT)


def work_until_told(root: Path, has_written: Event, may_end: Event) -> None:
    """Write a block that is never compared with its model, and end as a killed process does."""
    unchecked = pickle.loads((root / "sent").read_bytes())
    unchecked.add([root / BLOCK])
    (root / BLOCK).parent.mkdir(parents=True)
    (root / BLOCK).write_bytes(b"predictions")
    has_written.set()
    may_end.wait(LIMIT)
    os._exit(9)
