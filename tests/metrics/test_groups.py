"""Accuracy by group, by hand and on the edges."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shiftbench.errors import ShiftbenchError
from shiftbench.metrics import clopper_pearson, group_accuracy, per_group, worst_group, worst_group_accuracy
from shiftbench.metrics.accuracy import worst_class
from tests.metrics.making import predictions
from tests.raised import raises


def test_groups_by_hand() -> None:
    rows = group_accuracy([True, False, True, True], ["us", "us", "fr", "us"])
    assert [(row.group, row.correct, row.n, row.value) for row in rows] == [("fr", 1, 1, 1.0), ("us", 2, 3, 2 / 3)]
    assert (rows[1].low, rows[1].high) == pytest.approx(tuple(clopper_pearson(2, 3)))
    years = group_accuracy(np.array([1, 0]), np.array([2019, 2018]), level=0.5)
    assert [row.group for row in years] == ["2018", "2019"]
    assert years[0].high == pytest.approx(clopper_pearson(0, 1, 0.5).high)


def test_the_worst_group_is_simultaneous() -> None:
    correct = np.array([1] * 9 + [0] * 1 + [1] * 5 + [0] * 5, dtype=bool)
    score = worst_group_accuracy(correct, ["a"] * 10 + ["b"] * 10, provenance="p")
    assert (score.value, score.n, score.provenance) == (0.5, 20, "p")
    assert (score.low, score.high) == pytest.approx(tuple(clopper_pearson(5, 10, math.sqrt(0.95))))
    one = worst_group_accuracy(correct, ["a"] * 20)
    assert (one.low, one.high) == pytest.approx(tuple(clopper_pearson(14, 20)))


def test_the_high_end_is_the_least_high_end() -> None:
    """A tiny group does worst but says little; the large one bounds the minimum from above."""
    correct = np.array([False] + [True] * 600 + [False] * 400)
    score = worst_group_accuracy(correct, ["tiny"] + ["large"] * 1000)
    assert score.value == 0.0
    assert score.high == pytest.approx(clopper_pearson(600, 1000, math.sqrt(0.95)).high)


def test_groups_that_are_the_classes_give_the_worst_class() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 200)
    found = predictions(np.where(rng.random(200) < 0.7, labels, (labels + 1) % 4), labels, classes=4)
    by_class = worst_class(found)
    by_group = worst_group(found, labels.tolist())
    assert (by_group.value, by_group.low, by_group.high) == (by_class.value, by_class.low, by_class.high)


def test_intervals_hold_the_true_minimum() -> None:
    rng = np.random.default_rng(1)
    groups = np.repeat(np.arange(10), 40)
    held = 0
    for _ in range(100):
        score = worst_group_accuracy(rng.random(400) < 0.8, groups)
        held += score.low <= 0.8 <= score.high
    assert held >= 93


def test_predictions_with_a_column_or_by_id() -> None:
    # The picture that could not be read and the one without a label do not count, in whatever group.
    found = predictions([0, 1, -1, 0, 2], [0, 0, 1, -1, 2], provenance="p")
    column = ["a", "b", "b", "c", "b"]
    rows = per_group(found, column)
    assert [(row.group, row.correct, row.n) for row in rows] == [("a", 1, 1), ("b", 1, 2)]
    assert per_group(found, dict(zip(found.ids, column, strict=True))) == rows
    assert per_group(found, np.array(column)) == rows
    assert worst_group(found, column).value == 0.5
    assert worst_group(found, column).provenance == "p"


def test_nothing_to_score() -> None:
    assert group_accuracy([], []) == []
    score = worst_group(predictions([-1], [0]), ["a"])
    assert math.isnan(score.value) and (score.low, score.high, score.n) == (0.0, 1.0, 0)


def test_what_is_refused() -> None:
    found = predictions([0, 1], [0, 1])
    with raises(ShiftbenchError, found="(1,) and (2,)", expected="one of each per image"):
        group_accuracy([True], ["a", "b"])
    with raises(ShiftbenchError, found="1 and 2", expected="one group per image"):
        per_group(found, ["a"])
    with raises(ShiftbenchError, found="1 of 2, the first is image-1"):
        per_group(found, {"image-0": "a"})
    for missing in (None, float("nan")):
        with raises(ShiftbenchError, expected="a group for each image"):
            group_accuracy([True, True], ["a", missing])
    with raises(ShiftbenchError, found=0.5, expected="True, False, 1 or 0"):
        group_accuracy([0.5], ["a"])
