"""Near-duplicates within a set of candidates and against reference sets (004 appendices B.2.2 and C.1.1).

Each descriptor finds the k nearest neighbours of every candidate, exactly. All pairs that any of them found are then
measured by all metrics, among them SSIM and the correlation after alignment, which would be too dear for every pair.
What lies within a threshold of any metric goes to the review queue; a person decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shiftbench.classifiers.base import Classifier
from shiftbench.datasets.base import Dataset
from shiftbench.errors import ShiftbenchError
from shiftbench.jobs import Executor
from shiftbench.testsets.blocks import PerImage, side_by_side
from shiftbench.testsets.near_duplicates.alignment import aligned_correlation
from shiftbench.testsets.near_duplicates.descriptors import SIDE, Descriptor, PixelDescriptor, describe, descriptor
from shiftbench.testsets.near_duplicates.review_queue import ReviewQueue, SuspectedPair, metrics_for
from shiftbench.testsets.near_duplicates.search import ExactIndex
from shiftbench.testsets.near_duplicates.ssim import ssim
from shiftbench.working import progress_bar

FloatArray = NDArray[np.float64]
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
    not look at the pictures again. An ``executor`` describes the pictures, which with a network is most of the work;
    the search itself is of this machine.
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
    return search.run(targets)


def _check_names(what: str, names: Sequence[str]) -> None:
    """The queue tells them apart by name."""
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise ShiftbenchError(f"two {what} have the same name", found=twice[0], hint="give one of them another name")


@dataclass(frozen=True)
class _Pairs:
    """Candidates and rows of a target set, in ascending order, each pair once."""

    candidates: Indices
    targets: Indices
    mirrored: bool

    def __len__(self) -> int:
        return len(self.candidates)


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
            indexes = [_Readable(one) for one in known[: len(self.descriptors)]]
            for mirrored in mirrorings:
                pairs = self._neighbours(own[mirrored], indexes, target, same, mirrored)
                found += self._suspected(pairs, own[mirrored], known, target)
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

    def _neighbours(
        self, own: Sequence[PerImage], indexes: Sequence[_Readable], target: Dataset, same: bool, mirrored: bool
    ) -> _Pairs:
        """The union of what the descriptors find."""
        keys = [np.empty(0, np.int64)]
        for one, rows, index in zip(self.descriptors, own, indexes, strict=False):
            what = f"neighbours by {one.name} in {target.name}" + (" mirrored" if mirrored else "")
            with progress_bar(what, len(self.candidates), show=self.show) as advance:
                first, second = index.neighbours(rows, self.k, same=same, workers=self.workers, advance=advance)
            if same:  # both ways are one pair
                first, second = np.minimum(first, second), np.maximum(first, second)
            keys.append(first * len(target) + second)
        unique = np.unique(np.concatenate(keys))
        return _Pairs(unique // len(target), unique % len(target), mirrored)

    def _suspected(
        self, pairs: _Pairs, own: Sequence[PerImage], known: Sequence[PerImage], target: Dataset
    ) -> list[SuspectedPair]:
        values = {
            one.name: one.distances(a.rows, b.rows, pairs.candidates, pairs.targets)
            for one, a, b in zip(self.descriptors, own, known, strict=False)
        }
        values |= self._compared(pairs, own[-1], known[-1], target)
        closeness = np.stack([metric.closeness(values[metric.name]) for metric in self.metrics])
        return [
            SuspectedPair(
                candidate=self.candidates.ids[int(pairs.candidates[i])],
                candidate_index=int(pairs.candidates[i]),
                target=target.name,
                reference=target.ids[int(pairs.targets[i])],
                reference_index=int(pairs.targets[i]),
                mirrored=pairs.mirrored,
                values={name: float(column[i]) for name, column in values.items()},
                suspicion=float(closeness[:, i].max()),
                reasons=tuple(m.name for m, c in zip(self.metrics, closeness[:, i], strict=True) if c >= 0),
            )
            for i in np.flatnonzero(closeness.max(axis=0, initial=-np.inf) >= 0).tolist()
        ]

    def _compared(self, pairs: _Pairs, own: PerImage, known: PerImage, target: Dataset) -> dict[str, FloatArray]:
        """SSIM and aligned correlation of the small pictures."""
        alike, aligned = np.empty(len(pairs)), np.empty(len(pairs))

        def work(part: slice) -> None:
            first = own.rows[pairs.candidates[part]].reshape(-1, SIDE, SIDE, 3)
            second = known.rows[pairs.targets[part]].reshape(-1, SIDE, SIDE, 3)
            alike[part], aligned[part] = ssim(first, second), aligned_correlation(first, second)

        with progress_bar(f"pairs with {target.name}", len(pairs), show=self.show) as advance:
            side_by_side(work, len(pairs), size=_BLOCK, workers=self.workers, advance=advance)
        return {"ssim": alike, "aligned": aligned}


class _Readable:
    """An index over the pictures that could be read."""

    def __init__(self, described: PerImage) -> None:
        self.places = np.flatnonzero(described.readable)
        whole = len(self.places) == len(described.rows)
        self.index = ExactIndex(described.rows if whole else described.rows[self.places])

    def neighbours(self, queries: PerImage, k: int, *, same: bool, **options: object) -> tuple[Indices, Indices]:
        """(queries, references) of all pairs that were found, as rows of the whole data sets."""
        asked = np.flatnonzero(queries.readable)
        rows = queries.rows if len(asked) == len(queries.rows) else queries.rows[asked]
        found = self.index.search(rows, k, same=same, **options)  # type: ignore[arg-type]
        there = found.indices >= 0
        return np.repeat(asked, there.sum(axis=1)), self.places[found.indices[there]]


def _problems(dataset: Dataset, described: Sequence[PerImage]) -> list[tuple[str, str, str]]:
    """(set, image, why) of pictures that could not be read."""
    return [(dataset.name, dataset.ids[index], why) for index, why in sorted(described[-1].problems.items())]
