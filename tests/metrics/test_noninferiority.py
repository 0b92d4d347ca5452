"""Tests of a drop against a margin: their error rates, by exact enumeration and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import multinomial

from shiftbench.metrics.paired import Drop

ALPHA = 0.05


def drop(lost: int, won: int, n: int) -> Drop:
    return Drop(n, (lost - won) / n, (lost + won) / n)


@pytest.mark.parametrize("n", [10, 25, 60])
@pytest.mark.parametrize("margin", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("gains", [0.0, 0.02, 0.1, 0.3])
@pytest.mark.parametrize("alpha", [ALPHA, 0.005])
def test_exact_error_rates_at_the_margin(n: int, margin: float, gains: float, alpha: float) -> None:
    """The probability of each wrong decision if the drop is the margin, summed over all outcomes."""
    shares = [margin + gains, gains, 1 - margin - 2 * gains]
    counts = np.array([(lost, won, n - lost - won) for lost in range(n + 1) for won in range(n + 1 - lost)])
    chances = multinomial.pmf(counts, n, shares)
    likely = [(drop(lost, won, n), p) for (lost, won, _), p in zip(counts.tolist(), chances, strict=True) if p > 1e-9]
    within = sum(p for one, p in likely if one.p_within(margin) <= alpha)
    beyond = sum(p for one, p in likely if one.p_beyond(margin) <= alpha)
    assert within <= alpha * 1.02
    assert beyond <= alpha * 1.02


@pytest.mark.parametrize("margin", [0.01, 0.05])
@pytest.mark.parametrize("disagreement", [0.0, 0.02, 0.2])
def test_images_needed_give_the_power(margin: float, disagreement: float) -> None:
    """Of an unchanged model to be shown within the margin, and of one that lost twice the margin to be beyond."""
    rng, power, strict = np.random.default_rng(1), 0.8, ALPHA / 5
    pilot = drop(round(2000 * disagreement), round(2000 * disagreement), 4000)
    n = pilot.images_needed(margin, ALPHA, strict, power)
    same = rng.multinomial(n, [disagreement / 2, disagreement / 2, 1 - disagreement], size=1000)
    worse = rng.multinomial(n, [disagreement / 2 + 2 * margin, disagreement / 2, 1 - disagreement - 2 * margin], 1000)
    tolerance = 3 * math.sqrt(power * (1 - power) / 1000)
    assert np.mean([drop(b, c, n).p_within(margin) <= ALPHA for b, c, _ in same]) >= power - tolerance
    assert np.mean([drop(b, c, n).p_beyond(margin) <= strict for b, c, _ in worse]) >= power - tolerance


def test_a_drop_is_the_mean_over_settings_of_means_over_images() -> None:
    rng = np.random.default_rng(0)
    images = np.array([4, 7, 9, 4, 7, 7, 9, 2])
    parts = np.array([0, 0, 0, 3, 3, 5, 5, 5])
    values = rng.integers(-1, 2, 8).astype(float)
    found = Drop.of(images, parts, values)
    assert found.value == pytest.approx(np.mean([values[parts == part].mean() for part in (0, 3, 5)]))
    each = [
        sum(values[i] * 4 / (3 * (parts == parts[i]).sum()) for i in range(8) if images[i] == image)
        for image in (2, 4, 7, 9)
    ]
    assert found.n == 4
    assert found.square == pytest.approx(np.mean(np.square(each)))


def test_one_setting_is_counted_image_by_image() -> None:
    found = Drop.of(np.arange(50), np.zeros(50, int), np.repeat([1.0, -1.0, 0.0], [5, 2, 43]))
    assert found == drop(5, 2, 50)


def test_the_interval_holds_what_the_tests_do_not_reject() -> None:
    one = drop(12, 5, 300)
    low, high = one.interval(ALPHA)
    assert low < one.value < high
    assert one.p_within(high) == pytest.approx(ALPHA, abs=1e-6)
    assert one.p_beyond(low) == pytest.approx(ALPHA, abs=1e-6)


def test_models_that_never_disagree_need_images_all_the_same() -> None:
    # Without a disagreement the rule of three allows a drop of 3/n.
    assert drop(0, 0, 100).p_within(0.01) > ALPHA
    assert drop(0, 0, 400).p_within(0.01) < ALPHA


def test_nothing_is_decided_without_images() -> None:
    nothing = Drop.of(np.array([], int), np.array([], int), np.array([]))
    assert nothing.p_within(0.1) == nothing.p_beyond(0.1) == 1.0
    assert drop(1, 0, 1).p_beyond(0.1) == 1.0
