"""Fits against SciPy, statsmodels and a plain bootstrap loop, and at their edges."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import statsmodels.api
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import linregress, norm

from shiftbench.arrays import FloatArray
from shiftbench.errors import UnknownNameError
from shiftbench.studies import StudyError, fit, fit_piecewise
from shiftbench.studies.base import SCALES, get_scale, inverse_logit, logit, recognise_unit
from shiftbench.studies.fits import TESTBED_SEED, Procedure, resampled_lines
from tests.raised import raises

Function = Callable[[FloatArray], FloatArray]


def cloud(n: int = 40, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """Accuracies in percent about a line on the logit scale."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(55, 88, n)
    return x, 100 * inverse_logit(0.9 * logit(x / 100) - 0.5 + rng.normal(0, 0.05, n))


def references(size: float) -> dict[str, tuple[Function, Function]]:
    """To the scale from fractions, and back to accuracies, written out again."""
    return {
        "logit": (lambda p: np.log(p / (1 - p)), lambda z: size / (1 + np.exp(-z))),
        "probit": (norm.ppf, lambda z: size * norm.cdf(z)),
        "linear": (lambda p: p * size, lambda z: z),
    }


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("unit", ["percent", "fraction"])
def test_line_is_scipys(scale: str, unit: str) -> None:
    x, y = cloud()
    size = 100.0 if unit == "percent" else 1.0
    x = x * size / 100
    y = y * size / 100
    forward, backward = references(size)[scale]
    expected = linregress(forward(x / size), forward(y / size))
    line = fit(x, y, scale=scale)
    assert line.unit == unit
    assert line.slope == pytest.approx(expected.slope, rel=1e-12)
    assert line.intercept == pytest.approx(expected.intercept, rel=1e-11)
    assert line.r2 == pytest.approx(expected.rvalue**2, rel=1e-12)
    at = np.array([60.0, 75.0, 90.0]) * size / 100
    assert line.predict(at) == pytest.approx(backward(expected.slope * forward(at / size) + expected.intercept))


def test_line_is_statsmodels() -> None:
    x, y = cloud()
    found = statsmodels.api.OLS(logit(y / 100), statsmodels.api.add_constant(logit(x / 100))).fit()
    line = fit(x, y)
    assert [line.intercept, line.slope] == pytest.approx(found.params, rel=1e-10)
    assert line.r2 == pytest.approx(found.rsquared, rel=1e-10)


def test_testbed_procedure_is_a_plain_loop_over_choice() -> None:
    """The very draws of RandomState(720257663).choice, least squares on each, percentiles lower and higher."""
    x, y = cloud(78)
    u = logit(x / 100)
    v = logit(y / 100)
    rng = np.random.RandomState(720257663)
    grid = np.linspace(u.min(), u.max(), 200)
    coefficients = []
    heights = []
    for _ in range(300):
        index = rng.choice(78, 78)
        design = np.stack([np.ones(78), u[index]], axis=1)
        found = np.linalg.lstsq(design, v[index], rcond=None)[0]
        coefficients.append(found)
        heights.append(found[0] + found[1] * grid)
    line = fit(x, y, resamples=300, procedure="testbed")
    assert line.seed == TESTBED_SEED and line.procedure == "testbed"
    ends = [np.percentile(coefficients, q, axis=0, method=m) for q, m in ((2.5, "lower"), (97.5, "higher"))]  # type: ignore[call-overload]
    assert line.intercept_interval == pytest.approx((ends[0][0], ends[1][0]), rel=1e-9)
    assert line.slope_interval == pytest.approx((ends[0][1], ends[1][1]), rel=1e-9)
    band = line.band(line.grid())
    assert band is not None
    assert logit(band.low / 100) == pytest.approx(np.percentile(heights, 2.5, axis=0, method="lower"), rel=1e-8)
    assert logit(band.high / 100) == pytest.approx(np.percentile(heights, 97.5, axis=0, method="higher"), rel=1e-8)


def test_intervals_are_students_by_default() -> None:
    """Those of scipy's regression; the band from the covariance matrix of the coefficients."""
    x, y = cloud(9)
    u = logit(x / 100)
    v = logit(y / 100)
    line = fit(x, y)
    expected = stats.linregress(u, v)
    quantile = stats.t.ppf(0.975, 7)
    slope = (expected.slope - quantile * expected.stderr, expected.slope + quantile * expected.stderr)
    of_intercept = quantile * expected.intercept_stderr
    assert line.slope_interval == pytest.approx(slope)
    assert line.intercept_interval == pytest.approx(
        (expected.intercept - of_intercept, expected.intercept + of_intercept)
    )
    assert line.procedure == "student" and line.resamples == 0
    coefficients, covariance = np.polyfit(u, v, 1, cov=True)
    grid = np.linspace(u.min() - 1, u.max(), 20)
    design = np.stack([grid, np.ones(20)], axis=1)
    errors = quantile * np.sqrt(np.einsum("ij,jk,ik->i", design, covariance, design))
    band = line.band(100 / (1 + np.exp(-grid)))
    assert band is not None
    np.testing.assert_allclose(logit(band.low / 100), design @ coefficients - errors, rtol=1e-9)
    np.testing.assert_allclose(logit(band.high / 100), design @ coefficients + errors, rtol=1e-9)
    assert fit(x, y, resamples=0).slope_interval is None and fit(x, y, resamples=0).band(x) is None


