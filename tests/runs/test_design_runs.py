"""The one-pass design through the public API: what is evaluated, what is estimated, what a full run reuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shiftbench as sb
from shiftbench.errors import SettingError
from shiftbench.store.designs import is_designed, places_of
from shiftbench.store.workspace import Workspace
from tests.runs.helpers import COLOURS, brightest_channel, colour_folder

GRID: dict[str, Any] = {"corruptions": ("brightness", "contrast"), "severities": (1, 5), "labels": COLOURS}
ONE_PASS: dict[str, Any] = {**GRID, "design": "one-pass", "progress": False}


class Counting:
    """A model that counts the images it is asked for."""

    def __init__(self) -> None:
        self.images = 0

    def __call__(self, images: np.ndarray) -> np.ndarray:
        self.images += len(images)
        return brightest_channel(images)


def model(function: Any = brightest_channel) -> sb.Classifier:
    preprocessing = sb.Preprocessing(sb.Geometry(resize=36, crop=32))
    return sb.load_classifier(function, labels=COLOURS, preprocessing=preprocessing, name="brightest")


def contents(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((root / "predictions").rglob("*.parquet"))}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return colour_folder(tmp_path_factory.mktemp("data") / "colours", per_class=8)


def test_each_image_is_evaluated_clean_and_once_more(data: Path, tmp_path: Path) -> None:
    counting = Counting()
    run = sb.evaluate(model(counting), "corruptions", data, tmp_path / "w", **ONE_PASS)
    assert run.settings == ["colours", "colours-c.one-pass"]
    assert counting.images == 2 * 24
    assert "colours-c.one-pass" in run.overview()[-1].to_text(100)


@pytest.mark.parametrize("passes", [1, 3])
def test_predictions_are_those_of_the_full_grid(data: Path, tmp_path: Path, passes: int) -> None:
    full = sb.evaluate(model(), "corruptions", data, tmp_path / "full", progress=False, **GRID)
    run = sb.evaluate(model(), "corruptions", data, tmp_path / "design", passes=passes, **ONE_PASS)
    designed = [result for result in run.results if is_designed(result)]
    assert len(designed) == passes
    for result in designed:
        parts = run.workspace.setting_record(result).parts
        found = run.workspace.read(result)
        for row, place in enumerate(places_of(run.workspace, result).tolist()):
            same = full.predictions("brightest", parts[place].setting)
            assert same.ids[row] == found.ids[row]
            assert (same.top[row] == found.top[row]).all()


def test_workers_do_not_matter(data: Path, tmp_path: Path) -> None:
    runs = [sb.evaluate(model(), "corruptions", data, tmp_path / str(n), workers=n, **ONE_PASS) for n in (1, 4)]
    assert contents(Path(str(runs[0].workspace.root))) == contents(Path(str(runs[1].workspace.root)))


def test_a_full_run_reuses_what_a_design_made(data: Path, tmp_path: Path) -> None:
    sb.evaluate(model(), "corruptions", data, tmp_path / "alone", progress=False, **GRID)
    sb.evaluate(model(), "corruptions", data, tmp_path / "after", **ONE_PASS)
    counting = Counting()
    sb.evaluate(model(counting), "corruptions", data, tmp_path / "count", **ONE_PASS)
    counting.images = 0
    sb.evaluate(model(counting), "corruptions", data, tmp_path / "count", progress=False, **GRID)
    assert counting.images == 3 * 24
    sb.evaluate(model(), "corruptions", data, tmp_path / "after", progress=False, **GRID)
    alone, after = contents(tmp_path / "alone"), contents(tmp_path / "after")
    assert {name: after[name] for name in alone} == alone


def test_more_passes_continue_fewer(data: Path, tmp_path: Path) -> None:
    counting = Counting()
    for passes in (1, 2):
        sb.evaluate(model(counting), "corruptions", data, tmp_path, passes=passes, **ONE_PASS)
    assert counting.images == 3 * 24


def test_two_models_are_compared_on_the_same_assignment(data: Path, tmp_path: Path) -> None:
    other = sb.load_classifier(lambda images: -brightest_channel(images), labels=COLOURS, name="darkest")
    run = sb.evaluate([model(), other], "corruptions", data, tmp_path, **ONE_PASS)
    table = run.compare("colours-c.one-pass").as_data()
    assert "brightest" in str(table)


@pytest.mark.parametrize(
    ("suite", "options"),
    [
        ("clean", {}),
        ("perturbations", {"corruptions": ()}),
        ("corruptions", {"passes": 9}),
        ("corruptions", {"passes": 0}),
    ],
)
def test_what_has_no_design_is_refused(data: Path, tmp_path: Path, suite: str, options: dict[str, Any]) -> None:
    with pytest.raises(SettingError):
        sb.evaluate(model(), suite, data, tmp_path, **{**ONE_PASS, **options})
    assert not list(Workspace(tmp_path).results())
