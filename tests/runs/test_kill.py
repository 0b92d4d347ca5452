"""A run is never lost: killed at random moments, it continues, and ends with the same bytes."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runs.helpers import colour_folder
from tests.runs.kill_target import evaluate_slowly

pytestmark = pytest.mark.reliability("kills")


def start(workspace: Path, data: Path, workers: int, engine: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.runs.kill_target", str(workspace), str(data), str(workers), engine]
    return subprocess.Popen(command, cwd=Path(__file__).parents[2])


def files(workspace: Path) -> dict[str, bytes]:
    """All predictions; the digest of each is in it too."""
    folder = workspace / "predictions"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.parquet")}


def shards(workspace: Path) -> int:
    return sum(1 for _ in workspace.glob("shards/*/*/*/*.parquet"))


@pytest.mark.slow
@pytest.mark.parametrize("kills", [5, pytest.param(20, marks=pytest.mark.soak)])
def test_killed_at_many_moments_and_continued_gives_the_same_bytes(
    tmp_path: Path, kills: int, record_property: Callable[[str, object], None]
) -> None:
    record_property("tries", kills)
    data = colour_folder(tmp_path / "pictures", per_class=60)
    whole = tmp_path / "whole"
    evaluate_slowly(whole, data, 1)
    expected = files(whole)
    assert len(expected) == 7

    chance, broken, killed = random.Random(0), tmp_path / "broken", 0
    while killed < kills:
        process = start(broken, data, chance.choice([1, 2, 3]), chance.choice(["threads", "processes"]))
        at_start, wanted, limit = shards(broken), chance.randint(0, 3), time.monotonic() + 60
        while process.poll() is None and shards(broken) < at_start + wanted and time.monotonic() < limit:
            time.sleep(0.005)
        time.sleep(chance.random() * (1.5 if wanted == 0 else 0.05))
        if process.poll() is not None:  # finished before it was killed: start over
            shutil.rmtree(broken)
            continue
        process.send_signal(signal.SIGKILL)
        process.wait()
        killed += 1
    assert start(broken, data, 2, "threads").wait(120) == 0
    assert files(broken) == expected
    assert shards(broken) == 0
    assert list((broken / "locks").glob("*")) == [], "killed runs leave no lock files"
