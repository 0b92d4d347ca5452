"""Budgets and widths of designs: what they choose, what is reached, and that two stages keep the coverage."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import shiftbench as sb
from shiftbench.errors import SettingError
from shiftbench.metrics.designs import DesignOutcomes, Estimate
from shiftbench.runs.budget import Budget, _reached, mean_estimates
from shiftbench.settings.designs import Design, OnePass
from shiftbench.shifts.assigned import assign
from tests.runs.helpers import COLOURS, brightest_channel, colour_folder

GRID: dict[str, Any] = {"corruptions": ("brightness", "contrast"), "severities": (1, 5), "labels": COLOURS}
ONE_PASS: dict[str, Any] = {**GRID, "design": "one-pass", "progress": False}


class Unsure:
    """Wrong on some images, whatever is done to them; counts the images it is asked for."""

    def __init__(self) -> None:
        self.images = 0

    def __call__(self, images: np.ndarray) -> np.ndarray:
        self.images += len(images)
        return brightest_channel(images) * [1.0, 0.6, 1.0]


def model(function: Any) -> sb.Classifier:
    preprocessing = sb.Preprocessing(sb.Geometry(resize=36, crop=32))
    found = sb.load_classifier(function, labels=COLOURS, preprocessing=preprocessing, name="unsure")
    found.self_contained = True  # so that it is asked for the images of the data alone
    return found


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return colour_folder(tmp_path_factory.mktemp("data") / "colours", per_class=120)


@pytest.mark.parametrize(("budget", "images"), [(60, 30), ("101", 50)])
def test_forward_passes_are_kept(data: Path, tmp_path: Path, budget: Any, images: int) -> None:
    unsure = Unsure()
    with pytest.warns(sb.ResultWarning, match=f"{images} of 360 images, {2 * images} forward passes") as warned:
        run = sb.evaluate(model(unsure), "corruptions", data, tmp_path, budget=budget, **ONE_PASS)
    assert unsure.images == 2 * images
    assert len(run.predictions("unsure", "colours")) == images
    assert [one.message.code for one in warned if isinstance(one.message, sb.ResultWarning)].count("budget") == 1


def test_a_width_takes_as_many_images_as_the_pilot_says(data: Path, tmp_path: Path) -> None:
    unsure = Unsure()
    with pytest.warns(sb.ResultWarning, match="mean accuracy is known to"):
        run = sb.evaluate(model(unsure), "corruptions", data, tmp_path, width=4, **ONE_PASS)
    images = len(run.predictions("unsure", "colours"))
    assert 200 < images < 360
    assert unsure.images == 2 * images, "the pilot is a part of the second stage"
    again = sb.Run.open(tmp_path)
    assert [len(again.predictions("unsure", setting)) for setting in again.settings] == [
        len(run.predictions("unsure", setting)) for setting in run.settings
    ], "nothing of the pilot is left beside"


@pytest.fixture(scope="module")
def rare_class(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """380 red, 10 green and 10 blue images."""
    folder = colour_folder(tmp_path_factory.mktemp("data") / "rare", per_class=380)
    for name in ("green", "blue"):
        for path in sorted((folder / name).iterdir())[10:]:
            path.unlink()
    return folder


def only_red(images: np.ndarray) -> np.ndarray:
    """Right on red images alone: 5 % of the images of ``rare_class`` are wrong, two thirds of its classes."""
    return np.tile([1.0, 0.0, 0.0], (len(images), 1))


@pytest.mark.parametrize("limit", [{"budget": 400}, {"width": 3}])
def test_the_estimate_is_that_of_all_images_if_classes_differ_in_size(
    rare_class: Path, tmp_path: Path, limit: dict[str, Any]
) -> None:
    with pytest.warns(sb.ResultWarning, match="mean accuracy is known to"):
        run = sb.evaluate(model(only_red), "corruptions", rare_class, tmp_path, **limit, **ONE_PASS)
    [mean] = mean_estimates(run)
    assert mean.value == pytest.approx(0.05, abs=0.006)
    clean = run.predictions("unsure", "rare")
    assert 200 <= len(clean) < 400
    assert np.mean(clean.correct) == pytest.approx(0.95, abs=0.006)


def test_the_same_command_again_computes_nothing(data: Path, tmp_path: Path) -> None:
    unsure = Unsure()
    for _ in range(2):
        with pytest.warns(sb.ResultWarning, match="mean accuracy is known to"):
            run = sb.evaluate(model(unsure), "corruptions", data, tmp_path, width=4, **ONE_PASS)
    assert unsure.images == 2 * len(run.predictions("unsure", "colours"))


def test_the_speed_is_that_of_new_predictions(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pilot that an earlier run made takes no time: it must not make the budget endless."""
    passed = iter(range(0, 10_000, 25))
    monkeypatch.setattr("shiftbench.runs.budget.time", SimpleNamespace(perf_counter=lambda: next(passed)))
    unsure = Unsure()
    seen = []
    for _ in range(2):
        with pytest.warns(sb.ResultWarning, match="forward passes"):
            run = sb.evaluate(model(unsure), "corruptions", data, tmp_path, budget="30s", **ONE_PASS)
        seen.append(len(run.predictions("unsure", "colours")))
    # 25 s for the pilot of 200 images leave 0.9 x 5 s; then 360 are all that there are.
    assert seen == [200 + 36, 360]
    assert unsure.images == 2 * 360


