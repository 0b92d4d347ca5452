"""Intervals against SciPy and statsmodels, and their edges."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from shiftbench.errors import ShiftbenchError
from shiftbench.metrics.intervals import (
    clopper_pearson,
    images_needed,
    images_needed_to_tell_apart,
    mcnemar_power,
    mean_interval,
)
from shiftbench.metrics.paired import mcnemar
from tests.raised import raises

COUNTS = [(0, 1), (1, 1), (0, 20), (20, 20), (1, 7), (87, 114), (38065, 50000), (49999, 50000), (1, 50000)]


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.995])
@pytest.mark.parametrize(("k", "n"), COUNTS)
def test_equals_statsmodels(k: int, n: int, level: float) -> None:
    expected = proportion_confint(k, n, alpha=1 - level, method="beta")
    assert tuple(clopper_pearson(k, n, level)) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_arrays_equal_single_calls() -> None:
    k, n = np.array(COUNTS).T
    low, high = clopper_pearson(k, n)
    assert low.shape == (len(COUNTS),)
    for i, (hits, total) in enumerate(COUNTS):
        assert (low[i], high[i]) == tuple(clopper_pearson(hits, total))


def test_broadcasts_over_a_table() -> None:
    low, high = clopper_pearson(np.arange(6)[:, None], np.array([5, 10]))
    assert low.shape == high.shape == (6, 2)
    assert high[5, 0] == 1.0 and high[5, 1] < 1.0


def test_without_images_nothing_is_known() -> None:
    assert tuple(clopper_pearson(0, 0)) == (0.0, 1.0)


def test_fractional_counts_as_published_tables_need() -> None:
    """The testbed: level 0.995 and k = accuracy * n, not rounded."""
    k = 0.7613 * 8
    n = 8
    low, high = clopper_pearson(k, n, 0.995)
    tail = 0.0025
    assert low == pytest.approx(scipy.stats.beta.ppf(tail, k, n - k + 1))
    assert high == pytest.approx(scipy.stats.beta.ppf(1 - tail, k + 1, n - k))


@pytest.mark.parametrize(("k", "n"), [(-1, 5), (6, 5), (float("nan"), 5), (1, float("inf"))])
def test_impossible_counts_are_refused(k: float, n: float) -> None:
    with raises(ShiftbenchError, expected="0 <= k <= n"):
        clopper_pearson(k, n)


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0, -0.1])
def test_impossible_levels_are_refused(level: float) -> None:
    with raises(ShiftbenchError, expected="between 0 and 1, such as 0.95"):
        clopper_pearson(1, 2, level)


# Away from denormal p, where SciPy's own binomial overflows.
@given(st.integers(1, 60), st.floats(1e-9, 1.0), st.sampled_from([0.8, 0.95]))
def test_covers_at_least_its_level(n: int, p: float, level: float) -> None:
    """The promise of the exact interval, by summing the binomial over all outcomes."""
    k = np.arange(n + 1)
    low, high = clopper_pearson(k, np.full(n + 1, n), level)
    covered = scipy.stats.binom.pmf(k, n, p)[(low <= p) & (p <= high)].sum()
    assert covered >= level - 1e-9


@given(st.integers(1, 500), st.data())
def test_mirrored_and_around_the_value(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    low, high = clopper_pearson(k, n)
    assert 0 <= low <= k / n <= high <= 1
    assert tuple(clopper_pearson(n - k, n)) == pytest.approx((1 - high, 1 - low))


@settings(max_examples=40)
@given(st.floats(0.005, 0.45), st.floats(0.0, 1.0), st.sampled_from([0.8, 0.95, 0.995]))
def test_images_needed_is_the_first_that_suffices(half: float, accuracy: float, level: float) -> None:
    n = images_needed(half, accuracy=accuracy, level=level)
    assert clopper_pearson(accuracy * n, n, level).width <= 2 * half
    assert n == 1 or clopper_pearson(accuracy * (n - 1), n - 1, level).width > 2 * half


def test_images_needed_counts_both_sides() -> None:
    """Plus-minus one point at 50 %: about (1.96 / 0.02)² = 9,604, and a little more to be exact."""
    assert images_needed(0.01) == 9701


def test_the_default_is_the_worst_case() -> None:
    n = images_needed(0.05)
    low, high = clopper_pearson(np.arange(n + 1), n)
    assert (high - low).max() <= 0.1


@pytest.mark.parametrize("half", [0.0, -0.1, 1.0, 5.0])
def test_images_needed_refuses_points_for_fractions(half: float) -> None:
    with raises(ShiftbenchError, expected="a fraction between 0 and 1", hint="one point is 0.01"):
        images_needed(half)


@pytest.mark.parametrize(("gap", "disagreement"), [(0.1, 0.2), (0.05, 0.1), (0.15, 0.5)])
def test_images_to_tell_apart_give_the_asked_power(gap: float, disagreement: float) -> None:
    """Exact power of McNemar's test at that n, by summing over all outcomes."""
    n = images_needed_to_tell_apart(gap, disagreement=disagreement, power=0.8)
    power = 0.0
    for m in range(n + 1):
        weight = scipy.stats.binom.pmf(m, n, disagreement)
        if weight > 1e-9:
            b = np.arange(m + 1)
            shown = mcnemar(b, m - b) <= 0.05
            favours = scipy.stats.binom.pmf(b, m, (disagreement + gap) / 2 / disagreement)
            power += weight * favours[shown].sum()
    assert 0.8 <= power < 0.84
    assert mcnemar_power(n, gap, disagreement) == pytest.approx(power, abs=1e-6)


def test_less_disagreement_than_difference_is_impossible() -> None:
    with raises(ShiftbenchError, found="disagreement 0.05, difference 0.1", expected="disagreement >= difference"):
        images_needed_to_tell_apart(0.1, disagreement=0.05)


@pytest.mark.parametrize("shared", [0.0, 0.5, 1.0])
def test_the_interval_of_a_mean_over_sets_covers(shared: float) -> None:
    """Four sets of 120 images, of which a share is common to all: the nominal level, where the mean of the limits is
    far above it unless all images are common."""
    rng = np.random.default_rng(3)
    sets = 4
    size = 120
    runs = 1500
    common = int(shared * size)
    chance = np.array([0.9, 0.7, 0.6, 0.8])
    correlation = np.where(np.eye(sets, dtype=bool), 1.0, common / size)
    covered = wide = 0
    for _ in range(runs):
        # A hard image is hard in every set.
        hardness = np.concatenate([np.tile(rng.random(common), (sets, 1)), rng.random((sets, size - common))], axis=1)
        hits = (hardness < chance[:, None]).sum(axis=1)
        low, high = clopper_pearson(hits, size)
        found = mean_interval(hits / size, low, high, correlation)
        covered += found.low <= chance.mean() <= found.high
        wide += low.mean() <= chance.mean() <= high.mean()
    assert 0.945 <= covered / runs <= 0.985
    assert wide >= covered and (shared == 1.0 or wide / runs > 0.985)


def test_the_mean_of_estimates_with_all_in_common_has_the_mean_of_the_limits() -> None:
    found = mean_interval([0.2, 0.6], [0.1, 0.5], [0.4, 0.9], np.ones((2, 2)))
    assert tuple(found) == pytest.approx((0.3, 0.65))
    assert tuple(mean_interval([0.2, 0.6], [0.1, 0.5], [0.4, 0.9], np.eye(2))) == pytest.approx(
        (0.4 - 0.02**0.5 / 2, 0.4 + 0.13**0.5 / 2)
    )
