"""Exact k nearest neighbours in l2, faster than brute force.

Rows are projected onto a few directions that explain most of their variance. In an orthonormal basis

    |a - b|² = |Pa - Pb|² + |rest a - rest b|²  >=  |Pa - Pb|² + (|rest a| - |rest b|)²,

so the short vectors and the norms of the rests give a lower bound, with one small matrix product for all pairs. The
true distance is only computed if the bound is below the k-th best distance so far, in integers for uint8 rows and in
float64 for others. The bound is reduced by the largest possible rounding error: nothing is missed, and neither the
order of the work, nor the number of threads, nor the quality of the basis changes the result. Ties go to the lower
index.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench import ShiftbenchError
from shiftbench.extend.io import digest
from shiftbench.extend.registration import kernel
from shiftbench.extend.types import FloatArray, IntArray

Rows = NDArray[Any]

#: Directions of the basis; with fewer, more true distances are computed, with more, the product costs more.
DIRECTIONS = 128
#: Queries per block.
QUERIES = 512
#: Reference rows per block.
REFERENCES = 4096
#: Rows that the basis is fitted to.
_SAMPLE_SIZE = 4096
#: The unit roundoff of float32.
_UNIT = 2.0**-24
#: Squared norms must be smaller, so that products do not overflow float32.
_MAX_SQUARED_NORM = 1e30


@dataclass(frozen=True)
class Neighbours:
    """The neighbours of each query, nearest first."""

    #: (queries, k) reference rows; -1 if there are fewer than k.
    indices: IntArray
    #: (queries, k) l2 distances; inf if there are fewer than k.
    distances: FloatArray


@dataclass(frozen=True)
class RowProjection:
    """A projection onto orthonormal directions that explain most of the variance."""

    #: (D,): subtracted before the projection.
    mean: FloatArray
    #: (D, directions), orthonormal.
    basis: FloatArray

    @classmethod
    def learnt(cls, rows: Rows | RowSubset, *, directions: int = DIRECTIONS, seed: int = 0) -> RowProjection:
        """By a randomised range finder (Halko et al. 2011) with two power iterations, on a sample of the rows; the
        identity if there are no more dimensions than directions."""
        sampled = np.arange(len(rows))
        if len(rows) > _SAMPLE_SIZE:
            sampled = np.sort(np.random.default_rng(seed).choice(len(rows), _SAMPLE_SIZE, replace=False))
        sample = rows[sampled].astype(np.float64)
        width = rows.shape[1]
        mean = sample.mean(axis=0) if len(sample) else np.zeros(width)
        centred = sample - mean
        # With few references, true distances cost less than a good basis.
        directions = max(1, min(directions, len(centred) // 16))
        if width <= directions:
            return cls(mean, np.eye(width))
        basis = np.random.default_rng(seed).standard_normal((width, directions))
        for _ in range(3):
            basis, _ = np.linalg.qr(centred.T @ (centred @ basis))
        return cls(mean, np.asarray(basis))

    @property
    def identity(self) -> str:
        """A digest of the projection, for cache keys."""
        return digest(self.mean.tobytes(), self.basis.tobytes())

    def __call__(self, rows: Rows | RowSubset) -> Rows:
        """Projected rows: ``short`` is P x, ``square`` its squared norm, ``rest`` the norm of the remainder.

        Computed in float64, so that only the final rounding to float32 affects the bound.
        """
        width = self.basis.shape[1]
        projected = np.empty(len(rows), [("short", np.float32, (width,)), ("square", np.float64), ("rest", np.float64)])
        for start in range(0, len(rows), REFERENCES):
            block = slice(start, start + REFERENCES)
            centred = rows[block].astype(np.float64) - self.mean
            squared_norm = np.einsum("ij,ij->i", centred, centred)
            # The comparison is also false for nan.
            if not (squared_norm < _MAX_SQUARED_NORM).all():
                raise ShiftbenchError(
                    "descriptors contain NaN, infinite or very large values", expected="finite values below 1e15"
                )
            short = centred @ self.basis
            square = np.einsum("ij,ij->i", short, short)
            projected["short"][block] = short
            projected["square"][block] = square
            projected["rest"][block] = np.sqrt(np.maximum(squared_norm - square, 0))
        return projected


class RowSubset:
    """A lazy view of ``rows[places]``."""

    def __init__(self, rows: Rows, places: IntArray) -> None:
        self._rows = rows
        self._places = places
        self.shape = (len(places), *rows.shape[1:])
        self.dtype = rows.dtype
        self.ndim = rows.ndim

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, key: slice | IntArray) -> Rows:
        subset: Rows = self._rows[self._places[key]]
        return subset


@dataclass(frozen=True)
class _ReferenceBlock:
    """Consecutive projected references, and their inner products with the projected queries."""

    #: The number of the first reference.
    start: int
    projected: Rows
    #: (queries, references)
    products: NDArray[np.float32]


class ExactIndex:
    """Reference rows, (N, D) uint8 or float32, prepared for searching. Memory-mapped arrays stay on disk."""

    def __init__(
        self, rows: Rows | RowSubset, projection: RowProjection | None = None, projected: Rows | RowSubset | None = None
    ) -> None:
        """``projected``: the rows under ``projection``, if already computed."""
        _check(rows)
        self.rows = rows
        self.projection = projection or RowProjection.learnt(rows)
        self._projected = self.projection(rows) if projected is None else projected

    def nearest(self, queries: Rows, k: int, own: IntArray | None = None) -> Neighbours:
        """Neighbours of a block of queries, in two passes; ``own`` are the reference rows of the queries themselves.

        The references with the lowest bounds are good candidates: their true distances limit the search from the
        start, so the second pass computes few others.
        """
        _check(queries)
        if queries.shape[1] != self.rows.shape[1] or queries.dtype != self.rows.dtype:
            raise ShiftbenchError(
                "queries and references have different descriptors",
                found=f"{queries.dtype} rows of {queries.shape[1]}",
                expected=f"{self.rows.dtype} rows of {self.rows.shape[1]}",
            )
        if k < 1:
            raise ShiftbenchError("invalid number of neighbours", found=k, expected="1 or more")
        queries = np.ascontiguousarray(queries)
        projected_queries = self.projection(queries)
        own = np.full(len(queries), -1) if own is None else own

        # First pass: the references with the lowest bounds.
        bounds = np.full((len(queries), k), np.inf)
        guesses = np.full((len(queries), k), -1)
        for block in self._blocks(projected_queries):
            _least_bounds(
                block.products,
                *_lengths(projected_queries),
                *_lengths(block.projected),
                block.start,
                own,
                bounds,
                guesses,
            )
        limits = self._limits(queries, guesses)

        # Second pass: true distances of all references whose bound is below the limit.
        squares = np.full((len(queries), k), np.inf)
        indices = np.full((len(queries), k), -1)
        slack = 2 * (self.projection.basis.shape[1] + 32) * _UNIT
        refine = _refine_bytes if queries.dtype == np.uint8 else _refine_floats
        for block in self._blocks(projected_queries):
            references = np.ascontiguousarray(self.rows[block.start : block.start + len(block.projected)])
            refine(
                block.products,
                *_lengths(projected_queries),
                *_lengths(block.projected),
                block.start,
                own,
                queries,
                references,
                slack,
                limits,
                squares,
                indices,
            )
        return Neighbours(indices, np.sqrt(squares))

    def _limits(self, queries: Rows, guesses: IntArray) -> FloatArray:
        """An upper limit for the k-th best squared distance of each query: the largest one to its guesses.

        A query with fewer than k guesses has no limit.
        """
        k = guesses.shape[1]
        limits = np.full(len(queries), np.inf)
        for i in np.flatnonzero(guesses[:, -1] >= 0).tolist():
            references = np.ascontiguousarray(self.rows[guesses[i]])
            squares = np.empty(k)
            pair_squares(queries, references, np.full(k, i), np.arange(k), squares)
            limits[i] = squares.max()
        return limits

    def _blocks(self, projected_queries: Rows) -> Iterator[_ReferenceBlock]:
        for start in range(0, len(self.rows), REFERENCES):
            projected = self._projected[start : start + REFERENCES]
            yield _ReferenceBlock(start, projected, projected_queries["short"] @ projected["short"].T)


def _lengths(projected: Rows) -> tuple[FloatArray, FloatArray]:
    """The squared norm and the norm of the rest; copied, because the fields of a record are not aligned."""
    return projected["square"].copy(), projected["rest"].copy()


def _check(rows: Rows | RowSubset) -> None:
    if rows.ndim != 2 or rows.dtype not in (np.uint8, np.float32):
        raise ShiftbenchError(
            "invalid descriptors", found=f"{rows.dtype} {rows.shape}", expected="uint8 or float32, (images, values)"
        )


def pair_squares(a: Rows, b: Rows, first: IntArray, second: IntArray, out: FloatArray) -> None:
    """Write |a[first] - b[second]|² of each pair of rows into ``out``."""
    squares = _pair_squares_of_bytes if a.dtype == np.uint8 else _pair_squares_of_floats
    squares(a, b, first, second, out)


@kernel("uint8[]", "uint8[]", "int64[]", "int64[]", "float64[]")
def _pair_squares_of_bytes(
    a: NDArray[np.uint8], b: NDArray[np.uint8], first: IntArray, second: IntArray, out: FloatArray
) -> None:
    """Sum the squared differences in integers."""


@kernel("float32[]", "float32[]", "int64[]", "int64[]", "float64[]")
def _pair_squares_of_floats(
    a: NDArray[np.float32], b: NDArray[np.float32], first: IntArray, second: IntArray, out: FloatArray
) -> None:
    """Sum the squared differences in float64 and in order."""


@kernel("float32[]", "float64[]", "float64[]", "float64[]", "float64[]", "int", "int64[]", "float64[]", "int64[]")
def _least_bounds(
    products: NDArray[np.float32],
    query_square: FloatArray,
    query_rest: FloatArray,
    reference_square: FloatArray,
    reference_rest: FloatArray,
    first: int,
    own: IntArray,
    bounds: FloatArray,
    indices: IntArray,
) -> None:
    """Update the k lowest bounds of each query with a block of references that starts at row ``first``.

    ``products``: inner products of the projected rows; ``own``: the reference row of the query itself, or -1.
    """


@kernel(
    "float32[]",
    "float64[]",
    "float64[]",
    "float64[]",
    "float64[]",
    "int",
    "int64[]",
    "uint8[]",
    "uint8[]",
    "float",
    "float64[]",
    "float64[]",
    "int64[]",
)
def _refine_bytes(
    products: NDArray[np.float32],
    query_square: FloatArray,
    query_rest: FloatArray,
    reference_square: FloatArray,
    reference_rest: FloatArray,
    first: int,
    own: IntArray,
    queries: NDArray[np.uint8],
    references: NDArray[np.uint8],
    slack: float,
    limits: FloatArray,
    squares: FloatArray,
    indices: IntArray,
) -> None:
    """Update the best squared distances of each query with a block of references.

    Bounds are reduced by ``slack`` times the squared norms that went into them. References above ``limits`` cannot be
    among the best.
    """


@kernel(
    "float32[]",
    "float64[]",
    "float64[]",
    "float64[]",
    "float64[]",
    "int",
    "int64[]",
    "float32[]",
    "float32[]",
    "float",
    "float64[]",
    "float64[]",
    "int64[]",
)
def _refine_floats(
    products: NDArray[np.float32],
    query_square: FloatArray,
    query_rest: FloatArray,
    reference_square: FloatArray,
    reference_rest: FloatArray,
    first: int,
    own: IntArray,
    queries: NDArray[np.float32],
    references: NDArray[np.float32],
    slack: float,
    limits: FloatArray,
    squares: FloatArray,
    indices: IntArray,
) -> None:
    """Do the same as :func:`_refine_bytes` for descriptors of real numbers."""
