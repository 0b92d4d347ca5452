"""The difficulty model beside real accuracies: u and v recovered, intervals that cover, the line of ImageNetV2."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shiftbench.studies import StudyError, fit
from shiftbench.studies.base import whole
from shiftbench.studies.difficulty import (
    Difficulty,
    difficulty_of_line,
    implied_difficulty,
    line_of,
    simulate,
    simulate_difficulty,
)
from shiftbench.studies.fits import Fit
from shiftbench.studies.study import Study
from tests.raised import raises

FIRST = Difficulty(0.0, 1.0)
SECOND = Difficulty(0.5, 0.8)


def test_difficulty_model_matches_its_formula() -> None:
    """Accuracy by formula against a plain simulation, and u and v recovered by the fit."""
    skills = np.linspace(-0.5, 2.5, 50)
    first = Difficulty(0.0, 1.0)
    second = Difficulty(0.6, 0.7)
    seen = simulate(skills, first, 40_000, seed=1).mean(axis=1)
    assert seen == pytest.approx(first.accuracy(skills), abs=0.012)
    u, v = line_of(first, second)
    exact = fit(first.accuracy(skills), second.accuracy(skills), scale="probit", resamples=0)
    assert (exact.slope, exact.intercept, exact.r2) == pytest.approx((u, v, 1.0))
    found = simulate_difficulty(skills, first, second, n_first=50_000, n_second=50_000, seed=4, resamples=20).simulated
    assert found.slope == pytest.approx(u, abs=0.02) and found.intercept == pytest.approx(v, abs=0.02)
    implied = implied_difficulty(exact, first)
    assert (implied.mean, implied.spread) == pytest.approx((0.6, 0.7))


def test_intervals_cover_u_and_v() -> None:
    """Those of resampled models alone cover less often: a hard draw of images moves all models at once."""
    skills = np.linspace(-0.5, 2.0, 25)
    seeds = range(0, 200, 10)
    found = [
        simulate_difficulty(skills, FIRST, SECOND, n_first=2000, n_second=800, seed=seed, resamples=200)
        for seed in seeds
    ]
    alone = []
    for seed in seeds:
        x = simulate(skills, FIRST, 2000, seed=seed)
        y = simulate(skills, SECOND, 800, seed=seed + 1)
        line = fit(x.mean(axis=1), y.mean(axis=1), scale="probit", unit="fraction")
        alone.append(replace(found[0], simulated=line))
    covered = sum(one.agrees for one in found)
    covered_alone = sum(one.agrees for one in alone)
    assert covered >= 17 and covered_alone < covered
    assert found[0].same_line is None and found[0].simulated.procedure == "images"


def test_real_line_and_its_simulation(testbed: Study) -> None:
    shift = testbed.shift("imagenetv2")
    line = testbed.fit(shift.x, shift.y, scale="probit", min_x=55)
    assert isinstance(line, Fit)
    x = np.array([testbed.results.of(shift.x)[name] for name in line.models]) / whole(testbed.results.unit)
    found = difficulty_of_line(line, x, n_first=50_000, n_second=10_000)
    assert line_of(found.first, found.second) == pytest.approx((line.slope, line.intercept))
    assert found.same_line and found.agrees
    # Skill and sampling alone scatter simulated models about as much as the real ones.
    assert found.simulated.r2 == pytest.approx(line.r2, abs=0.004)
    assert found.second.mean > 0.3  # harder images
    data = found.as_dict()
    assert data["models"] == 78 and data["fit"]["slope"] == line.slope


def test_another_first_difficulty_gives_the_same_line() -> None:
    x = np.linspace(0.4, 0.9, 12)
    line = fit(x, x - 0.1, scale="probit", resamples=0)
    for first in (Difficulty(0.0, 1.0), Difficulty(-1.0, 2.0)):
        found = difficulty_of_line(line, x, n_first=8000, n_second=8000, first=first)
        assert line_of(found.first, found.second) == pytest.approx((line.slope, line.intercept))
        assert found.simulated.slope == pytest.approx(line.slope, abs=0.08)


def test_edges() -> None:
    line = fit([0.3, 0.5, 0.8], [0.2, 0.4, 0.7], scale="probit", resamples=0)
    with raises(StudyError, found="0.3"):
        difficulty_of_line(line, [0.3, 1.0], n_first=10, n_second=10)
    with raises(StudyError, found="a logit line", expected="scale='probit'"):
        implied_difficulty(fit([0.3, 0.5, 0.8], [0.2, 0.4, 0.7], resamples=0))
    steep = fit([0.45, 0.5, 0.55], [0.1, 0.5, 0.9], scale="probit", resamples=0)
    with raises(StudyError, found="slope 10.1985"):
        implied_difficulty(steep)
    with raises(StudyError, expected="a finite mean and a spread >= 0"):
        Difficulty(0.0, -1.0)


def test_a_falling_line_is_refused() -> None:
    """Its square would imply a rising one."""
    line = fit([0.3, 0.5, 0.8], [0.6, 0.5, 0.35], scale="probit", resamples=0)
    assert line.slope < 0
    with raises(StudyError, found="slope -0.4666", expected="a slope above 0") as caught:
        implied_difficulty(line)
    assert caught.value.found == f"slope {line.slope:.4f}"