def test_what_all_images_agree_on_is_not_known_exactly(data: Path, tmp_path: Path) -> None:
    with pytest.warns(sb.ResultWarning, match=r"100 of 360 images.*known to ±3\.6 points"):
        sb.evaluate(model(brightest_channel), "corruptions", data, tmp_path, budget=200, **ONE_PASS)


def test_a_width_that_all_images_do_not_reach(data: Path, tmp_path: Path) -> None:
    with pytest.warns(sb.ResultWarning, match="360 of 360 images.*not to 0.5: all images are used"):
        sb.evaluate(model(Unsure()), "corruptions", data, tmp_path, width=0.5, **ONE_PASS)


def test_a_time_that_is_long_enough_for_all_images(data: Path, tmp_path: Path) -> None:
    with pytest.warns(sb.ResultWarning, match="360 of 360 images, 720 forward passes"):
        sb.evaluate(model(Unsure()), "corruptions", data, tmp_path, budget="1h", **ONE_PASS)


def test_time_is_planned_from_the_speed_of_the_pilot() -> None:
    budget = Budget.of(Design("one-pass", budget="60s"))
    assert budget is not None
    assert budget.images(100, 1, 10.0, 100, []) == 100 + 0.9 * 50 * 10
    assert budget.images(100, 1, 10.0, 20, []) == 100 + 0.9 * 50 * 2, "an earlier run had made four of five"
    assert budget.images(100, 1, 70.0, 100, []) == 100, "the pilot took it all"


@pytest.mark.parametrize(
    "options",
    [
        {"budget": "soon"},
        {"budget": 0},
        {"budget": 10},
        {"width": -1},
        {"width": "2"},
        {"passes": "two"},
        {"budget": 100, "design": "full"},
        {"width": 1, "shard": "1/2"},
    ],
)
def test_bad_budgets(data: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(SettingError):
        sb.evaluate(model(Unsure()), "corruptions", data, tmp_path, **{**ONE_PASS, **options})


@pytest.mark.parametrize("error", [0.1, 0.4])
def test_two_stages_keep_the_coverage(error: float) -> None:
    """New images and a new design each time; the pilot's variance decides how many images there are."""
    shifts = 6
    runs = 250
    half = 0.03
    budget = Budget(half_width=half)
    rng = np.random.default_rng(7)
    rise = np.linspace(-0.5, 0.5, shifts)
    cut = np.quantile(rng.normal(0, 1, (200_000, 1)) + rng.normal(0, 1, (200_000, shifts)) + rise, 1 - error)
    hits = 0
    sizes = []
    for seed in range(runs):
        wrong = (rng.normal(0, 1, (2000, 1)) + rng.normal(0, 1, (2000, shifts)) + rise > cut).astype(float)

        def mean(images: int, wrong: Any = wrong, seed: int = seed) -> Estimate:
            ids = [str(i) for i in range(images)]
            places = assign(ids, np.zeros(images, np.int32), shifts, seed=seed)
            seen = DesignOutcomes(images, np.arange(images), places, wrong[np.arange(images), places], shifts)
            return Estimate.average(seen.errors())

        pilot = budget.pilot(2000, shifts, 1)
        images = min(2000, budget.images(pilot, 1, 0.0, pilot, [mean(pilot)]))
        low, high = mean(images).interval(0.95)
        hits += low <= error <= high
        sizes.append(images)
    assert hits / runs >= 0.94 - 2 * np.sqrt(0.05 * 0.95 / runs)
    assert min(sizes) < np.median(sizes) < max(sizes)


def test_a_width_that_the_pilot_promised_in_vain_is_not_blamed_on_a_budget(data: Path, tmp_path: Path) -> None:
    with pytest.warns(sb.ResultWarning):
        run = sb.evaluate(model(Unsure()), "corruptions", data, tmp_path, budget=200, **ONE_PASS)
    design = OnePass()
    for budget in (Budget(half_width=0.001), Budget(half_width=0.001, seconds=1e6)):
        note = str(_reached(run, 100, 360, design, budget, 1.0))
        assert "not to 0.1" in note
        assert ("budget" in note) == (budget.seconds is not None)
