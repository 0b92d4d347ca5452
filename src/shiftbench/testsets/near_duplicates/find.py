"""Find near-duplicates within a set of candidates and against reference sets (004 appendices B.2.2 and C.1.1).

Each descriptor finds the exact k nearest neighbours of every candidate. The union of these pairs is measured by all
metrics, including SSIM and aligned correlation, which would be too expensive for all pairs. Pairs within the threshold
of any metric go to the review queue, where a person decides.

The steps are computations on numbered items, so that they run here or on remote workers, are cached, and give the same
result either way. They hold no images, only rows that workers memory-map from the cache.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import FloatArray, IntArray, Pixels
from shiftbench.classifiers.base import Classifier
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.catalogue import named_datasets, open_dataset
from shiftbench.errors import LabelError, ShiftbenchError
from shiftbench.io.hashing import digest
from shiftbench.io.paths import Location, split_kind
from shiftbench.jobs.base import Executor
from shiftbench.jobs.blocks import Computation, ComputeOptions, Numbers, PerImage, kept_rows, per_image
from shiftbench.labels.catalogue import FOLDERS
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.reports.table import Column, Table
from shiftbench.runs.results import StoredResults
from shiftbench.testsets.near_duplicates import descriptors
from shiftbench.testsets.near_duplicates.descriptors import SIDE, Descriptor, PixelDescriptor, descriptor
from shiftbench.testsets.near_duplicates.search import QUERIES, REFERENCES, ExactIndex, RowProjection, RowSubset
from shiftbench.testsets.near_duplicates.similarity import aligned_correlation, ssim

#: Default descriptors; they need no classifier.
PLAIN = ("pixels", "pixels-normalised")
NEIGHBOURS = 30
#: Pairs per block; rows shown in a terminal.
_BLOCK, _SHOWN = 1024, 30
#: Part of every cache key; raised when search or comparison change their results.
_VERSION = 2
#: Upper limits of distances and lower limits of similarities for suspected pairs. They come from the ten nearest
#: training images of each of CIFAR-10's 10,000 test images, of which 004 judged about 800 near-duplicates by eye, and
#: from edited photographs:
#: * pixels: JPEG at quality 50 stays below 12 grey levels, and not one pair of CIFAR-10's test and training images;
#: * pixels-normalised, features, ssim: at these, 99, 93 and 99 % of the pairs of CIFAR-10 are also aligned;
#: * aligned: from 0.7 on 899 of the test images have a partner, from 0.75 on 710; most pairs above 0.8 are
#:   duplicates to the eye, and some six in ten between 0.7 and 0.8. Distinct photographs stay below 0.55.
THRESHOLDS: dict[str, float] = {
    "pixels": 12.0,
    "pixels-normalised": 0.2,
    "features": 0.2,
    "scores": 0.1,
    "ssim": 0.75,
    "aligned": 0.7,
}
_SIMILARITIES = ("ssim", "aligned")


@dataclass(frozen=True)
class PairMetric:
    """A distance, or a similarity (larger is more similar, 1 for identical images), and its threshold."""

    name: str
    threshold: float
    similarity: bool = False

    def closeness(self, values: FloatArray) -> FloatArray:
        """1 for identical images, 0 at the threshold, negative beyond."""
        distances = 1.0 - values if self.similarity else values
        limit = 1.0 - self.threshold if self.similarity else self.threshold
        return np.asarray(1.0 - distances / limit)


def threshold_text(thresholds: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {'>=' if name in _SIMILARITIES else '<='} {at:g}" for name, at in thresholds.items())


def _metrics(descriptors: Sequence[str], thresholds: Mapping[str, float]) -> list[PairMetric]:
    """The metrics of the descriptors, SSIM and aligned correlation, with their thresholds.

    A threshold for "features" applies to all models, one for "features:resnet50" to that model.
    """
    names = [*descriptors, *_SIMILARITIES]
    known = {*names, *(name.partition(":")[0] for name in names)}
    unknown = [name for name in thresholds if name not in known]
    if unknown:
        expected = f"one of {', '.join(sorted(known))}"
        raise ShiftbenchError(f"threshold for an unknown metric {unknown[0]!r}", expected=expected)
    found = []
    for name in names:
        kind = name.partition(":")[0]
        threshold = float(thresholds.get(name, thresholds.get(kind, THRESHOLDS[kind])))
        similarity = kind in _SIMILARITIES
        if not (0 < threshold < np.inf) or (similarity and threshold >= 1):
            expected = "0 to 1" if similarity else "a positive distance"
            raise ShiftbenchError(f"invalid threshold for {name}", found=threshold, expected=expected)
        found.append(PairMetric(name, threshold, similarity))
    return found


@dataclass(frozen=True)
class SuspectedPair:
    """A candidate and an image of a target set (which may be the candidates themselves)."""

    candidate: str
    candidate_index: int
    target: str
    reference: str
    reference_index: int
    #: Whether the candidate's mirror image matched.
    mirrored: bool
    #: By metric.
    values: Mapping[str, float]
    #: The highest closeness of all metrics: 1 for identical images, 0 at the threshold.
    suspicion: float
    #: The metrics within their threshold.
    reasons: tuple[str, ...]


class ReviewQueue(Table):
    """Pairs for human review, the most similar first. Terminals show the first rows; CSV and JSON contain all."""

    def __init__(
        self,
        pairs: Sequence[SuspectedPair],
        metrics: Sequence[PairMetric],
        *,
        candidates: Dataset,
        targets: Sequence[Dataset],
        k: int,
        flips: bool,
        unreadable: Sequence[tuple[str, str, str]] = (),
    ) -> None:
        # Ids break ties, so that the order does not depend on the order of discovery.
        self.pairs = sorted(pairs, key=lambda p: (-p.suspicion, p.candidate, p.target, p.reference, p.mirrored))
        self.unreadable = list(unreadable)
        self.thresholds = {metric.name: metric.threshold for metric in metrics}
        rows: list[dict[str, object]] = []
        for rank, pair in enumerate(self.pairs, start=1):
            shown = {"mirrored": "yes" if pair.mirrored else "", "reasons": ", ".join(pair.reasons)}
            rows.append({"rank": rank, **asdict(pair), **pair.values, **shown})
        columns = [
            Column("rank", "", "count"),
            Column("candidate", "candidate"),
            Column("reference", "resembles"),
            Column("target", "of", optional=True),
            Column("suspicion", "suspicion", "number"),
            *(Column(metric.name, metric.name, "number", optional=True) for metric in metrics),
            *([Column("mirrored", "mirrored", optional=True)] if flips else []),
        ]
        notes = [] if flips else ["mirror images were not searched (flips)"]
        if unreadable:
            _, image, why = unreadable[0]
            notes.append(f"{len(unreadable):,} unreadable images, such as {image}: {why}")
        against = ", ".join(f"{target.name} ({len(target):,})" for target in targets)
        found = f"{len(self.pairs):,} pairs, {len(self.suspects):,} of {len(candidates):,} candidates"
        rules = f"thresholds: {threshold_text(self.thresholds)}; {k} nearest neighbours per descriptor"
        lead = [f"{found} of {candidates.name}, against {against}", rules]
        data = {
            "candidates": {"name": candidates.name, "images": len(candidates)},
            "targets": [{"name": target.name, "images": len(target)} for target in targets],
            "neighbours": k,
            "flips": flips,
            "thresholds": self.thresholds,
            "pairs": [asdict(pair) for pair in self.pairs],
            "unreadable": [{"set": name, "image": image, "why": why} for name, image, why in unreadable],
        }
        title = "Suspected near-duplicates"
        super().__init__(columns, rows, most=_SHOWN, title=title, lead=lead, notes=notes, data=data)

    @property
    def suspects(self) -> list[str]:
        return list(dict.fromkeys(pair.candidate for pair in self.pairs))


@dataclass(frozen=True)
class _Projected:
    """The projection of the rows of a target set as a computation."""

    described: PerImage
    projection: RowProjection

    def __call__(self, images: Sequence[Pixels], indices: IntArray) -> NDArray[np.generic]:
        return self.projection(self.described.rows[indices])

    def computation(self) -> Computation:
        return Computation(self, ["projected", _VERSION, self.described.fingerprint, self.projection.identity])


@dataclass(frozen=True)
class _Nearest:
    """The search as a computation: the ``k`` nearest target rows of each candidate, -1 if there are fewer."""

    described: PerImage
    target: _Projected
    projected: PerImage
    k: int
    #: Whether the target set is the candidates themselves.
    same: bool

    def __call__(self, images: Sequence[Pixels], indices: IntArray) -> IntArray:
        known = self.target.described
        index = ExactIndex(_readable(known.rows, known), self.target.projection, _readable(self.projected.rows, known))
        found, asked = np.full((len(indices), self.k), -1), self.described.readable[indices]
        queries, places = indices[asked], np.flatnonzero(known.readable)
        own = np.where(known.readable[queries], np.searchsorted(places, queries), -1) if self.same else None
        nearest = index.nearest(self.described.rows[queries], self.k, own).indices
        there = nearest >= 0
        nearest[there] = places[nearest[there]]
        found[asked] = nearest
        return found

    def computation(self) -> Computation:
        sides = self.described.fingerprint, self.target.described.fingerprint
        return Computation(self, ["nearest", _VERSION, *sides, self.k, self.same])


@dataclass(frozen=True)
class _MostSimilar:
    """The search by SSIM as a computation: the ``k`` most similar images of the candidate's near classes."""

    #: The small images of the candidates and of the target set.
    own: PerImage
    known: PerImage
    k: int
    same: bool
    #: The group of each candidate, and the target rows that each group is compared with.
    groups: IntArray
    rows: Sequence[IntArray]

    def __call__(self, images: Sequence[Pixels], indices: IntArray) -> IntArray:
        found = np.full((len(indices), self.k), -1)
        for place, index in enumerate(indices.tolist()):
            others = self.rows[self.groups[index]]
            others = others[self.known.readable[others] & ((others != index) if self.same else True)]
            if not self.own.readable[index] or not len(others):
                continue
            second = self.known.rows[others].reshape(-1, SIDE, SIDE, 3)
            first = np.broadcast_to(self.own.rows[index].reshape(1, SIDE, SIDE, 3), second.shape)
            best = np.argsort(-ssim(first, second), kind="stable")[: self.k]
            found[place, : len(best)] = others[best]
        return found

    def computation(self) -> Computation:
        compared = digest(self.groups.tobytes(), *(rows.tobytes() for rows in self.rows))
        sides = self.own.fingerprint, self.known.fingerprint
        return Computation(self, ["most similar", _VERSION, *sides, self.k, self.same, compared])


