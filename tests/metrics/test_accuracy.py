"""Accuracy, error and the worst class, by hand and on the edges."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shiftbench.errors import ShiftbenchError
from shiftbench.metrics.accuracy import class_counts, class_mean, top1, top5, weighted_class_accuracy, worst_class
from shiftbench.metrics.base import Metric, Needs, Score, metrics
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.store.predictions import Predictions
from tests.metrics.making import predictions
from tests.raised import raises

NAMES = ["top1", "top5", "error", "class_mean", "worst_class"]


def test_built_in_metrics_are_registered_in_order() -> None:
    wanted = ["top1", "top5", "error", "worst_class"]
    assert [name for name in metrics.names() if name in wanted] == wanted


def test_top1_and_error_count_only_what_counts() -> None:
    # right, wrong, right, skipped picture, picture without a label
    found = predictions([0, 1, 2, -1, 0], [0, 0, 2, 1, -1], provenance="p")
    score = metrics.get("top1")(found)
    assert (score.value, score.n, score.provenance) == (2 / 3, 3, "p")
    assert (score.low, score.high) == tuple(clopper_pearson(2, 3))
    wrong = metrics.get("error")(found, level=0.5)
    assert wrong.value == pytest.approx(1 / 3)
    assert (wrong.low, wrong.high) == pytest.approx(tuple(clopper_pearson(1, 3, 0.5)))
    assert not wrong.higher_is_better


def test_top5_by_hand() -> None:
    top = [[5, 4, 3, 2, 1], [5, 4, 3, 2, 1], [0, 1, 2, 3, 4]]
    score = top5(predictions(top, [1, 0, 0], classes=6))
    assert (score.value, score.n) == (2 / 3, 3)


def test_top5_of_a_small_space_needs_only_its_classes() -> None:
    score = top5(predictions([[0, 1, 2], [2, 1, 0]], [2, 2], classes=3))
    assert score.value == 1.0


def test_top5_refuses_predictions_that_hold_too_few_classes() -> None:
    with raises(ShiftbenchError, found="the best 1 of each image", expected="the best 5"):
        top5(predictions([0, 1], [0, 1], classes=10))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("top", "labels"), [([], []), ([-1, -1], [0, 1]), ([0], [-1])])
def test_no_image_counts(name: str, top: list[int], labels: list[int]) -> None:
    """Nothing was seen: no value, and an interval that says so."""
    found = predictions(np.array(top).reshape(-1, 1).repeat(3, axis=1), labels)
    score = metrics.get(name)(found)
    assert math.isnan(score.value)
    assert (score.low, score.high, score.n) == (0.0, 1.0, 0)


def test_worst_class_of_one_class_is_its_accuracy() -> None:
    found = predictions([0, 1, 0], [0, 0, 0])
    score = worst_class(found)
    assert (score.value, score.low, score.high) == pytest.approx((2 / 3, *clopper_pearson(2, 3)))


def test_worst_class_interval_holds_the_true_minimum() -> None:
    """Twenty equally good classes: the observed minimum is far too low, the interval is not."""
    rng = np.random.default_rng(0)
    classes = 20
    each = 30
    truth = 0.7
    covered = 0
    labels = np.repeat(np.arange(classes), each)
    for _ in range(200):
        right = rng.random(len(labels)) < truth
        score = worst_class(predictions(np.where(right, labels, (labels + 1) % classes), labels, classes=classes))
        assert score.value < truth
        covered += score.low <= truth <= score.high
    assert covered >= 190


def test_the_mean_over_classes_by_hand() -> None:
    """Classes count alike, however many images they have; one without images does not count."""
    found = predictions([0, 0, 1, 1, 0], [0, 0, 0, 0, 1], classes=3)
    score = class_mean(found)
    assert (score.value, score.n) == (0.25, 5)
    weighted = weighted_class_accuracy("by weight", found, np.array([3.0, 1.0, 7.0]))
    assert weighted.value == pytest.approx(0.375)


def test_the_interval_of_the_mean_over_classes_covers() -> None:
    rng = np.random.default_rng(1)
    labels = np.repeat(np.arange(4), [10, 40, 150, 300])
    chances = np.array([0.9, 0.7, 0.8, 0.6])
    covered = 0
    for _ in range(300):
        right = rng.random(len(labels)) < chances[labels]
        score = class_mean(predictions(np.where(right, labels, (labels + 1) % 4), labels, classes=4))
        covered += score.low <= chances.mean() <= score.high
    assert covered >= 270


def test_class_counts_add_up() -> None:
    found = predictions([0, 1, 2, -1], [0, 0, 2, 1])
    correct, n = class_counts(found)
    assert (correct.sum(), n.sum()) == (top1(found).value * 3, 3)


def test_registration_decides_name_unit_and_direction() -> None:
    def half(predictions: Predictions, *, level: float = 0.95) -> Score:
        return Score("anything", 0.5, 0, 1, len(predictions))

    score = Metric("half", half, Needs(), unit="", higher_is_better=False)(predictions([0], [0]))
    assert (score.metric, score.unit, score.higher_is_better) == ("half", "", False)
