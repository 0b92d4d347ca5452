"""Detection measures against scikit-learn, pair counting and the published search; anomaly scores against SciPy."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.special import softmax as scipy_softmax
from scipy.stats import entropy
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from shiftbench.errors import ShiftbenchError
from shiftbench.metrics import anomaly_scores, aupr, auroc, clopper_pearson, detect, detection_scores, fpr95
from shiftbench.metrics.detection import AnomalyScore
from tests.metrics.forecasting import scored
from tests.raised import raises

# Few distinct values, so that ties within and across the sets are common.
values = st.lists(st.integers(0, 6), min_size=1, max_size=25)


def joined(ins: Any, outs: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    return np.repeat([0, 1], [len(ins), len(outs)]), np.concatenate([ins, outs])


def nearest_recall_in_words(ins: Any, outs: Any) -> float:
    """Lower the threshold step by step up to full recall; keep the nearest recall, the last among equals."""
    best = math.inf
    chosen = math.nan
    for threshold in sorted({*ins, *outs}, reverse=True):
        recall = np.mean([score >= threshold for score in outs])
        if abs(recall - 0.95) <= best:
            best = abs(recall - 0.95)
            chosen = np.mean([score >= threshold for score in ins])
        if recall == 1:
            break
    return float(chosen)


@given(values, values)
@settings(deadline=None)
def test_against_scikit_learn_with_ties(ins: list[int], outs: list[int]) -> None:
    truth, scores = joined(ins, outs)
    assert aupr(ins, outs) == pytest.approx(average_precision_score(truth, scores))
    assert auroc(ins, outs) == pytest.approx(roc_auc_score(truth, scores))
    false, found, _ = roc_curve(truth, scores, drop_intermediate=False)
    assert fpr95(ins, outs) == pytest.approx(false[np.argmax(found >= 0.95)])
    assert fpr95(ins, outs, published=True) == pytest.approx(nearest_recall_in_words(ins, outs))


@given(values, values)
@settings(deadline=None)
def test_only_the_order_of_scores_matters(ins: list[int], outs: list[int]) -> None:
    a = np.array(ins)
    b = np.array(outs)
    for measure in (aupr, auroc, fpr95):
        assert measure(np.exp(a), np.exp(b)) == measure(a, b) == measure(a[::-1], b[::-1])
    # Turned round, in- and out-images change places.
    assert auroc(-b, -a) == pytest.approx(auroc(a, b)) and auroc(b, a) == pytest.approx(1 - auroc(a, b))


@pytest.mark.parametrize(("ins", "outs"), [(1000, 200), (999, 37), (50, 3000)])
def test_against_scikit_learn_at_size(ins: int, outs: int) -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=ins)
    b = rng.normal(0.7, size=outs)
    truth, scores = joined(a, b)
    assert aupr(a, b) == pytest.approx(average_precision_score(truth, scores))
    assert auroc(a, b) == pytest.approx(roc_auc_score(truth, scores))
    # In plain words: the threshold that 95 % of the out-images reach.
    threshold = np.sort(b)[::-1][math.ceil(0.95 * outs) - 1]
    assert fpr95(a, b) == np.mean(a >= threshold)
    assert fpr95(a, b, published=True) == nearest_recall_in_words(a.tolist(), b.tolist())


def test_fpr95_as_published_differs() -> None:
    """19 of 21 out-images are found at 0.905, 20 at 0.952: nearest. Then in-images before the next one count."""
    outs = np.concatenate([np.arange(100, 120), [0]])
    ins = np.array([105, 50, 40, -1])
    assert fpr95(ins, outs) == 0.25
    assert fpr95(ins, outs, published=True) == 0.75


def test_the_ends() -> None:
    apart = ([0.1, 0.2], [0.8, 0.9])
    assert (aupr(*apart), auroc(*apart), fpr95(*apart)) == (1.0, 1.0, 0.0)
    wrong_way = apart[::-1]
    assert (auroc(*wrong_way), fpr95(*wrong_way)) == (0.0, 1.0)
    # Scores that say nothing: chance, for ImageNet-O 2,000 of 12,000.
    assert aupr(np.zeros(10_000), np.zeros(2_000)) == pytest.approx(1 / 6)
    assert auroc(np.zeros(10_000), np.zeros(2_000)) == 0.5
    assert fpr95(np.zeros(10), np.zeros(2)) == 1.0


def test_chance_at_the_size_of_imagenet_o() -> None:
    rng = np.random.default_rng(1)
    found = detection_scores(rng.random(10_000), rng.random(2_000), resamples=100)
    assert found.chance_aupr == pytest.approx(0.1667, abs=1e-4)
    assert found.aupr.value == pytest.approx(0.1667, abs=0.01)
    assert found.auroc.low < 0.5 < found.auroc.high
    assert found.fpr95.low < 0.95 < found.fpr95.high


@pytest.mark.parametrize("measure", [aupr, auroc, fpr95, detection_scores])
def test_what_is_refused(measure: Any) -> None:
    with raises(ShiftbenchError, found="nan for 1 of 2 images, the first in row 1", expected="a number for each image"):
        measure([0.1, math.nan], [0.5])
    with raises(ShiftbenchError, found="shape (0,)", expected="(n,)"):
        measure([0.1], [])
    with raises(ShiftbenchError, found="shape (1, 1)", expected="(n,)"):
        measure([[0.1]], [0.5])


def test_intervals_resample_each_set_by_itself() -> None:
    """Against a bootstrap written out, with the same draws."""
    rng = np.random.default_rng(2)
    a = rng.integers(0, 30, 60)
    b = rng.integers(8, 38, 25)
    found = detection_scores(a, b, resamples=60, seed=9)
    rng = np.random.default_rng(9)
    draws = []
    for _ in range(60):
        x = a[rng.integers(0, 60, 60)]
        y = b[rng.integers(0, 25, 25)]
        draws.append([aupr(x, y), auroc(x, y), fpr95(x, y)])
    for column, score in enumerate(found.scores()[:2]):
        error = np.std(draws, axis=0, ddof=1)[column] * np.sqrt(25 / 24)
        ends = scipy.stats.t.ppf([0.025, 0.975], 24) * error / (score.value * (1 - score.value))
        logit = np.log(score.value / (1 - score.value))
        assert (score.low, score.high) == pytest.approx(tuple(1 / (1 + np.exp(-logit - ends))))
    assert [score.value for score in found.scores()] == pytest.approx([aupr(a, b), auroc(a, b), fpr95(a, b)])
    assert found.aupr.n == 85 and found.auroc.higher_is_better and not found.fpr95.higher_is_better


def test_intervals_of_areas_hold_the_truth_with_few_out_images() -> None:
    """Percentiles of the bootstrap hold it in 85 to 90 % of cases."""
    rng = np.random.default_rng(7)
    many = rng.normal(size=100_000), rng.normal(2.5, size=20_000)
    truth = np.array([aupr(*many), auroc(*many)])
    held = np.zeros(2)
    runs = 60
    for _ in range(runs):
        found = detection_scores(rng.normal(size=100), rng.normal(2.5, size=20), resamples=60)
        ends = np.array([(score.low, score.high) for score in found.scores()[:2]])
        held += (ends[:, 0] <= truth) & (truth <= ends[:, 1])
    assert held.min() / runs > 0.9


def test_perfect_separation_is_not_certainty() -> None:
    many = detection_scores(np.zeros(100), np.ones(80), resamples=20)
    assert (many.fpr95.low, many.fpr95.high) == pytest.approx((0.0, clopper_pearson(0, 100).high))
    # All of 40 images may be above the threshold that finds 95 % of images like them.
    found = detection_scores(np.zeros(100), np.ones(40), resamples=20)
    assert (found.fpr95.low, found.fpr95.high) == (0.0, 1.0)
    assert (found.auroc.low, found.auroc.high) == pytest.approx((clopper_pearson(40, 40).low, 1.0))
    # As many in-images as may have been missed, 3.6 of 100, set above all out-images.
    three, four = (aupr(np.repeat([0, 2], [100 - k, k]), np.linspace(1, 1.5, 40)) for k in (3, 4))
    assert four < found.aupr.low < three < found.aupr.high == 1.0
    assert "exact" in found.aupr.method


def test_anomaly_scores_against_scipy() -> None:
    logits = np.random.default_rng(3).normal(size=(50, 7)) * 4
    p = scipy_softmax(logits, axis=1)
    np.testing.assert_allclose(anomaly_scores(logits), -p.max(axis=1))
    np.testing.assert_allclose(anomaly_scores(logits, "max_logit"), -logits.max(axis=1))
    np.testing.assert_allclose(anomaly_scores(logits, "energy"), -logsumexp(logits, axis=1))
    np.testing.assert_allclose(anomaly_scores(logits, "energy", temperature=3), -3 * logsumexp(logits / 3, axis=1))
    np.testing.assert_allclose(anomaly_scores(logits, "entropy"), entropy(p, axis=1))
    np.testing.assert_allclose(anomaly_scores(logits, temperature=2), -scipy_softmax(logits / 2, axis=1).max(axis=1))


def test_anomaly_scores_of_large_logits_stay_finite() -> None:
    sure = [[1e4, 0.0], [-1e4, 0.0]]
    assert anomaly_scores(sure, "energy").tolist() == [-1e4, 0.0]
    assert anomaly_scores(sure, "entropy").tolist() == [0.0, 0.0]
    with raises(ShiftbenchError, found="surprise", expected="max_softmax, max_logit, energy, entropy"):
        anomaly_scores(sure, "surprise")  # type: ignore[arg-type]
    with raises(ShiftbenchError, found=0, expected="more than 0"):
        anomaly_scores(sure, temperature=0)


SCORES: list[AnomalyScore] = ["max_softmax", "max_logit", "energy", "entropy"]


@pytest.mark.parametrize("score", SCORES)
def test_detect_from_predictions(score: AnomalyScore) -> None:
    """Out-images have no label in the space; pictures that could not be read do not count on either side."""
    rng = np.random.default_rng(4)
    known = rng.normal(size=(40, 5)) * 3
    unknown = rng.normal(size=(30, 5))
    inside = scored(known, rng.integers(0, 5, 40), setting="val-200")
    outside = scored(unknown, np.full(30, -1), setting="imagenet-o")
    top = outside.top.copy()
    labels = inside.labels.copy()
    top[3], labels[7] = -1, -1
    found = detect(replace(inside, labels=labels), replace(outside, top=top), score, resamples=50)
    a = anomaly_scores(np.delete(known, 7, axis=0), score)
    b = anomaly_scores(np.delete(unknown, 3, axis=0), score)
    assert found.auroc.value == pytest.approx(auroc(a, b), abs=1e-3)
    assert (found.in_images, found.out_images) == (39, 29)
    assert found.auroc.value > 0.6 and score in found.aupr.provenance and "imagenet-o" in found.aupr.provenance


def test_detect_refuses_what_can_not_be_compared() -> None:
    three = scored(np.eye(3), [0, 1, 2])
    two = scored(np.eye(2), [0, 1])
    with raises(ShiftbenchError, found="'test-3 (3)' and 'test-2 (2)'", expected="the same"):
        detect(three, two)
    with raises(ShiftbenchError, found="'net' and 'other'", expected="the same"):
        detect(three, replace(three, classifier="other"))
    with raises(
        ShiftbenchError, found="the best classes and the confidence only", hint="evaluate again with keep_scores=True"
    ):
        detect(three, replace(three, scores=None), "energy")
    with raises(ShiftbenchError, found="nan for 3 of 3 images, the first in row 0", expected="a number for each image"):
        detect(three, replace(three, confidence=np.full(3, np.nan, np.float32)))


def test_probabilities_have_no_energy() -> None:
    rng = np.random.default_rng(5)
    table = scipy_softmax(rng.normal(size=(20, 3)), axis=1)
    found = scored(table, rng.integers(0, 3, 20), outputs="probabilities")
    with pytest.raises(ShiftbenchError, match="needs logits"):
        detect(found, found, "energy")
    assert detect(found, found, "entropy", resamples=10).auroc.value == 0.5


@pytest.mark.parametrize(("ins", "outs"), [(100, 20), (300, 100)])
def test_intervals_of_fpr95_hold_the_truth(ins: int, outs: int) -> None:
    """Percentiles of a bootstrap covered 78 % of the first case."""
    rng = np.random.default_rng(5)
    truth = scipy.stats.norm.sf(scipy.stats.norm.ppf(0.05) + 2)
    held = 0
    for _ in range(60):
        score = detection_scores(rng.normal(size=ins), rng.normal(2, size=outs), resamples=5).fpr95
        held += score.low <= truth <= score.high
    assert held >= 54
