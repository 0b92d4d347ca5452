"""Effective and relative robustness, correlations: definitions, intervals, edges."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta, pearsonr, spearmanr

from shiftbench.studies import StudyError, correlate, effective_robustness, fit, relative_robustness
from shiftbench.studies.fits import fisher_interval
from shiftbench.studies.robustness import sentence
from tests.raised import raises
from tests.studies.test_fits import cloud


def test_rho_is_the_distance_from_the_line() -> None:
    x, y = cloud()
    baseline = np.arange(40) < 30
    result = effective_robustness(x, y, baseline=baseline)
    line = fit(x, y, baseline=baseline)
    assert list(result.rho.values()) == pytest.approx(y - line.predict(x))
    assert [row.baseline for row in result.rows] == baseline.tolist()
    assert result.sources == "fit" and all(row.low < row.rho < row.high for row in result.rows)


def test_interval_of_y_alone_is_clopper_pearson() -> None:
    x, y = cloud()
    line = fit(x, y, resamples=0)
    result = effective_robustness(x, y, line, n_y=10_000, level=0.995)
    k = y / 100 * 10_000
    low = 100 * beta.ppf(0.0025, k, 10_000 - k + 1)
    high = 100 * beta.ppf(0.9975, k + 1, 10_000 - k)
    expected = line.predict(x)
    assert [row.low for row in result.rows] == pytest.approx(low - expected)
    assert [row.high for row in result.rows] == pytest.approx(high - expected)
    assert result.sources == "images of y"


def test_more_sources_widen_the_interval() -> None:
    x, y = cloud()
    line = fit(x, y)
    widths = [
        [row.high - row.low for row in effective_robustness(x, y, line, n_x=n_x, n_y=n_y).rows]
        for n_x, n_y in ((None, None), (None, 10_000), (50_000, 10_000))
    ]
    assert (np.diff(widths, axis=0) > 0).all()


def test_interval_covers_rho_as_often_as_it_says() -> None:
    """Models with known accuracies, measured on finite images; the line is known."""
    rng = np.random.default_rng(0)
    x, y = cloud(400)
    line = fit(x, y, resamples=0)
    truth = y - line.predict(x)
    seen_x, seen_y = (100 * rng.binomial(n, v / 100) / n for n, v in ((5000, x), (1000, y)))
    result = effective_robustness(seen_x, seen_y, line, n_x=5000, n_y=1000)
    covered = np.mean([row.low <= t <= row.high for row, t in zip(result.rows, truth, strict=True)])
    assert 0.93 <= covered <= 0.99


def test_a_model_with_accuracy_zero_or_all_has_finite_numbers() -> None:
    result = effective_robustness([60, 70, 80, 76.1, 82], [40, 52, 65, 0, 100], models=list("abcde"), n_x=50, n_y=50)
    assert result["d"].rho < -40 and np.isfinite([result["d"].low, result["d"].high]).all()
    full = effective_robustness([0.5, 1.0], [0.4, 0.9], fit([0.5, 0.6, 0.7], [0.4, 0.5, 0.6]), n_x=20, n_y=20)
    assert np.isfinite([[row.low, row.high, row.rho] for row in full.rows]).all()


def test_missing_cells_get_a_word_and_no_nan() -> None:
    result = effective_robustness([60, 70, 80, np.nan], [40, 52, 65, 50], models=list("abcd"), resamples=0)
    assert set(result.rho) == {"a", "b", "c"} and "d" in result.notes[0]
    assert result.sources.startswith("none") and result.as_dict()["models"][0]["low"] is None
    with raises(StudyError, found="3 other models"):
        result["d"]


def test_percent_against_a_line_in_fractions() -> None:
    line = fit([0.6, 0.7, 0.8], [0.4, 0.5, 0.65])
    with raises(StudyError, found="accuracies in percent, a line in fraction"):
        effective_robustness([60.0], [50.0], line)
    with raises(StudyError, found="baseline, scale"):
        effective_robustness([0.6], [0.5], line, scale="probit")


def test_extrapolation_is_marked() -> None:
    result = effective_robustness([60, 70, 80, 95], [40, 52, 65, 90], models=list("abcd"), baseline=list("abc"))
    assert [row.extrapolated for row in result.rows] == [False, False, False, True]


def test_sentence() -> None:
    line = fit(*cloud())
    for y, side in ((75.0, "above"), (35.0, "below")):
        said = sentence(effective_robustness({"m": 70.0}, {"m": y}, line), "m")
        assert said.startswith("m lies ") and f" points {side} the line [" in said


def test_relative_robustness() -> None:
    y = {"base": 63.0, "better": 70.0, "worse": 60.0, "alone": 50.0, "gone": float("nan")}
    result = relative_robustness(y, {"better": "base", "worse": "base", "gone": "base", "alone": "nobody"}, n_y=10_000)
    assert result.tau == pytest.approx({"better": 7.0, "worse": -3.0})
    assert result.rows[0].low < 7 < result.rows[0].high and result.rows[1].high < 0
    assert "2 pairs" in result.notes[0]
    without = relative_robustness(y, {"better": "base"})
    assert without.as_dict()["models"][0]["low"] is None


def test_correlation_is_scipys() -> None:
    rng = np.random.default_rng(1)
    a = rng.normal(size=60)
    b = 0.5 * a + rng.normal(size=60)
    result = correlate(a, b)
    reference = pearsonr(a, b)
    assert result.pearson == pytest.approx(reference.statistic) and result.pearson_p == pytest.approx(reference.pvalue)
    ends = reference.confidence_interval(0.95)
    assert result.pearson_interval == pytest.approx((ends.low, ends.high))
    assert result.spearman == pytest.approx(spearmanr(a, b).statistic)
    assert result.spearman_interval is not None and result.spearman_interval.low < result.spearman


def test_rank_interval_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(2)
    truth = 6 / np.pi * np.arcsin(0.6 / 2)  # Spearman's rank of a normal pair with r = 0.6
    covered = 0
    for _ in range(300):
        a = rng.normal(size=50)
        ends = correlate(a, 0.6 * a + 0.8 * rng.normal(size=50)).spearman_interval
        assert ends is not None
        covered += ends.low <= truth <= ends.high
    assert covered >= 270


def test_correlation_edges() -> None:
    few = correlate({"a": 1.0, "b": 2.0, "c": 4.0}, {"a": 1.0, "b": 3.0, "c": 2.0})
    assert few.pearson_interval is None and "four" in few.notes[-1] and few.as_dict()["pearson_interval"] is None
    part = correlate({"a": 1.0, "b": 2.0, "c": 3.0, "d": 0.0}, {"a": 1.0, "b": 3.0, "c": 2.0}, over=["a", "b", "d"])
    assert part.n == 2 and "d" in part.notes[0]
    with raises(StudyError, found="1 for 3 models"):
        correlate([1, 1, 1], [1, 2, 3])
    with raises(StudyError, found="1 model; left out, a value is missing: 1 model (2)"):
        correlate([1, np.nan], [1, 2])
    assert fisher_interval(1.0, 10, 0.95) == (1.0, 1.0)


def test_most_new_ordinary_models_are_within_the_prediction_interval() -> None:
    """The interval of rho omits the scatter of ordinary models: it would call many of them robust."""
    rng = np.random.default_rng(6)
    runs = 200
    within = 0
    called_robust_by_rho = 0
    for _ in range(runs):
        u = rng.uniform(0.5, 2.0, 13)
        v = 0.9 * u - 0.8 + rng.normal(0, 0.12, 13)
        x = 1 / (1 + np.exp(-u))
        y = 1 / (1 + np.exp(-v))
        names = [f"m{i}" for i in range(13)]
        result = effective_robustness(
            x, y, models=names, baseline=names[:12], n_x=100_000, n_y=100_000, resamples=200, unit="fraction"
        )
        row = result["m12"]
        within += row.is_ordinary
        called_robust_by_rho += not row.low <= 0 <= row.high
    assert within / runs == pytest.approx(0.95, abs=3 * np.sqrt(0.95 * 0.05 / runs))
    assert called_robust_by_rho / runs > 0.25


def test_the_prediction_interval_equals_that_of_another_library() -> None:
    from scipy import stats

    u = np.array([0.2, 0.3, 0.5, 0.7, 0.9])
    v = np.array([0.1, 0.25, 0.4, 0.5, 0.85])
    line = fit(u, v, scale="linear", unit="fraction", resamples=0)
    known = stats.linregress(u, v)
    residuals = v - known.slope * u - known.intercept
    scatter = np.sqrt((residuals @ residuals) / 3)
    # The variance of the line at x, from the errors of slope and intercept, and that of one more model.
    at = 0.95
    of_line = (known.stderr * (at - u.mean())) ** 2 + scatter**2 / 5
    half = stats.t.ppf(0.975, 3) * np.sqrt(of_line + scatter**2)
    interval = line.prediction(at)
    assert interval is not None
    middle = known.slope * at + known.intercept
    assert (interval.low[0], interval.high[0]) == pytest.approx((middle - half, middle + half))
    assert fit(u[:2], v[:2], scale="linear", unit="fraction").prediction(at) is None


def test_a_model_that_was_fitted_is_never_beyond_ordinary_models() -> None:
    x = [0.5, 0.6, 0.7, 0.8, 0.75]
    y = [0.4, 0.5, 0.61, 0.7, 0.2]
    result = effective_robustness(x, y, models=list("abcde"), baseline=list("abcd"), unit="fraction")
    assert result["e"].is_below_ordinary and not result["e"].is_ordinary
    assert not result["a"].is_below_ordinary and not result["a"].is_above_ordinary
    assert "beyond ordinary models" in sentence(result, "e")
    assert "ordinary" not in sentence(result, "a")
