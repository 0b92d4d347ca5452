"""The review queue: suspected pairs with all their distances, the most suspicious first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from shiftbench.arrays import FloatArray
from shiftbench.errors import ShiftbenchError
from shiftbench.reports.table import Column, Table

#: Distances up to these are suspicious, and similarities from these on. They come from the ten nearest training
#: images of each of CIFAR-10's 10,000 test images, of which 004 called about 800 near-duplicates by eye, and from
#: edited photographs:
#: * pixels: JPEG at quality 50 stays below 12 grey levels, and not one pair of CIFAR-10's test and training images;
#: * pixels-normalised, features, ssim: at these, 99, 93 and 99 % of the pairs of CIFAR-10 also align;
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
#: What a terminal shows of the queue.
_SHOWN = 30


@dataclass(frozen=True)
class Metric:
    """How one metric judges a pair."""

    name: str
    threshold: float
    #: Whether larger values are more alike; 1 is then the same picture, and 0 for distances.
    similarity: bool = False

    def closeness(self, values: FloatArray) -> FloatArray:
        """1 for the same picture, 0 at the threshold, negative beyond.

        >>> Metric("pixels", 10.0).closeness(np.array([0.0, 5.0, 20.0])).tolist()
        [1.0, 0.5, -1.0]
        >>> Metric("ssim", 0.5, similarity=True).closeness(np.array([1.0, 0.5])).tolist()
        [1.0, 0.0]
        """
        distances = 1.0 - values if self.similarity else values
        limit = 1.0 - self.threshold if self.similarity else self.threshold
        return np.asarray(1.0 - distances / limit)


def metrics_for(descriptors: Sequence[str], thresholds: Mapping[str, float]) -> list[Metric]:
    """The descriptors' metrics and the two that compare pictures, with the thresholds asked for.

    A threshold for "features" holds for all classifiers, one for "features:resnet50" for that one.
    """
    names = [*descriptors, *_SIMILARITIES]
    known = {*names, *(name.partition(":")[0] for name in names)}
    unknown = [name for name in thresholds if name not in known]
    if unknown:
        raise ShiftbenchError(
            f"a threshold for {unknown[0]!r}, by which nothing is measured",
            expected=f"one of {', '.join(sorted(known))}",
        )
    return [_metric(name, thresholds) for name in names]


def _metric(name: str, thresholds: Mapping[str, float]) -> Metric:
    kind = name.partition(":")[0]
    threshold = float(thresholds.get(name, thresholds.get(kind, THRESHOLDS[kind])))
    similarity = kind in _SIMILARITIES
    if not (0 < threshold < np.inf) or (similarity and threshold >= 1):
        raise ShiftbenchError(
            f"bad threshold for {name}", found=threshold, expected="0 to 1" if similarity else "a positive distance"
        )
    return Metric(name, threshold, similarity)


@dataclass(frozen=True)
class SuspectedPair:
    """A candidate and a picture of a target set (which may be the candidates themselves)."""

    candidate: str
    candidate_index: int
    target: str
    reference: str
    reference_index: int
    #: Whether it is the candidate's mirror image that resembles the other.
    mirrored: bool
    #: By metric.
    values: Mapping[str, float]
    #: The greatest closeness over the metrics: 1 for the same picture, 0 at a threshold.
    suspicion: float
    #: The metrics that found it.
    reasons: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class ReviewQueue(Table):
    """What a person should look at. Terminals show the head of the queue; CSV and JSON have all of it."""

    def __init__(
        self,
        pairs: Sequence[SuspectedPair],
        metrics: Sequence[Metric],
        *,
        candidates: tuple[str, int],
        targets: Sequence[tuple[str, int]],
        k: int,
        flips: bool,
        unreadable: Sequence[tuple[str, str, str]] = (),
    ) -> None:
        # The ids break ties, so that the order does not depend on how the pairs were found.
        self.pairs = sorted(pairs, key=lambda p: (-p.suspicion, p.candidate, p.target, p.reference, p.mirrored))
        self.metrics, self.k, self.flips = list(metrics), k, flips
        self.candidates, self.targets, self.unreadable = candidates, list(targets), list(unreadable)
        rows = [_row(place, pair) for place, pair in enumerate(self.pairs, start=1)]
        super().__init__(
            self._columns(), rows, shown=rows[:_SHOWN], title="Suspected near-duplicates", lead=self._lead(),
            notes=self._notes(), data=self._data(),
        )  # fmt: skip

    @property
    def suspects(self) -> list[str]:
        """The candidates that stand in the queue, each once, the most suspicious first."""
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
        rules = ", ".join(f"{m.name} {'from' if m.similarity else 'up to'} {m.threshold:g}" for m in self.metrics)
        return [found, f"suspicious: {rules}; looked at: the {self.k} nearest by each descriptor"]

    def _notes(self) -> list[str]:
        notes = []
        if len(self.pairs) > _SHOWN:
            notes.append(f"the first {_SHOWN} of {len(self.pairs):,} pairs; write a .csv or .json file for all")
        if not self.flips:
            notes.append("mirror images were not searched for (flips)")
        if self.unreadable:
            first = self.unreadable[0]
            notes.append(f"{len(self.unreadable):,} pictures could not be read, the first {first[1]}: {first[2]}")
        return notes

    def _data(self) -> dict[str, Any]:
        return {
            "candidates": {"name": self.candidates[0], "images": self.candidates[1]},
            "targets": [{"name": name, "images": images} for name, images in self.targets],
            "neighbours": self.k,
            "flips": self.flips,
            "thresholds": {metric.name: metric.threshold for metric in self.metrics},
            "pairs": [pair.as_dict() for pair in self.pairs],
            "unreadable": [{"set": name, "image": image, "why": why} for name, image, why in self.unreadable],
        }


def _row(rank: int, pair: SuspectedPair) -> dict[str, Any]:
    row = {"rank": rank, **pair.as_dict(), **pair.values}
    return row | {"mirrored": "yes" if pair.mirrored else "", "reasons": ", ".join(pair.reasons)}
