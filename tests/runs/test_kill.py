"""A run is never lost: killed at random moments, it continues, and ends with the same bytes."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from shiftbench.store.unchecked import remove_unchecked_blocks
from shiftbench.store.workspace import Workspace
from tests import processes
from tests.runs.helpers import colour_folder
from tests.runs.kill_target import evaluate_slowly

pytestmark = pytest.mark.reliability("kills")


def files(workspace: Path) -> dict[str, bytes]:
    """All predictions; the digest of each is in it too."""
    folder = workspace / "predictions"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.parquet")}


def shards(workspace: Path) -> int:
    return sum(1 for _ in workspace.glob("shards/*/*/*/*.parquet"))


def locks_without_owner(workspace: Path) -> list[Path]:
    """The lock files that stay once the workers of killed runs have ended, which takes them up to half a second.

    The lock of a worker that was about to begin a list after the last run had looked is removed by the run after it.
    """
    limit = time.monotonic() + 60
    while any((workspace / "locks").glob("*")) and time.monotonic() < limit:
        remove_unchecked_blocks(Workspace(workspace))
        time.sleep(0.1)
    return sorted((workspace / "locks").glob("*"))


@pytest.mark.slow
@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.soak)])
def test_killed_at_many_moments_and_continued_gives_the_same_bytes(
    tmp_path: Path, kills: int, record_property: Callable[[str, object], None]
) -> None:
    record_property("tries", kills)
    data = colour_folder(tmp_path / "pictures", per_class=20 if kills == 3 else 60)  # eight blocks in either case
    whole = tmp_path / "whole"
    evaluate_slowly(whole, data, 1)
    expected = files(whole)
    assert len(expected) == 7

    chance = random.Random(0)
    broken = tmp_path / "broken"
    killed = 0
    while killed < kills:
        # Worker processes take longest to start: one time in the short test.
        short = "processes" if killed == 2 else "threads"
        workers = chance.choice([1, 2, 3])
        engine = short if kills == 3 else chance.choice(["threads", "processes"])
        process = processes.start(evaluate_slowly, broken, data, workers, engine)
        at_start = shards(broken)
        wanted = chance.randint(0, 3)
        limit = time.monotonic() + 60
        while process.is_alive() and shards(broken) < at_start + wanted and time.monotonic() < limit:
            time.sleep(0.005)
        time.sleep(chance.random() * (0.5 if wanted == 0 else 0.05))
        if not process.is_alive():  # finished before it was killed: start over
            shutil.rmtree(broken)
            continue
        process.kill()
        process.join()
        killed += 1
    evaluate_slowly(broken, data, 2)
    assert files(broken) == expected
    assert shards(broken) == 0
    assert locks_without_owner(broken) == [], "killed runs leave no lock files"