@dataclass(frozen=True)
class _Compared:
    """The comparison as a computation: l2 by each descriptor, SSIM and aligned correlation of each pair."""

    #: Rows of the candidates and of the target set.
    pairs: PerImage
    #: For each descriptor, then the small images.
    own: Sequence[PerImage]
    known: Sequence[PerImage]

    def __call__(self, images: Sequence[Pixels], indices: IntArray) -> FloatArray:
        candidates, targets = self.pairs.rows[indices].T
        described = zip(self.own[:-1], self.known[:-1], strict=True)
        columns = [descriptors.pair_distances(a.rows, b.rows, candidates, targets) for a, b in described]
        first = self.own[-1].rows[candidates].reshape(-1, SIDE, SIDE, 3)
        second = self.known[-1].rows[targets].reshape(-1, SIDE, SIDE, 3)
        return np.stack([*columns, ssim(first, second), aligned_correlation(first, second)], axis=1)

    def computation(self) -> Computation:
        sides = [one.fingerprint for one in (*self.own, *self.known)]
        return Computation(self, ["compared", _VERSION, self.pairs.fingerprint, *sides])


def _readable(rows: NDArray[np.generic], described: PerImage) -> NDArray[np.generic] | RowSubset:
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
    near: Mapping[str, Collection[str]] | None = None,
    files: Sequence[str] = (),
    folder: str | Path | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
    show: bool = False,
) -> ReviewQueue:
    """Pairs that may show the same image, the most similar first.

    ``by``: descriptors for the neighbour search: "pixels", "pixels-normalised", or any classifier or model spec, for
    its features; "ssim" is a search of its own, over the images of the candidate's class and of the classes that
    ``near`` names for it, or over all if a target has none of these. ``thresholds`` overrides default thresholds by
    metric. ``flips`` also searches for mirror images,
    which 004 did not count as duplicates. ``files`` are those of the candidates: one file offered twice is not a pair.
    ``folder`` caches descriptors and results for the next search. An ``executor`` runs all steps through that folder,
    which all its workers must be able to read; the result is the same.
    """
    if not within and not references:
        raise ShiftbenchError("nothing to compare the candidates with", hint="pass a reference set, or within=True")
    targets = ([candidates] if within else []) + list(references)
    chosen = [descriptor(spec) for spec in by if spec != "ssim"]
    for what, names in (("sets", [one.name for one in targets]), ("descriptors", [one.name for one in chosen])):
        twice = [name for i, name in enumerate(names) if name in names[:i]]
        if twice:  # the queue identifies them by name
            raise ShiftbenchError(f"duplicate names of {what}", found=twice[0], hint="rename one of them")
    if not by:
        raise ShiftbenchError("no descriptors", expected="at least one, such as 'pixels'")
    metrics = _metrics([one.name for one in chosen], thresholds or {})
    options = ComputeOptions(folder, workers, executor, show)
    search = _Search(candidates, chosen, k, metrics, options, near or {}, files, by_ssim="ssim" in by)
    mirrorings = (False, True) if flips else (False,)
    with nullcontext() if executor is None else executor.kept():
        own = {mirrored: search.described(candidates, mirrored) for mirrored in mirrorings}
        found: list[SuspectedPair] = []
        problems = {candidates.name: (candidates, own[False])}
        for target in targets:
            known = own[False] if target is candidates else search.described(target, False)
            problems[target.name] = (target, known)
            found += search.suspected(own, known, target)
    unreadable = [
        (name, dataset.ids[index], why)
        for name, (dataset, described) in problems.items()
        for index, why in sorted(described[-1].problems.items())
    ]
    return ReviewQueue(found, metrics, candidates=candidates, targets=targets, k=k, flips=flips, unreadable=unreadable)


