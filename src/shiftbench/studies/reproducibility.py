"""Does a new test set made the same way give the same accuracies? (004)

The table of 004 (tables 1, 11 to 20), and the parts of the gap between the two test sets (its section 2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import compress, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shiftbench.arrays import BoolArray, FloatArray
from shiftbench.errors import listed
from shiftbench.metrics.intervals import Interval, clopper_pearson
from shiftbench.store.predictions import Predictions
from shiftbench.studies.base import (
    Accuracies,
    StudyError,
    check_unique,
    count_of,
    left_out,
    named_values,
    recognise_unit,
    whole,
)
from shiftbench.studies.image_bootstrap import common_hits
from shiftbench.studies.results import Results, TableFile
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
    """
    names, (old, fresh) = named_values([original, new], models)
    unit = recognise_unit({"original": old, "new": fresh}, unit)
    known = ~(np.isnan(old) | np.isnan(fresh))
    notes = left_out("left out, a value is missing", list(compress(names, ~known)))
    sizes = [np.broadcast_to(np.asarray(n, dtype=np.float64), known.shape)[known] for n in (n_original, n_new)]
    names, old, fresh = list(compress(names, known)), old[known], fresh[known]
    if not names:
        raise StudyError("no model has both accuracies", found="; ".join(notes))
    ends = [accuracy_interval(v, n, unit, level) for v, n in zip((old, fresh), sizes, strict=True)]
    order, new_order = (np.lexsort((np.array(names), -values)).tolist() for values in (old, fresh))
    new_rank = {i: place for place, i in enumerate(new_order, start=1)}
    rows = [
        Reproduced(rank, names[i], float(old[i]), float(ends[0][0][i]), float(ends[0][1][i]), float(fresh[i]),
                   float(ends[1][0][i]), float(ends[1][1][i]), float(old[i] - fresh[i]), new_rank[i],
                   rank - new_rank[i])
        for rank, i in enumerate(order, start=1)
    ]  # fmt: skip
    return Reproducibility(unit, tuple(rows), level, tuple(notes))


@dataclass(frozen=True)
class GapParts:
    """original - new = adaptivity + distribution + generalisation (004 section 2), as fractions."""

    original: float
    new: float
    #: Accuracy on fresh images of the original distribution, where it is known.
    fresh: float | None
    #: What random sampling of the new images alone can add or take: the reach of its interval.
    generalisation: Interval
    #: The rest: adaptivity and distribution together; apart only with fresh images.
    systematic: Interval
    adaptivity_interval: Interval | None = None
    distribution_interval: Interval | None = None
    model: str = ""

    @property
    def total(self) -> float:
        return self.original - self.new

    @property
    def adaptivity(self) -> float | None:
        return None if self.fresh is None else self.original - self.fresh

    @property
    def distribution(self) -> float | None:
        return None if self.fresh is None else self.fresh - self.new

    @property
    def chance_alone(self) -> bool:
        """Whether sampling error could explain the whole gap."""
        return self.systematic.low <= 0.0 <= self.systematic.high

    def as_dict(self) -> dict[str, Any]:
        row = {
            "model": self.model, "original": self.original, "new": self.new, "fresh": self.fresh, "gap": self.total,
            "chance_alone": self.chance_alone, "adaptivity": self.adaptivity, "distribution": self.distribution,
        }  # fmt: skip
        for name in ("generalisation", "systematic", "adaptivity_interval", "distribution_interval"):
            ends, short = getattr(self, name), name.removesuffix("_interval")
            row |= {f"{short}_low": ends.low if ends else None, f"{short}_high": ends.high if ends else None}
        return row


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
    """
    for name, value in (("original", original), ("new", new), ("fresh", fresh if fresh is not None else 0.5)):
        if not 0.0 <= value <= 1.0:
            raise StudyError(f"the {name} accuracy must be a fraction", found=value, expected="0 to 1")
    low, high = clopper_pearson(new * n_new, n_new, level)
    generalisation = Interval(low - new, high - new)
    systematic = _difference((original, *clopper_pearson(original * n_original, n_original, level)), (new, low, high))
    if fresh is None or n_fresh is None:
        return GapParts(original, new, None, generalisation, systematic)
    ends = clopper_pearson(fresh * n_fresh, n_fresh, level)
    # The models were chosen on the original images, so those are no sample: only the fresh ones carry chance.
    adaptivity = Interval(original - ends.high, original - ends.low)
    distribution = _difference((fresh, *ends), (new, low, high))
    return GapParts(original, new, fresh, generalisation, systematic, adaptivity, distribution)


def _difference(a: tuple[float, float, float], b: tuple[float, float, float]) -> Interval:
    """Zou and Donner's interval of a - b from (value, low, high) of both."""
    gap = a[0] - b[0]
    return Interval(gap - float(np.hypot(a[0] - a[1], b[2] - b[0])), gap + float(np.hypot(a[2] - a[0], b[0] - b[1])))


