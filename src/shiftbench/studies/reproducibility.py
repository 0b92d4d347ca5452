"""Does a new test set made the same way give the same accuracies? (004)

The table of 004 (tables 1, 11 to 20), what the gap can be made of (its section 2), and accuracy by how often
people selected an image (its appendix C.4.7).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shiftbench.arrays import FloatArray
from shiftbench.errors import listed
from shiftbench.metrics.intervals import Interval, clopper_pearson
from shiftbench.studies.base import Accuracies, StudyError, count_of, named_values, recognise_unit
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
    accuracy. From two test sets the first two can't be told apart, as 004 stresses; ``fresh``, the accuracy on
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


#: The bins of selection frequency in 004.
FREQUENCY_EDGES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True)
class FrequencyBin:
    """Images selected by a share of people in [low_edge, high_edge), the last bin closed."""

    low_edge: float
    high_edge: float
    images: int
    #: Mean over the models; None where the bin is empty.
    accuracy: float | None
    low: float | None
    high: float | None


def accuracy_by_frequency(
    hits: ArrayLike,
    frequency: ArrayLike,
    *,
    edges: Sequence[float] = FREQUENCY_EDGES,
    level: float = 0.95,
) -> list[FrequencyBin]:
    """Accuracy in bins of selection frequency; ``hits`` is (images,) or (models, images).

    For one model the interval is Clopper-Pearson. For many it is the same of the mean accuracy on that many
    images: the models see the same pictures, so that more models do not make it narrower.

    >>> bins = accuracy_by_frequency([1, 0, 1, 1], [0.1, 0.3, 0.9, 1.0])
    >>> [(b.images, b.accuracy) for b in bins]
    [(1, 1.0), (1, 0.0), (0, None), (0, None), (2, 1.0)]
    """
    matrix = np.atleast_2d(np.asarray(hits, dtype=np.float64))
    shares = np.asarray(frequency, dtype=np.float64)
    if matrix.shape[1] != len(shares):
        raise StudyError("one selection frequency for each image", found=f"{len(shares)} for {matrix.shape[1]} images")
    if not ((shares >= 0) & (shares <= 1)).all():
        raise StudyError("selection frequencies are shares of people", expected="0 to 1, none missing")
    limits = np.asarray(edges, dtype=np.float64)
    place = np.minimum(np.searchsorted(limits, shares, side="right") - 1, len(limits) - 2)
    bins = []
    for i, (low_edge, high_edge) in enumerate(itertools.pairwise(limits)):
        here = place == i
        n = int(here.sum())
        if not n:
            bins.append(FrequencyBin(float(low_edge), float(high_edge), 0, None, None, None))
            continue
        accuracy = float(matrix[:, here].mean())
        ends = clopper_pearson(accuracy * n, n, level)
        bins.append(FrequencyBin(float(low_edge), float(high_edge), n, accuracy, ends.low, ends.high))
    return bins