def open_any(source: str, labels: str | None = None) -> Dataset:
    """A dataset whose classes do not matter unless ``labels`` names them: all its images are compared."""
    try:
        return open_dataset(source, space=labels or (FOLDERS if Path(source).is_dir() else None))
    except LabelError:  # an array with numbers as labels, say
        if labels or source in named_datasets:
            raise
        return open_dataset(source, space=FOLDERS)


def reopenable(source: str) -> str:
    """What opens a dataset again, from any working directory."""
    kind, path = split_kind(source)
    if not Path(path).exists():
        return source
    resolved = str(Path(path).resolve())
    return f"{kind}:{resolved}" if kind else resolved


@dataclass(frozen=True)
class _Search:
    candidates: Dataset
    descriptors: Sequence[Descriptor]
    k: int
    metrics: Sequence[PairMetric]
    options: ComputeOptions
    near: Mapping[str, Collection[str]]
    files: Sequence[str]
    by_ssim: bool

    def described(self, dataset: Dataset, mirrored: bool) -> list[PerImage]:
        """Rows for each descriptor of the search, then the small images, which SSIM and alignment need anyway."""
        pixels = PixelDescriptor()
        wanted = self.descriptors if pixels in self.descriptors else [*self.descriptors, pixels]
        found = descriptors.describe(dataset, wanted, self.options, mirrored=mirrored)
        return [*found[: len(self.descriptors)], found[wanted.index(pixels)]]

    def _computed(
        self, numbers: Numbers, parts: Sequence[_Projected | _Nearest | _MostSimilar | _Compared], what: str, size: int
    ) -> list[PerImage]:
        return per_image(numbers, [part.computation() for part in parts], self.options, what=what, size=size)

    def suspected(
        self, own: Mapping[bool, Sequence[PerImage]], known: Sequence[PerImage], target: Dataset
    ) -> list[SuspectedPair]:
        """Pairs of candidates, as they are and mirrored, with images of the target set."""
        # Projections are fitted once, here, so that all workers use the same.
        parts = [_Projected(one, RowProjection.learnt(_readable(one.rows, one))) for one in known[:-1]]
        numbers = Numbers(known[0].fingerprint, len(target))
        projected = self._computed(numbers, parts, f"preparing {target.name}", REFERENCES) if parts else []
        found = []
        for mirrored, described in own.items():
            pairs = self._neighbours(described, known[-1], list(zip(parts, projected, strict=True)), target, mirrored)
            values = self._compared(pairs, described, known, target)
            closeness = np.stack([metric.closeness(values[metric.name]) for metric in self.metrics])
            suspects = np.flatnonzero(closeness.max(axis=0, initial=-np.inf) >= 0)
            for i, (candidate, reference) in zip(suspects.tolist(), pairs[suspects].tolist(), strict=True):
                if self.files and target is self.candidates and self.files[candidate] == self.files[reference]:
                    continue
                reasons = tuple(m.name for m, c in zip(self.metrics, closeness[:, i], strict=True) if c >= 0)
                measured = {name: float(column[i]) for name, column in values.items()}
                found.append(
                    SuspectedPair(
                        self.candidates.ids[candidate],
                        candidate,
                        target.name,
                        target.ids[reference],
                        reference,
                        mirrored,
                        measured,
                        float(closeness[:, i].max()),
                        reasons,
                    )
                )
        return found

    def _neighbours(
        self,
        own: Sequence[PerImage],
        images: PerImage,
        targets: Sequence[tuple[_Projected, PerImage]],
        target: Dataset,
        mirrored: bool,
    ) -> IntArray:
        """The union of the pairs found by all descriptors: (pairs, 2) candidate and target rows, sorted and unique."""
        same = target is self.candidates
        parts: list[_Nearest | _MostSimilar] = [
            _Nearest(one, part, rows, self.k, same) for one, (part, rows) in zip(own[:-1], targets, strict=True)
        ]
        if self.by_ssim:
            labels = [target.space.keys[label] if label >= 0 else "" for label in target.labels.tolist()]
            rows = []
            for key in self.candidates.space.keys:
                near = {key, *self.near.get(key, ())} & set(labels)
                rows.append(np.flatnonzero([not self.near or not near or label in near for label in labels]))
            groups = np.where(self.candidates.labels >= 0, self.candidates.labels, 0).astype(np.int64)
            parts.append(_MostSimilar(own[-1], images, self.k, same, groups, rows))
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

    def _compared(
        self, pairs: IntArray, own: Sequence[PerImage], known: Sequence[PerImage], target: Dataset
    ) -> dict[str, FloatArray]:
        """All metrics of all pairs, by name."""
        part = _Compared(kept_rows(pairs, self.options.folder), own, known)
        numbers = Numbers(part.pairs.fingerprint, len(pairs))
        (found,) = self._computed(numbers, [part], f"pairs with {target.name}", _BLOCK)
        scales = {one.name: one.scale for one in self.descriptors} | {"ssim": 1.0, "aligned": 1.0}
        return {name: scale * column for (name, scale), column in zip(scales.items(), found.rows.T, strict=True)}


