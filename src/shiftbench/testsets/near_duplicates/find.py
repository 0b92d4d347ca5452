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

from shiftbench import Classifier, Dataset, Predictions, ShiftbenchError, open_dataset
from shiftbench.datasets import named_datasets
from shiftbench.errors import LabelError
from shiftbench.extend.datasets import FOLDERS
from shiftbench.extend.io import Location, digest, split_kind
from shiftbench.extend.jobs import Computation, ComputeOptions, Numbers, PerImage, kept_rows, per_image
from shiftbench.extend.settings import StoredResults
from shiftbench.extend.tables import Column, Table
from shiftbench.extend.types import FloatArray, IntArray, Pixels
from shiftbench.jobs import Executor
from shiftbench.metrics import clopper_pearson
from shiftbench.testsets.near_duplicates import descriptors
from shiftbench.testsets.near_duplicates.descriptors import SIDE, Descriptor, PixelDescriptor, descriptor
from shiftbench.testsets.near_duplicates.search import QUERIES, REFERENCES, ExactIndex, RowProjection, RowSubset
from shiftbench.testsets.near_duplicates.similarity import aligned_correlation, ssim

#: Default descriptors; they need no classifier.
PLAIN = ("pixels", "pixels-normalised")
#: Nearest neighbours of each candidate that are compared by all metrics.
NEIGHBOURS = 30
#: Pairs per block.
_BLOCK_SIZE = 1024
#: Rows shown in a terminal.
_ROWS_IN_TERMINAL = 30
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
#: Metrics that are larger for more similar images.
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
    """The thresholds as conditions, such as ``pixels <= 12, ssim >= 0.75``."""
    conditions = []
    for name, threshold in thresholds.items():
        sign = ">=" if name in _SIMILARITIES else "<="
        conditions.append(f"{name} {sign} {threshold:g}")
    return ", ".join(conditions)


def _metrics(descriptors: Sequence[str], thresholds: Mapping[str, float]) -> list[PairMetric]:
    """The metrics of the descriptors, SSIM and aligned correlation, with their thresholds.

    A threshold for "features" applies to all models, one for "features:resnet50" to that model.
    """
    names = [*descriptors, *_SIMILARITIES]
    kinds = [name.partition(":")[0] for name in names]
    allowed = {*names, *kinds}
    unknown = [name for name in thresholds if name not in allowed]
    if unknown:
        raise ShiftbenchError(
            f"threshold for an unknown metric {unknown[0]!r}", expected=f"one of {', '.join(sorted(allowed))}"
        )
    metrics = []
    for name, kind in zip(names, kinds, strict=True):
        threshold = float(thresholds.get(name, thresholds.get(kind, THRESHOLDS[kind])))
        similarity = kind in _SIMILARITIES
        if not (0 < threshold < np.inf) or (similarity and threshold >= 1):
            expected = "0 to 1" if similarity else "a positive distance"
            raise ShiftbenchError(f"invalid threshold for {name}", found=threshold, expected=expected)
        metrics.append(PairMetric(name, threshold, similarity))
    return metrics


@dataclass(frozen=True)
class SuspectedPair:
    """A candidate and an image of a target set (which may be the candidates themselves)."""

    #: The id of the candidate, and its index in the dataset.
    candidate: str
    candidate_index: int
    #: The name of the target set, and the id and index of its image.
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
        self.pairs = sorted(
            pairs, key=lambda pair: (-pair.suspicion, pair.candidate, pair.target, pair.reference, pair.mirrored)
        )
        self.unreadable = list(unreadable)
        self.thresholds = {metric.name: metric.threshold for metric in metrics}
        rows: list[dict[str, object]] = []
        for rank, pair in enumerate(self.pairs, start=1):
            row = {"rank": rank, **asdict(pair), **pair.values}
            row["mirrored"] = "yes" if pair.mirrored else ""
            row["reasons"] = ", ".join(pair.reasons)
            rows.append(row)
        columns = [
            Column("rank", "", "count"),
            Column("candidate", "candidate"),
            Column("reference", "resembles"),
            Column("target", "of", optional=True),
            Column("suspicion", "suspicion", "number"),
        ]
        columns += [Column(metric.name, metric.name, "number", optional=True) for metric in metrics]
        notes = []
        if flips:
            columns.append(Column("mirrored", "mirrored", optional=True))
        else:
            notes.append("mirror images were not searched (flips)")
        if unreadable:
            _, image, reason = unreadable[0]
            notes.append(f"{len(unreadable):,} unreadable images, such as {image}: {reason}")
        target_sizes = ", ".join(f"{target.name} ({len(target):,})" for target in targets)
        lead = [
            f"{len(self.pairs):,} pairs, {len(self.suspects):,} of {len(candidates):,} candidates "
            f"of {candidates.name}, against {target_sizes}",
            f"thresholds: {threshold_text(self.thresholds)}; {k} nearest neighbours per descriptor",
        ]
        data = {
            "candidates": {"name": candidates.name, "images": len(candidates)},
            "targets": [{"name": target.name, "images": len(target)} for target in targets],
            "neighbours": k,
            "flips": flips,
            "thresholds": self.thresholds,
            "pairs": [asdict(pair) for pair in self.pairs],
            "unreadable": [{"set": name, "image": image, "why": reason} for name, image, reason in unreadable],
        }
        title = "Suspected near-duplicates"
        super().__init__(columns, rows, most=_ROWS_IN_TERMINAL, title=title, lead=lead, notes=notes, data=data)

    @property
    def suspects(self) -> list[str]:
        """The candidates of all pairs, each once."""
        return list(dict.fromkeys(pair.candidate for pair in self.pairs))


