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
        return {
            "unit": self.unit,
            "level": self.level,
            "mean_change": self.mean_change,
            "models": [asdict(row) for row in self.rows],
            "notes": list(self.notes),
        }


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
    names, (originals, news) = named_values([original, new], models)
    unit = recognise_unit({"original": originals, "new": news}, unit)
    complete = ~(np.isnan(originals) | np.isnan(news))
    notes = left_out("left out, a value is missing", list(compress(names, ~complete)))
    names = list(compress(names, complete))
    if not names:
        raise StudyError("no model has both accuracies", found="; ".join(notes))
    originals = originals[complete]
    news = news[complete]
    sizes_original = np.broadcast_to(np.asarray(n_original, dtype=np.float64), complete.shape)[complete]
    sizes_new = np.broadcast_to(np.asarray(n_new, dtype=np.float64), complete.shape)[complete]
    original_low, original_high = accuracy_interval(originals, sizes_original, unit, level)
    new_low, new_high = accuracy_interval(news, sizes_new, unit, level)
    new_ranks = {i: rank for rank, i in enumerate(_best_first(names, news), start=1)}
    rows = []
    for rank, i in enumerate(_best_first(names, originals), start=1):
        row = Reproduced(
            rank=rank,
            model=names[i],
            original=float(originals[i]),
            original_low=float(original_low[i]),
            original_high=float(original_high[i]),
            new=float(news[i]),
            new_low=float(new_low[i]),
            new_high=float(new_high[i]),
            gap=float(originals[i] - news[i]),
            new_rank=new_ranks[i],
            rank_change=rank - new_ranks[i],
        )
        rows.append(row)
    return Reproducibility(unit, tuple(rows), level, tuple(notes))


def _best_first(names: Sequence[str], accuracies: FloatArray) -> list[int]:
    """Indices of the models by falling accuracy, then by name."""
    order: list[int] = np.lexsort((np.array(names), -accuracies)).tolist()
    return order


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
            "model": self.model,
            "original": self.original,
            "new": self.new,
            "fresh": self.fresh,
            "gap": self.total,
            "chance_alone": self.chance_alone,
            "adaptivity": self.adaptivity,
            "distribution": self.distribution,
        }
        intervals = {
            "generalisation": self.generalisation,
            "systematic": self.systematic,
            "adaptivity": self.adaptivity_interval,
            "distribution": self.distribution_interval,
        }
        for name, interval in intervals.items():
            row[f"{name}_low"] = None if interval is None else interval.low
            row[f"{name}_high"] = None if interval is None else interval.high
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
    for name, value in (("original", original), ("new", new), ("fresh", fresh)):
        if value is not None and not 0.0 <= value <= 1.0:
            raise StudyError(f"the {name} accuracy must be a fraction", found=value, expected="0 to 1")
    new_interval = clopper_pearson(new * n_new, n_new, level)
    original_interval = clopper_pearson(original * n_original, n_original, level)
    generalisation = Interval(new_interval.low - new, new_interval.high - new)
    systematic = _difference_interval(original, original_interval, new, new_interval)
    if fresh is None or n_fresh is None:
        return GapParts(original, new, None, generalisation, systematic)
    fresh_interval = clopper_pearson(fresh * n_fresh, n_fresh, level)
    # The models were chosen on the original images, so those are no sample: only the fresh ones carry chance.
    adaptivity = Interval(original - fresh_interval.high, original - fresh_interval.low)
    distribution = _difference_interval(fresh, fresh_interval, new, new_interval)
    return GapParts(original, new, fresh, generalisation, systematic, adaptivity, distribution)


def _difference_interval(a: float, a_interval: Interval, b: float, b_interval: Interval) -> Interval:
    """Zou and Donner's interval of a - b from the intervals of both."""
    gap = a - b
    down = float(np.hypot(a - a_interval.low, b_interval.high - b))
    up = float(np.hypot(a_interval.high - a, b - b_interval.low))
    return Interval(gap - down, gap + up)


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
    original_cells = _cells(results, original)
    new_cells = _cells(results, new)
    fresh_cells = _cells(results, fresh) if fresh else {}
    rows = []
    incomplete = []
    for model in results.models:
        if model not in original_cells or model not in new_cells or (fresh and model not in fresh_cells):
            incomplete.append(model)
            continue
        original_accuracy, n_original = original_cells[model]
        new_accuracy, n_new = new_cells[model]
        fresh_accuracy, n_fresh = fresh_cells.get(model, (None, None))
        parts = decompose_gap(
            original_accuracy,
            new_accuracy,
            n_original=n_original,
            n_new=n_new,
            fresh=fresh_accuracy,
            n_fresh=n_fresh,
            level=level,
        )
        rows.append(replace(parts, model=model))
    notes = left_out("left out, a value is missing", incomplete)
    if not rows:
        raise StudyError("no model has both accuracies", found="; ".join(notes))
    return Gaps(tuple(sorted(rows, key=lambda row: -row.total)), level, tuple(notes))


