"""Does a new test set made the same way give the same accuracies? (004)

The table of 004 (tables 1, 11 to 20), and the parts of the gap between the two test sets (its section 2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shiftbench.arrays import FloatArray
from shiftbench.errors import listed
from shiftbench.metrics.intervals import Interval, clopper_pearson
from shiftbench.studies.base import Accuracies, StudyError, count_of, named_values, recognise_unit, whole
from shiftbench.studies.results import Results
from shiftbench.studies.robustness import accuracy_interval


@dataclass(frozen=True)
class Reproduced:
    """One model on the original and the new test set."""

    rank: int
    model: str
    original: float
    original_low: float
    original_high: float
    new: float
    new_low: float
    new_high: float
    gap: float
    new_rank: int
    #: Places won on the new test set; -2 means that the model dropped by two.
    rank_change: int


@dataclass(frozen=True)
class Reproducibility:
    """All models, best on the original test set first."""

    unit: str
    rows: tuple[Reproduced, ...]
    level: float
    notes: tuple[str, ...] = ()

    @property
    def mean_change(self) -> float:
        """The mean of new minus original (004 table 2)."""
        return float(np.mean([-row.gap for row in self.rows]))

    def as_dict(self) -> dict[str, Any]:
        rows = [asdict(row) for row in self.rows]
        return {"unit": self.unit, "level": self.level, "mean_change": self.mean_change, "models": rows,
                "notes": list(self.notes)}  # fmt: skip


def reproducibility(
    original: Accuracies,
    new: Accuracies,
    *,
    n_original: ArrayLike,
    n_new: ArrayLike,
    models: Sequence[str] | None = None,
    level: float = 0.95,
    unit: str | None = None,
) -> Reproducibility:
    """Original and new accuracy with Clopper-Pearson intervals, gap, ranks and change of rank.

    Ranks are over the models that have both accuracies; equal accuracies are ranked by name, as in 004.

    >>> table = reproducibility({"a": 92.5, "b": 95.9}, {"a": 84.9, "b": 89.7}, n_original=10_000, n_new=2021)
    >>> [(row.rank, row.model, round(row.gap, 1), row.new_rank) for row in table.rows]
    [(1, 'b', 6.2, 1), (2, 'a', 7.6, 2)]
    """
    names, (old, fresh) = named_values([original, new], models)
    unit = recognise_unit({"original": old, "new": fresh}, unit)
    known = ~(np.isnan(old) | np.isnan(fresh))
    lost = [name for name, here in zip(names, known, strict=True) if not here]
    notes = [f"left out, a value is missing: {count_of(len(lost), 'model')} ({listed(lost)})"] if lost else []
    sizes = [np.broadcast_to(np.asarray(n, dtype=np.float64), known.shape)[known] for n in (n_original, n_new)]
    names, old, fresh = [n for n, here in zip(names, known, strict=True) if here], old[known], fresh[known]
    if not names:
        raise StudyError("no model has both accuracies", found="; ".join(notes))
    ends = [accuracy_interval(v, n, unit, level) for v, n in zip((old, fresh), sizes, strict=True)]
    ranks, new_ranks = _ranks(old, names), _ranks(fresh, names)
    rows = [
        Reproduced(ranks[i], name, float(old[i]), float(ends[0][0][i]), float(ends[0][1][i]), float(fresh[i]),
                   float(ends[1][0][i]), float(ends[1][1][i]), float(old[i] - fresh[i]), new_ranks[i],
                   ranks[i] - new_ranks[i])
        for i, name in enumerate(names)
    ]  # fmt: skip
    return Reproducibility(unit, tuple(sorted(rows, key=lambda row: row.rank)), level, tuple(notes))


def _ranks(values: FloatArray, names: Sequence[str]) -> dict[int, int]:
    order = sorted(range(len(values)), key=lambda i: (-values[i], names[i]))
    return {i: place for place, i in enumerate(order, start=1)}


@dataclass(frozen=True)
class GapParts:
    """original - new = adaptivity + distribution + generalisation (004 section 2), as fractions."""

    total: float
    #: What random sampling of the new images alone can add or take: the reach of its interval.
    generalisation: Interval
    #: The rest: adaptivity and distribution together.
    systematic: Interval
    #: The two apart, where accuracy on fresh images of the original distribution is known.
    adaptivity: float | None = None
    adaptivity_interval: Interval | None = None
    distribution: float | None = None
    distribution_interval: Interval | None = None

    @property
    def chance_alone(self) -> bool:
        """Whether sampling error could explain the whole gap."""
        return self.systematic.low <= 0.0 <= self.systematic.high


def decompose_gap(
    original: float,
    new: float,
    *,
    n_original: int,
    n_new: int,
    fresh: float | None = None,
    n_fresh: int | None = None,
    level: float = 0.95,
) -> GapParts:
    """The three parts of a gap between original accuracy A_S and new accuracy A_S' (fractions).

    A_S - A_S' = (A_S - A_D) + (A_D - A_D') + (A_D' - A_S'): adaptivity gap, distribution gap, generalisation
    gap. Only the last is pure chance, and Clopper-Pearson bounds it: A_D' lies in the interval of the new
    accuracy. From two test sets the first two can't be separated, as 004 stresses; ``fresh``, the accuracy on
    ``n_fresh`` new images of the original distribution (a hidden split), separates them.

    >>> parts = decompose_gap(0.761, 0.633, n_original=50_000, n_new=10_000)
    >>> parts.chance_alone, [round(end, 3) for end in parts.systematic]
    (False, [0.118, 0.138])
    """
    for name, value in (("original", original), ("new", new), ("fresh", fresh if fresh is not None else 0.5)):
        if not 0.0 <= value <= 1.0:
            raise StudyError(f"the {name} accuracy must be a fraction", found=value, expected="0 to 1")
    total = original - new
    low, high = clopper_pearson(new * n_new, n_new, level)
    generalisation = Interval(low - new, high - new)
    systematic = _difference((original, *clopper_pearson(original * n_original, n_original, level)), (new, low, high))
    if fresh is None or n_fresh is None:
        return GapParts(total, generalisation, systematic)
    ends = clopper_pearson(fresh * n_fresh, n_fresh, level)
    # The models were chosen on the original images, so those are no sample: only the fresh ones carry chance.
    adaptivity = Interval(original - ends.high, original - ends.low)
    distribution = _difference((fresh, *ends), (new, low, high))
    return GapParts(total, generalisation, systematic, original - fresh, adaptivity, fresh - new, distribution)


def _difference(a: tuple[float, float, float], b: tuple[float, float, float]) -> Interval:
    """Zou and Donner's interval of a - b from (value, low, high) of both."""
    gap = a[0] - b[0]
    return Interval(gap - float(np.hypot(a[0] - a[1], b[2] - b[0])), gap + float(np.hypot(a[2] - a[0], b[0] - b[1])))


