"""The rehearsal of a paid collection, as small as it can be, and that its comparison can fail."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scripts.rehearsal import Size, compare, pattern, read_pattern, rehearse

from shiftbench.testsets.frozen import frozen_sets
from shiftbench.testsets.project import Project
from tests.testsets.helpers import on_both_databases

TINY = Size(classes=2, candidates=12, references=12, workers=8, annotators=2, grid=12, per_class=3)


def test_patterns_are_read_from_damaged_copies() -> None:
    rng = np.random.default_rng(0)
    for number in (0, 1, 4095, 2**24 - 1):
        noisy = np.clip(pattern(number) + rng.normal(0, 20, (32, 32, 3)), 0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(noisy).save(file, "JPEG", quality=80)
        assert read_pattern(file.getvalue()) == number
    file = io.BytesIO()
    Image.fromarray(rng.integers(0, 255, (32, 32, 3), np.uint8)).save(file, "PNG")
    with pytest.raises(ValueError, match="damaged"):
        read_pattern(file.getvalue())


@pytest.mark.slow
@on_both_databases
def test_every_figure_is_that_of_the_log(database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = rehearse(TINY, tmp_path / "rehearsal", database=database, say=print)
    assert "3 sets and cards" in capsys.readouterr().out
    # A log without one answer no longer agrees.
    project = Project.open(tmp_path / "rehearsal" / "project", database=database)
    frozen = {testset.set_name: testset for testset in frozen_sets(project.folder)}
    incomplete = replace(log, answers=log.answers[:-1])
    with pytest.raises(AssertionError):
        compare(project, incomplete, frozen, TINY, print)
    project.close()
