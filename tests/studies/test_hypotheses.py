"""The rule on evidence, and 000's tables 4 and 6 rebuilt from its numbers."""

from __future__ import annotations

import numpy as np
import pytest

from shiftbench.published.reproduce.paper_000 import HYPOTHESES, scored_datasets
from shiftbench.published.tables import published
from shiftbench.studies import StudyError
from shiftbench.studies.hypotheses import HitData, Hypothesis, ScoredData, hypotheses_from_models, weigh_hypotheses
from tests.raised import raises


@pytest.mark.parametrize("table", ["4", "6"])
@pytest.mark.parametrize(("margin", "gap_margin"), [(1.5, 0.5), (1.15, 0.05), (2.2, 0.7)])
def test_tables_of_000(table: str, margin: float, gap_margin: float) -> None:
    found = weigh_hypotheses(HYPOTHESES, scored_datasets(table), margin=margin, gap_margin=gap_margin)
    marks = {(one.hypothesis, one.dataset): one.mark for one in found}
    printed = {(row.model, row.setting): "+" if row.value > 0 else "-" for row in published("000", table)}
    assert marks == printed and len(printed) == 17
    assert all(one.p is None and one.low is None for one in found)


def images(gain: float, n: int = 5000, seed: int = 0) -> HitData:
    rng = np.random.default_rng(seed)
    ease = rng.random(n)
    return HitData("shifted", {"base": ease < 0.5, "new": ease + rng.normal(0, 0.02, n) < 0.5 + gain})


def test_verdicts_from_images() -> None:
    hypothesis = [Hypothesis("h", (("new", "base"),))]
    verdicts = [weigh_hypotheses(hypothesis, [images(gain)], resamples=200)[0] for gain in (0.04, -0.04, 0.0)]
    assert [verdict.verdict for verdict in verdicts] == ["+", "-", "0"]
    assert verdicts[0].low is not None and verdicts[0].low > 0 and verdicts[0].p_holm is not None
    # Large but on few images: not sure.
    assert weigh_hypotheses(hypothesis, [images(0.04, n=40)])[0].verdict == "0"


def test_gain_that_the_reference_explains_is_no_evidence() -> None:
    data = images(0.04)
    explained = HitData("shifted", data.shifted, data.shifted)
    [one] = weigh_hypotheses([Hypothesis("h", (("new", "base"),))], [explained])
    assert one.excess == 0 and one.verdict == "0" and one.mark == "-"


def test_the_interval_of_the_excess_covers() -> None:
    """400 datasets with other images in the reference; the true excess is 3 points."""
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(400):
        shifted = {"base": rng.random(600) < 0.50, "new": rng.random(600) < 0.58}
        reference = {"base": rng.random(900) < 0.70, "new": rng.random(900) < 0.75}
        data = HitData("d", shifted, reference)
        [row] = weigh_hypotheses([Hypothesis("h", (("new", "base"),))], [data], resamples=300)
        assert row.excess_low is not None and row.excess_high is not None and row.excess is not None
        assert row.excess_low < row.excess < row.excess_high
        covered += row.excess_low <= 3.0 <= row.excess_high
    assert 0.91 < covered / 400 < 0.98


def test_the_same_images_with_and_without_shift_are_paired() -> None:
    """The excess of a change that flips the same images with and without shift is known without any doubt."""
    data = images(0.04)
    [row] = weigh_hypotheses([Hypothesis("h", (("new", "base"),))], [HitData("d", data.shifted, data.shifted)])
    assert (row.excess_low, row.excess_high) == (0.0, 0.0)


def test_holm_counts_all_that_is_tested() -> None:
    data = [HitData(f"d{i}", images(0.015, n=1200, seed=i).shifted) for i in range(10)]
    together = weigh_hypotheses([Hypothesis("h", (("new", "base"),))], data, resamples=50)
    alone = weigh_hypotheses([Hypothesis("h", (("new", "base"),))], data[:1], resamples=50)
    assert together[0].p == alone[0].p and alone[0].p_holm == alone[0].p
    assert together[0].p_holm is not None and alone[0].p_holm is not None and together[0].p_holm >= alone[0].p_holm


def test_several_pairs_are_averaged() -> None:
    data = images(0.04)
    data = HitData("shifted", {**data.shifted, "none": data.shifted["base"]})
    [one] = weigh_hypotheses([Hypothesis("h", (("new", "base"), ("none", "base")))], [data])
    single = weigh_hypotheses([Hypothesis("h", (("new", "base"),))], [data])[0]
    assert one.pairs == 2 and one.gain == pytest.approx(single.gain / 2) and one.p is not None and 0 < one.p < 1


def test_errors_are_turned_round() -> None:
    scores = ScoredData("d", {"new": 20.0, "base": 30.0}, higher_is_better=False)
    assert weigh_hypotheses([Hypothesis("h", (("new", "base"),))], [scores])[0].gain == 10.0


def test_edges() -> None:
    with raises(StudyError, found="pairs x / base", expected="models such as base, new"):
        weigh_hypotheses([Hypothesis("h", (("x", "base"),))], [images(0.1)])
    uneven = HitData("d", {"new": np.ones(3, bool), "base": np.ones(4, bool)})
    with raises(StudyError, found="[3, 4] images"):
        weigh_hypotheses([Hypothesis("h", (("new", "base"),))], [uneven])
    assert hypotheses_from_models({"a": ["deep"], "b": ["deep"]}, {"a": "b"}) == [Hypothesis("deep", (("a", "b"),))]