@dataclass(frozen=True)
class ModelGap:
    """One model's gap; accuracies are fractions."""

    model: str
    original: float
    new: float
    fresh: float | None
    parts: GapParts

    def as_dict(self) -> dict[str, Any]:
        parts = self.parts
        row: dict[str, Any] = {
            "model": self.model, "original": self.original, "new": self.new, "fresh": self.fresh, "gap": parts.total,
            "chance_alone": parts.chance_alone, "adaptivity": parts.adaptivity, "distribution": parts.distribution,
        }  # fmt: skip
        for name in ("generalisation", "systematic", "adaptivity_interval", "distribution_interval"):
            ends = getattr(parts, name)
            short = name.removesuffix("_interval")
            row |= {f"{short}_low": ends.low if ends else None, f"{short}_high": ends.high if ends else None}
        return row


@dataclass(frozen=True)
class Gaps:
    """All models, the largest gap first."""

    rows: tuple[ModelGap, ...]
    level: float
    notes: tuple[str, ...] = ()


def decompose_gaps(results: Results, original: str, new: str, *, fresh: str | None = None, level: float = 0.95) -> Gaps:
    """``decompose_gap`` of every model with both accuracies.

    ``fresh`` is a setting with new images of the original distribution: with it, adaptivity and distribution are
    separated, for the models that have it. The table must have the numbers of images.
    """
    sides = [_side(results, name) for name in (original, new, *([fresh] if fresh else []))]
    rows, lost = [], []
    for i, model in enumerate(results.models):
        known = [(float(values[i]), int(n[i])) for values, n in sides if np.isfinite(values[i]) and np.isfinite(n[i])]
        if len(known) < len(sides):
            lost.append(model)
            continue
        (old, n_old), (young, n_new) = known[:2]
        third, n_third = known[2] if fresh else (None, None)
        parts = decompose_gap(old, young, n_original=n_old, n_new=n_new, fresh=third, n_fresh=n_third, level=level)
        rows.append(ModelGap(model, old, young, third, parts))
    notes = [f"left out, a value is missing: {count_of(len(lost), 'model')} ({listed(lost)})"] if lost else []
    if not rows:
        raise StudyError("no model has both accuracies", found="; ".join(notes))
    return Gaps(tuple(sorted(rows, key=lambda row: -row.parts.total)), level, tuple(notes))


def _side(results: Results, setting: str) -> tuple[FloatArray, FloatArray]:
    """The models' accuracies in a setting as fractions, and the numbers of images behind them."""
    values = results.column(setting) / whole(results.unit)
    known = results.size(setting)
    if known is None:
        raise StudyError(
            f"unknown number of images behind {setting!r}",
            hint="give --n-x, --n-y, --n-fresh, or a column n in a long table",
        )
    return values, np.asarray(np.broadcast_to(known, values.shape), dtype=np.float64)