def _cells(results: Results, setting: str) -> dict[str, tuple[float, int]]:
    """Accuracy as a fraction and number of images in a setting, of every model that has both."""
    values = results.column(setting) / whole(results.unit)
    sizes = results.size(setting)
    if sizes is None:
        hint = "give --n-x, --n-y, --n-fresh, or a column n in a long table"
        raise StudyError(f"unknown number of images behind {setting!r}", hint=hint)
    cells = {}
    for model, value, n in zip(results.models, values, np.broadcast_to(sizes, values.shape), strict=True):
        if np.isfinite(value) and np.isfinite(n):
            cells[model] = (float(value), int(n))
    return cells


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
    share_at, people_at = _frequency_columns(table, column)
    frequencies: dict[str, float] = {}
    for line, row in enumerate(table.rows, start=2):
        image_id = str(row[id_at]).strip()
        frequency = table.number(line, share_at)
        if people_at is not None:
            people = table.number(line, people_at)
            frequency = frequency / people if people > 0 else float("nan")
        if np.isnan(frequency):
            continue
        if not 0.0 <= frequency <= 1.0:
            raise StudyError(
                f"{table.name}, line {line}: invalid selection frequency",
                found=f"{frequency:g}",
                expected="a share of people, 0 to 1",
                hint="divide percent by 100",
            )
        if frequencies.setdefault(image_id, frequency) != frequency:
            raise StudyError(f"{table.name} has two frequencies for one image", found=f"{image_id!r}, line {line}")
    return frequencies


def _frequency_columns(table: TableFile, column: str | None) -> tuple[int, int | None]:
    """Positions of the column of shares and None, or of how many people selected the image and how many saw it."""
    share_at = table.find([column.lower()] if column else SHARE_COLUMNS)
    if share_at is not None:
        return share_at, None
    selected_at = table.find(["selected"])
    people_at = table.find(COUNT_COLUMNS)
    if column is None and selected_at is not None and people_at is not None:
        return selected_at, people_at
    counts = f"selected and {' or '.join(COUNT_COLUMNS)}"
    raise StudyError(
        f"{table.name} has no column of selection frequencies",
        found=listed(table.lowered, 8),
        expected=repr(column) if column else f"{' or '.join(SHARE_COLUMNS)}, or {counts}",
    )


def matched_frequencies(
    frequencies: Mapping[str, float], ids: Sequence[str]
) -> tuple[BoolArray, FloatArray, list[str]]:
    """Which of the images have a frequency, these frequencies in their order, and notes on what does not match."""
    matched = np.array([image_id in frequencies for image_id in ids], dtype=np.bool_)
    if not matched.any():
        raise StudyError(
            "no image of the setting has a selection frequency",
            found=f"images {listed(ids, 3)}; frequencies of {listed(list(frequencies), 3) or 'none'}",
            expected="the same ids in both",
        )
    shares = np.array([frequencies[image_id] for image_id in compress(ids, matched)])
    unmatched = int((~matched).sum())
    notes = []
    if unmatched:
        verb = "has no selection frequency and is" if unmatched == 1 else "have no selection frequency and are"
        notes.append(f"{count_of(unmatched, 'image')} {verb} left out")
    return matched, shares, notes


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
    # The last bin is closed: an image that everybody selected belongs to it.
    bin_of = np.minimum(np.searchsorted(limits, shares, side="right") - 1, len(limits) - 2)
    bins = []
    for i, (low_edge, high_edge) in enumerate(pairwise(limits)):
        in_bin = bin_of == i
        n = int(in_bin.sum())
        if not n:
            bins.append(FrequencyBin(float(low_edge), float(high_edge), 0, None, None, None))
            continue
        accuracy = float(matrix[:, in_bin].mean())
        interval = clopper_pearson(accuracy * n, n, level)
        bins.append(FrequencyBin(float(low_edge), float(high_edge), n, accuracy, interval.low, interval.high))
    return bins


@dataclass(frozen=True)
class BinnedAccuracies:
    """The bins of every model, on the same images, and of their mean."""

    by_model: dict[str, list[FrequencyBin]]
    mean: list[FrequencyBin]
    notes: tuple[str, ...] = ()

    def with_mean(self) -> list[tuple[str, list[FrequencyBin]]]:
        """(name, bins), the mean of several models first."""
        rows = list(self.by_model.items())
        if len(rows) > 1:
            rows.insert(0, (f"mean of {count_of(len(rows), 'model')}", self.mean))
        return rows


def bins_of(
    predictions: Sequence[Predictions],
    frequencies: Mapping[str, float],
    *,
    edges: Sequence[float] = FREQUENCY_EDGES,
    level: float = 0.95,
) -> BinnedAccuracies:
    """Accuracy by selection frequency of every model, and of their mean, in one setting.

    The images are those that count for all models and have a frequency.
    """
    rising = all(low < high for low, high in pairwise(edges))
    if len(edges) < 2 or not rising or edges[0] != 0.0 or edges[-1] != 1.0:
        raise StudyError(
            "invalid bins of selection frequency",
            found=", ".join(f"{edge:g}" for edge in edges),
            expected="edges increasing from 0 to 1, such as 0, 0.2, 0.4, 0.6, 0.8, 1",
        )
    names = [entry.classifier for entry in predictions]
    check_unique(names)
    hits, ids = common_hits(predictions)
    matched, shares, notes = matched_frequencies(frequencies, ids)
    hits = hits[:, matched]
    mean = accuracy_by_frequency(hits, shares, edges=edges, level=level)
    by_model = {}
    for name, model_hits in zip(names, hits, strict=True):
        by_model[name] = accuracy_by_frequency(model_hits, shares, edges=edges, level=level)
    return BinnedAccuracies(by_model, mean, tuple(notes))