@dataclass(frozen=True)
class _Projected:
    """The projection of the rows of a target set as a computation."""

    described: PerImage
    projection: RowProjection

    @classmethod
    def learnt(cls, described: PerImage) -> _Projected:
        return cls(described, RowProjection.learnt(_readable(described.rows, described)))

    def __call__(self, images: Sequence[Pixels], indices: IntArray) -> NDArray[np.generic]:
        return self.projection(self.described.rows[indices])

    def computation(self) -> Computation:
        return Computation(self, ["projected", _VERSION, self.described.fingerprint, self.projection.identity])


@dataclass(frozen=True)
class _Nearest:
    """The search as a computation: the ``k`` nearest target rows of each candidate, -1 if there are fewer."""

    #: The rows of the candidates.
    described: PerImage
    #: The rows of the target set, with their projection, and its results.
    target: _Projected
    projected: PerImage
    k: int
    #: Whether the target set is the candidates themselves.
    same: bool

    def __call__(self, images: Sequence[Pixels], indices: IntArray) -> IntArray:
        target = self.target.described
        index = ExactIndex(
            _readable(target.rows, target), self.target.projection, _readable(self.projected.rows, target)
        )
        # The index numbers the readable images of the target set only.
        readable_rows = np.flatnonzero(target.readable)
        is_query = self.described.readable[indices]
        queries = indices[is_query]
        own_rows = None
        if self.same:
            own_rows = np.where(target.readable[queries], np.searchsorted(readable_rows, queries), -1)
        nearest = index.nearest(self.described.rows[queries], self.k, own_rows).indices
        exists = nearest >= 0
        nearest[exists] = readable_rows[nearest[exists]]
        neighbours = np.full((len(indices), self.k), -1)
        neighbours[is_query] = nearest
        return neighbours

    def computation(self) -> Computation:
        fingerprints = (self.described.fingerprint, self.target.described.fingerprint)
        return Computation(self, ["nearest", _VERSION, *fingerprints, self.k, self.same])


@dataclass(frozen=True)
class _MostSimilar:
    """The search by SSIM as a computation: the ``k`` most similar images of the candidate's near classes."""

    #: The small images of the candidates and of the target set.
    candidates: PerImage
    target: PerImage
    k: int
    #: Whether the target set is the candidates themselves.
    same: bool
    #: The group of each candidate, and the target rows that each group is compared with.
    groups: IntArray
    rows: Sequence[IntArray]

    def __call__(self, images: Sequence[Pixels], indices: IntArray) -> IntArray:
        neighbours = np.full((len(indices), self.k), -1)
        for place, index in enumerate(indices.tolist()):
            compared = self._compared_with(index)
            if not self.candidates.readable[index] or not len(compared):
                continue
            second = self.target.rows[compared].reshape(-1, SIDE, SIDE, 3)
            first = np.broadcast_to(self.candidates.rows[index].reshape(1, SIDE, SIDE, 3), second.shape)
            best = np.argsort(-ssim(first, second), kind="stable")[: self.k]
            neighbours[place, : len(best)] = compared[best]
        return neighbours

    def _compared_with(self, index: int) -> IntArray:
        """The readable target rows that a candidate is compared with; never the candidate itself."""
        rows: IntArray = self.rows[self.groups[index]]
        rows = rows[self.target.readable[rows]]
        return rows[rows != index] if self.same else rows

    def computation(self) -> Computation:
        compared = digest(self.groups.tobytes(), *(rows.tobytes() for rows in self.rows))
        fingerprints = (self.candidates.fingerprint, self.target.fingerprint)
        return Computation(self, ["most similar", _VERSION, *fingerprints, self.k, self.same, compared])