@dataclass(frozen=True)
class Gaps:
    """All models, the largest gap first."""

    rows: tuple[GapParts, ...]
    level: float
    notes: tuple[str, ...] = ()


def decompose_gaps(results: Results, original: str, new: str, *, fresh: str | None = None, level: float = 0.95) -> Gaps:
    """``decompose_gap`` of every model with both accuracies.

    ``fresh`` is a setting with new images of the original distribution: with it, adaptivity and distribution are
    separated, for the models that have it. The table must have the numbers of images.
    """
    sides = []
    for setting in (original, new, *([fresh] if fresh else [])):
        values, n = results.column(setting) / whole(results.unit), results.size(setting)
        if n is None:
            hint = "give --n-x, --n-y, --n-fresh, or a column n in a long table"
            raise StudyError(f"unknown number of images behind {setting!r}", hint=hint)
        sides.append((values, np.broadcast_to(n, values.shape)))
    rows, lost = [], []
    for i, model in enumerate(results.models):
        known = [(float(values[i]), int(n[i])) for values, n in sides if np.isfinite(values[i]) and np.isfinite(n[i])]
        if len(known) < len(sides):
            lost.append(model)
            continue
        (old, n_old), (young, n_new) = known[:2]
        third, n_third = known[2] if fresh else (None, None)
        parts = decompose_gap(old, young, n_original=n_old, n_new=n_new, fresh=third, n_fresh=n_third, level=level)
        rows.append(replace(parts, model=model))
    notes = left_out("left out, a value is missing", lost)
    if not rows:
        raise StudyError("no model has both accuracies", found="; ".join(notes))
    return Gaps(tuple(sorted(rows, key=lambda row: -row.total)), level, tuple(notes))


#: The bins of selection frequency in 004.
FREQUENCY_EDGES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
ID_COLUMNS = ("id", "image_id", "image", "filename", "file", "path")
SHARE_COLUMNS = ("selection_frequency", "frequency")
COUNT_COLUMNS = ("shown", "annotators", "annotations")


def read_frequencies(path: str | Path, column: str | None = None) -> dict[str, float]:
    """Image id to selection frequency, from .csv or .parquet; an image with an empty cell is left out.

    ``column`` names the column of shares if it has another name.
    """
    table = TableFile.read(path)
    id_at = table.column("of image ids", ID_COLUMNS)
    share_at = table.find([column.lower()] if column else SHARE_COLUMNS)
    selected, people = table.find(["selected"]), table.find(COUNT_COLUMNS)
    counted = column is None and share_at is None and selected is not None
    at = selected if counted else share_at
    if at is None or (counted and people is None):
        counts = f"selected and {' or '.join(COUNT_COLUMNS)}"
        wanted = repr(column) if column else f"{' or '.join(SHARE_COLUMNS)}, or {counts}"
        wrong = f"{table.name} has no column of selection frequencies"
        raise StudyError(wrong, found=listed(table.lowered, 8), expected=wanted)
    found: dict[str, float] = {}
    for line, row in enumerate(table.rows, start=2):
        name, value = str(row[id_at]).strip(), table.number(line, at)
        if counted and people is not None:
            value = value / n if (n := table.number(line, people)) > 0 else float("nan")
        if np.isnan(value):
            continue
        if not 0.0 <= value <= 1.0:
            raise StudyError(
                f"{table.name}, line {line}: invalid selection frequency",
                found=f"{value:g}",
                expected="a share of people, 0 to 1",
                hint="divide percent by 100",
            )
        if found.setdefault(name, value) != value:
            raise StudyError(f"{table.name} has two frequencies for one image", found=f"{name!r}, line {line}")
    return found


