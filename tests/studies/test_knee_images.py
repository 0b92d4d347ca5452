"""Resampled images with a threshold and with a knee, against two separate bootstraps of the same draws."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from shiftbench.store.predictions import Predictions
from shiftbench.studies import Fit, PiecewiseFit, Results
from shiftbench.studies.image_bootstrap import image_bootstrap_of
from shiftbench.studies.knee_images import image_bootstrap_of_shift
from shiftbench.studies.study import ShiftAxes, Study
from tests.metrics.making import with_hits

OPTIONS = {"over_models": False, "level": 0.95, "resamples": 100, "seed": 1}


@pytest.fixture(scope="module")
def filtered() -> tuple[Study, list[Predictions], list[Predictions]]:
    """A test set that one model (the fifth) was used to filter: it fails on all of it."""
    rng = np.random.default_rng(0)
    skills = np.array([0.5, 0.56, 0.62, 0.66, 0.7, 0.74, 0.8, 0.86, 0.9])
    under = np.array([0.05, 0.07, 0.08, 0.1, 0.0, 0.2, 0.34, 0.5, 0.62])
    names = tuple(f"net{i}" for i in range(9))
    clean, shifted = (rng.random((9, 800)) < share[:, None] for share in (skills, under))
    sides = [
        [with_hits(row, classifier=name, setting=setting) for name, row in zip(names, hits, strict=True)]
        for setting, hits in (("val", clean), ("a", shifted))
    ]
    values = np.column_stack([clean.mean(axis=1), shifted.mean(axis=1)])
    return Study(Results(names, ("val", "a"), values, "fraction")), sides[0], sides[1]


def test_a_knee_is_two_bootstraps_of_the_same_draws(
    filtered: tuple[Study, list[Predictions], list[Predictions]],
) -> None:
    study, x, y = filtered
    found = image_bootstrap_of_shift(study, ShiftAxes("val", "a", pivot="auto"), x, y, scale="logit", **OPTIONS)
    assert isinstance(found.line, PiecewiseFit) and found.line.pivot == study.results.of("val")["net4"]
    assert (found.line.below.models, found.line.above.models) == (
        ("net0", "net1", "net2", "net3"), ("net5", "net6", "net7", "net8"),
    )  # fmt: skip
    for side, rows in ((found.line.below, slice(0, 5)), (found.line.above, slice(5, 9))):
        alone = image_bootstrap_of(x, y, baseline=side.models, scale="logit", **OPTIONS)
        assert side.slope_interval == alone.slope_interval and side.procedure == "images"
        ends: NDArray[np.float64] = np.array([(row.rho, row.low, row.high) for row in alone.effective.rows[rows]])
        assert [(row.rho, row.low, row.high) for row in found.rows[rows]] == [tuple(row) for row in ends]
    assert not any(row.extrapolated for row in found.rows)
    assert [row.baseline for row in found.rows] == [i != 4 for i in range(9)]


def test_a_threshold_chooses_the_fitted_models(
    filtered: tuple[Study, list[Predictions], list[Predictions]],
) -> None:
    study, x, y = filtered
    found = image_bootstrap_of_shift(study, ShiftAxes("val", "a", min_x=72), x, y, scale="linear", **OPTIONS)
    assert isinstance(found.line, Fit) and found.line.models == ("net5", "net6", "net7", "net8")
    assert len(found.rows) == 9 and found.rows[0].extrapolated
    assert found.line.slope_interval is not None and found.line.resamples == 100
