"""Exact means exact: against brute force in integers, on real pictures and on rows made to break the bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from shiftbench.errors import ShiftbenchError
from shiftbench.testsets.near_duplicates import search
from shiftbench.testsets.near_duplicates.search import ExactIndex, RowProjection, RowSubset

Rows = NDArray[Any]


def brute_force(queries: Rows, references: Rows, k: int, *, same: bool = False) -> tuple[Rows, Rows]:
    """Every difference, one query at a time; equal distances in the order of the references."""
    indices = []
    squares = []
    for i, query in enumerate(queries.astype(np.float64)):
        square = ((references.astype(np.float64) - query) ** 2).sum(axis=1)
        if same:
            square[i] = np.inf
        order = np.argsort(square, kind="stable")[:k]
        indices.append(order)
        squares.append(square[order])
    return np.array(indices), np.sqrt(np.array(squares))


def test_pixels_of_real_pictures(small_pictures: NDArray[np.uint8]) -> None:
    rows = small_pictures.reshape(len(small_pictures), -1)
    neighbours = ExactIndex(rows[25:]).nearest(rows[:25], 10)
    indices, distances = brute_force(rows[:25], rows[25:], 10)
    np.testing.assert_array_equal(neighbours.indices, indices)
    np.testing.assert_array_equal(neighbours.distances, distances)  # integers: no tolerance


def test_within_a_set_a_picture_is_not_its_own_neighbour(small_pictures: NDArray[np.uint8]) -> None:
    rows = small_pictures[:300].reshape(300, -1)
    neighbours = ExactIndex(rows).nearest(rows, 3, np.arange(300))
    np.testing.assert_array_equal(neighbours.indices, brute_force(rows, rows, 3, same=True)[0])
    assert not (neighbours.indices == np.arange(300)[:, None]).any()


def test_float_rows_that_lie_far_from_the_origin_and_close_together() -> None:
    """Where the formula by products loses all its digits; the bound must give way, not the result."""
    rng = np.random.default_rng(0)
    centres = rng.normal(0, 1e4, (5, 300))
    rows = (centres[rng.integers(0, 5, 900)] + rng.normal(0, 1e-2, (900, 300))).astype(np.float32)
    neighbours = ExactIndex(rows[50:], RowProjection.learnt(rows[50:], directions=20)).nearest(rows[:50], 7)
    indices, distances = brute_force(rows[:50], rows[50:], 7)
    np.testing.assert_array_equal(neighbours.indices, indices)
    np.testing.assert_allclose(neighbours.distances, distances, rtol=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    references=st.integers(0, 70),
    width=st.integers(1, 60),
    k=st.integers(1, 9),
    directions=st.integers(1, 12),
    levels=st.sampled_from([2, 256]),
    real=st.booleans(),
)
def test_any_rows(seed: int, references: int, width: int, k: int, directions: int, levels: int, real: bool) -> None:
    """With two grey levels nearly all distances tie, and the order of the references decides."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, levels, (references + 5, width)).astype(np.float32 if real else np.uint8)
    neighbours = ExactIndex(rows[5:], RowProjection.learnt(rows[5:], directions=directions)).nearest(rows[:5], k)
    indices, distances = brute_force(rows[:5], rows[5:], k)
    count = min(k, references)
    np.testing.assert_array_equal(neighbours.indices[:, :count], indices[:, :count])
    np.testing.assert_allclose(neighbours.distances[:, :count], distances[:, :count], rtol=1e-12)
    assert (neighbours.indices[:, count:] == -1).all() and np.isinf(neighbours.distances[:, count:]).all()


def test_blocks_and_basis_do_not_change_the_result(
    small_pictures: NDArray[np.uint8], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = small_pictures[:500, ::2, ::2].reshape(500, -1)
    at_once = ExactIndex(rows).nearest(rows[:60], 5)
    monkeypatch.setattr(search, "REFERENCES", 33)
    index = ExactIndex(rows, RowProjection.learnt(rows, directions=3, seed=9))
    pieces = [index.nearest(rows[start : min(60, start + 7)], 5) for start in range(0, 60, 7)]
    np.testing.assert_array_equal(at_once.indices, np.concatenate([piece.indices for piece in pieces]))
    np.testing.assert_array_equal(at_once.distances, np.concatenate([piece.distances for piece in pieces]))


def test_chosen_rows_are_searched_as_if_there_were_no_others(small_pictures: NDArray[np.uint8]) -> None:
    rows = small_pictures[:400, ::2, ::2].reshape(400, -1)
    places = np.sort(np.random.default_rng(0).choice(400, 250, replace=False))
    projection = RowProjection.learnt(rows)
    index = ExactIndex(RowSubset(rows, places), projection, RowSubset(projection(rows), places))
    neighbours = index.nearest(rows[:60], 4)
    indices, distances = brute_force(rows[:60], rows[places], 4)
    np.testing.assert_array_equal(neighbours.indices, indices)
    np.testing.assert_array_equal(neighbours.distances, distances)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e20])
def test_rows_that_are_no_numbers_are_refused(bad: float) -> None:
    rows = np.ones((4, 6), np.float32)
    spoilt = rows.copy()
    spoilt[2, 3] = bad
    with np.errstate(all="ignore"), pytest.raises(ShiftbenchError, match="NaN"):
        ExactIndex(rows).nearest(spoilt, 1)


def test_long_rows_do_not_overflow() -> None:
    rows = np.zeros((2, 40_000), np.uint8)
    rows[1] = 255
    neighbours = ExactIndex(rows).nearest(rows[:1], 2)
    assert neighbours.distances[0, 1] == 255 * np.sqrt(40_000)


@pytest.mark.parametrize(
    ("queries", "options", "message"),
    [
        (np.zeros((2, 5), np.uint8), {"k": 1}, "different descriptors"),
        (np.zeros((2, 4), np.float32), {"k": 1}, "different descriptors"),
        (np.zeros((2, 4), np.uint8), {"k": 0}, "number of neighbours"),
        (np.zeros((2, 4), np.float64), {"k": 1}, "invalid descriptors"),
    ],
)
def test_bad_input(queries: Rows, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ShiftbenchError, match=message):
        ExactIndex(np.zeros((3, 4), np.uint8)).nearest(queries, **options)
