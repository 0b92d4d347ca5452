"""Find near-duplicates within a set of candidates and against reference sets (004 appendices B.2.2 and C.1.1).

Each descriptor finds the exact k nearest neighbours of every candidate. The union of these pairs is measured by all
metrics, including SSIM and aligned correlation, which would be too expensive for all pairs. Pairs within the threshold
of any metric go to the review queue, where a person decides.

The steps are computations on numbered items, so that they run here or on remote workers, are cached, and give the same
result either way. They hold no images, only rows that workers memory-map from the cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import FloatArray, IntArray, Pixels
from shiftbench.classifiers.base import Classifier
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.catalogue import open_dataset
from shiftbench.errors import ShiftbenchError
from shiftbench.jobs.base import Executor
from shiftbench.jobs.blocks import Computation, ComputeOptions, Numbers, PerImage, kept_rows, per_image
from shiftbench.labels.catalogue import FOLDERS
from shiftbench.testsets.near_duplicates.descriptors import (
    SIDE,
    Descriptor,
    PixelDescriptor,
    describe,
    descriptor,
    pair_distances,
)
from shiftbench.testsets.near_duplicates.review_queue import ReviewQueue, SuspectedPair, metrics_for
from shiftbench.testsets.near_duplicates.search import QUERIES, REFERENCES, ExactIndex, RowProjection, RowSubset
from shiftbench.testsets.near_duplicates.similarity import aligned_correlation, ssim

#: Default descriptors; they need no classifier.
PLAIN = ("pixels", "pixels-normalised")
NEIGHBOURS = 30
#: Pairs per block.
_BLOCK = 1024
#: Part of every cache key; raised when search or comparison change their results.
_VERSION = 1


@dataclass(frozen=True)
class SearchTarget:
    """The rows of a target set for one descriptor, prepared for searching."""

    described: PerImage
    projection: RowProjection
    projected: PerImage

    def index(self) -> ExactIndex:
        rows, projected = (_of_readable(rows, self.described) for rows in (self.described.rows, self.projected.rows))
        return ExactIndex(rows, self.projection, projected)


@dataclass(frozen=True)
class Projected:
    """The projection of rows as a computation."""

    described: PerImage
    projection: RowProjection

    @classmethod
    def of(cls, described: PerImage) -> Projected:
        return cls(described, RowProjection.learnt(_of_readable(described.rows, described)))

    def __call__(self, images: Sequence[Pixels], indices: IntArray) -> NDArray[np.generic]:
        return self.projection(self.described.rows[indices])

    def computation(self) -> Computation:
        return Computation(self, ["projected", _VERSION, self.described.fingerprint, self.projection.identity])


@dataclass(frozen=True)
class Nearest:
    """The search as a computation: the ``k`` nearest target rows of each candidate, -1 if there are fewer."""

    described: PerImage
    target: SearchTarget
    k: int
    #: Whether the target set is the candidates themselves.
    same: bool

    def __call__(self, images: Sequence[Pixels], indices: IntArray) -> IntArray:
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
    """The comparison as a computation: l2 by each descriptor, SSIM and aligned correlation of each pair."""

    #: Rows of the candidates and of the target set.
    pairs: PerImage
    #: For each descriptor, then the small images.
    own: Sequence[PerImage]
    known: Sequence[PerImage]

    def __call__(self, images: Sequence[Pixels], indices: IntArray) -> FloatArray:
        candidates, targets = self.pairs.rows[indices].T
        described = zip(self.own[:-1], self.known[:-1], strict=True)
        columns = [pair_distances(a.rows, b.rows, candidates, targets) for a, b in described]
        first = self.own[-1].rows[candidates].reshape(-1, SIDE, SIDE, 3)
        second = self.known[-1].rows[targets].reshape(-1, SIDE, SIDE, 3)
        return np.stack([*columns, ssim(first, second), aligned_correlation(first, second)], axis=1)

    def computation(self) -> Computation:
        sides = [one.fingerprint for one in (*self.own, *self.known)]
        return Computation(self, ["compared", _VERSION, self.pairs.fingerprint, *sides])


def _of_readable(rows: NDArray[np.generic], described: PerImage) -> NDArray[np.generic] | RowSubset:
    """The rows of readable images."""
    return RowSubset(rows, np.flatnonzero(described.readable)) if described.problems else rows


def find_near_duplicates(
    candidates: Dataset,
    references: Sequence[Dataset] = (),
    *,
    within: bool = True,
    by: Sequence[str | Classifier | Descriptor] = PLAIN,
    k: int = NEIGHBOURS,
    thresholds: Mapping[str, float] | None = None,
    flips: bool = False,
    folder: str | Path | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
    show: bool = False,
) -> ReviewQueue:
    """Pairs that may show the same image, the most similar first.

    ``by``: descriptors for the neighbour search: "pixels", "pixels-normalised", or any classifier or model spec, for
    its features. ``thresholds`` overrides default thresholds by metric. ``flips`` also searches for mirror images,
    which 004 did not count as duplicates. ``folder`` caches descriptors and results for the next search. An
    ``executor`` runs all steps through that folder, which all its workers must be able to read; the result is the same.
    """
    if not within and not references:
        raise ShiftbenchError("nothing to compare the candidates with", hint="pass a reference set, or within=True")
    targets = ([candidates] if within else []) + list(references)
    descriptors = [descriptor(spec) for spec in by]
    _check_names("sets", [target.name for target in targets])
    _check_names("descriptors", [one.name for one in descriptors])
    options = ComputeOptions(folder, workers, executor, show)
    search = _Search(candidates, descriptors, k, thresholds or {}, flips, options)
    with nullcontext() if executor is None else executor.kept():
        return search.run(targets)


def open_any(source: str, labels: str | None = None) -> Dataset:
    """A dataset whose classes do not matter unless ``labels`` names them: all its images are compared."""
    return open_dataset(source, space=labels or (FOLDERS if Path(source).is_dir() else None))


def _check_names(what: str, names: Sequence[str]) -> None:
    """The queue identifies them by name."""
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise ShiftbenchError(f"duplicate names of {what}", found=twice[0], hint="rename one of them")


class _Search:
    def __init__(
        self,
        candidates: Dataset,
        descriptors: Sequence[Descriptor],
        k: int,
        thresholds: Mapping[str, float],
        flips: bool,
        options: ComputeOptions,
    ) -> None:
        self.candidates, self.k, self.flips, self.options = candidates, k, flips, options
        self.descriptors = list(descriptors)
        if not self.descriptors:
            raise ShiftbenchError("no descriptors", expected="at least one, such as 'pixels'")
        # SSIM and alignment need the small images even if they are not a descriptor of the search.
        self.pixels = PixelDescriptor()
        self.metrics = metrics_for([one.name for one in self.descriptors], thresholds)

    def run(self, targets: Sequence[Dataset]) -> ReviewQueue:
        mirrorings = (False, True) if self.flips else (False,)
        own = {mirrored: self._described(self.candidates, mirrored) for mirrored in mirrorings}
        found: list[SuspectedPair] = []
        unreadable = _problems(self.candidates, own[False])
        for target in targets:
            same = target is self.candidates
            known = own[False] if same else self._described(target, False)
            if not same:
                unreadable += _problems(target, known)
            prepared = self._prepared(known[:-1], target)
            for mirrored in mirrorings:
                pairs = self._neighbours(own[mirrored][:-1], prepared, target, mirrored)
                found += self._suspected(pairs, own[mirrored], known, target, mirrored)
        return ReviewQueue(
            found, self.metrics, candidates=(self.candidates.name, len(self.candidates)),
            targets=[(target.name, len(target)) for target in targets], k=self.k, flips=self.flips,
            unreadable=unreadable,
        )  # fmt: skip

    def _described(self, dataset: Dataset, mirrored: bool) -> list[PerImage]:
        """Rows for each descriptor of the search, then the small images."""
        wanted = self.descriptors if self.pixels in self.descriptors else [*self.descriptors, self.pixels]
        found = describe(dataset, wanted, self.options, mirrored=mirrored)
        return [*found[: len(self.descriptors)], found[wanted.index(self.pixels)]]

    def _computed(
        self, numbers: Numbers, parts: Sequence[Projected | Nearest | Compared], what: str, size: int
    ) -> list[PerImage]:
        return per_image(numbers, [part.computation() for part in parts], self.options, what=what, size=size)

    def _prepared(self, known: Sequence[PerImage], target: Dataset) -> list[SearchTarget]:
        """For each descriptor. Projections are fitted once, here, so that all workers use the same."""
        parts = [Projected.of(one) for one in known]
        numbers = Numbers(known[0].fingerprint, len(target))
        projected = self._computed(numbers, parts, f"preparing {target.name}", REFERENCES)
        return [
            SearchTarget(part.described, part.projection, rows) for part, rows in zip(parts, projected, strict=True)
        ]

    def _neighbours(
        self, own: Sequence[PerImage], prepared: Sequence[SearchTarget], target: Dataset, mirrored: bool
    ) -> IntArray:
        """The union of the pairs found by all descriptors: (pairs, 2) candidate and target rows, sorted and unique."""
        same = target is self.candidates
        parts = [Nearest(one, other, self.k, same) for one, other in zip(own, prepared, strict=True)]
        numbers = Numbers(own[0].fingerprint, len(self.candidates))
        what = f"neighbours in {target.name}" + (" mirrored" if mirrored else "")
        keys = [np.empty(0, np.int64)]
        for found in self._computed(numbers, parts, what, QUERIES):
            there = found.rows >= 0
            first, second = np.repeat(np.arange(len(there)), there.sum(axis=1)), found.rows[there]
            if same:  # (a, b) and (b, a) are the same pair
                first, second = np.minimum(first, second), np.maximum(first, second)
            keys.append(first * len(target) + second)
        unique = np.unique(np.concatenate(keys))
        return np.stack([unique // len(target), unique % len(target)], axis=1)

    def _suspected(
        self, pairs: IntArray, own: Sequence[PerImage], known: Sequence[PerImage], target: Dataset, mirrored: bool
    ) -> list[SuspectedPair]:
        values = self._compared(pairs, own, known, target)
        closeness = np.stack([metric.closeness(values[metric.name]) for metric in self.metrics])
        suspects = np.flatnonzero(closeness.max(axis=0, initial=-np.inf) >= 0)
        return [
            SuspectedPair(
                candidate=self.candidates.ids[candidate],
                candidate_index=candidate,
                target=target.name,
                reference=target.ids[reference],
                reference_index=reference,
                mirrored=mirrored,
                values={name: float(column[i]) for name, column in values.items()},
                suspicion=float(closeness[:, i].max()),
                reasons=tuple(m.name for m, c in zip(self.metrics, closeness[:, i], strict=True) if c >= 0),
            )
            for i, (candidate, reference) in zip(suspects.tolist(), pairs[suspects].tolist(), strict=True)
        ]

    def _compared(
        self, pairs: IntArray, own: Sequence[PerImage], known: Sequence[PerImage], target: Dataset
    ) -> dict[str, FloatArray]:
        """All metrics of all pairs, by name."""
        part = Compared(kept_rows(pairs, self.options.folder), own, known)
        numbers = Numbers(part.pairs.fingerprint, len(pairs))
        (found,) = self._computed(numbers, [part], f"pairs with {target.name}", _BLOCK)
        scales = {one.name: one.scale for one in self.descriptors} | {"ssim": 1.0, "aligned": 1.0}
        return {name: scale * column for (name, scale), column in zip(scales.items(), found.rows.T, strict=True)}


def _problems(dataset: Dataset, described: Sequence[PerImage]) -> list[tuple[str, str, str]]:
    """(set, image, reason) of unreadable images."""
    return [(dataset.name, dataset.ids[index], why) for index, why in sorted(described[-1].problems.items())]
