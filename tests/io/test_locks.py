"""Locks: who holds one is known, waiting can be given up, and nothing is left of them."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shiftbench.io import locks
from shiftbench.io.locks import file_lock

_HOLD = """
import sys
from pathlib import Path
from shiftbench.io.locks import file_lock
with file_lock(Path(sys.argv[1]), wait=True):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def held(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A lock of another process, which gives it back when it reads a line."""
    path = tmp_path / "locks" / "a.lock"
    command = [sys.executable, "-c", _HOLD, str(path)]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None and other.stdout.readline() == "held\n"
    yield path, other
    other.kill()
    other.communicate()


def test_nothing_is_left_of_a_lock(tmp_path: Path) -> None:
    for _ in range(2):
        with file_lock(tmp_path / "a.lock", wait=True) as mine:
            assert mine and f"process {os.getpid()}" in (tmp_path / "a.lock").read_text()
        assert list(tmp_path.iterdir()) == []


def test_a_lock_that_is_held_is_not_taken_or_removed(held: tuple[Path, subprocess.Popen[str]]) -> None:
    with file_lock(held[0], wait=False) as mine:
        assert not mine
    assert held[0].exists()


def test_a_stopped_owner_is_named_and_given_up(
    held: tuple[Path, subprocess.Popen[str]], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = held
    monkeypatch.setattr(locks, "_SILENT", 0.0)
    os.kill(other.pid, signal.SIGSTOP)
    with caplog.at_level(logging.WARNING), file_lock(path, wait=1.0) as mine:
        assert mine, "the work is done here"
    first, last = (record.getMessage() for record in caplog.records)
    assert f"waiting for process {other.pid} (" in first and ", since 20" in first and "Ctrl-C" in first
    assert "no longer waiting" in last and path.exists(), "it is not ours to remove"
    os.kill(other.pid, signal.SIGCONT)


def test_whoever_waits_gets_it_from_a_killed_owner(held: tuple[Path, subprocess.Popen[str]]) -> None:
    threading.Timer(0.2, held[1].kill).start()
    with file_lock(held[0], wait=True) as mine:
        assert mine and f"process {os.getpid()}" in held[0].read_text()
    assert not held[0].exists()


def test_waiting_can_be_given_up(held: tuple[Path, subprocess.Popen[str]]) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), file_lock(held[0], wait=True, while_waiting=stop):
        raise AssertionError("it is not ours")
    assert held[0].exists()


def test_only_one_at_a_time_although_files_come_and_go(tmp_path: Path) -> None:
    inside = 0
    most = 0
    together = threading.Lock()

    def use() -> None:
        nonlocal inside, most
        for _ in range(20):
            with file_lock(tmp_path / "a.lock", wait=True):
                with together:
                    inside += 1
                    most = max(most, inside)
                time.sleep(0.001)
                with together:
                    inside -= 1

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1 and list(tmp_path.iterdir()) == []
