"""The compiled part of the search: which pairs need their true distance, and that distance."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import FloatArray
from shiftbench.shifts.corruptions.kernels.compiling import compiled

#: So many squares of bytes fit into 32 bits.
_STRIDE = 16384


@compiled
def _square_of_bytes(a: NDArray[Any], b: NDArray[Any]) -> np.int32:
    """In 32-bit integers, which is exact and eight or sixteen at a time."""
    total = np.int32(0)
    for i in range(len(a)):
        gap = np.int32(np.int32(a[i]) - np.int32(b[i]))
        total = np.int32(total + np.int32(gap * gap))
    return total


@compiled
def _square_of_floats(a: NDArray[Any], b: NDArray[Any]) -> float:
    """In float64 and in order: the same bits on every processor."""
    total = 0.0
    for i in range(len(a)):
        gap = np.float64(a[i]) - np.float64(b[i])
        total += gap * gap
    return total


@compiled
def square_distance(a: NDArray[Any], b: NDArray[Any]) -> float:
    """|a - b|²."""
    total = 0.0
    for start in range(0, len(a), _STRIDE):
        if a.itemsize == 1:  # known when this is compiled
            total += _square_of_bytes(a[start : start + _STRIDE], b[start : start + _STRIDE])
        else:
            total += _square_of_floats(a[start : start + _STRIDE], b[start : start + _STRIDE])
    return total


@compiled
def _insert(square: float, index: int, squares: FloatArray, indices: NDArray[np.int64]) -> None:
    """Into the sorted list of the best so far; indices come in ascending order, so equals go behind."""
    place = len(squares) - 1
    while place > 0 and squares[place - 1] > square:
        squares[place], indices[place] = squares[place - 1], indices[place - 1]
        place -= 1
    squares[place], indices[place] = square, index


@compiled
def _bound(
    product: float, query_square: float, query_rest: float, reference_square: float, reference_rest: float
) -> float:
    """At most the squared distance: that of the projected rows, and of the lengths of what was projected away."""
    gap = query_rest - reference_rest
    return query_square + reference_square - 2.0 * product + gap * gap


@compiled
def least_bounds(
    products: NDArray[np.float32],
    query_square: FloatArray,
    query_rest: FloatArray,
    reference_square: FloatArray,
    reference_rest: FloatArray,
    first: int,
    own: NDArray[np.int64],
    bounds: FloatArray,
    indices: NDArray[np.int64],
) -> None:
    """Improve the k least bounds of each query by a block of references that begins at row ``first``.

    ``products`` are those of the projected rows, ``own`` the reference row that is the query itself, or -1.
    """
    last = bounds.shape[1] - 1
    for i in range(len(products)):
        for j in range(products.shape[1]):
            bound = _bound(products[i, j], query_square[i], query_rest[i], reference_square[j], reference_rest[j])
            if bound < bounds[i, last] and first + j != own[i]:
                _insert(bound, first + j, bounds[i], indices[i])


@compiled
def refine(
    products: NDArray[np.float32],
    query_square: FloatArray,
    query_rest: FloatArray,
    reference_square: FloatArray,
    reference_rest: FloatArray,
    first: int,
    own: NDArray[np.int64],
    queries: NDArray[Any],
    references: NDArray[Any],
    slack: float,
    limits: FloatArray,
    squares: FloatArray,
    indices: NDArray[np.int64],
) -> None:
    """Improve the best squared distances of each query by a block of references.

    Bounds are lowered by ``slack`` times the squared lengths that went into them. What exceeds ``limits`` is known
    to be none of the best.
    """
    last = squares.shape[1] - 1
    for i in range(len(products)):
        length = query_square[i] + query_rest[i] * query_rest[i]
        for j in range(products.shape[1]):
            bound = _bound(products[i, j], query_square[i], query_rest[i], reference_square[j], reference_rest[j])
            bound -= slack * (length + reference_square[j] + reference_rest[j] * reference_rest[j])
            if bound <= limits[i] and bound < squares[i, last] and first + j != own[i]:
                square = square_distance(queries[i], references[j])
                if square < squares[i, last]:
                    _insert(square, first + j, squares[i], indices[i])


@compiled
def pair_squares(
    a: NDArray[Any], b: NDArray[Any], first: NDArray[np.int64], second: NDArray[np.int64], out: FloatArray
) -> None:
    """|a[first] - b[second]|² of given pairs of rows."""
    for i in range(len(first)):
        out[i] = square_distance(a[first[i]], b[second[i]])
