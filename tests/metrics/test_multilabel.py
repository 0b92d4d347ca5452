"""Mean average precision against scikit-learn: the published trapezoid, and the usual steps."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import auc, average_precision_score, precision_recall_curve

from shiftbench.errors import ShiftbenchError
from shiftbench.metrics import average_precisions, mean_average_precision, mean_average_precision_score


def sample(n: int = 200, classes: int = 5) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Scores of few values, so that there are ties; classes from frequent to rare."""
    rng = np.random.default_rng(0)
    labels = (rng.random((n, classes)) < np.linspace(0.6, 0.05, classes)).astype(int)
    labels[0] = 1
    return (labels * 0.3 + rng.random((n, classes))).round(2), labels


def trapezoid(truth: NDArray[np.int64], scores: NDArray[np.float64]) -> float:
    precision, recall, _ = precision_recall_curve(truth, scores)
    return float(auc(recall, precision))


def test_as_published() -> None:
    scores, labels = sample()
    areas = np.array([trapezoid(labels[:, k], scores[:, k]) for k in range(5)])
    np.testing.assert_allclose(average_precisions(scores, labels), areas)
    frequency = labels.sum(axis=0) / labels.sum()
    assert mean_average_precision(scores, labels) == pytest.approx(areas @ frequency)
    assert mean_average_precision(scores, labels, weighted=False) == pytest.approx(areas.mean())


def test_steps_against_scikit_learn() -> None:
    scores, labels = sample()
    for weighted, average in ((True, "weighted"), (False, "macro")):
        expected = average_precision_score(labels, scores, average=average)
        assert mean_average_precision(scores, labels, weighted, step=True) == pytest.approx(expected)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=25).filter(
        lambda r: any(b for _, b in r)
    )
)
@settings(deadline=None)
def test_one_class_with_ties(rows: list[tuple[int, bool]]) -> None:
    scores, truth = (np.array(column)[:, None] for column in zip(*rows, strict=True))
    assert mean_average_precision(scores, truth) == pytest.approx(trapezoid(truth[:, 0], scores[:, 0]))
    step = mean_average_precision(scores, truth, step=True)
    assert step == pytest.approx(average_precision_score(truth[:, 0], scores[:, 0]))
    assert mean_average_precision(np.exp(scores), truth, step=True) == pytest.approx(step)
    assert 0 < step <= 1


def test_frequent_classes_decide_the_weighted_mean() -> None:
    """Perfect on nine images of one class, worst on the one image of another."""
    labels = np.zeros((10, 2), dtype=int)
    labels[:9, 0], labels[9, 1] = 1, 1
    scores = np.stack([labels[:, 0], -labels[:, 1]], axis=1).astype(float)
    rare = trapezoid(labels[:, 1], scores[:, 1])
    assert mean_average_precision(scores, labels) == pytest.approx(0.9 + 0.1 * rare)
    assert mean_average_precision(scores, labels, weighted=False) == pytest.approx(0.5 + 0.5 * rare)


def test_a_class_without_an_image_adds_nothing() -> None:
    scores, labels = sample()
    more = np.concatenate([scores, scores[:, :1]], axis=1)
    none = np.concatenate([labels, np.zeros((200, 1), dtype=int)], axis=1)
    assert math.isnan(average_precisions(more, none)[-1])
    for weighted in (True, False):
        expected = mean_average_precision(scores, labels, weighted)
        assert mean_average_precision(more, none, weighted) == pytest.approx(expected)


def test_the_interval_is_an_image_bootstrap() -> None:
    scores, labels = sample(80, 3)
    found = mean_average_precision_score(scores, labels, resamples=40, seed=5, provenance="p")
    rng = np.random.default_rng(5)
    draws = []
    for _ in range(40):
        rows = rng.integers(0, 80, 80)
        draws.append(mean_average_precision(scores[rows], labels[rows]))
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(draws, [0.025, 0.975])))
    assert found.value == mean_average_precision(scores, labels)
    assert (found.n, found.provenance) == (80, "p") and "weighted" in found.metric
    assert mean_average_precision_score(scores, labels, False, resamples=5).metric == "mAP"


def test_a_rare_class_may_be_missing_from_a_resample() -> None:
    labels = np.zeros((30, 2), dtype=int)
    labels[:, 0], labels[0, 1] = np.arange(30) % 2, 1
    scores = np.random.default_rng(1).random((30, 2))
    for weighted in (True, False):
        found = mean_average_precision_score(scores, labels, weighted, resamples=50)
        assert 0 < found.low < found.high <= 1


def test_what_is_refused() -> None:
    for scores, labels, fact in (
        ([[0.1, math.nan]], [[1, 0]], "nan"),
        ([[0.1, 0.2]], [[1]], r"\(1, 2\) and \(1, 1\)"),
        ([[0.1, 0.2]], [[2, 0]], "True, False"),
        ([[0.1, 0.2]], [[0, 0]], "1 images"),
        ([0.1, 0.2], [1, 0], "classes"),
    ):
        with pytest.raises(ShiftbenchError, match=fact):
            mean_average_precision(scores, labels)
