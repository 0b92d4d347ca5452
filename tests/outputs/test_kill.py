"""Killed at random moments, the writer continues, with any engine, and ends with the same bytes, record included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shiftbench.jobs.executors import ThreadExecutor
from shiftbench.shifts.write import write_corruptions
from tests.outputs.helpers import bytes_below, cifar_like, picture_folder
from tests.outputs.kill_target import NAMES, write_slowly
from tests.processes import kill_often

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
    source = source_of(format, tmp_path)
    options = OPTIONS[format]
    whole = write_corruptions(source, tmp_path / "whole", names=NAMES, severities=(1, 4), workers=1, **options)
    broken = tmp_path / "broken"
    killed = kill_often(
        write_slowly,
        lambda chance: (str(source), str(broken), {**options, **chance.choice(ENGINES)}),
        broken,
        KILLS,
        0.25,
    )
    assert killed >= 3, "the run ended before it was killed often enough; make it longer"
    last = write_corruptions(source, broken, names=NAMES, severities=(1, 4), workers=2, **options)
    assert last.written + last.already == whole.written
    assert bytes_below(broken) == bytes_below(tmp_path / "whole")