def matched_frequencies(
    frequencies: Mapping[str, float], ids: Sequence[str]
) -> tuple[BoolArray, FloatArray, list[str]]:
    """Which of the images have a frequency, these frequencies in their order, and notes on what does not match."""
    here = np.array([name in frequencies for name in ids], dtype=np.bool_)
    if not here.any():
        raise StudyError(
            "no image of the setting has a selection frequency",
            found=f"images {listed(ids, 3)}; frequencies of {listed(list(frequencies), 3) or 'none'}",
            expected="the same ids in both",
        )
    lost = int((~here).sum())
    verb = "has no selection frequency and is" if lost == 1 else "have no selection frequency and are"
    notes = [f"{count_of(lost, 'image')} {verb} left out"] if lost else []
    return here, np.array([frequencies[name] for name in ids if name in frequencies]), notes


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
    hits: ArrayLike, frequency: ArrayLike, *, edges: Sequence[float] = FREQUENCY_EDGES, level: float = 0.95
) -> list[FrequencyBin]:
    """Accuracy in bins of selection frequency; ``hits`` is (images,) or (models, images).

    For one model the interval is Clopper-Pearson. For many it is the same of the mean accuracy on that many
    images: the models see the same images, so more models do not make it narrower.
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
    for i, (low_edge, high_edge) in enumerate(pairwise(limits)):
        here = place == i
        n = int(here.sum())
        if not n:
            bins.append(FrequencyBin(float(low_edge), float(high_edge), 0, None, None, None))
            continue
        accuracy = float(matrix[:, here].mean())
        ends = clopper_pearson(accuracy * n, n, level)
        bins.append(FrequencyBin(float(low_edge), float(high_edge), n, accuracy, ends.low, ends.high))
    return bins


@dataclass(frozen=True)
class BinnedAccuracies:
    """The bins of every model, on the same images, and of their mean."""

    by_model: dict[str, list[FrequencyBin]]
    mean: list[FrequencyBin]
    notes: tuple[str, ...] = ()

    def with_mean(self) -> list[tuple[str, list[FrequencyBin]]]:
        """(name, bins), the mean of several models first."""
        several = len(self.by_model) > 1
        rows = [(f"mean of {count_of(len(self.by_model), 'model')}", self.mean)] if several else []
        return [*rows, *self.by_model.items()]


def bins_of(
    predictions: Sequence[Predictions],
    frequencies: Mapping[str, float],
    *,
    edges: Sequence[float] = FREQUENCY_EDGES,
    level: float = 0.95,
) -> BinnedAccuracies:
    """Of predictions in one setting, on the images that count for all of them and have a frequency."""
    rising = all(low < high for low, high in pairwise(edges))
    if len(edges) < 2 or not rising or edges[0] != 0.0 or edges[-1] != 1.0:
        raise StudyError(
            "invalid bins of selection frequency",
            found=", ".join(f"{edge:g}" for edge in edges),
            expected="edges increasing from 0 to 1, such as 0, 0.2, 0.4, 0.6, 0.8, 1",
        )
    names = [one.classifier for one in predictions]
    check_unique(names)
    hits, ids = common_hits(predictions)
    here, shares, notes = matched_frequencies(frequencies, ids)
    mean, *single = (
        accuracy_by_frequency(some, shares, edges=edges, level=level) for some in (hits[:, here], *hits[:, here])
    )
    return BinnedAccuracies(dict(zip(names, single, strict=True)), mean, tuple(notes))
