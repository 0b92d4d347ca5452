"""Krippendorff's alpha against the package of that name, and against its definition."""

from __future__ import annotations

import math

import krippendorff
import numpy as np
import pytest

from shiftbench.errors import ShiftbenchError
from shiftbench.testsets.frequencies import krippendorff_alpha


@pytest.mark.parametrize("seed", range(20))
def test_against_the_package(seed: int) -> None:
    """Coders with gaps, over images of every difficulty."""
    rng = np.random.default_rng(seed)
    coders = int(rng.integers(2, 12))
    images = int(rng.integers(2, 80))
    answers = (rng.random((coders, images)) < rng.random(images)).astype(float)
    answers[rng.random(answers.shape) < 0.4] = np.nan
    yes = np.nansum(answers, axis=0)
    total = (~np.isnan(answers)).sum(axis=0)
    agreement = krippendorff_alpha(yes, total, resamples=10)
    paired = total >= 2
    if len(np.unique(answers[:, paired][~np.isnan(answers[:, paired])])) < 2:
        assert math.isnan(agreement.alpha)
        return
    expected = krippendorff.alpha(reliability_data=answers, level_of_measurement="nominal", value_domain=[0, 1])
    assert agreement.alpha == pytest.approx(expected, abs=1e-12)
    assert (agreement.images, agreement.answers) == (int(paired.sum()), int(total[paired].sum()))


def test_ends_of_the_scale() -> None:
    assert krippendorff_alpha([3, 0, 3, 0], [3, 3, 3, 3]).alpha == 1.0
    assert krippendorff_alpha([1, 1, 1, 1], [2, 2, 2, 2]).alpha < 0
    rng = np.random.default_rng(0)
    chance = krippendorff_alpha(rng.binomial(10, 0.4, 3000), np.full(3000, 10))
    assert abs(chance.alpha) < 0.02 and chance.low <= chance.alpha <= chance.high


@pytest.mark.parametrize(("yes", "total"), [([], []), ([1], [1]), ([3, 3], [3, 3]), ([0, 0], [2, 5])])
def test_nothing_to_agree_on(yes: list[int], total: list[int]) -> None:
    agreement = krippendorff_alpha(yes, total)
    assert math.isnan(agreement.alpha) and math.isnan(agreement.low)


def test_the_interval_covers() -> None:
    """Of 200 samples of a large population 95 % intervals should hold its alpha about 190 times."""
    rng = np.random.default_rng(1)
    shares = rng.beta(0.5, 0.5, 20_000)
    population_alpha = krippendorff_alpha(rng.binomial(10, shares), np.full(20_000, 10), resamples=2).alpha
    hits = 0
    for seed in range(200):
        some = rng.choice(shares, 100)
        agreement = krippendorff_alpha(rng.binomial(10, some), np.full(100, 10), resamples=200, seed=seed)
        hits += agreement.low <= population_alpha <= agreement.high
    assert 176 <= hits <= 199


def test_impossible_counts() -> None:
    with pytest.raises(ShiftbenchError, match="answer counts"):
        krippendorff_alpha([3], [2])
