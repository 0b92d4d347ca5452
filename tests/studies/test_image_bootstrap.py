"""Resampled images: what pairing and models add, knees and thresholds, and the same from stored predictions."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from shiftbench.store.predictions import Predictions
from shiftbench.studies import Fit, PiecewiseFit, Results, StudyError
from shiftbench.studies.image_bootstrap import (
    ImageBootstrap,
    common_hits,
    image_bootstrap,
    image_bootstrap_of,
    image_bootstrap_of_shift,
)
from shiftbench.studies.study import ShiftAxes, Study
from tests.metrics.making import with_hits
from tests.raised import raises

OPTIONS = {"over_models": False, "level": 0.95, "resamples": 100, "seed": 1}


def hits(n: int = 1500, models: int = 12, seed: int = 0) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Clean and shifted hits on the same images; a hard image is hard for all, in both."""
    rng = np.random.default_rng(seed)
    ease = np.linspace(0.2, 1.6, models)[:, None] + rng.normal(0, 1, n)[None, :]
    return ease + rng.normal(0, 0.3, ease.shape) > 0, ease - 0.5 + rng.normal(0, 0.3, ease.shape) > 0


def test_brute_force() -> None:
    """The same draws by a loop over images and NumPy's own least squares."""
    x, y = hits(200, 6)
    result = image_bootstrap(x, y, scale="linear", paired=True, resamples=50, seed=3)
    rng = np.random.default_rng(3)
    slopes = []
    rhos = []
    for _ in range(50):
        index = rng.integers(0, 200, 200)
        a = x[:, index].mean(axis=1)
        b = y[:, index].mean(axis=1)
        slope, intercept = np.polyfit(a, b, 1)
        slopes.append(slope)
        rhos.append(b - slope * a - intercept)
    assert result.slope_interval == pytest.approx(np.quantile(slopes, [0.025, 0.975]), rel=1e-6)
    ends = np.quantile(rhos, [0.025, 0.975], axis=0)
    assert [row.low for row in result.effective.rows] == pytest.approx(ends[0], rel=1e-5, abs=1e-8)
    assert [row.high for row in result.effective.rows] == pytest.approx(ends[1], rel=1e-5, abs=1e-8)


def test_pairing_narrows_and_models_widen() -> None:
    x, y = hits()
    apart, together, both = (
        image_bootstrap(x, y, resamples=400, paired=paired, over_models=over_models)
        for paired, over_models in ((False, False), (True, False), (True, True))
    )

    def width(result: ImageBootstrap) -> float:
        return float(np.mean([row.high - row.low for row in result.effective.rows]))

    assert width(together) < width(apart) and width(both) > width(together)
    assert "the same for x and y" in together.effective.sources and "models" in both.effective.sources


def test_from_predictions_pairs_by_id() -> None:
    x, y = hits(300, 5)
    names = [f"net{i}" for i in range(5)]
    ids = [f"p{i}" for i in range(300)]
    clean = [with_hits(h, classifier=n, setting="clean", ids=ids) for h, n in zip(x, names, strict=True)]
    fog = [with_hits(h[::-1], classifier=n, setting="fog", ids=ids[::-1]) for h, n in zip(y, names, strict=True)]
    result = image_bootstrap_of(clean, fog, resamples=100)
    assert result.paired
    direct = image_bootstrap(x, y, models=names, paired=True, resamples=100)
    assert result.slope_interval == direct.slope_interval and result.effective.rho == direct.effective.rho
    other = [
        with_hits(h, classifier=n, setting="v2", ids=[f"q{i}" for i in range(300)])
        for h, n in zip(y, names, strict=True)
    ]
    assert not image_bootstrap_of(clean, other, resamples=50).paired
    part = [with_hits(h[:100], classifier=n, setting="fog", ids=ids[:100]) for h, n in zip(y, names, strict=True)]
    fewer = image_bootstrap_of(clean, part, resamples=50)
    assert fewer.paired and "share 100 images" in fewer.effective.notes[-1]


def test_edges() -> None:
    x, y = hits(100, 4)
    with raises(StudyError, found="net"):
        image_bootstrap_of([with_hits(x[0])], [with_hits(y[0])])
    with raises(StudyError, found="net", expected="one row for each model", hint="drop or rename one of them"):
        image_bootstrap_of([with_hits(x[0]), with_hits(x[1])], [with_hits(y[0])])
    with raises(StudyError, found="100 and 50 images"):
        image_bootstrap(x, y[:, :50], paired=True)
    with raises(StudyError, found="shapes (4, 100) and (2, 100) for 4 models"):
        image_bootstrap(x, y[:2])
    found, ids = common_hits([with_hits(x[0], classifier="a"), with_hits(x[1], classifier="b")])
    assert found.shape == (2, 100) and len(ids) == 100
    # A draw without any of its three errors makes a model perfect: it has no line, is counted and not hidden.
    near = np.vstack([x, np.arange(100) > 2])
    result = image_bootstrap(near, near, resamples=200)
    with pytest.raises(StudyError, match="more than half"):
        image_bootstrap(np.vstack([x, np.arange(100) > 0]), np.vstack([y, np.arange(100) > 0]), resamples=200)
    assert any("draws gave no line" in note for note in result.effective.notes)
    assert np.isfinite([[row.low, row.high] for row in result.effective.rows]).all()


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
        ("net0", "net1", "net2", "net3"),
        ("net5", "net6", "net7", "net8"),
    )
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
