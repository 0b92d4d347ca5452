"""Cells of a grid that are drawn where a baseline was unsure: unbiased, bounded, and bets on them are fair."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shiftbench.arrays import BoolArray, IntArray
from shiftbench.metrics.cells import BINS, FLOORS, CellPool, DisagreementRates

RATES = {
    "unknown": DisagreementRates.unknown(),
    "wrong": DisagreementRates(np.full(BINS, 100.0), np.linspace(0, 90, BINS)),
}


def pool_of(rng: np.random.Generator, images: int = 40, settings: int = 5) -> CellPool:
    confidence = rng.random((settings, images))
    was_right = rng.random((settings, images)) < confidence
    numbers = np.repeat(np.arange(settings), images)
    return CellPool(numbers, np.tile(np.arange(images), settings), was_right.ravel(), confidence.ravel())


@pytest.mark.parametrize("rates", RATES.values(), ids=RATES)
def test_the_expected_loss_of_a_draw_is_the_drop_over_all_cells(rates: DisagreementRates) -> None:
    """Exactly, whatever the rates are, also where settings have images missing and for a part of the cells."""
    rng = np.random.default_rng(0)
    pool = pool_of(rng)
    kept = rng.random(len(pool)) < 0.8
    pool = CellPool(pool.settings[kept], pool.images[kept], pool.was_right[kept], pool.confidence[kept])
    is_right = rng.random(len(pool)) < 0.6
    losses = pool.was_right.astype(float) - is_right
    chances = pool.densities(rates)[pool.bins]
    assert chances.min() >= FLOORS[0] and chances.mean() == pytest.approx(1)
    for members in (np.ones(len(pool), bool), pool.settings < 2, pool.images % 3 == 0):
        every_cell = np.arange(len(pool))
        drop = pool.drop(members, every_cell, is_right, rates, 0.01)
        expected = float(drop.losses @ chances[members]) / float(chances[members].sum())
        by_setting = [
            losses[members & (pool.settings == number)].mean() for number in np.unique(pool.settings[members])
        ]
        assert expected == pytest.approx(np.mean(by_setting))
        assert np.abs(drop.losses).max() <= drop.bound + 1e-12


def test_cells_are_drawn_by_their_density_and_more_draws_begin_with_the_fewer_ones() -> None:
    pool = pool_of(np.random.default_rng(1))
    draws = pool.drawn(RATES["wrong"], 60_000, seed=3)
    np.testing.assert_array_equal(draws[:100], pool.drawn(RATES["wrong"], 100, seed=3))
    share = np.bincount(draws, minlength=len(pool)) / len(draws)
    expected = pool.densities(RATES["wrong"])[pool.bins] / len(pool)
    assert np.abs(share - expected).max() < 6 * math.sqrt(expected.max() / len(draws))


def _with_drop(pool: CellPool, target: float, where: str, rng: np.random.Generator) -> IntArray:
    """The losses of a candidate whose drop is the target: 1 for cells that it lost, -1 for those that it won."""
    losses = np.zeros(len(pool), np.int64)
    changed = rng.random(len(pool)) < 0.04 * (1 - pool.confidence)
    losses[changed] = np.where(pool.was_right[changed], 1, -1)
    needed = round(target * len(pool)) - int(losses.sum())
    unchanged = np.flatnonzero((losses == 0) & pool.was_right)
    by_confidence = unchanged[np.argsort(pool.confidence[unchanged])]
    more = by_confidence[-needed:] if where == "sure" else by_confidence[:needed]
    losses[more] = 1
    return losses


@pytest.mark.parametrize("where", ["sure", "unsure"])
@pytest.mark.parametrize("rates", RATES.values(), ids=RATES)
def test_a_drop_of_the_margin_is_shown_to_be_less_in_at_most_alpha_of_runs(
    rates: DisagreementRates, where: str
) -> None:
    """At any time, also if all losses are in cells in which the baseline was right and sure."""
    rng = np.random.default_rng(2)
    pool = pool_of(rng, images=400)
    losses = _with_drop(pool, 0.03, where, rng)
    is_right: BoolArray = np.asarray(pool.was_right - losses == 1)
    every_cell = np.ones(len(pool), bool)
    runs = 200
    passed = 0
    for seed in range(runs):
        draws = pool.drawn(rates, 1500, seed)
        passed += pool.drop(every_cell, draws, is_right[draws], rates, 0.03).p_within(0.03) <= 0.05
    assert passed / runs <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / runs)


def test_rates_that_fit_decide_with_fewer_cells() -> None:
    rng = np.random.default_rng(4)
    pool = pool_of(rng, images=400)
    losses = np.where(rng.random(len(pool)) < 0.3 * (1 - pool.confidence) ** 4, np.where(pool.was_right, 1, -1), 0)
    is_right: BoolArray = np.asarray(pool.was_right - losses == 1)
    seen = pool.drawn(RATES["unknown"], 3000, 9)
    learnt = pool.seen(seen, is_right[seen])
    assert learnt.changed.sum() == np.count_nonzero(losses[seen])
    squares = []
    for rates in (DisagreementRates(np.full(BINS, 1e9), np.full(BINS, 1e8)), learnt):
        draws = pool.drawn(rates, 4000, 1)
        squares.append(pool.drop(np.ones(len(pool), bool), draws, is_right[draws], rates, 0.01).square)
    assert squares[1] < 0.85 * squares[0]


def test_cells_are_drawn_more_evenly_where_models_hardly_ever_disagree() -> None:
    """A single cell then weighs less, so that more can be staked on each."""
    pool = pool_of(np.random.default_rng(5), images=400)
    seen = np.full(BINS, 1000.0)
    smallest = []
    for rate in (0.1, 0.001):
        unsure_first = np.tile(np.linspace(2 * rate, 0, BINS // 2), 2)
        smallest.append(float(pool.densities(DisagreementRates(seen, seen * unsure_first)).min()))
    assert smallest[0] < 0.65 < smallest[1]
