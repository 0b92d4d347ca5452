"""Evidence by betting: exact properties by enumeration, error rates under unlimited looks, and the images needed."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from shiftbench.arrays import FloatArray
from shiftbench.metrics.betting import Drop
from shiftbench.studies.gate_power import (
    PlannedNumber,
    images_to_fail,
    images_to_pass,
    planned_numbers,
    shrunk_squares,
    smallest_margin,
)

ALPHA = 0.05


def shuffled(lost: int, won: int, n: int, margin: float = 0.01, seed: int = 0) -> Drop:
    losses = np.repeat([1.0, -1.0, 0.0], [lost, won, n - lost - won])
    return Drop(np.random.default_rng(seed).permutation(losses), margin)


def sample(rng: np.random.Generator, n: int, disagreement: float, drop: float) -> FloatArray:
    lost = (disagreement + drop) / 2
    return rng.choice([1.0, -1.0, 0.0], size=n, p=[lost, disagreement - lost, 1 - disagreement])


@pytest.mark.parametrize("margin", [0.02, 0.1, 0.4])
@pytest.mark.parametrize("gains", [0.0, 0.1])
@pytest.mark.parametrize("alpha", [0.05, 0.3, 0.6])
def test_the_probability_of_a_wrong_decision_at_any_time_is_at_most_alpha(
    margin: float, gains: float, alpha: float
) -> None:
    """Every sequence of seven losses, with its probability if the drop is the margin: no sampling error."""
    chances = {1.0: margin + gains, -1.0: gains, 0.0: 1 - margin - 2 * gains}
    within = 0.0
    beyond = 0.0
    for losses in itertools.product(chances, repeat=7):
        chance = math.prod(chances[loss] for loss in losses)
        drop = Drop(np.array(losses), margin)
        within += chance * (drop.p_within(margin) <= alpha)
        beyond += chance * (drop.p_beyond(margin) <= alpha)
    assert within <= alpha
    assert beyond <= alpha


def test_the_wealth_is_a_fair_game_at_the_margin() -> None:
    """The expected wealth after each number of images is exactly 1, over all sequences of losses."""
    margin = 0.1
    chances = {1.0: 0.25, -1.0: 0.15, 0.0: 0.6}
    for n in (1, 3, 6):
        expected = 0.0
        for losses in itertools.product(chances, repeat=n):
            drop = Drop(np.array(losses), margin)
            gains = margin - drop.losses
            stakes = np.minimum(drop._stakes, 0.9 / (1 - margin))
            expected += math.prod(chances[loss] for loss in losses) * float(np.prod(1 + stakes * gains))
        assert expected == pytest.approx(1.0)


def test_stakes_do_not_depend_on_losses_to_come() -> None:
    losses = sample(np.random.default_rng(0), 60, 0.4, 0.0)
    stakes = Drop(losses, 0.05)._stakes
    for n in (1, 10, 59):
        changed = losses.copy()
        changed[n:] = 1.0
        assert Drop(changed, 0.05)._stakes[: n + 1] == pytest.approx(stakes[: n + 1])


@pytest.mark.parametrize("disagreement", [0.02, 0.12])
def test_looking_after_every_image_does_not_raise_the_false_passes(disagreement: float) -> None:
    """A test of a fixed number of images passes 12 to 18 % of such candidates if it is repeated with more images."""
    rng = np.random.default_rng(1)
    runs = 400
    passed = 0
    for _ in range(runs):
        drop = Drop(sample(rng, 8000, disagreement, 0.01), 0.01)
        passed += drop.p_within(0.01) <= ALPHA
    assert passed / runs <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / runs)


def test_evidence_only_grows_as_images_are_added() -> None:
    losses = sample(np.random.default_rng(2), 3000, 0.05, 0.0)
    p_values = [Drop(losses[:n], 0.02).p_within(0.02) for n in range(100, 3001, 100)]
    assert all(later <= earlier for earlier, later in itertools.pairwise(p_values))
    assert p_values[-1] <= ALPHA < p_values[0]


@pytest.mark.parametrize("margin", [0.01, 0.05])
@pytest.mark.parametrize("disagreement", [0.005, 0.02, 0.08])
def test_images_needed_give_the_power(margin: float, disagreement: float) -> None:
    """Of an unchanged model to be shown within the margin, and of one that lost twice the margin to be beyond."""
    rng = np.random.default_rng(1)
    power = 0.8
    strict = ALPHA / 5
    runs = 150
    square = disagreement
    changed = round(2000 * disagreement)
    pilot = shuffled(changed, changed, 4000, margin)
    numbers = [PlannedNumber(pilot, margin, 1.0, square)]
    noise = 3 * math.sqrt(power * (1 - power) / runs)

    def passed(n: int) -> float:
        drops = [Drop(sample(rng, n, disagreement, 0.0), margin) for _ in range(runs)]
        return float(np.mean([drop.p_within(margin) <= ALPHA for drop in drops]))

    def failed(n: int) -> float:
        total = disagreement + 2 * margin
        drops = [Drop(sample(rng, n, total, 2 * margin), margin) for _ in range(runs)]
        return float(np.mean([drop.p_beyond(margin) <= strict for drop in drops]))

    # Right within 20 %: with a fifth more images the power is reached, with a fifth fewer it is not.
    n = images_to_pass(numbers, ALPHA, power)
    assert passed(round(1.2 * n)) >= power - noise
    assert passed(round(0.8 * n)) <= power + noise
    n = images_to_fail(numbers, strict, power)
    assert failed(round(1.2 * n)) >= power - noise


def test_the_smallest_margin_is_the_one_that_the_images_suffice_for() -> None:
    numbers = planned_numbers([shuffled(40, 40, 2000, 0.02)], 2000)
    margin = smallest_margin(numbers, ALPHA, 0.8, 2000)
    assert 0.01 < margin < 0.02
    of_margin = [PlannedNumber(numbers[0].drop, margin, 1.0, numbers[0].square)]
    assert images_to_pass(of_margin, ALPHA, 0.8) == pytest.approx(2000, rel=0.02)


def test_a_rule_passes_only_with_all_of_its_numbers() -> None:
    """Fifteen numbers of different images: each must pass, so that each needs more than the power of the rule."""
    rng = np.random.default_rng(2)
    power = 0.8
    disagreement = 0.05
    runs = 60
    numbers = planned_numbers([shuffled(10, 10, 400, 0.03)] * 15, 15 * 400)
    n = images_to_pass(numbers, ALPHA, power) // 15
    assert images_to_pass(numbers[:1], ALPHA, power) < 15 * n / 1.5
    passed = []
    for _ in range(runs):
        rule = [Drop(sample(rng, n, disagreement, 0.0), 0.03) for _ in range(15)]
        passed.append(all(drop.p_within(0.03) <= ALPHA for drop in rule))
    assert abs(np.mean(passed) - power) <= 0.1 + 3 * math.sqrt(power * (1 - power) / runs)


def test_few_images_of_many_numbers_are_judged_by_their_common_disagreement() -> None:
    """A class that shows three disagreements by chance, among a hundred, is not taken for three times as changed."""
    rng = np.random.default_rng(3)
    counts = rng.multinomial(30, [0.02, 0.02, 0.96], size=100)
    drops = [shuffled(lost, won, 30) for lost, won, _ in counts]
    squares = shrunk_squares(drops)
    assert max(drop.square for drop in drops) > 0.12
    assert squares.max() < 0.07
    # Numbers that do differ keep their own.
    apart = [shuffled(5, 5, 1000), shuffled(100, 100, 1000)] * 5
    assert shrunk_squares(apart) == pytest.approx([0.01, 0.2] * 5, abs=0.01)


def test_a_drop_is_the_mean_over_settings_of_means_over_images() -> None:
    rng = np.random.default_rng(0)
    images = np.array([4, 7, 9, 4, 7, 7, 9, 2])
    parts = np.array([0, 0, 0, 3, 3, 5, 5, 5])
    values = rng.integers(-1, 2, 8).astype(float)
    drop = Drop.of(images, parts, values, 0.01)
    assert drop.value == pytest.approx(np.mean([values[parts == part].mean() for part in (0, 3, 5)]))
    losses = []
    for image in (2, 4, 7, 9):
        rows = np.flatnonzero(images == image)
        losses.append(sum(values[row] * 4 / (3 * (parts == parts[row]).sum()) for row in rows))
    assert drop.losses == pytest.approx(losses)
    assert np.abs(drop.losses).max() <= drop.bound


def test_the_mean_is_unbiased_over_all_assignments_of_a_design() -> None:
    """Four images, two shifts, each image under one of them: over all balanced assignments the mean is the true one."""
    losses = np.array([[1.0, 0.0], [0.0, -1.0], [1.0, 1.0], [0.0, 0.0]])
    values = []
    for assignment in itertools.product((0, 1), repeat=4):
        parts = np.array(assignment)
        if parts.sum() == 2:
            values.append(Drop.of(np.arange(4), parts, losses[np.arange(4), parts], 0.01).value)
    assert len(values) == 6
    assert np.mean(values) == pytest.approx(losses.mean())


def test_the_interval_holds_what_the_tests_do_not_reject() -> None:
    drop = shuffled(12, 5, 300)
    low, high = drop.interval(ALPHA)
    assert low < drop.value < high
    assert drop.p_within(high) == pytest.approx(ALPHA, abs=1e-5)
    assert drop.p_beyond(low) == pytest.approx(ALPHA, abs=1e-5)


def test_models_that_never_disagree_need_images_all_the_same() -> None:
    assert shuffled(0, 0, 300).p_within(0.01) > ALPHA
    assert shuffled(0, 0, 500).p_within(0.01) < ALPHA


def test_nothing_is_decided_without_images() -> None:
    nothing = Drop.of(np.array([], int), np.array([], int), np.array([]), 0.1)
    assert nothing.p_within(0.1) == nothing.p_beyond(0.1) == 1.0
    assert all(math.isnan(end) for end in nothing.interval(ALPHA))
    assert shuffled(1, 0, 1).p_beyond(0.1) > 0.5