def test_few_models_are_enough_for_bands_that_hold_the_line() -> None:
    """Percentiles of resamples hold it in 78 to 86 % of cases with 5 models."""
    rng = np.random.default_rng(0)
    held = {"student": 0, "testbed": 0}
    runs = 150
    for _ in range(runs):
        u = rng.normal(1, 0.5, 5)
        v = 0.9 * u - 0.7 + 0.1 * rng.normal(size=5)
        x, y = (100 / (1 + np.exp(-values)) for values in (u, v))
        centre = 100 / (1 + np.exp(-u.mean()))
        true = 100 / (1 + np.exp(-(0.9 * u.mean() - 0.7)))
        for procedure in held:
            band = fit(x, y, procedure=procedure, resamples=200).band(centre)
            assert band is not None
            held[procedure] += bool(band.low[0] <= true <= band.high[0])
    assert held["student"] / runs > 0.91
    assert held["testbed"] < held["student"]


def test_resampled_lines_do_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = cloud(12)
    for name in ("testbed", "shiftbench"):
        whole = resampled_lines(x, y, Procedure.get(name, 3), 500)
        monkeypatch.setattr("shiftbench.studies.fits._BLOCK_CELLS", 12 * 7)
        assert np.array_equal(whole, resampled_lines(x, y, Procedure.get(name, 3), 500), equal_nan=True)
        monkeypatch.undo()


def test_more_resamples_give_the_same_interval() -> None:
    x, y = cloud(78)
    fine = fit(x, y, resamples=20_000)
    rough = fit(x, y, resamples=1000)
    assert fine.band(fine.grid()) is not None
    assert fine.slope_interval is not None and rough.slope_interval is not None
    assert fine.slope_interval == pytest.approx(rough.slope_interval, abs=0.01)


def test_interval_covers_the_truth_as_often_as_it_says() -> None:
    covered = 0
    for seed in range(200):
        line = fit(*cloud(40, seed), resamples=200)
        assert line.slope_interval is not None
        covered += line.slope_interval.low <= 0.9 <= line.slope_interval.high
    assert 170 <= covered <= 200


@given(
    slope=st.floats(0.2, 3),
    intercept=st.floats(-2, 2),
    places=st.lists(st.floats(-3, 3), min_size=3, max_size=12, unique=True),
)
def test_points_on_a_line_give_the_line(slope: float, intercept: float, places: list[float]) -> None:
    u = np.array(places)
    if np.ptp(u) < 1e-2:
        return
    line = fit(inverse_logit(u), inverse_logit(slope * u + intercept), unit="fraction", resamples=0)
    assert line.slope == pytest.approx(slope, rel=1e-5, abs=1e-6)
    assert line.intercept == pytest.approx(intercept, rel=1e-5, abs=1e-6)


def test_same_seed_same_numbers_other_seed_others() -> None:
    x, y = cloud()

    def interval(seed: int) -> object:
        return fit(x, y, seed=seed, procedure="testbed").slope_interval

    assert interval(1) == interval(1) != interval(2)


def test_mappings_are_matched_by_name_and_baseline_by_name() -> None:
    x = {"a": 60.0, "b": 70.0, "c": 80.0, "d": 75.0}
    y = {"d": 99.0, "c": 70.0, "b": 58.0, "a": 47.0}
    line = fit(x, y, baseline=["a", "b", "c"])
    assert line.models == ("a", "b", "c")
    assert line.slope == fit([60, 70, 80], [47, 58, 70]).slope
    assert fit(x, y, baseline=[True, True, True, False]).slope == line.slope
    with raises(StudyError, found="nobody", expected="of a, b, c, d"):
        fit(x, y, baseline=["a", "nobody"])


def test_ends_and_gaps_are_left_out_with_a_word() -> None:
    x = [60.0, 70.0, 80.0, 90.0, 95.0, 50.0]
    y = [40.0, 55.0, 65.0, 100.0, np.nan, 0.0]
    line = fit(x, y, models=list("abcdef"))
    assert line.n == 3 and line.models == ("a", "b", "c")
    assert any("missing: 1 model (e)" in note for note in line.notes)
    assert any("exactly 0 or 100 has no logit: 2 models (d, f)" in note for note in line.notes)
    assert fit(x, y, scale="linear").n == 5
    numbers = [line.slope, line.intercept, line.r2, *(line.slope_interval or ())]
    assert np.isfinite(numbers).all()


def test_two_models_have_a_line_and_no_interval() -> None:
    line = fit([60, 80], [40, 65])
    assert line.slope_interval is None and line.band([70]) is None and line.r2 == pytest.approx(1)
    assert line.as_dict()["slope_interval"] is None
    assert any("two models" in note for note in line.notes)


def test_a_copy_of_a_model_gives_the_line_no_interval() -> None:
    line = fit([60, 70, 70], [50, 61, 61], scale="linear")
    assert line.slope_interval is None and any("copies" in note for note in line.notes)