def duplicate_effect(dataset: Dataset, queue: ReviewQueue, workspace: str | Location, *, level: float = 0.95) -> Table:
    """Accuracy of every model of a workspace on the dataset, with and without its suspected images (004, B.2.2)."""
    suspects = set(queue.suspects)
    run = StoredResults.open(workspace)
    results = [one for one in run.results if one.spec.dataset.fingerprint == dataset.fingerprint]
    if not results:
        raise ShiftbenchError(
            f"no results on {dataset.name} in the workspace {workspace}",
            found=f"{len(run.results)} results on other datasets",
            hint="shiftbench eval MODEL --data A -w WORKSPACE",
        )
    rows = []
    for result in results:
        one = run.workspace.read(result)
        kept = np.array([image not in suspects for image in np.asarray(one.ids, dtype=object)[one.valid]], dtype=bool)
        hits = {"": one.correct, "unique_": one.correct[kept], "duplicate_": one.correct[~kept]}
        row: dict[str, object] = {"model": result.title, "setting": result.setting}
        for name, found in hits.items():
            low, high = clopper_pearson(int(found.sum()), len(found), level)
            row |= {f"{name}n": len(found), f"{name}accuracy": float(found.mean()) if len(found) else None}
            row |= {f"{name}low": low, f"{name}high": high}
        change = float(one.correct[kept].mean() - one.correct.mean()) if kept.any() else None
        rows.append({**row, "change": change})
    columns = [Column("model", "model"), Column("setting", "setting", optional=True)]
    for name, title in (("", "all images"), ("unique_", "without near-duplicates"), ("duplicate_", "near-duplicates")):
        ends = (f"{name}low", f"{name}high")
        columns += [
            Column(f"{name}accuracy", f"{title} %", "number", ends, times=100),
            Column(f"{name}n", "n", "count", optional=True),
        ]
    note = "suspected pairs count as near-duplicates; judge them by eye before reporting these numbers"
    return Table(
        [*columns, Column("change", "change", "points", times=100)],
        rows,
        title="Accuracy without near-duplicates",
        notes=[note],
    )
