"""The exact k nearest neighbours in l2, faster than comparing everything with everything.

Rows are projected onto a few directions that hold most of their variance. In an orthonormal basis

    |a - b|² = |Pa - Pb|² + |rest a - rest b|²  >=  |Pa - Pb|² + (|rest a| - |rest b|)²,

so that the short vectors and the lengths of the rests give a bound from below, by one small matrix product for all
pairs. Only where the bound beats the k-th best distance so far is the true distance computed, in integers for uint8
rows and in float64 for others. The bound is lowered by all that rounding can have added to it: nothing is missed,
and neither the order of the work, nor the number of threads, nor the quality of the basis changes the result. Of
equal distances the lower index comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import FloatArray
from shiftbench.classifiers.hashing import digest
from shiftbench.errors import ShiftbenchError
from shiftbench.jobs.blocks import cut
from shiftbench.jobs.threads import on_threads
from shiftbench.testsets.near_duplicates.kernels import least_bounds, refine, square_distance

Rows = NDArray[Any]

#: Directions of the basis; fewer let more pairs through to the true distance, more make the product dearer.
DIRECTIONS = 128
#: Worked on at once.
QUERIES, REFERENCES = 512, 4096
#: How many rows the basis is learnt from.
_SAMPLE = 4096
_UNIT = 2.0**-24  # of float32 rounding
_LARGEST = 1e30  # squared lengths, so that products stay far from where float32 ends


@dataclass(frozen=True)
class Neighbours:
    """For each query its neighbours, nearest first."""

    #: (queries, k) rows of the references; -1 where there are fewer than k.
    indices: NDArray[np.int64]
    #: (queries, k) l2; inf where there is no neighbour.
    distances: FloatArray


@dataclass(frozen=True)
class Projection:
    """Onto orthonormal directions that hold most of the variance of some rows."""

    mean: FloatArray
    basis: FloatArray

    @classmethod
    def learnt(cls, rows: Rows | Chosen, *, directions: int = DIRECTIONS, seed: int = 0) -> Projection:
        sample = _sampled(rows, seed)
        mean = sample.mean(axis=0) if len(sample) else np.zeros(rows.shape[1])
        return cls(mean, _basis(sample - mean, directions, seed))

    @property
    def identity(self) -> str:
        return digest(self.mean.tobytes(), self.basis.tobytes())

    def __call__(self, rows: Rows | Chosen) -> Rows:
        """A projected row: ``short`` is P x, ``square`` its squared length, ``rest`` the length of what is left.

        In float64, so that only the final rounding to float32 enters the bound.
        """
        width = self.basis.shape[1]
        out = np.empty(len(rows), [("short", np.float32, (width,)), ("square", np.float64), ("rest", np.float64)])
        for start in range(0, len(rows), REFERENCES):
            part = slice(start, start + REFERENCES)
            centred = rows[part].astype(np.float64) - self.mean
            whole = np.einsum("ij,ij->i", centred, centred)
            if not (whole < _LARGEST).all():  # nan too
                raise ShiftbenchError("descriptors hold nan, inf or numbers beyond all reason", expected="below 1e15")
            short = centred @ self.basis
            square = np.einsum("ij,ij->i", short, short)
            out["short"][part], out["square"][part] = short, square
            out["rest"][part] = np.sqrt(np.maximum(whole - square, 0))
        return out


class Chosen:
    """``rows[places]``, left where they are until some of them are looked at."""

    def __init__(self, rows: Rows, places: NDArray[np.int64]) -> None:
        self._rows, self._places = rows, places
        self.shape, self.dtype, self.ndim = (len(places), *rows.shape[1:]), rows.dtype, rows.ndim

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, key: slice | NDArray[np.int64]) -> Rows:
        chosen: Rows = self._rows[self._places[key]]
        return chosen


class ExactIndex:
    """Reference rows, (N, D) uint8 or float32, prepared for searching. A memory-mapped array stays on disk.

    >>> index = ExactIndex(np.array([[0, 0], [3, 4], [6, 8]], np.uint8))
    >>> found = index.search(np.array([[3, 3]], np.uint8), k=2)
    >>> found.indices.tolist(), found.distances.round(3).tolist()
    ([[1, 0]], [[1.0, 4.243]])
    """

    def __init__(
        self, rows: Rows | Chosen, projection: Projection | None = None, projected: Rows | Chosen | None = None
    ) -> None:
        """``projected`` are the rows under ``projection``, where that was done before."""
        _check(rows)
        self.rows = rows
        self.projection = projection or Projection.learnt(rows)
        self._projected = self.projection(rows) if projected is None else projected

    def search(
        self,
        queries: Rows,
        k: int,
        *,
        same: bool = False,
        workers: int | None = None,
        advance: Callable[[int], None] = lambda count: None,
    ) -> Neighbours:
        """The ``k`` nearest references of every query; with ``same``, query i is reference i and not its own
        neighbour. ``advance`` is told how many queries are done."""
        if same and len(queries) != len(self.rows):
            raise ShiftbenchError(
                "a set is searched within itself with all its rows", found=len(queries), expected=len(self.rows)
            )
        self._check_queries(queries, k)
        found = Neighbours(np.empty((len(queries), k), np.int64), np.empty((len(queries), k)))

        def work(part: slice) -> None:
            block = self.nearest(queries[part], k, np.arange(part.start, part.stop) if same else None)
            found.indices[part], found.distances[part] = block.indices, block.distances
            advance(part.stop - part.start)

        on_threads(work, [block.slice for block in cut(len(queries), QUERIES)], workers)
        return found

    def nearest(self, queries: Rows, k: int, own: NDArray[np.int64] | None = None) -> Neighbours:
        """For some queries at once, in two passes over the references; ``own`` says which references they are.

        The references of the least bounds are good ones, if not the best: their true distances limit the search
        from its beginning, so that the second pass looks at few others.
        """
        self._check_queries(queries, k)
        queries, asked = np.ascontiguousarray(queries), self.projection(queries)
        own = np.full(len(queries), -1) if own is None else own
        squares, indices = np.full((len(queries), k), np.inf), np.full((len(queries), k), -1)
        bounds, guesses = np.full_like(squares, np.inf), np.full_like(indices, -1)
        for start, known, products in self._products(asked):
            least_bounds(products, *_lengths(asked), *_lengths(known), start, own, bounds, guesses)
        limits = self._limits(queries, guesses)
        slack = 2 * (self.projection.basis.shape[1] + 32) * _UNIT
        for start, known, products in self._products(asked):
            references = np.ascontiguousarray(self.rows[start : start + len(known)])
            refine(
                products, *_lengths(asked), *_lengths(known), start, own, queries, references, slack, limits,
                squares, indices,
            )  # fmt: skip
        return Neighbours(indices, np.sqrt(squares))

    def _products(self, asked: Rows) -> Iterator[tuple[int, Rows, NDArray[np.float32]]]:
        for start in range(0, len(self.rows), REFERENCES):
            known = self._projected[start : start + REFERENCES]
            yield start, known, asked["short"] @ known["short"].T

    def _limits(self, queries: Rows, guesses: NDArray[np.int64]) -> FloatArray:
        """For each query the largest true squared distance to its guesses: the k-th best is no further."""
        limits = np.full(len(queries), np.inf)
        for i in np.flatnonzero(guesses[:, -1] >= 0).tolist():
            rows = np.ascontiguousarray(self.rows[guesses[i]])
            limits[i] = max(square_distance(queries[i], row) for row in rows)
        return limits

    def _check_queries(self, queries: Rows, k: int) -> None:
        _check(queries)
        if queries.shape[1] != self.rows.shape[1] or queries.dtype != self.rows.dtype:
            raise ShiftbenchError(
                "queries and references are not described alike",
                found=f"{queries.dtype} rows of {queries.shape[1]}",
                expected=f"{self.rows.dtype} rows of {self.rows.shape[1]}",
            )
        if k < 1:
            raise ShiftbenchError("bad number of neighbours", found=k, expected="1 or more")


def _lengths(projected: Rows) -> tuple[FloatArray, FloatArray]:
    return np.ascontiguousarray(projected["square"]), np.ascontiguousarray(projected["rest"])


def _sampled(rows: Rows | Chosen, seed: int) -> FloatArray:
    chosen = np.arange(len(rows))
    if len(rows) > _SAMPLE:
        chosen = np.sort(np.random.default_rng(seed).choice(len(rows), _SAMPLE, replace=False))
    return rows[chosen].astype(np.float64)


def _basis(centred: FloatArray, directions: int, seed: int) -> FloatArray:
    """(D, d) orthonormal directions of large variance, by a randomised range finder (Halko et al. 2011) with two
    power iterations; all of space where it has no more."""
    width = centred.shape[1]
    # Among few references the true distances cost less than a good basis.
    directions = max(1, min(directions, len(centred) // 16))
    if width <= directions:
        return np.eye(width)
    found = np.random.default_rng(seed).standard_normal((width, directions))
    for _ in range(3):
        found, _ = np.linalg.qr(centred.T @ (centred @ found))
    return np.asarray(found)


def _check(rows: Rows | Chosen) -> None:
    if rows.ndim != 2 or rows.dtype not in (np.uint8, np.float32):
        raise ShiftbenchError(
            "descriptors are rows of numbers",
            found=f"{rows.dtype} {rows.shape}",
            expected="uint8 or float32, (images, values)",
        )
