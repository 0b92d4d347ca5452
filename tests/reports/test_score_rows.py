"""Scores as rows of one shape: keys, means, and what is left out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import shiftbench as sb
from shiftbench.errors import StoreError
from shiftbench.metrics.base import Score
from shiftbench.reports.frames import ScoreRow, flat_metrics
from tests.runs.helpers import COLOURS, brightest_channel, colour_folder, darkest_channel

SMALL = sb.Preprocessing(sb.Geometry(resize=36, crop=32))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return colour_folder(tmp_path_factory.mktemp("data") / "pictures", per_class=4)


def evaluated(data: Path, workspace: Path, *functions: str, **options: object) -> sb.Run:
    known = {"bright": brightest_channel, "dark": darkest_channel}
    models = [
        sb.load_classifier(known[name], labels=COLOURS, preprocessing=SMALL, name=name)
        for name in functions or ("bright",)
    ]
    chosen = {"suite": "corruptions", "corruptions": ("contrast", "fog"), "severities": (1, 5), **options}
    return sb.evaluate(models, data=data, workspace=workspace, labels=COLOURS, progress=False, **chosen)  # type: ignore[arg-type]


def test_metrics_are_keyed_by_what_was_evaluated(pictures: Path, tmp_path: Path) -> None:
    run = evaluated(pictures, tmp_path / "w")
    found = run.metrics()
    cells = [f"pictures-c/{name}/{severity}/top1" for name in ("contrast", "fog") for severity in (1, 5)]
    means = ["pictures-c/top1", "pictures-c/fog/top1", "pictures-c/contrast/top1"]
    assert list(found) == ["pictures/top1", *cells, *means]
    assert found["pictures-c/top1"] == pytest.approx(np.mean([found[key] for key in cells]))
    assert found["pictures-c/fog/5/top1"] == run.predictions("bright", "pictures-c.fog.5").correct.mean()
    assert all(type(value) is float for value in found.values())


def test_several_models_come_first_in_the_key(pictures: Path, tmp_path: Path) -> None:
    found = evaluated(pictures, tmp_path / "w", "bright", "dark", suite="clean", corruptions=()).metrics()
    assert list(found) == ["bright/pictures/top1", "dark/pictures/top1"]


def test_named_metrics_score_single_settings(pictures: Path, tmp_path: Path) -> None:
    found = evaluated(pictures, tmp_path / "w", severities=(3,)).metrics("top1, error")
    assert set(found) == {
        f"{s}/{m}" for s in ("pictures", "pictures-c/contrast/3", "pictures-c/fog/3") for m in ("top1", "error")
    }


def test_unequal_severities_have_no_mean(pictures: Path, tmp_path: Path) -> None:
    evaluated(pictures, tmp_path / "w", corruptions=("fog",), severities=(1,))
    evaluated(pictures, tmp_path / "w", corruptions=("contrast",), severities=(5,))
    found = sb.Run.open(tmp_path / "w").metrics()
    assert set(found) == {"pictures/top1", "pictures-c/fog/1/top1", "pictures-c/contrast/5/top1"}


def test_frames_count_for_flips_only(pictures: Path, tmp_path: Path) -> None:
    found = evaluated(pictures, tmp_path / "w", suite="perturbations", corruptions=("rotate",)).metrics()
    assert list(found) == ["pictures-p/flip_probability", "pictures-p/rotate/flip_probability"]


def test_two_results_of_one_key_are_refused() -> None:
    """Two seeds in one workspace; an undefined number is left out."""
    rows = [ScoreRow("m", "clean", Score("top1", value, 0.1, 0.9, n=9)) for value in (float("nan"), 0.5, 0.5)]
    assert flat_metrics(rows) == {"clean/top1": 0.5}
    with pytest.raises(StoreError, match="clean/top1"):
        flat_metrics([*rows, ScoreRow("m", "clean", Score("top1", 0.6, 0.1, 0.9, n=9))])
