"""Tests of a drop against a margin: their error rates, by exact enumeration and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import multinomial

from shiftbench.metrics.paired import Drop
from shiftbench.studies.gate_power import images_to_fail, images_to_pass, planned_numbers, shrunk_squares

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
    rng = np.random.default_rng(1)
    power = 0.8
    strict = ALPHA / 5
    runs = 1000
    pilot = drop(round(2000 * disagreement), round(2000 * disagreement), 4000)
    tolerance = 3 * math.sqrt(power * (1 - power) / runs)
    numbers = planned_numbers([pilot], margin, 4000)
    n = images_to_pass(numbers, ALPHA, power)
    same = rng.multinomial(n, [disagreement / 2, disagreement / 2, 1 - disagreement], size=runs)
    passed = np.mean([drop(lost, won, n).p_within(margin) <= ALPHA for lost, won, _ in same])
    assert passed >= power - tolerance
    if disagreement:  # not many more images than needed; without disagreement all pass, or none
        assert passed <= power + 0.1 + tolerance
    n = images_to_fail(numbers, strict, power)
    lost_share = disagreement / 2 + 2 * margin
    worse = rng.multinomial(n, [lost_share, disagreement / 2, 1 - lost_share - disagreement / 2], size=runs)
    failed = np.mean([drop(lost, won, n).p_beyond(margin) <= strict for lost, won, _ in worse])
    assert power - tolerance <= failed <= power + 0.1 + tolerance


def test_a_rule_passes_only_with_all_of_its_numbers() -> None:
    """Fifteen numbers of different images: each must pass, so that each needs more than the power of the rule."""
    rng = np.random.default_rng(2)
    power = 0.8
    disagreement = 0.05
    numbers = planned_numbers([drop(10, 10, 400)] * 15, 0.03, 15 * 400)
    n = images_to_pass(numbers, ALPHA, power) // 15
    assert images_to_pass(numbers[:1], ALPHA, power) < 15 * n / 1.5
    draws = rng.multinomial(n, [disagreement / 2, disagreement / 2, 1 - disagreement], size=(400, 15))
    passed = [all(drop(lost, won, n).p_within(0.03) <= ALPHA for lost, won, _ in rule) for rule in draws]
    assert abs(np.mean(passed) - power) <= 0.08 + 3 * math.sqrt(power * (1 - power) / 400)


def test_a_model_against_itself_does_not_ask_for_many_images() -> None:
    """1,400 images under one of 15 corruptions each: no disagreement was seen, so that few images more suffice."""
    numbers = planned_numbers([drop(0, 0, 93)] * 15, 0.03, 1400)
    assert images_to_pass(numbers, ALPHA, 0.8) < 2800


def test_few_images_of_many_numbers_are_judged_by_their_common_disagreement() -> None:
    """A class that shows three disagreements by chance, among a hundred, is not taken for three times as changed."""
    rng = np.random.default_rng(3)
    drops = [drop(lost, won, 30) for lost, won, _ in rng.multinomial(30, [0.02, 0.02, 0.96], size=100)]
    squares = shrunk_squares(drops)
    assert max(one.square for one in drops) > 0.12
    assert squares.max() < 0.07
    # Numbers that do differ keep their own.
    apart = [drop(5, 5, 1000), drop(100, 100, 1000)] * 5
    assert shrunk_squares(apart) == pytest.approx([0.01, 0.2] * 5, abs=0.01)


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
