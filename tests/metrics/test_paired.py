"""Paired comparisons against statsmodels and brute force."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.contingency_tables import mcnemar as reference_mcnemar
from statsmodels.stats.multitest import multipletests

from shiftbench.errors import ShiftbenchError
from shiftbench.metrics.designs import compare_grids
from shiftbench.metrics.paired import compare, compare_all, difference_interval, holm, mcnemar
from tests.metrics.making import changed, predictions, with_hits
from tests.raised import raises


@pytest.mark.parametrize(("b", "c"), [(0, 0), (1, 0), (0, 5), (3, 3), (2, 9), (40, 61), (500, 400), (3000, 3333)])
def test_mcnemar_equals_statsmodels(b: int, c: int) -> None:
    if b + c == 0:
        assert mcnemar(b, c) == 1.0
        return
    expected = reference_mcnemar([[10, b], [c, 20]], exact=True).pvalue
    assert float(mcnemar(b, c)) == pytest.approx(expected, rel=1e-9)


@given(st.integers(0, 25), st.integers(0, 25))
def test_mcnemar_is_the_sum_over_outcomes_as_uneven(b: int, c: int) -> None:
    m = b + c
    as_uneven = [k for k in range(m + 1) if abs(2 * k - m) >= abs(b - c)]
    expected = sum(math.comb(m, k) for k in as_uneven) / 2**m
    assert float(mcnemar(b, c)) == pytest.approx(expected)


def test_mcnemar_refuses_negative_counts() -> None:
    with raises(ShiftbenchError, expected="b, c >= 0"):
        mcnemar(-1, 3)


@pytest.mark.parametrize("size", [1, 2, 5, 12])
def test_holm_equals_statsmodels(size: int) -> None:
    """On p-values with ties, 0 and 1 among them."""
    p = np.random.default_rng(size).integers(0, 11, size) / 10
    np.testing.assert_allclose(holm(p), multipletests(p, method="holm")[1], rtol=1e-12)


def test_holm_with_ties_none_and_undefined() -> None:
    assert holm([]).shape == (0,)
    np.testing.assert_allclose(holm([0.02, 0.02, 0.02]), [0.06, 0.06, 0.06])
    np.testing.assert_allclose(holm([0.02, np.nan, 0.03]), [0.04, np.nan, 0.04])


@pytest.mark.parametrize("level", [0.9, 0.95])
def test_interval_and_exact_test_never_contradict_each_other(level: float) -> None:
    for n in (30, 200):
        for b in range(25):
            for c in range(min(25, n - b + 1)):
                if b + c > 0:
                    low, high = difference_interval(b, c, n, level)
                    excludes_no_difference = low > 0 or high < 0
                    assert low <= (b - c) / n <= high
                    assert max(b, c) == n or excludes_no_difference == (float(mcnemar(b, c)) <= 1 - level), (b, c, n)


@pytest.mark.parametrize(("only_a", "only_b"), [(0.02, 0.01), (0.1, 0.05), (0.3, 0.3)])
def test_the_interval_covers_the_true_difference(only_a: float, only_b: float) -> None:
    """Exactly, over all outcomes."""
    n = 60
    covered = 0.0
    for b in range(n + 1):
        for c in range(n - b + 1):
            chance = scipy.stats.multinomial.pmf([b, c, n - b - c], n, [only_a, only_b, 1 - only_a - only_b])
            if chance > 1e-7:
                low, high = difference_interval(b, c, n)
                covered += chance * (low <= only_a - only_b <= high)
    assert covered > 0.949


@pytest.mark.parametrize(("b", "c", "n"), [(30, 12, 120), (25, 26, 840), (0, 7, 50), (0, 0, 50)])
def test_one_pair_has_one_interval_whichever_model_is_first(b: int, c: int, n: int) -> None:
    """`compare` shows the first minus the second, `history` the new one minus the old."""
    low, high = difference_interval(b, c, n)
    assert difference_interval(c, b, n) == (-high, -low)


def test_compare_by_hand() -> None:
    a = with_hits([1, 1, 1, 0, 0, 1], classifier="a")
    b = with_hits([1, 0, 0, 1, 0, 0], classifier="b")
    found = compare(a, b)
    assert (found.n, found.only_first, found.only_second) == (6, 3, 1)
    assert found.difference == pytest.approx(2 / 6)
    assert found.low <= found.difference <= found.high
    assert found.p == found.p_holm == pytest.approx(float(mcnemar(3, 1)))
    assert found.verdict == ""
    mirrored = compare(b, a)
    assert (mirrored.difference, mirrored.p) == (-found.difference, found.p)


def test_two_that_never_disagree_are_not_known_to_be_equal() -> None:
    few, many = (compare(with_hits([1] * n), with_hits([1] * n)) for n in (5, 5000))
    assert (few.difference, few.p) == (0.0, 1.0)
    assert few.high == -few.low == pytest.approx(1 - 0.025 ** (1 / 5))
    assert 0 < many.high < 0.001


def test_two_that_always_disagree_are_not_known_to_do_so_on_every_image() -> None:
    """Of n images that only the first gets right: one of another kind costs 2 / n, if only the second gets it right."""
    right, wrong = predictions([0] * 20, [0] * 20), predictions([1] * 20, [0] * 20, classifier="other")
    other = 1 - 0.025 ** (1 / 20)  # the share at which none of 20 has the probability 0.025
    for first, second, sign in ((right, wrong, 1), (wrong, right, -1)):
        one = compare(first, second)
        assert sign * one.difference == 1
        assert sorted((sign * one.low, sign * one.high)) == pytest.approx([1 - 2 * other, 1.0])
        grids = ({("fog", 1): side, ("fog", 2): side} for side in (first, second))
        of_family = compare_grids("c", *grids, level=0.95)
        assert (of_family.low, of_family.high, of_family.p) == pytest.approx((one.low, one.high, one.p))


def test_a_family_counts_the_images_that_both_could_use() -> None:
    """As of an image that is too small for one of the models only."""
    first = {("fog", 1): predictions([0, 0, -1, 1, 0], [0] * 5), ("fog", 2): predictions([0, 1, 0, 0, -1], [0] * 5)}
    second = {place: predictions([1, 0, 0, 0, 0], [0] * 5, classifier="other") for place in first}
    found = compare_grids("c", first, second, level=0.95)
    assert found.difference == pytest.approx(((3 / 4 - 3 / 4) + (3 / 4 - 3 / 4)) / 2)
    assert (found.only_first, found.only_second, found.n) == (2, 2, 5)


def test_only_images_that_count_for_both() -> None:
    a = predictions([0, -1, 0, 0], [0, 0, 0, -1])
    b = predictions([0, 0, -1, 0], [0, 0, 0, -1])
    assert compare(a, b).n == 1


def test_no_common_image() -> None:
    found = compare(predictions([0, -1], [0, 0]), predictions([-1, 0], [0, 0]))
    assert found.n == 0 and math.isnan(found.difference) and math.isnan(found.p)
    assert found.verdict == ""


def test_another_order_of_the_same_images_is_aligned() -> None:
    a = predictions([0, 1, 2], [0, 2, 2], ids=["x", "y", "z"])
    b = predictions([2, 2, 0], [2, 2, 0], ids=["z", "y", "x"])
    assert compare(a, b).only_second == 1
    assert compare(a, b).only_first == 0


def test_what_must_not_be_compared() -> None:
    base = predictions([0, 1], [0, 1])
    with raises(ShiftbenchError, expected="the same image ids"):
        compare(base, predictions([0, 1], [0, 1], ids=["image-0", "other"]))
    with raises(ShiftbenchError, expected="the same image ids"):
        compare(base, predictions([0], [0]))
    with raises(ShiftbenchError, found="1 images with different labels, the first is image-1"):
        compare(base, predictions([0, 1], [0, 2]))
    with raises(ShiftbenchError, found="label spaces 'test-3' and 'test-4'"):
        compare(base, predictions([0, 1], [0, 1], classes=4))
    with raises(ShiftbenchError, found="'clean' and 'other'", expected="the same"):
        compare(base, replace(base, setting="other"))
    with raises(ShiftbenchError, found="'' and 'on disk'", expected="the same"):
        compare(base, changed(base, provenance="on disk"))
    assert compare(base, replace(base, setting="other"), mixed=True).setting == "clean | other"


def test_all_pairs_are_corrected_together() -> None:
    rng = np.random.default_rng(0)
    group = [
        with_hits(rng.random(300) < accuracy, classifier=f"{accuracy}", setting=setting)
        for setting in ("clean", "fog")
        for accuracy in (0.5, 0.6, 0.9)
    ]
    found = compare_all(group)
    assert len(found) == 6
    np.testing.assert_allclose([one.p_holm for one in found], multipletests([one.p for one in found], method="holm")[1])
    assert {one.verdict for one in found if "0.9" in (one.first, one.second)} == {"0.9"}
