"""Calibration errors against loops over their definitions, scikit-learn and known truths; edges; intervals."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import brier_score_loss, log_loss

from shiftbench.errors import ShiftbenchError
from shiftbench.metrics import (
    brier_score,
    classwise_calibration_error,
    clopper_pearson,
    expected_calibration_error,
    mad_calibration_error,
    max_calibration_error,
    metrics,
    negative_log_likelihood,
    reliability_diagram,
    rms_calibration_error,
    softmax,
)
from shiftbench.metrics.bootstrap import corrected_interval, resampled_score
from tests.metrics.forecasting import forecasts
from tests.raised import raises

LENET = "calibration/lenet-5-cifar-10.npz"
ADAPTIVE = {"2": rms_calibration_error, "1": mad_calibration_error, "max": max_calibration_error}


def adaptive_in_words(confidence: Any, correct: Any, size: int, p: str, published: bool) -> float:
    """The published loop, bin by bin; the fixed form goes on to the last bin."""
    order = sorted(range(len(confidence)), key=lambda i: confidence[i])
    count = max(1, len(order) // size)
    bins = [order[b * size : (b + 1) * size if b < count - 1 else len(order)] for b in range(count)]
    total = 0.0
    for members in bins[:-1] if published else bins:
        gap = abs(np.mean([confidence[i] for i in members]) - np.mean([correct[i] for i in members]))
        share = len(members) / len(order)
        total = max(total, gap) if p == "max" else total + share * (gap**2 if p == "2" else gap)
    return math.sqrt(total) if p == "2" else total


def ece_in_words(confidence: Any, correct: Any, bins: int) -> float:
    edges = np.linspace(0, 1, bins + 1)
    total = 0.0
    for b in range(bins):
        inside = [i for i, c in enumerate(confidence) if edges[b] < c <= edges[b + 1] or (b == 0 and c == 0)]
        if inside:
            gap = abs(np.mean([confidence[i] for i in inside]) - np.mean([correct[i] for i in inside]))
            total += len(inside) / len(confidence) * gap
    return total


def sample(n: int, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    """Confidences with ties and both ends, and hits that fall short of them."""
    rng = np.random.default_rng(seed)
    confidence = rng.beta(3, 1, n).round(2)
    confidence[: n // 10] = 1.0
    confidence[n // 10 : n // 8] = 0.0
    return confidence, rng.random(n) < confidence**1.5


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("p", ["2", "1", "max"])
@pytest.mark.parametrize(("n", "size"), [(1000, 100), (1099, 100), (199, 100), (100, 100), (7, 2), (5, 5), (6, 1)])
def test_adaptive_bins_in_words(n: int, size: int, p: str, published: bool) -> None:
    confidence, correct = sample(n)
    if published and n < 2 * size:
        with raises(ShiftbenchError, found=f"{n} images"):
            ADAPTIVE[p](confidence, correct, size, published)
        return
    expected = adaptive_in_words(confidence, correct, size, p, published)
    assert ADAPTIVE[p](confidence, correct, size, published) == pytest.approx(expected, abs=1e-12)


def test_the_published_form_drops_the_most_confident_bin() -> None:
    """Two bins, the confident one badly wrong: the fixed form sees it, the published one does not."""
    confidence = np.repeat([0.5, 0.99], 100)
    correct = np.concatenate([np.arange(100) < 50, np.zeros(100, bool)])
    assert rms_calibration_error(confidence, correct, published=True) == pytest.approx(0.0, abs=1e-12)
    assert rms_calibration_error(confidence, correct) == pytest.approx(0.99 / math.sqrt(2))


def test_too_few_images_for_the_bins() -> None:
    confidence = [0.9, 0.7, 0.8]
    correct = [True, False, True]
    assert rms_calibration_error(confidence, correct) == pytest.approx(0.8 - 2 / 3)
    with raises(ShiftbenchError, found="3 images", expected="200 or more"):
        rms_calibration_error(confidence, correct, published=True)
    # Up to 199 images there is one bin, which is left out: 0 would say that this model is perfectly calibrated.
    with raises(ShiftbenchError, found="199 images"):
        rms_calibration_error([0.9] * 199, [False] * 199, published=True)


def test_equal_confidences_are_binned_in_the_order_given() -> None:
    assert rms_calibration_error([0.5] * 4, [1, 1, 0, 0], bin_size=2) == pytest.approx(0.5)
    assert rms_calibration_error([0.5] * 4, [1, 0, 1, 0], bin_size=2) == pytest.approx(0.0)


@pytest.mark.parametrize("bins", [1, 2, 10, 15, 100])
def test_ece_in_words(bins: int) -> None:
    confidence, correct = sample(500)
    assert expected_calibration_error(confidence, correct, bins) == pytest.approx(
        ece_in_words(confidence, correct, bins)
    )


def test_ece_at_the_edges() -> None:
    # Exactly 1 shares the last bin with 0.95, exactly 0 the first with 0.05; 0.5 belongs to the bin it ends.
    assert expected_calibration_error([1.0, 0.95], [0, 1], 10) == pytest.approx(abs(1.95 - 1) / 2)
    assert expected_calibration_error([0.0, 0.05], [1, 0], 10) == pytest.approx(abs(0.05 - 1) / 2)
    assert expected_calibration_error([0.5, 0.45], [0, 1], 2) == pytest.approx(abs(0.95 - 1) / 2)
    assert expected_calibration_error([0.5, 0.55], [0, 1], 2) == pytest.approx(0.5 / 2 + 0.45 / 2)
    assert expected_calibration_error([1.0] * 5, [True] * 5) == 0.0
    assert expected_calibration_error([1.0] * 5, [False] * 5) == 1.0


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40), st.integers(1, 12))
@settings(deadline=None)
def test_errors_are_ordered_and_bounded(rows: list[tuple[float, bool]], size: int) -> None:
    confidence, correct = zip(*rows, strict=True)
    mad, rms, largest = (
        f(confidence, correct, size) for f in (mad_calibration_error, rms_calibration_error, max_calibration_error)
    )
    assert -1e-12 <= mad <= rms + 1e-9 <= largest + 2e-9 <= 1 + 3e-9
    # The l1 error of any bins lies between that of one bin and that of single images.
    assert abs(np.mean(confidence) - np.mean(correct)) - 1e-9 <= mad
    assert mad <= np.abs(np.array(confidence) - np.array(correct)).mean() + 1e-9
    assert 0 <= expected_calibration_error(confidence, correct, size) <= 1 + 1e-9


@pytest.mark.parametrize("function", [rms_calibration_error, expected_calibration_error])
@pytest.mark.parametrize(
    ("confidence", "correct", "fact"),
    [
        ([0.5, math.nan], [1, 0], "nan for 1 of 2 images"),
        ([0.5, 1.2], [1, 0], "0 to 1"),
        ([-0.1, 0.2], [1, 0], "0 to 1"),
        ([0.5], [1, 0], "1 and 2"),
        ([], [], r"shape \(0,\)"),
        ([0.5, 0.6], [1, 2], "True, False, 1 or 0"),
        ([0.5, 0.6], [1, math.nan], "True, False, 1 or 0"),
    ],
)
def test_what_is_refused(function: Any, confidence: list[float], correct: list[float], fact: str) -> None:
    with pytest.raises(ShiftbenchError, match=fact):
        function(confidence, correct)


@pytest.mark.parametrize("value", [0, -3])
def test_no_bins_are_refused(value: int) -> None:
    with raises(ShiftbenchError, expected="an integer, 1 or more"):
        expected_calibration_error([0.5], [1], value)
    with raises(ShiftbenchError, expected="an integer, 1 or more"):
        rms_calibration_error([0.5], [1], value)


def test_brier_and_nll_against_scikit_learn() -> None:
    rng = np.random.default_rng(3)
    probabilities = softmax(rng.normal(size=(200, 5)) * 2)
    labels = rng.integers(0, 5, 200)
    assert negative_log_likelihood(probabilities, labels) == pytest.approx(log_loss(labels, probabilities))
    # One forecast "it is k" a class; their squared errors add up.
    by_class = [brier_score_loss(labels == k, probabilities[:, k]) for k in range(5)]
    assert brier_score(probabilities, labels) == pytest.approx(sum(by_class))


def test_proper_scores_at_the_ends() -> None:
    sure = [[1.0, 0.0], [1.0, 0.0]]
    assert brier_score(sure, [0, 0]) == 0.0
    assert brier_score(sure, [1, 1]) == 2.0
    assert negative_log_likelihood(sure, [0, 0]) == 0.0
    assert negative_log_likelihood(sure, [1, 1]) == pytest.approx(log_loss([1, 1], sure, labels=[0, 1]))
    assert negative_log_likelihood([[0.0, 800.0]], [0], logits=True) == 800.0
    assert brier_score([[1.0], [1.0]], [0, 0]) == negative_log_likelihood([[1.0]], [0]) == 0.0


@pytest.mark.parametrize("function", [brier_score, negative_log_likelihood, classwise_calibration_error])
def test_what_is_no_probability_is_refused(function: Any) -> None:
    for rows, labels, fact in (
        ([[2.0, 3.0]], [0], "rows summing to"),
        ([[1.5, -0.5]], [0], "rows summing to"),
        ([[math.nan, 1.0]], [0], "nan"),
        ([[0.5, 0.5]], [2], "0 to 1"),
        ([[0.5, 0.5]], [-1], "0 to 1"),
        ([[0.5, 0.5]], [0.0], "integers"),
        ([0.5, 0.5], [0], "classes"),
    ):
        with pytest.raises(ShiftbenchError, match=fact):
            function(rows, labels)


def test_classwise_is_the_mean_of_one_ece_a_class() -> None:
    rng = np.random.default_rng(4)
    probabilities = softmax(rng.normal(size=(300, 4)) * 3)
    labels = rng.integers(0, 4, 300)
    probabilities[0], labels[:5] = [1, 0, 0, 0], 3
    expected = np.mean([ece_in_words(probabilities[:, k], labels == k, 15) for k in range(4)])
    assert classwise_calibration_error(probabilities, labels) == pytest.approx(expected)
    assert classwise_calibration_error([[1.0], [1.0]], [0, 0]) == 0.0


def test_reliability_diagram_adds_up() -> None:
    confidence, correct = sample(777)
    bars = reliability_diagram(confidence, correct, bins=12)
    assert sum(bar.n for bar in bars) == 777
    gaps = sum(bar.n * abs(bar.confidence - bar.accuracy) for bar in bars if bar.n) / 777
    assert gaps == pytest.approx(expected_calibration_error(confidence, correct, 12))
    assert all(
        (bar.low, bar.high) == pytest.approx(tuple(clopper_pearson(round(bar.accuracy * bar.n), bar.n)))
        for bar in bars
        if bar.n
    )
    assert [bar.start for bar in bars[1:]] == [bar.stop for bar in bars[:-1]]


def test_reliability_diagram_of_adaptive_bins() -> None:
    confidence, correct = sample(250)
    bars = reliability_diagram(confidence, correct, bin_size=100)
    assert [bar.n for bar in bars] == [100, 150]
    squares = sum(bar.n * (bar.confidence - bar.accuracy) ** 2 for bar in bars) / 250
    assert math.sqrt(squares) == pytest.approx(rms_calibration_error(confidence, correct))
    assert (bars[0].start, bars[-1].stop) == (confidence.min(), confidence.max())


def test_an_empty_bar_knows_nothing() -> None:
    empty = reliability_diagram([0.9, 1.0], [1, 1], bins=2)[0]
    assert (empty.n, empty.low, empty.high) == (0, 0.0, 1.0)
    assert math.isnan(empty.accuracy) and math.isnan(empty.confidence)


@pytest.mark.parametrize("shift", [0.0, 0.1])
def test_intervals_hold_the_true_error(shift: float) -> None:
    """Confidences that are right, or 0.1 too high everywhere: percentiles of resamples would miss the former."""
    rng = np.random.default_rng(5)
    held = {"rms": 0, "ece": 0}
    for _ in range(10):
        confidence = rng.uniform(0.3, 0.95, 1000)
        found = forecasts(confidence, rng.random(1000) < confidence - shift)
        for name, score in (("rms", metrics.get("rms_calibration_error")(found)), ("ece", metrics.get("ece")(found))):
            assert score.low <= score.value <= score.high
            held[name] += score.low <= shift <= score.high
    assert min(held.values()) >= 8


def test_corrected_interval_of_draws_without_bias_is_near_the_percentiles() -> None:
    draws = np.random.default_rng(6).normal(0.5, 0.01, 4000)
    low, high = corrected_interval(0.5, draws)
    assert (low, high) == pytest.approx((0.48, 0.52), abs=0.002)


def test_no_spread_gives_an_exact_bound() -> None:
    score = resampled_score("x", 0.0, np.zeros(10), 100)
    assert (score.low, score.high) == (0.0, clopper_pearson(0, 100).high)
    assert "exact" in score.method


def test_lenet_on_cifar_10(reference_data: Path) -> None:
    """Real forecasts, against loops; the network is known to be overconfident."""
    data = np.load(reference_data / LENET)
    probabilities = data["predictions"].astype(np.float64)
    labels = data["ground_truth"]
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    confidence = probabilities.max(axis=1)
    correct = probabilities.argmax(axis=1) == labels
    for published in (False, True):
        for p, function in ADAPTIVE.items():
            expected = adaptive_in_words(confidence, correct, 100, p, published)
            assert function(confidence, correct, published=published) == pytest.approx(expected)
    assert expected_calibration_error(confidence, correct) == pytest.approx(ece_in_words(confidence, correct, 15))
    assert negative_log_likelihood(probabilities, labels) == pytest.approx(log_loss(labels, probabilities))
