"""Clocks that jump by a day, backwards and forwards, between runs and during them: the same bytes, nothing lost."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from shiftbench.datasets.folder import open_folder
from shiftbench.store.maintenance import compact
from shiftbench.store.workspace import Workspace
from tests.runs.helpers import COLOURS, colour_folder
from tests.runs.test_evaluate import run_small, stored

DAY = 86_400
real_time = time.time
real_time_ns = time.time_ns
CLOCKS = {
    "a day ahead": itertools.repeat(DAY),
    "a day behind": itertools.repeat(-DAY),
    "jumping at every look": itertools.cycle([0, DAY, -DAY, DAY]),
}


@pytest.fixture(params=list(CLOCKS))
def wrong_clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    offsets = CLOCKS[request.param]

    def set_clock() -> None:
        monkeypatch.setattr(time, "time", lambda: real_time() + next(offsets))
        monkeypatch.setattr(time, "time_ns", lambda: real_time_ns() + next(offsets) * 10**9)

    return set_clock


def move(root: Path, seconds: int) -> None:
    """As if all files had been written by another clock."""
    for path in root.rglob("*"):
        state = path.stat()
        os.utime(path, (state.st_atime + seconds, state.st_mtime + seconds))


@pytest.mark.parametrize("moved", [-DAY, DAY])
def test_a_run_is_continued_and_compacted(tmp_path: Path, wrong_clock: Callable[[], None], moved: int) -> None:
    pictures = colour_folder(tmp_path / "pictures")
    run_small(pictures, tmp_path / "whole")
    run_small(pictures, tmp_path / "w", shard="1/2")
    move(tmp_path / "w", moved)
    wrong_clock()
    first = {path.name: path.read_bytes() for path in (tmp_path / "w" / "shards").rglob("*.parquet")}
    assert compact(Workspace(tmp_path / "w")).joined == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "w" / "shards").rglob("*.parquet")} == first
    run_small(pictures, tmp_path / "w")
    done = compact(Workspace(tmp_path / "w"))
    assert (done.removed_blocks, done.catalogued) == (0, 5)
    move(tmp_path / "w", -2 * moved)
    assert len(list(Workspace(tmp_path / "w").results())) == 5
    assert stored(tmp_path / "w") == stored(tmp_path / "whole")


def test_only_what_nobody_writes_any_more_is_cleared(tmp_path: Path, wrong_clock: Callable[[], None]) -> None:
    """The file system's own time counts; a file from the future was left by a clock that was set back."""
    workspace = Workspace(tmp_path / "w")
    ages = {"now": 0, "of a minute ago": -60, "old": -2 * 3600, "of yesterday": -DAY, "of tomorrow": DAY}
    for name, seconds in ages.items():
        path = tmp_path / "w" / f".{name}.tmp"
        path.write_bytes(b"")
        os.utime(path, (real_time() + seconds,) * 2)
    wrong_clock()
    assert compact(workspace).removed_temporary == 3
    left = {path.name for path in (tmp_path / "w").glob(".*")}
    assert left == {".now.tmp", ".of a minute ago.tmp"}


def test_a_changed_picture_is_noticed_whatever_its_date(tmp_path: Path, wrong_clock: Callable[[], None]) -> None:
    pictures = colour_folder(tmp_path / "pictures", per_class=3)
    wrong_clock()
    first = open_folder(pictures, space=COLOURS).fingerprint
    changed = pictures / "red" / "001.png"
    state = changed.stat()
    data = changed.read_bytes()
    changed.write_bytes(data[:-20] + bytes(20))
    os.utime(changed, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert open_folder(pictures, space=COLOURS).fingerprint != first
    changed.write_bytes(data)
    move(pictures, DAY)
    assert open_folder(pictures, space=COLOURS).fingerprint == first
