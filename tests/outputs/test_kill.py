"""Killed at random moments, the writer continues, with any engine, and ends with the same bytes, record included."""

from __future__ import annotations

import multiprocessing
import random
import time
from pathlib import Path
from typing import Any

import pytest

from shiftbench.jobs.executors import ThreadExecutor
from shiftbench.shifts.write import write_corruptions
from tests.outputs.helpers import bytes_below, cifar_like, picture_folder
from tests.outputs.kill_target import NAMES, write_slowly

pytestmark = pytest.mark.reliability("kills")

KILLS = 4


def source_of(format: str, root: Path) -> Path:
    return cifar_like(root / "s") if format == "arrays" else picture_folder(root / "s", per_class=6)


OPTIONS: dict[str, dict[str, Any]] = {
    "tree": {"format": "tree", "size": 32},
    "arrays": {"format": "arrays", "labels": "cifar-10"},
    "shards": {"format": "shards", "size": 32, "labels": "folders", "shard_size": 8},
}


ENGINES: list[dict[str, Any]] = [{"workers": 1}, {"workers": 2}, {"executor": ThreadExecutor(2)}]


@pytest.mark.slow
@pytest.mark.parametrize("format", OPTIONS)
def test_killed_and_continued_gives_the_same_bytes(format: str, tmp_path: Path) -> None:
    source, options = source_of(format, tmp_path), OPTIONS[format]
    whole = write_corruptions(source, tmp_path / "whole", names=NAMES, severities=(1, 4), workers=1, **options)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.outputs.kill_target"])
    chance, broken, killed = random.Random(format), tmp_path / "broken", 0
    for _ in range(4 * KILLS):
        settings = {**options, **chance.choice(ENGINES)}
        process = context.Process(target=write_slowly, args=(str(source), str(broken), settings))
        process.start()
        # the first time let it begin, then hit it anywhere, also while it is starting
        deadline = time.monotonic() + 30
        while killed == 0 and not broken.exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        process.join(chance.uniform(0.01, 0.25))
        if process.exitcode is None:
            process.kill()
            killed += 1
        process.join()
        if killed == KILLS or process.exitcode == 0:
            break
    assert killed >= 3, "the run ended before it was killed often enough; make it longer"
    last = write_corruptions(source, broken, names=NAMES, severities=(1, 4), workers=2, **options)
    assert last.written + last.already == whole.written
    assert bytes_below(broken) == bytes_below(tmp_path / "whole")
