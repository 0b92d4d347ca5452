"""The steps of a search as computations on numbered things: here or by workers elsewhere, kept, with the same result.

They hold no pictures but rows that were described before, which workers map from where they are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import FloatArray, Pixels
from shiftbench.jobs.blocks import Computation, PerImage
from shiftbench.testsets.near_duplicates.alignment import aligned_correlation
from shiftbench.testsets.near_duplicates.descriptors import SIDE, pair_distances
from shiftbench.testsets.near_duplicates.search import Chosen, ExactIndex, Projection
from shiftbench.testsets.near_duplicates.ssim import ssim

Indices = NDArray[np.int64]

#: Raised when another search, or another comparison, would find something else than what is kept of earlier ones.
_VERSION = 1


@dataclass(frozen=True)
class Prepared:
    """The pictures of a target set as one descriptor sees them, ready to be searched."""

    described: PerImage
    projection: Projection
    projected: PerImage

    def index(self) -> ExactIndex:
        rows, projected = (_of_readable(rows, self.described) for rows in (self.described.rows, self.projected.rows))
        return ExactIndex(rows, self.projection, projected)


@dataclass(frozen=True)
class Projected:
    """A projection of rows as a computation."""

    described: PerImage
    projection: Projection

    @classmethod
    def of(cls, described: PerImage) -> Projected:
        return cls(described, Projection.learnt(_of_readable(described.rows, described)))

    def __call__(self, pictures: Sequence[Pixels], indices: Indices) -> NDArray[Any]:
        return self.projection(self.described.rows[indices])

    def computation(self) -> Computation:
        return Computation(self, ["projected", _VERSION, self.described.fingerprint, self.projection.identity])


@dataclass(frozen=True)
class Nearest:
    """The search as a computation: a candidate's ``k`` nearest rows of the target set, -1 where there are fewer."""

    described: PerImage
    target: Prepared
    k: int
    #: Whether the target set is the candidates themselves.
    same: bool

    def __call__(self, pictures: Sequence[Pixels], indices: Indices) -> Indices:
        found, asked = np.full((len(indices), self.k), -1), self.described.readable[indices]
        queries, readable = indices[asked], self.target.described.readable
        places = np.flatnonzero(readable)
        own = np.where(readable[queries], np.searchsorted(places, queries), -1) if self.same else None
        nearest = self.target.index().nearest(self.described.rows[queries], self.k, own).indices
        there = nearest >= 0
        nearest[there] = places[nearest[there]]
        found[asked] = nearest
        return found

    def computation(self) -> Computation:
        sides = self.described.fingerprint, self.target.described.fingerprint
        return Computation(self, ["nearest", _VERSION, *sides, self.k, self.same])


@dataclass(frozen=True)
class Compared:
    """The comparison as a computation: l2 of a pair by each descriptor, SSIM and aligned correlation."""

    #: Rows of the candidates and of the target set.
    pairs: PerImage
    #: By each descriptor, and last the small pictures.
    own: Sequence[PerImage]
    known: Sequence[PerImage]

    def __call__(self, pictures: Sequence[Pixels], indices: Indices) -> FloatArray:
        candidates, targets = self.pairs.rows[indices].T
        described = zip(self.own[:-1], self.known[:-1], strict=True)
        columns = [pair_distances(a.rows, b.rows, candidates, targets) for a, b in described]
        first = self.own[-1].rows[candidates].reshape(-1, SIDE, SIDE, 3)
        second = self.known[-1].rows[targets].reshape(-1, SIDE, SIDE, 3)
        return np.stack([*columns, ssim(first, second), aligned_correlation(first, second)], axis=1)

    def computation(self) -> Computation:
        sides = [one.fingerprint for one in (*self.own, *self.known)]
        return Computation(self, ["compared", _VERSION, self.pairs.fingerprint, *sides])


def _of_readable(rows: NDArray[Any], described: PerImage) -> NDArray[Any] | Chosen:
    """Those of the pictures that could be read."""
    return Chosen(rows, np.flatnonzero(described.readable)) if described.problems else rows