def test_three_models_say_that_resamples_were_lost() -> None:
    line = fit([60, 70, 80], [40, 52, 65], procedure="testbed")
    assert any("one x only" in note for note in line.notes) and any("rough" in note for note in line.notes)
    assert line.slope_interval is not None and np.isfinite(line.slope_interval).all()


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([60], [50], "at least two models"),
        ([60, np.nan], [50, 40], "at least two models"),
        ([60, 60, 60], [50, 40, 30], "same accuracy on the x axis"),
        ([0.6, 0.7, 0.8], [50, 40, 30], "percent and fractions"),
        ([60, 170], [50, 40], "170"),
        ([-0.1, 0.4], [0.5, 0.4], "-0.1"),
        ([60, 70], [50], "2, 1 values"),
    ],
)
def test_impossible_fits_say_why(x: list[float], y: list[float], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        fit(x, y)


def test_a_model_twice_is_refused() -> None:
    with raises(StudyError, found="a", expected="one row for each model", hint="drop or rename one of them"):
        fit([60, 70, 80], [40, 50, 60], models=["a", "b", "a"])


def test_unknown_names_are_refused() -> None:
    with raises(UnknownNameError, name="logistic"):
        fit([60, 70], [40, 50], scale="logistic")
    with raises(StudyError, found="mine", expected="student, shiftbench or testbed"):
        fit([60, 70], [40, 50], procedure="mine")
    with raises(StudyError, found="permille", expected="percent or fraction"):
        fit([60, 70], [40, 50], unit="permille")
    with raises(StudyError, found=95, expected="between 0 and 1, such as 0.95"):
        fit([60, 70], [40, 50], level=95)


def test_equal_heights_have_no_r2_and_say_so() -> None:
    line = fit([60, 70, 80], [50, 50, 50])
    assert line.slope == pytest.approx(0.0, abs=1e-12) and np.isnan(line.r2)
    assert line.as_dict()["r2"] is None and any("r2 is not defined" in note for note in line.notes)


def test_units() -> None:
    assert recognise_unit({"a": [0.2, 0.3], "b": [0.0, 0.0]}) == "fraction"
    assert recognise_unit({"a": [20, 30], "b": [0.0, np.nan]}) == "percent"
    assert recognise_unit({"a": [20, 30], "b": [0.4, 0.9]}, "percent") == "percent"
    assert recognise_unit({"a": [1.0, 0.5]}) == "fraction"


@pytest.mark.parametrize("scale", SCALES)
def test_scales_are_inverses(scale: str) -> None:
    p = np.linspace(0.001, 0.999, 101)
    assert get_scale(scale).inverse(get_scale(scale).forward(p)) == pytest.approx(p)
    assert inverse_logit([-1000.0, 1000.0]).tolist() == [0.0, 1.0]


def test_knee() -> None:
    x = np.array([56.0, 60, 70, 74, 76.13, 77, 80, 84, 86])
    y = np.array([1.0, 1.1, 1.2, 1.3, 0.0, 3.0, 9.0, 25.0, 33.0])
    knee = fit_piecewise(x, y, models=[f"m{i}" for i in range(9)])
    assert knee.pivot == 76.13 and (knee.below.n, knee.above.n, knee.n) == (4, 4, 8)
    low = linregress(logit(x[:4] / 100), logit(y[:4] / 100))
    high = linregress(logit(x[5:] / 100), logit(y[5:] / 100))
    assert (knee.below.slope, knee.above.slope) == pytest.approx((low.slope, high.slope))
    assert knee.predict([70.0, 76.13, 80.0]) == pytest.approx(
        [knee.below.predict(70.0), knee.below.predict(76.13), knee.above.predict(80.0)]
    )
    band = knee.band([70.0, 80.0])
    assert band is not None and (band.low <= knee.predict([70.0, 80.0])).all()
    assert "m4" in knee.notes[0]
    assert fit_piecewise(x, y, pivot=76.13).above.slope == knee.above.slope


def test_knee_without_a_zero_or_a_side_says_why() -> None:
    with pytest.raises(StudyError, match="no pivot"):
        fit_piecewise([60, 70, 80], [1, 2, 3])
    with pytest.raises(StudyError, match="no line below the pivot 50"):
        fit_piecewise([60, 70, 80], [11, 22, 33], pivot=50)


@pytest.mark.parametrize(("name", "methods"), [("testbed", ("lower", "higher")), ("shiftbench", ("linear", "linear"))])
def test_percentiles_are_numpys(name: str, methods: tuple[str, str]) -> None:
    for n, level in itertools.product((3, 40, 999, 1000, 1001), (0.5, 0.9, 0.95, 0.995)):
        samples = np.random.default_rng(n).normal(size=(3, n))
        tail = round(50 * (1 - level), 10)
        ends = Procedure.get(name, None).interval(samples, level)
        for found, q, method in zip(ends, (tail, 100 - tail), methods, strict=True):
            expected = np.percentile(samples, q, axis=-1, method=method)  # type: ignore[call-overload]
            assert found == pytest.approx(expected, rel=1e-12)
