"""Executors of one machine: what is left when a run has to stop."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import queues, util
from pathlib import Path
from typing import Any

import pytest

from shiftbench.errors import SettingError, UnknownNameError
from shiftbench.io.atomic import write_atomically
from shiftbench.io.paths import UnwritableError
from shiftbench.jobs.base import Job, Problem
from shiftbench.jobs.executors import ProcessExecutor, find_executor
from tests.raised import raises


def wait_for(condition: Callable[[], object], seconds: float = 300) -> None:
    limit = time.monotonic() + seconds
    while not condition() and time.monotonic() < limit:
        time.sleep(0.02)


@dataclass(frozen=True)
class WritingJob(Job[str]):
    """One item finds the disk full while the other is in the middle of a file."""

    folder: Path

    def compute(self, item: str, advance: Callable[[int], None], *, wait: bool) -> list[Problem]:
        def write(temporary: Path) -> None:
            temporary.write_bytes(b"half")
            wait_for(lambda: False)

        if item == "slow":
            write_atomically(self.folder / "file", write)
        wait_for(lambda: list(self.folder.glob(".file.*.tmp")))
        raise UnwritableError(self.folder / "other", "No space left on device")


def test_unknown_executors_and_no_workers_are_errors() -> None:
    with raises(UnknownNameError, name="thread"):
        find_executor("thread", None)
    with raises(SettingError, found="0"):
        find_executor("threads", 0)


def test_a_process_that_is_stopped_leaves_no_half_file(tmp_path: Path) -> None:
    with pytest.raises(UnwritableError, match="No space left"):
        ProcessExecutor(2).run(WritingJob(tmp_path), ["slow", "full"], lambda count: None)
    assert list(tmp_path.iterdir()) == []


@dataclass(frozen=True)
class EndedAtItsFirstCount(Job[str]):
    """Ended while the thread of the queue of counts is started, as where another worker of the pool dies."""

    def compute(self, item: str, advance: Callable[[int], None], *, wait: bool) -> list[Problem] | None:
        register = util.Finalize

        def registered(*arguments: Any, **options: Any) -> object:
            made = register(*arguments, **options)
            os.kill(os.getpid(), signal.SIGTERM)
            return made

        vars(queues)["Finalize"] = registered
        advance(1)
        return []


def test_a_worker_that_is_ended_at_its_first_count_ends() -> None:
    """It waited for ever: its exit joined a thread that waited for counts."""
    with pytest.raises(SystemExit):
        ProcessExecutor(1).run(EndedAtItsFirstCount(), ["a"], lambda count: None)
