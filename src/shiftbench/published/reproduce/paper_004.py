"""004: the two lines, the tables' gaps, ranks and intervals, the average changes; accuracies from images."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache

import numpy as np

from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.published.reproduce.base import (
    NoDataError,
    Recomputed,
    claim,
    claim_missing,
    difference_of,
    ends_of,
    mean_of,
)
from shiftbench.published.reproduce.sources import Data
from shiftbench.published.tables import PublishedValue, published
from shiftbench.studies.fits import Fit, fit

#: The full tables: new test set and metric.
FULL = {
    "11": ("cifar-10.1-v4", "top1"),
    "12": ("cifar-10.1-v6", "top1"),
    "15": ("imagenetv2-matched-frequency", "top1"),
    "16": ("imagenetv2-matched-frequency", "top5"),
    "17": ("imagenetv2-threshold-0.7", "top1"),
    "18": ("imagenetv2-threshold-0.7", "top5"),
    "19": ("imagenetv2-top-images", "top1"),
    "20": ("imagenetv2-top-images", "top5"),
}
#: Images of CIFAR-10.1, of the halves on which discriminators were tested, and of the original test sets and the splits
#: of cross-validation; of ImageNetV2, all have 10,000.
_IMAGES = {
    "cifar-10.1-v4": 2_021, "cifar-10.1-v6": 2_000, "cifar-10-or-10.1": 800,
    **{name: n for of, n in (("cifar-10", 10_000), ("imagenet", 50_000))
       for name in (of, *(f"{of}.split-{i}" for i in range(1, 6)))},
}  # fmt: skip
#: The hardest images, which people classified. 115 new ones are stated, but the intervals are those of 100.
_HARDEST = {"cifar-10": 500, "cifar-10.1-v4": 100}
_ACCURACIES = ("top1", "top5", "human accuracy")
#: The table behind each line.
LINES = {"cifar-10.1-v4": "11", "imagenetv2-matched-frequency": "15", "imagenetv2-top-images": "20"}
RESAMPLES = 100_000
#: Draws that show what the rounding of printed accuracies does to a line.
_JITTERS = 400
#: Fisher vectors are not part of the line in 004's main text (see its appendix); with them the slope is 0.97.
_FISHER = "fv_"
#: The one model of table 1 that the full table calls by another name.
_OTHER_NAMES = {"wide_resnet_28_10": "wrn_28_10"}

_Row = PublishedValue


def original_of(setting: str) -> str:
    return "cifar-10" if setting.startswith("cifar") else "imagenet"


@cache
def _printed(table: str, *metrics: str) -> dict[tuple[str, str], _Row]:
    """Numbers of a table by model and setting; by default, the accuracies."""
    wanted = metrics or _ACCURACIES
    return {(row.model, row.setting): row for row in published("004", table) if row.metric in wanted}


def _rows(tables: tuple[str, ...], *metrics: str) -> list[_Row]:
    return [row for table in tables for row in published("004", table) if row.metric in metrics]


def _lines() -> list[_Row]:
    return [*published("004", "section 3.3"), *published("004", "figure 12")]


def _fitted(setting: str) -> list[str]:
    return [model for model, where in _printed(LINES[setting]) if where == setting and not model.startswith(_FISHER)]


@cache
def printed_line(setting: str) -> tuple[Fit, float, float]:
    """The line through a table's printed accuracies, and what their rounding does to slope and intercept."""
    rows, models = _printed(LINES[setting]), _fitted(setting)
    x, y = (np.array([rows[m, where].value for m in models]) for where in (original_of(setting), setting))
    line = fit(x, y, models=models, scale="linear", resamples=RESAMPLES)
    # Lines after moving every accuracy within its last printed digit, evenly.
    rng, reach = np.random.default_rng(0), rows[models[0], setting].rounding
    xs, ys = (v + rng.uniform(-reach, reach, (_JITTERS, len(v))) for v in (x, y))
    away = xs - xs.mean(axis=1, keepdims=True)
    slopes = (away * ys).sum(axis=1) / (away**2).sum(axis=1)
    return line, 3.0 * float(slopes.std()), 3.0 * float((ys.mean(axis=1) - slopes * xs.mean(axis=1)).std())


def _part(line: Fit, metric: str, slack: float) -> Recomputed:
    """Slope or intercept with its interval, or one end of it."""
    name, _, side = metric.partition(", ")
    value, ends = (getattr(line, name), getattr(line, f"{name}_interval"))
    if side:
        return Recomputed(ends.low if side.startswith("lower") else ends.high, slack)
    return Recomputed(value, slack, ends.low, ends.high)


@claim("004.line", of=_lines)
def line(row: _Row, data: Data) -> Recomputed:
    found, of_slope, of_intercept = printed_line(row.setting)
    return _part(found, row.metric, of_slope if row.metric.startswith("slope") else of_intercept)


@claim("004.line_ends", of=lambda: ends_of(_lines()))
def line_ends(row: _Row, data: Data) -> Recomputed:
    found = line(row, data)
    assert isinstance(found, Recomputed)
    return found


@claim("004.line_from_images", of=lambda: [*_lines(), *ends_of(_lines())])
def line_from_images(row: _Row, data: Data) -> Recomputed:
    models, settings = _fitted(row.setting), (original_of(row.setting), row.setting)
    k = 5 if FULL[LINES[row.setting]][1] == "top5" else 1
    old, new = (_all_of(models, data.accuracies(setting, k)) for setting in settings)
    return _part(_image_line(tuple((old[m], new[m]) for m in models)), row.metric, 0.0)


def _all_of(models: Collection[str], found: Mapping[str, float]) -> dict[str, float]:
    """The accuracies of these models: without one of them, a rank, a mean or a line is another."""
    known = {model: found[model] for model in models if model in found}
    if len(known) < len(models):
        raise NoDataError(f"predictions of all {len(models)} models; {len(known)} are there")
    return known


