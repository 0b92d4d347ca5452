"""Blocks that were never compared with their model do not outlive a run, although its workers do for a moment."""

from __future__ import annotations

import multiprocessing
import pickle
from pathlib import Path

import pytest

from shiftbench.errors import StoreError
from shiftbench.store.run_records import Call, recorded_run
from shiftbench.store.unchecked import UncheckedBlocks, remove_unchecked_blocks
from shiftbench.store.workspace import Workspace
from tests import processes
from tests.store.unchecked_target import BLOCK, LIMIT, run_until_killed, work_until_told

CALL = Call("evaluate", remove_unchecked_blocks, {})


def as_sent(unchecked: UncheckedBlocks) -> UncheckedBlocks:
    """What a worker gets."""
    copy: UncheckedBlocks = pickle.loads(pickle.dumps(unchecked))
    return copy


def fail() -> None:
    pytest.fail("waited")


@pytest.mark.reliability("kills")
def test_a_rerun_waits_for_a_worker_that_outlives_its_run(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    has_begun = context.Event()
    has_written = context.Event()
    may_end = context.Event()
    never = context.Event()
    run = processes.start(run_until_killed, tmp_path, has_begun, never)
    assert has_begun.wait(LIMIT)
    worker = processes.start(work_until_told, tmp_path, has_written, may_end)
    assert has_written.wait(LIMIT)
    run.kill()
    run.join()
    # The worker lives until the rerun waits for it.
    assert remove_unchecked_blocks(Workspace(tmp_path), while_waiting=may_end.set) == 1
    worker.join()
    assert worker.exitcode == 9
    assert not (tmp_path / BLOCK).exists()
    assert not list((tmp_path / "locks").glob("unchecked-*"))


def test_a_worker_begins_no_block_after_its_run(tmp_path: Path) -> None:
    """Otherwise it could write one after a rerun has looked for lists."""
    workspace = Workspace(tmp_path)
    with recorded_run(workspace, CALL, []) as record:
        worker = as_sent(UncheckedBlocks(workspace, record.id))
        worker.add([tmp_path / BLOCK])
        worker.remove([tmp_path / BLOCK])
    for _ in range(2):
        with pytest.raises(StoreError):
            worker.add([tmp_path / BLOCK])
    assert not list((tmp_path / "locks").iterdir())


def test_nobody_waits_for_the_workers_of_a_living_run(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    with recorded_run(workspace, CALL, []) as record:
        worker = as_sent(UncheckedBlocks(workspace, record.id))
        worker.add([tmp_path / BLOCK])
        assert remove_unchecked_blocks(workspace, while_waiting=fail) == 0
        assert len(list((tmp_path / "locks").glob("unchecked-*.json"))) == 1
        worker.remove([tmp_path / BLOCK])


def test_a_worker_goes_on_where_locks_do_not_show_whether_its_run_lives(tmp_path: Path) -> None:
    """A run without a visible lock, as on some network file systems, and a worker on another machine."""
    workspace = Workspace(tmp_path)
    worker = as_sent(UncheckedBlocks(workspace, "20261119T000000.000Z-00000000"))
    worker.add([tmp_path / BLOCK])
    elsewhere = UncheckedBlocks(workspace, "20261119T000000.000Z-00000000", host="another-machine.example")
    elsewhere.add([tmp_path / BLOCK])
    worker.remove([tmp_path / BLOCK])
    elsewhere.remove([tmp_path / BLOCK])