@dataclass(frozen=True)
class _Compared:
    """The comparison as a computation: l2 by each descriptor, SSIM and aligned correlation of each pair."""

    #: Rows of the candidates and of the target set.
    pairs: PerImage
    #: For each descriptor, then the small images.
    candidates: Sequence[PerImage]
    target: Sequence[PerImage]

    def __call__(self, images: Sequence[Pixels], indices: IntArray) -> FloatArray:
        first_rows, second_rows = self.pairs.rows[indices].T
        columns = []
        for candidates, target in zip(self.candidates[:-1], self.target[:-1], strict=True):
            columns.append(descriptors.pair_distances(candidates.rows, target.rows, first_rows, second_rows))
        first_images = self.candidates[-1].rows[first_rows].reshape(-1, SIDE, SIDE, 3)
        second_images = self.target[-1].rows[second_rows].reshape(-1, SIDE, SIDE, 3)
        columns.append(ssim(first_images, second_images))
        columns.append(aligned_correlation(first_images, second_images))
        return np.stack(columns, axis=1)

    def computation(self) -> Computation:
        fingerprints = [described.fingerprint for described in (*self.candidates, *self.target)]
        return Computation(self, ["compared", _VERSION, self.pairs.fingerprint, *fingerprints])


def _readable(rows: NDArray[np.generic], described: PerImage) -> NDArray[np.generic] | RowSubset:
    """The rows of the readable images."""
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
    metric. ``flips`` also searches for mirror images, which 004 did not count as duplicates. ``files`` are those of the
    candidates: one file offered twice is not a pair. ``folder`` caches descriptors and results for the next search. An
    ``executor`` runs all steps through that folder, which all its workers must be able to read; the result is the same.
    """
    if not within and not references:
        raise ShiftbenchError("nothing to compare the candidates with", hint="pass a reference set, or within=True")
    targets = [candidates, *references] if within else list(references)
    search_descriptors = [descriptor(spec) for spec in by if spec != "ssim"]
    descriptor_names = [search_descriptor.name for search_descriptor in search_descriptors]
    _check_unique("sets", [target.name for target in targets])
    _check_unique("descriptors", descriptor_names)
    if not by:
        raise ShiftbenchError("no descriptors", expected="at least one, such as 'pixels'")
    metrics = _metrics(descriptor_names, thresholds or {})
    options = ComputeOptions(folder, workers, executor, show)
    search = _Search(candidates, search_descriptors, k, metrics, options, near or {}, files, by_ssim="ssim" in by)
    pairs: list[SuspectedPair] = []
    unreadable: list[tuple[str, str, str]] = []
    with nullcontext() if executor is None else executor.kept():
        plain = search.described(candidates, mirrored=False)
        views = {False: plain}
        if flips:
            views[True] = search.described(candidates, mirrored=True)
        if not within:
            unreadable += _unreadable(candidates, plain)
        for target in targets:
            described = plain if target is candidates else search.described(target, mirrored=False)
            unreadable += _unreadable(target, described)
            pairs += search.suspected(views, described, target)
    return ReviewQueue(pairs, metrics, candidates=candidates, targets=targets, k=k, flips=flips, unreadable=unreadable)


def _check_unique(what: str, names: Sequence[str]) -> None:
    """Raise ShiftbenchError if a name occurs twice: the queue identifies sets and descriptors by name."""
    repeated = [name for i, name in enumerate(names) if name in names[:i]]
    if repeated:
        raise ShiftbenchError(f"duplicate names of {what}", found=repeated[0], hint="rename one of them")


def _unreadable(dataset: Dataset, described: Sequence[PerImage]) -> list[tuple[str, str, str]]:
    """(dataset, image, reason) of the unreadable images."""
    problems = sorted(described[-1].problems.items())
    return [(dataset.name, dataset.ids[index], reason) for index, reason in problems]


def open_any(source: str, labels: str | None = None) -> Dataset:
    """A dataset whose classes do not matter unless ``labels`` names them: all its images are compared."""
    try:
        return open_dataset(source, space=labels or (FOLDERS if Path(source).is_dir() else None))
    except LabelError:
        # The labels of an array may be mere numbers, for which no class names are known.
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
    """The candidates, and how they are searched for; each target set is searched with the same options."""

    candidates: Dataset
    descriptors: Sequence[Descriptor]
    #: Neighbours per candidate and descriptor.
    k: int
    metrics: Sequence[PairMetric]
    options: ComputeOptions
    #: For each class, the classes that the search by SSIM also covers.
    near: Mapping[str, Collection[str]]
    #: The files of the candidates, or nothing if each is a file of its own.
    files: Sequence[str]
    #: Whether SSIM is a search of its own, besides a metric.
    by_ssim: bool

    def described(self, dataset: Dataset, mirrored: bool) -> list[PerImage]:
        """Rows for each descriptor of the search, then the small images, which SSIM and alignment need anyway."""
        pixels = PixelDescriptor()
        computed = list(self.descriptors)
        if pixels not in computed:
            computed.append(pixels)
        described = descriptors.describe(dataset, computed, self.options, mirrored=mirrored)
        return [*described[: len(self.descriptors)], described[computed.index(pixels)]]

    def _computed(
        self, numbers: Numbers, parts: Sequence[_Projected | _Nearest | _MostSimilar | _Compared], what: str, size: int
    ) -> list[PerImage]:
        return per_image(numbers, [part.computation() for part in parts], self.options, what=what, size=size)

    def suspected(
        self, views: Mapping[bool, Sequence[PerImage]], target_rows: Sequence[PerImage], target: Dataset
    ) -> list[SuspectedPair]:
        """Pairs of candidates with images of the target set; ``views`` are the candidates' rows by "mirrored"."""
        # Projections are fitted once, here, so that all workers use the same.
        projections = [_Projected.learnt(described) for described in target_rows[:-1]]
        projected: list[PerImage] = []
        if projections:
            numbers = Numbers(target_rows[0].fingerprint, len(target))
            projected = self._computed(numbers, projections, f"preparing {target.name}", REFERENCES)
        suspected = []
        for mirrored, candidate_rows in views.items():
            searched = zip(candidate_rows[:-1], projections, projected, strict=True)
            parts: list[_Nearest | _MostSimilar] = []
            for described, projection, rows in searched:
                parts.append(_Nearest(described, projection, rows, self.k, target is self.candidates))
            if self.by_ssim:
                parts.append(self._most_similar(candidate_rows[-1], target_rows[-1], target))
            numbers = Numbers(candidate_rows[0].fingerprint, len(self.candidates))
            pairs = self._neighbours(numbers, parts, target, mirrored)
            values = self._compared(pairs, candidate_rows, target_rows, target)
            suspected += self._within_thresholds(pairs, values, target, mirrored)
        return suspected

    def _most_similar(self, candidate_images: PerImage, target_images: PerImage, target: Dataset) -> _MostSimilar:
        """The search by SSIM, in which each class is a group that is compared with its near classes."""
        labels = [target.space.keys[label] if label >= 0 else "" for label in target.labels.tolist()]
        rows = []
        for key in self.candidates.space.keys:
            near_classes = {key, *self.near.get(key, ())} & set(labels)
            # A target without any of these classes is compared as a whole, as is every target without near classes.
            if self.near and near_classes:
                rows.append(np.flatnonzero([label in near_classes for label in labels]))
            else:
                rows.append(np.arange(len(labels)))
        # Candidates without a label are treated as images of the first class.
        groups = np.where(self.candidates.labels >= 0, self.candidates.labels, 0).astype(np.int64)
        return _MostSimilar(candidate_images, target_images, self.k, target is self.candidates, groups, rows)

    def _neighbours(
        self, numbers: Numbers, parts: Sequence[_Nearest | _MostSimilar], target: Dataset, mirrored: bool
    ) -> IntArray:
        """The union of the pairs found by all searches: (pairs, 2) candidate and target rows, sorted and unique."""
        what = f"neighbours in {target.name}"
        if mirrored:
            what += " mirrored"
        # A pair is one number, so that pairs can be sorted and compared quickly.
        pair_numbers = [np.empty(0, np.int64)]
        for neighbours in self._computed(numbers, parts, what, QUERIES):
            exists = neighbours.rows >= 0
            first = np.repeat(np.arange(len(exists)), exists.sum(axis=1))
            second = neighbours.rows[exists]
            if target is self.candidates:
                # (a, b) and (b, a) are the same pair.
                first, second = np.minimum(first, second), np.maximum(first, second)
            pair_numbers.append(first * len(target) + second)
        unique = np.unique(np.concatenate(pair_numbers))
        return np.stack([unique // len(target), unique % len(target)], axis=1)

    def _compared(
        self, pairs: IntArray, candidate_rows: Sequence[PerImage], target_rows: Sequence[PerImage], target: Dataset
    ) -> dict[str, FloatArray]:
        """All metrics of all pairs, by name."""
        comparison = _Compared(kept_rows(pairs, self.options.folder), candidate_rows, target_rows)
        numbers = Numbers(comparison.pairs.fingerprint, len(pairs))
        (compared,) = self._computed(numbers, [comparison], f"pairs with {target.name}", _BLOCK_SIZE)
        scales = {search_descriptor.name: search_descriptor.scale for search_descriptor in self.descriptors}
        scales["ssim"] = 1.0
        scales["aligned"] = 1.0
        columns = zip(scales.items(), compared.rows.T, strict=True)
        return {name: scale * column for (name, scale), column in columns}

    def _within_thresholds(
        self, pairs: IntArray, values: Mapping[str, FloatArray], target: Dataset, mirrored: bool
    ) -> list[SuspectedPair]:
        """The pairs that are within the threshold of at least one metric."""
        closeness = np.stack([metric.closeness(values[metric.name]) for metric in self.metrics])
        # One metric within its threshold is enough.
        suspects = np.flatnonzero(closeness.max(axis=0, initial=-np.inf) >= 0)
        suspected = []
        for i, (candidate, reference) in zip(suspects.tolist(), pairs[suspects].tolist(), strict=True):
            # One file that is a candidate of two classes is not a pair.
            if self.files and target is self.candidates and self.files[candidate] == self.files[reference]:
                continue
            reasons = []
            for metric, metric_closeness in zip(self.metrics, closeness[:, i], strict=True):
                if metric_closeness >= 0:
                    reasons.append(metric.name)
            pair = SuspectedPair(
                candidate=self.candidates.ids[candidate],
                candidate_index=candidate,
                target=target.name,
                reference=target.ids[reference],
                reference_index=reference,
                mirrored=mirrored,
                values={name: float(column[i]) for name, column in values.items()},
                suspicion=float(closeness[:, i].max()),
                reasons=tuple(reasons),
            )
            suspected.append(pair)
        return suspected


def duplicate_effect(dataset: Dataset, queue: ReviewQueue, workspace: str | Location, *, level: float = 0.95) -> Table:
    """Accuracy of every model of a workspace on the dataset, with and without its suspected images (004, B.2.2)."""
    run = StoredResults.open(workspace)
    results = [result for result in run.results if result.spec.dataset.fingerprint == dataset.fingerprint]
    if not results:
        raise ShiftbenchError(
            f"no results on {dataset.name} in the workspace {workspace}",
            found=f"{len(run.results)} results on other datasets",
            hint="shiftbench eval MODEL --data A -w WORKSPACE",
        )
    suspects = set(queue.suspects)
    rows = []
    for result in results:
        predictions = run.workspace.read(result)
        row: dict[str, object] = {"model": result.title, "setting": result.setting}
        rows.append(row | _accuracies_without(predictions, suspects, level))
    columns = [Column("model", "model"), Column("setting", "setting", optional=True)]
    for name, title in (("", "all images"), ("unique_", "without near-duplicates"), ("duplicate_", "near-duplicates")):
        ends = (f"{name}low", f"{name}high")
        columns.append(Column(f"{name}accuracy", f"{title} %", "number", ends, times=100))
        columns.append(Column(f"{name}n", "n", "count", optional=True))
    columns.append(Column("change", "change", "points", times=100))
    note = "suspected pairs count as near-duplicates; judge them by eye before reporting these numbers"
    return Table(columns, rows, title="Accuracy without near-duplicates", notes=[note])


def _accuracies_without(predictions: Predictions, suspects: Collection[str], level: float) -> dict[str, object]:
    """Accuracy on all images, without the suspects and on the suspects alone, and the change without them."""
    valid_ids = np.asarray(predictions.ids, dtype=object)[predictions.valid]
    unique = np.array([image not in suspects for image in valid_ids], dtype=bool)
    correct = predictions.correct
    row: dict[str, object] = {}
    for name, hits in (("", correct), ("unique_", correct[unique]), ("duplicate_", correct[~unique])):
        low, high = clopper_pearson(int(hits.sum()), len(hits), level)
        row[f"{name}n"] = len(hits)
        row[f"{name}accuracy"] = float(hits.mean()) if len(hits) else None
        row[f"{name}low"] = low
        row[f"{name}high"] = high
    row["change"] = float(correct[unique].mean() - correct.mean()) if unique.any() else None
    return row
