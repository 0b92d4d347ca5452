"""mAP as a registered metric: from predictions of several labels, of one, with pictures that could not be read."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from shiftbench.errors import ShiftbenchError
from shiftbench.labels.space import multi_hot, single_labels
from shiftbench.metrics.base import metrics
from tests.metrics.making import predictions
from tests.raised import raises

WEIGHTED = metrics.get("mean_average_precision")
PLAIN = metrics.get("mean_average_precision_plain")


def sklearn_step(scores: np.ndarray, hot: np.ndarray, average: str) -> float:
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(hot, scores, average=average))


@pytest.fixture
def several() -> tuple[np.ndarray, list[tuple[int, ...]]]:
    rng = np.random.default_rng(3)
    hot = rng.random((200, 5)) < np.array([0.5, 0.3, 0.2, 0.1, 0.05])
    hot[~hot.any(axis=1), 0] = True
    scores = (rng.normal(size=(200, 5)) + 1.5 * hot).astype(np.float32)
    return scores, [tuple(np.flatnonzero(row).tolist()) for row in hot]


def test_it_is_near_scikit_learns_step_area_and_equals_its_trapezoids(several: tuple) -> None:  # type: ignore[type-arg]
    from sklearn.metrics import auc, precision_recall_curve

    scores, sets = several
    hot = multi_hot(sets, 5)
    found = replace(
        predictions(scores.argmax(axis=1), single_labels(sets), classes=5, scores=scores, provenance="p"),
        label_sets=sets,
    )
    areas = [auc(*precision_recall_curve(hot[:, k], scores[:, k])[1::-1]) for k in range(5)]
    shares = hot.sum(axis=0) / hot.sum()
    weighted = WEIGHTED(found)
    plain = PLAIN(found)
    assert weighted.value == pytest.approx(float(shares @ areas)) and plain.value == pytest.approx(np.mean(areas))
    assert weighted.value == pytest.approx(sklearn_step(scores, hot, "weighted"), abs=0.01)
    assert plain.value == pytest.approx(sklearn_step(scores, hot, "macro"), abs=0.02)
    for score in (weighted, plain):
        assert score.low < score.value < score.high and score.n == 200 and score.provenance == "p"
    assert weighted.metric == "mean_average_precision" and plain.metric == "mean_average_precision_plain"
    assert WEIGHTED.needs.scores and WEIGHTED.beside == ("mean_average_precision_plain",)


def test_pictures_that_could_not_be_read_do_not_count(several: tuple) -> None:  # type: ignore[type-arg]
    scores, sets = several
    top = scores.argmax(axis=1)
    whole = replace(
        predictions(top[20:], single_labels(sets[20:]), classes=5, scores=scores[20:]), label_sets=sets[20:]
    )
    torn_scores = scores.copy()
    torn_top = top.copy()
    torn_scores[:20], torn_top[:20] = np.nan, -1
    torn = replace(predictions(torn_top, single_labels(sets), classes=5, scores=torn_scores), label_sets=sets)
    assert WEIGHTED(torn).value == WEIGHTED(whole).value and WEIGHTED(torn).n == 180


def test_images_of_one_label_are_one_hot() -> None:
    scores = np.array([[3, 1, 0], [2, 1, 0], [0, 1, 2], [1, 2, 0]], np.float32)
    found = predictions([0, 0, 2, 1], [0, 1, 2, -1], scores=scores)
    assert PLAIN(found).n == 3, "the image without a label is left out"
    hot = np.eye(3, dtype=bool)
    from shiftbench.metrics import mean_average_precision

    assert PLAIN(found).value == mean_average_precision(scores[:3], hot, weighted=False)


def test_nothing_to_score_and_nothing_kept() -> None:
    empty = WEIGHTED(predictions([-1], [0], scores=[[np.nan] * 3]))
    assert math.isnan(empty.value) and (empty.low, empty.high, empty.n) == (0.0, 1.0, 0)
    with raises(
        ShiftbenchError, found="the best classes and the confidence only", hint="evaluate again with keep_scores=True"
    ):
        WEIGHTED(predictions([0], [0]))


def test_classes_that_no_image_has_cost_nothing(several: tuple) -> None:  # type: ignore[type-arg]
    """Over a thousand classes of which five occur, the intervals are those over the five."""
    from shiftbench.metrics import mean_average_precision_score

    scores, sets = several
    wide = np.concatenate([scores, np.zeros((200, 995), np.float32)], axis=1)
    few = mean_average_precision_score(scores, multi_hot(sets, 5), resamples=50)
    many = mean_average_precision_score(wide, multi_hot(sets, 1000), resamples=50)
    assert (few.value, few.low, few.high) == (many.value, many.low, many.high)
