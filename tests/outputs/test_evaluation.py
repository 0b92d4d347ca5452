"""A written set and the same set made in memory give a classifier the same images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shiftbench as sb
from shiftbench.shifts.write import write_corruptions
from tests.runs.helpers import COLOURS, brightest_channel, colour_folder

NAMES = ("gaussian_noise", "frost")


@pytest.mark.parametrize(("lossless", "in_memory"), [(True, "in-memory"), (False, "jpeg-85")])
def test_files_score_as_the_same_corruptions_in_memory(lossless: bool, in_memory: str, tmp_path: Path) -> None:
    pictures = colour_folder(tmp_path / "pictures", per_class=4)
    written = tmp_path / "written"
    write_corruptions(pictures, written, names=NAMES, severities=(5,), size=32, lossless=lossless, seed=9)
    preprocessing = sb.Preprocessing(sb.Geometry(resize=37, crop=32))
    classifier = sb.load_classifier(brightest_channel, labels=COLOURS, preprocessing=preprocessing, name="bright")

    def evaluated(source: str, data: Any) -> sb.Run:
        options: dict[str, Any] = {"source": source, "corruptions": NAMES, "severities": (5,), "seed": 9}
        workspace = tmp_path / f"workspace-{source}"
        return sb.evaluate(
            classifier, "corruptions", data, workspace, labels=COLOURS, keep_scores=True, progress=False, **options
        )

    memory = evaluated(in_memory, pictures)
    disk = evaluated("on-disk", {"data": pictures, "pictures-c": written})
    for name in NAMES:
        for severity in (5,):
            both = [run.predictions("bright", f"pictures-c.{name}.{severity}") for run in (memory, disk)]
            assert both[0].scores is not None and both[1].scores is not None
            np.testing.assert_array_equal(both[0].scores, both[1].scores)
