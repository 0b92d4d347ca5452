"""Agreement against scikit-learn and statsmodels, on the released predictions, and at its edges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score
from statsmodels.stats.inter_rater import cohens_kappa

from shiftbench.studies import StudyError
from shiftbench.studies.agreement import agreement, agreement_of
from tests.metrics.making import with_hits
from tests.raised import raises


def test_kappa_is_sklearns_and_its_interval_statsmodels() -> None:
    rng = np.random.default_rng(0)
    hard = rng.normal(size=500)
    hits = hard + rng.normal(0, 0.7, (4, 500)) > np.array([-1, -0.5, 0, 0.3])[:, None]
    result = agreement(hits, models=list("abcd"))
    for pair in result.pairs:
        first, second = (hits["abcd".index(name)] for name in (pair.stronger, pair.weaker))
        assert pair.kappa == pytest.approx(cohen_kappa_score(first, second))
        table = [[(first & second).sum(), (first & ~second).sum()], [(~first & second).sum(), (~first & ~second).sum()]]
        reference = cohens_kappa(np.array(table))
        assert (pair.kappa_low, pair.kappa_high) == pytest.approx((reference.kappa_low, reference.kappa_upp), rel=1e-6)
        assert first.mean() >= second.mean()
        assert pair.dominance == pytest.approx((second & ~first).mean())


def test_counts() -> None:
    hits = np.array([[1, 1, 0, 0, 1], [1, 0, 0, 0, 1], [1, 1, 0, 1, 0]], dtype=bool)
    result = agreement(hits, ids=list("pqrst"))
    assert result.all_fail == ("r",) and result.all_right == 1 and result.failures == (1, 2, 1, 1)
    assert sum(result.failures) == result.n == 5


def test_independent_errors_have_kappa_zero_and_equal_errors_one() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.random((2, 20_000)) < 0.7
    [pair] = agreement([a, b]).pairs
    assert pair.kappa == pytest.approx(0, abs=0.02) and pair.dominance == pytest.approx(
        pair.dominance_by_chance, abs=0.01
    )
    [same] = agreement([a, a]).pairs
    assert same.kappa == pytest.approx(1.0) and same.dominance == 0.0


def test_two_perfect_models_have_no_kappa_and_no_nan() -> None:
    result = agreement(np.ones((2, 10), dtype=bool))
    assert result.pairs[0].kappa is None and result.as_dict()["pairs"][0]["kappa_low"] is None


def test_from_predictions() -> None:
    made = [with_hits([1, 0, 1], classifier="a"), with_hits([1, 0, 0], classifier="b")]
    assert agreement_of(made).all_fail == ("image-1",)
    with raises(StudyError, found=1):
        agreement_of(made[:1])
    with raises(StudyError, found="clean, fog"):
        agreement_of([made[0], with_hits([1, 0, 0], classifier="b", setting="fog")])
    with raises(StudyError, found="hits of shape (1, 2)"):
        agreement([[1, 0]])
    with raises(StudyError, found="1 and 2 for (2, 2)"):
        agreement([[1, 0], [0, 0]], models=["a"])


def test_deep_networks_share_errors_on_cifar(reference_data: Path) -> None:
    """004: the networks share many errors; far more images defeat all of them than chance would allow."""
    data = np.load(reference_data / "cifar-10.1" / "cifar10_and_10.1_predictions_30models.npz")
    result = agreement(data["v6"] == data["labels_v6"], models=data["models"].tolist())
    assert len(result.all_fail) > 5 and min(pair.kappa or 0 for pair in result.pairs) > 0.1
