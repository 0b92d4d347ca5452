"""The review queue: suspected pairs with all their distances, the most similar first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from shiftbench.arrays import FloatArray
from shiftbench.datasets.base import Dataset
from shiftbench.errors import ShiftbenchError
from shiftbench.io.paths import Location
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.reports.table import Column, Table
from shiftbench.runs.results import StoredResults

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
#: Rows shown in a terminal.
_SHOWN = 30


@dataclass(frozen=True)
class PairMetric:
    """A distance or similarity of two images, and its threshold."""

    name: str
    threshold: float
    #: Whether larger values mean more similar, with 1 for identical images (0 for distances).
    similarity: bool = False

    def closeness(self, values: FloatArray) -> FloatArray:
        """1 for identical images, 0 at the threshold, negative beyond.

        >>> PairMetric("pixels", 10.0).closeness(np.array([0.0, 5.0, 20.0])).tolist()
        [1.0, 0.5, -1.0]
        >>> PairMetric("ssim", 0.5, similarity=True).closeness(np.array([1.0, 0.5])).tolist()
        [1.0, 0.0]
        """
        distances = 1.0 - values if self.similarity else values
        limit = 1.0 - self.threshold if self.similarity else self.threshold
        return np.asarray(1.0 - distances / limit)


def metrics_for(descriptors: Sequence[str], thresholds: Mapping[str, float]) -> list[PairMetric]:
    """The metrics of the descriptors, SSIM and aligned correlation, with their thresholds.

    A threshold for "features" applies to all models, one for "features:resnet50" to that model.
    """
    names = [*descriptors, *_SIMILARITIES]
    known = {*names, *(name.partition(":")[0] for name in names)}
    unknown = [name for name in thresholds if name not in known]
    if unknown:
        raise ShiftbenchError(
            f"threshold for an unknown metric {unknown[0]!r}",
            expected=f"one of {', '.join(sorted(known))}",
        )
    return [_metric(name, thresholds) for name in names]


def _metric(name: str, thresholds: Mapping[str, float]) -> PairMetric:
    kind = name.partition(":")[0]
    threshold = float(thresholds.get(name, thresholds.get(kind, THRESHOLDS[kind])))
    similarity = kind in _SIMILARITIES
    if not (0 < threshold < np.inf) or (similarity and threshold >= 1):
        raise ShiftbenchError(
            f"invalid threshold for {name}", found=threshold, expected="0 to 1" if similarity else "a positive distance"
        )
    return PairMetric(name, threshold, similarity)


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

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


class ReviewQueue(Table):
    """Pairs for human review. Terminals show the first rows; CSV and JSON contain all."""

    def __init__(
        self,
        pairs: Sequence[SuspectedPair],
        metrics: Sequence[PairMetric],
        *,
        candidates: tuple[str, int],
        targets: Sequence[tuple[str, int]],
        k: int,
        flips: bool,
        unreadable: Sequence[tuple[str, str, str]] = (),
    ) -> None:
        # Ids break ties, so that the order does not depend on the order of discovery.
        self.pairs = sorted(pairs, key=lambda p: (-p.suspicion, p.candidate, p.target, p.reference, p.mirrored))
        self.metrics, self.k, self.flips = list(metrics), k, flips
        self.candidates, self.targets, self.unreadable = candidates, list(targets), list(unreadable)
        rows = [_row(place, pair) for place, pair in enumerate(self.pairs, start=1)]
        super().__init__(
            self._columns(), rows, most=_SHOWN, title="Suspected near-duplicates", lead=self._lead(),
            notes=self._notes(), data=self._data(),
        )  # fmt: skip

    @property
    def suspects(self) -> list[str]:
        """The suspected candidates without repetition, the most similar first."""
        return list(dict.fromkeys(pair.candidate for pair in self.pairs))

    def _columns(self) -> list[Column]:
        fields = [
            Column("rank", "", "count"),
            Column("candidate", "candidate"),
            Column("reference", "resembles"),
            Column("target", "of", optional=True),
            Column("suspicion", "suspicion", "number"),
        ]
        fields += [Column(metric.name, metric.name, "number", optional=True) for metric in self.metrics]
        return [*fields, Column("mirrored", "mirrored", optional=True)] if self.flips else fields

    def _lead(self) -> list[str]:
        name, count = self.candidates
        against = ", ".join(f"{target} ({size:,})" for target, size in self.targets)
        found = (
            f"{len(self.pairs):,} pairs, {len(self.suspects):,} of {count:,} candidates of {name}, against {against}"
        )
        rules = ", ".join(f"{m.name} {'>=' if m.similarity else '<='} {m.threshold:g}" for m in self.metrics)
        return [found, f"thresholds: {rules}; {self.k} nearest neighbours per descriptor"]

    def _notes(self) -> list[str]:
        notes = []
        if not self.flips:
            notes.append("mirror images were not searched (flips)")
        if self.unreadable:
            first = self.unreadable[0]
            notes.append(f"{len(self.unreadable):,} unreadable images, such as {first[1]}: {first[2]}")
        return notes

    def _data(self) -> dict[str, object]:
        return {
            "candidates": {"name": self.candidates[0], "images": self.candidates[1]},
            "targets": [{"name": name, "images": images} for name, images in self.targets],
            "neighbours": self.k,
            "flips": self.flips,
            "thresholds": {metric.name: metric.threshold for metric in self.metrics},
            "pairs": [pair.as_dict() for pair in self.pairs],
            "unreadable": [{"set": name, "image": image, "why": why} for name, image, why in self.unreadable],
        }


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
        [*columns, Column("change", "change", "points", times=100)], rows,
        title="Accuracy without near-duplicates", notes=[note],
    )  # fmt: skip


def _row(rank: int, pair: SuspectedPair) -> dict[str, object]:
    row = {"rank": rank, **pair.as_dict(), **pair.values}
    return row | {"mirrored": "yes" if pair.mirrored else "", "reasons": ", ".join(pair.reasons)}
