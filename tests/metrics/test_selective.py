"""AURRA, its curve and soft F1 against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import auc

from shiftbench.errors import ShiftbenchError
from shiftbench.metrics import aurra, clopper_pearson, response_rate_accuracy, soft_f1
from tests.raised import raises

rows = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40)


def aurra_in_words(confidence: list[float], correct: list[bool]) -> float:
    """Later images first among equals: what argsort, turned round, gives."""
    order = sorted(range(len(confidence)), key=lambda i: (confidence[i], i), reverse=True)
    return float(np.mean([np.mean([correct[i] for i in order[:k]]) for k in range(1, len(order) + 1)]))


@given(rows)
@settings(deadline=None)
def test_aurra_in_words(found: list[tuple[float, bool]]) -> None:
    confidence, correct = (list(column) for column in zip(*found, strict=True))
    value = aurra(confidence, correct)
    assert value == pytest.approx(aurra_in_words(confidence, correct))
    assert 0.0 <= value <= 1.0


@given(st.lists(st.tuples(st.integers(-50, 50), st.booleans()), min_size=1, max_size=30))
@settings(deadline=None)
def test_aurra_sees_only_the_order(found: list[tuple[int, bool]]) -> None:
    confidence, correct = (np.array(column) for column in zip(*found, strict=True))
    value = aurra(confidence, correct)
    assert aurra(np.exp(confidence / 20), correct) == pytest.approx(value)
    assert aurra(3.0 * confidence - 7, correct) == pytest.approx(value)


@given(st.lists(st.booleans(), min_size=1, max_size=30))
def test_knowing_ones_errors_is_best(correct: list[bool]) -> None:
    hits = np.array(correct)
    noise = np.random.default_rng(0).random(len(hits)) / 10
    best = aurra(hits + noise, hits)
    worst = aurra(~hits + noise, hits)
    assert worst <= aurra(noise, hits) + 1e-12 <= best + 2e-12
    # With the right ones first: accuracy 1 up to their number r, then r/k.
    r = int(hits.sum())
    n = len(hits)
    assert best == pytest.approx((r + r * sum(1 / k for k in range(r + 1, n + 1))) / n)


def test_aurra_at_the_ends() -> None:
    assert aurra([0.3, 0.3, 1.0], [True] * 3) == 1.0
    assert aurra([0.3, 0.3, 1.0], [False] * 3) == 0.0
    assert aurra([0.5], [True]) == 1.0
    # Ties: the later image first.
    assert aurra([0.5, 0.5], [True, False]) == 0.25
    assert aurra([0.5, 0.5], [False, True]) == 0.75
    for bad, fact in (([math.nan, 0.5], "nan"), ([0.5], "1 and 2")):
        with pytest.raises(ShiftbenchError, match=fact):
            aurra(bad, [True, False])
    with raises(ShiftbenchError, found="shape (0,)", expected="(n,)"):
        aurra([], [])


def test_the_curve_carries_the_area() -> None:
    rng = np.random.default_rng(1)
    confidence = rng.random(2000)
    correct = rng.random(2000) < confidence
    curve = response_rate_accuracy(confidence, correct)
    assert curve.accuracy.mean() == pytest.approx(aurra(confidence, correct))
    assert curve.accuracy[-1] == correct.mean() and curve.rate[-1] == 1.0
    # A trapezoid area differs only by its first step.
    assert auc(curve.rate, curve.accuracy) == pytest.approx(aurra(confidence, correct), abs=1e-3)
    most = np.argsort(confidence)[-200:]
    assert curve.accuracy[199] == correct[most].mean()
    assert (curve.low[199], curve.high[199]) == pytest.approx(tuple(clopper_pearson(correct[most].sum(), 200)))


@pytest.mark.parametrize("points", [1, 7, 50, 51, 500])
def test_a_thinned_curve_lies_on_the_whole_one(points: int) -> None:
    rng = np.random.default_rng(2)
    confidence = rng.random(51)
    correct = rng.random(51) < 0.5
    whole = dict(zip(*response_rate_accuracy(confidence, correct)[:2], strict=True))
    thin = response_rate_accuracy(confidence, correct, points=points)
    assert len(thin.rate) == min(points, 51) - (points >= 51)
    assert thin.rate[-1] == 1.0
    assert all(whole[rate] == accuracy for rate, accuracy in zip(thin.rate, thin.accuracy, strict=True))
    with raises(ShiftbenchError, found="0", expected="an integer, 1 or more"):
        response_rate_accuracy(confidence, correct, points=0)


@given(rows)
def test_soft_f1_from_its_soft_counts(found: list[tuple[float, bool]]) -> None:
    confidence, correct = (np.array(column) for column in zip(*found, strict=True))
    found_wrong = ((1 - confidence) * ~correct).sum()
    doubted_right = ((1 - confidence) * correct).sum()
    missed = (confidence * ~correct).sum()
    whole = 2 * found_wrong + doubted_right + missed
    if whole < 1e-9:
        assert math.isnan(soft_f1(confidence, correct)) or soft_f1(confidence, correct) == 0.0
    else:
        assert soft_f1(confidence, correct) == pytest.approx(2 * found_wrong / whole)


def test_soft_f1_at_the_ends() -> None:
    assert soft_f1([0.0, 1.0], [False, True]) == 1.0
    assert soft_f1([1.0, 0.0], [False, True]) == 0.0
    assert math.isnan(soft_f1([1.0, 1.0], [True, True]))
