"""Near-duplicates within a set of candidates and against reference sets (004 appendices B.2.2 and C.1.1).

Each descriptor finds the k nearest neighbours of every candidate, exactly. All pairs that any of them found are then
measured by all metrics, among them SSIM and the correlation after alignment, which would be too dear for every pair.
What lies within a threshold of any metric goes to the review queue; a person decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import FloatArray
from shiftbench.classifiers.base import Classifier
from shiftbench.datasets.base import Dataset
from shiftbench.errors import ShiftbenchError
from shiftbench.jobs.base import Executor
from shiftbench.jobs.blocks import Numbers, PerImage, kept_rows, per_image
from shiftbench.testsets.near_duplicates.computations import Compared, Nearest, Prepared, Projected
from shiftbench.testsets.near_duplicates.descriptors import Descriptor, PixelDescriptor, describe, descriptor
from shiftbench.testsets.near_duplicates.review_queue import ReviewQueue, SuspectedPair, metrics_for
from shiftbench.testsets.near_duplicates.search import QUERIES, REFERENCES

Indices = NDArray[np.int64]

#: What candidates are searched by where nothing else is said: needs no classifier.
PLAIN = ("pixels", "pixels-normalised")
NEIGHBOURS = 10
#: Pairs whose pictures are compared at once.
_BLOCK = 1024


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
    """Pairs that may show the same picture, the most suspicious first.

    ``by`` names what neighbours are searched by: "pixels", "pixels-normalised", and any classifier or its spec, for
    its features. ``thresholds`` replaces some of the default ones, by metric. ``flips`` also searches for mirror
    images, which 004 did not count as duplicates. ``folder`` keeps the descriptors, so that the next search need
    not look at the pictures again, and what was found. An ``executor`` describes the pictures, searches and compares
    pairs, by way of the folder, which all its workers must see; what is found does not depend on where.
    """
    if not within and not references:
        raise ShiftbenchError("nothing to compare the candidates with", hint="name a reference set, or say within=True")
    targets = ([candidates] if within else []) + list(references)
    descriptors = [descriptor(spec) for spec in by]
    _check_names("sets", [target.name for target in targets])
    _check_names("descriptors", [one.name for one in descriptors])
    search = _Search(
        candidates, descriptors, k, thresholds or {}, flips,
        None if folder is None else Path(folder), workers, executor, show,
    )  # fmt: skip
    with nullcontext() if executor is None else executor.kept():
        return search.run(targets)


def _check_names(what: str, names: Sequence[str]) -> None:
    """The queue tells them apart by name."""
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise ShiftbenchError(f"two {what} have the same name", found=twice[0], hint="give one of them another name")


class _Search:
    def __init__(
        self,
        candidates: Dataset,
        descriptors: Sequence[Descriptor],
        k: int,
        thresholds: Mapping[str, float],
        flips: bool,
        folder: Path | None,
        workers: int | None,
        executor: Executor | None,
        show: bool,
    ) -> None:
        self.candidates, self.k, self.flips = candidates, k, flips
        self.folder, self.workers, self.executor, self.show = folder, workers, executor, show
        self.descriptors = list(descriptors)
        if not self.descriptors:
            raise ShiftbenchError("nothing to search by", expected="at least one descriptor, such as 'pixels'")
        # SSIM and alignment look at the small pictures, whether or not they are searched by.
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
        """By all descriptors that are searched by, and last by the small pictures."""
        wanted = self.descriptors if self.pixels in self.descriptors else [*self.descriptors, self.pixels]
        found = describe(
            dataset, wanted, mirrored=mirrored, folder=self.folder, workers=self.workers, executor=self.executor,
            show=self.show,
        )  # fmt: skip
        return [*found[: len(self.descriptors)], found[wanted.index(self.pixels)]]

    def _computed(
        self, numbers: Numbers, parts: Sequence[Projected | Nearest | Compared], what: str, size: int
    ) -> list[PerImage]:
        return per_image(
            numbers, [part.computation() for part in parts], what=what, folder=self.folder, size=size,
            workers=self.workers, executor=self.executor, show=self.show,
        )  # fmt: skip

    def _prepared(self, known: Sequence[PerImage], target: Dataset) -> list[Prepared]:
        """By each descriptor. The projections are learnt here, once, so that all workers have the same ones."""
        parts = [Projected.of(one) for one in known]
        numbers = Numbers(known[0].fingerprint, len(target))
        projected = self._computed(numbers, parts, f"preparing {target.name}", REFERENCES)
        return [Prepared(part.described, part.projection, rows) for part, rows in zip(parts, projected, strict=True)]

    def _neighbours(
        self, own: Sequence[PerImage], prepared: Sequence[Prepared], target: Dataset, mirrored: bool
    ) -> Indices:
        """The union of what the descriptors find: (pairs, 2) candidates and rows of the target set, in ascending order,
        each pair once."""
        same = target is self.candidates
        parts = [Nearest(one, other, self.k, same) for one, other in zip(own, prepared, strict=True)]
        numbers = Numbers(own[0].fingerprint, len(self.candidates))
        what = f"neighbours in {target.name}" + (" mirrored" if mirrored else "")
        keys = [np.empty(0, np.int64)]
        for found in self._computed(numbers, parts, what, QUERIES):
            there = found.rows >= 0
            first, second = np.repeat(np.arange(len(there)), there.sum(axis=1)), found.rows[there]
            if same:  # both ways are one pair
                first, second = np.minimum(first, second), np.maximum(first, second)
            keys.append(first * len(target) + second)
        unique = np.unique(np.concatenate(keys))
        return np.stack([unique // len(target), unique % len(target)], axis=1)

    def _suspected(
        self, pairs: Indices, own: Sequence[PerImage], known: Sequence[PerImage], target: Dataset, mirrored: bool
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
        self, pairs: Indices, own: Sequence[PerImage], known: Sequence[PerImage], target: Dataset
    ) -> dict[str, FloatArray]:
        """All metrics of all pairs, by name."""
        part = Compared(kept_rows(pairs, self.folder), own, known)
        numbers = Numbers(part.pairs.fingerprint, len(pairs))
        (found,) = self._computed(numbers, [part], f"pairs with {target.name}", _BLOCK)
        scales = {one.name: one.scale for one in self.descriptors} | {"ssim": 1.0, "aligned": 1.0}
        return {name: scale * column for (name, scale), column in zip(scales.items(), found.rows.T, strict=True)}


def _problems(dataset: Dataset, described: Sequence[PerImage]) -> list[tuple[str, str, str]]:
    """(set, image, why) of pictures that could not be read."""
    return [(dataset.name, dataset.ids[index], why) for index, why in sorted(described[-1].problems.items())]