@cache
def _image_line(points: tuple[tuple[float, float], ...]) -> Fit:
    return fit(*np.array(points).T, scale="linear", resamples=RESAMPLES)


def _changes() -> list[_Row]:
    return [row for row in published("004", "2") if row.metric.endswith("change")]


@claim("004.average_change", of=_changes)
def average_change(row: _Row, data: Data) -> Recomputed:
    table = next(t for t, (setting, k, *_) in FULL.items() if (setting, f"{k} change") == (row.setting, row.metric))
    mean = mean_of(published("004", table, metric="gap"))
    return Recomputed(-mean.value, mean.slack)


@claim("004.average_change_from_images", of=_changes)
def average_change_from_images(row: _Row, data: Data) -> float:
    k = 1 if row.metric.startswith("top1") else 5
    table = next(
        table for table, (setting, metric, *_) in FULL.items() if (setting, metric) == (row.setting, f"top{k}")
    )
    models = {model for model, _ in _printed(table)}
    old, new = (_all_of(models, data.accuracies(setting, k)) for setting in ("imagenet", row.setting))
    return float(np.mean([new[model] - old[model] for model in models]))


@claim("004.span")
def span(row: _Row, data: Data) -> Recomputed:
    low, high = ("15", "19") if row.metric.startswith("top1") else ("16", "20")
    down, up = (mean_of(published("004", table, metric="gap")) for table in (low, high))
    return Recomputed(down.value - up.value, down.slack + up.slack)


@claim("004.drops")
def drops(row: _Row, data: Data) -> float:
    printed = published("004", LINES[row.setting], metric="gap")
    gaps = [one.value for one in printed if not one.model.startswith(_FISHER)]
    return min(gaps) if row.metric.startswith("smallest") else max(gaps)


@claim("004.human_gap")
def human_gap(row: _Row, data: Data) -> Recomputed:
    return mean_of(published("004", "3", metric="gap"))


@claim("004.gaps", of=lambda: _rows(("1", "3", *FULL), "gap"))
def gaps(row: _Row, data: Data) -> Recomputed:
    rows = _printed(row.table)
    return difference_of(rows[row.model, original_of(row.setting)], rows[row.model, row.setting])


@claim("004.ranks", of=lambda: _rows(("1", *FULL), "rank", "rank change"))
def ranks(row: _Row, data: Data) -> Recomputed:
    table, model = row.table, row.model
    if row.metric == "rank change":
        old, new = (_printed(table, "rank")[model, setting] for setting in (original_of(row.setting), row.setting))
        return Recomputed(old.value - new.value)
    if table == "1":
        table, model = "11" if row.setting.startswith("cifar") else "15", _OTHER_NAMES.get(model, model)
    return Recomputed(*_places(table)[model, row.setting])


@cache
def _places(table: str) -> dict[tuple[str, str], tuple[int, int]]:
    """Rank of every model on both test sets, and how many others have the same printed accuracy."""
    found = {}
    for setting in (original_of(FULL[table][0]), FULL[table][0]):
        values = {model: row.value for (model, where), row in _printed(table).items() if where == setting}
        order = sorted(values, key=lambda model: (-values[model], model))
        for rank, model in enumerate(order, start=1):
            found[model, setting] = (rank, sum(value == values[model] for value in values.values()) - 1)
    return found


def _with_intervals() -> list[_Row]:
    return [row for table in ("1", "3", "4", "5", *FULL, "13", "14") for row in published("004", table)]


@cache
def _value_of_end() -> dict[tuple[str, ...], _Row]:
    """The printed number that each end of an interval belongs to."""
    ends = ((end, row) for row in _with_intervals() for end in ends_of([row]))
    return {(end.table, end.model, end.setting, end.metric): row for end, row in ends}


@claim("004.interval_ends", of=lambda: ends_of(_with_intervals()))
def interval_ends(row: _Row, data: Data) -> Recomputed:
    value = _value_of_end()[row.table, row.model, row.setting, row.metric]
    n = (_HARDEST if row.table == "3" else _IMAGES).get(row.setting, 10_000)
    # Both ends move with the accuracy, nearly one to one: as far as it may be off, they may be.
    low, high = clopper_pearson(value.value * n, n)
    return Recomputed(low if "lower" in row.metric else high, value.rounding)


@claim("004.accuracies_from_images", of=lambda: _rows(("1", *FULL), "top1", "top5", "gap"))
def accuracies_from_images(row: _Row, data: Data) -> float:
    k = 5 if row.table in FULL and FULL[row.table][1] == "top5" else 1
    model = _OTHER_NAMES.get(row.model, row.model) if row.table == "1" else row.model
    settings = [row.setting, *([original_of(row.setting)] if row.metric == "gap" else [])]
    found = [data.accuracies(setting, k).get(model) for setting in settings]
    known = [value for value in found if value is not None]
    if len(known) < len(found):
        raise NoDataError("predictions of models that were not released")
    return known[1] - known[0] if row.metric == "gap" else known[0]


@claim("004.ranks_from_images", of=lambda: _rows(tuple(FULL), "rank", "rank change"))
def ranks_from_images(row: _Row, data: Data) -> int:
    new, metric, *_ = FULL[row.table]
    k = 5 if metric == "top5" else 1
    printed = {model for model, setting in _printed(row.table) if setting == new}

    def rank(setting: str) -> int:
        found = _all_of(printed, data.accuracies(setting, k))
        return sorted(found, key=lambda model: (-found[model], model)).index(row.model) + 1

    return rank(row.setting) if row.metric == "rank" else rank(original_of(new)) - rank(new)


claim_missing("004")
