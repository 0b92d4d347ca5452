"""004: the two lines, the tables' gaps, ranks and intervals, the average changes; accuracies from images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from functools import cache
from typing import NamedTuple

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


class FullTable(NamedTuple):
    """What one of the full tables is about."""

    #: The new test set.
    setting: str
    #: A prediction is right if the label is among this many classes.
    k: int

    @property
    def metric(self) -> str:
        return f"top{self.k}"


#: The full tables by number.
FULL = {
    "11": FullTable("cifar-10.1-v4", 1),
    "12": FullTable("cifar-10.1-v6", 1),
    "15": FullTable("imagenetv2-matched-frequency", 1),
    "16": FullTable("imagenetv2-matched-frequency", 5),
    "17": FullTable("imagenetv2-threshold-0.7", 1),
    "18": FullTable("imagenetv2-threshold-0.7", 5),
    "19": FullTable("imagenetv2-top-images", 1),
    "20": FullTable("imagenetv2-top-images", 5),
}
#: Images of CIFAR-10.1, of the halves on which discriminators were tested, and of the original test sets and the splits
#: of cross-validation; of ImageNetV2, all have 10,000.
_IMAGES = {
    "cifar-10.1-v4": 2_021,
    "cifar-10.1-v6": 2_000,
    "cifar-10-or-10.1": 800,
    "cifar-10": 10_000,
    **{f"cifar-10.split-{i}": 10_000 for i in range(1, 6)},
    "imagenet": 50_000,
    **{f"imagenet.split-{i}": 50_000 for i in range(1, 6)},
}
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
    """The original test set that a setting belongs to."""
    return "cifar-10" if setting.startswith("cifar") else "imagenet"


@cache
def _printed(table: str, *metrics: str) -> dict[tuple[str, str], _Row]:
    """Numbers of a table by model and setting; by default, the accuracies."""
    metrics = metrics or _ACCURACIES
    return {(row.model, row.setting): row for row in published("004", table) if row.metric in metrics}


def _tables(*tables: str) -> list[_Row]:
    """All printed numbers of these tables."""
    rows = []
    for table in tables:
        rows.extend(published("004", table))
    return rows


def _rows(tables: tuple[str, ...], *metrics: str) -> list[_Row]:
    """The printed numbers of these tables in these metrics."""
    return [row for row in _tables(*tables) if row.metric in metrics]


def _full_table(setting: str, metric: str) -> str:
    """Number of the full table of a setting and a metric."""
    return next(number for number, table in FULL.items() if (table.setting, table.metric) == (setting, metric))


def _lines() -> list[_Row]:
    return [*published("004", "section 3.3"), *published("004", "figure 12")]


def _fitted(setting: str) -> list[str]:
    """The models that the line of a setting goes through."""
    models = [model for model, model_setting in _printed(LINES[setting]) if model_setting == setting]
    return [model for model in models if not model.startswith(_FISHER)]


class PrintedLine(NamedTuple):
    """A line through printed accuracies, and how far their rounding can move its slope and its intercept."""

    fit: Fit
    slope_slack: float
    intercept_slack: float


@cache
def printed_line(setting: str) -> PrintedLine:
    """The line through the printed accuracies of a setting's table."""
    rows = _printed(LINES[setting])
    models = _fitted(setting)
    x = np.array([rows[model, original_of(setting)].value for model in models])
    y = np.array([rows[model, setting].value for model in models])
    line = fit(x, y, models=models, scale="linear", resamples=RESAMPLES, procedure="testbed")
    # Lines after moving every accuracy within its last printed digit, evenly.
    rng = np.random.default_rng(0)
    reach = rows[models[0], setting].rounding
    xs = x + rng.uniform(-reach, reach, (_JITTERS, len(x)))
    ys = y + rng.uniform(-reach, reach, (_JITTERS, len(y)))
    dx = xs - xs.mean(axis=1, keepdims=True)
    slopes = (dx * ys).sum(axis=1) / (dx**2).sum(axis=1)
    intercepts = ys.mean(axis=1) - slopes * xs.mean(axis=1)
    return PrintedLine(line, 3.0 * float(slopes.std()), 3.0 * float(intercepts.std()))


def _coefficient(line: Fit, metric: str, slack: float) -> Recomputed:
    """Slope or intercept with its interval, or one end of it, by the name of a metric such as "slope, lower end"."""
    name, _, side = metric.partition(", ")
    value = getattr(line, name)
    interval = getattr(line, f"{name}_interval")
    if not side:
        return Recomputed(value, slack, interval.low, interval.high)
    return Recomputed(interval.low if side.startswith("lower") else interval.high, slack)


@claim("004.line", of=_lines)
def line(row: _Row, data: Data) -> Recomputed:
    printed = printed_line(row.setting)
    slack = printed.slope_slack if row.metric.startswith("slope") else printed.intercept_slack
    return _coefficient(printed.fit, row.metric, slack)


@claim("004.line_ends", of=lambda: ends_of(_lines()))
def line_ends(row: _Row, data: Data) -> Recomputed:
    recomputed = line(row, data)
    assert isinstance(recomputed, Recomputed)
    return recomputed


@claim("004.line_from_images", of=lambda: [*_lines(), *ends_of(_lines())])
def line_from_images(row: _Row, data: Data) -> Recomputed:
    models = _fitted(row.setting)
    k = FULL[LINES[row.setting]].k
    old = _all_of(models, data.accuracies(original_of(row.setting), k))
    new = _all_of(models, data.accuracies(row.setting, k))
    points = tuple((old[model], new[model]) for model in models)
    return _coefficient(_image_line(points), row.metric, 0.0)


def _all_of(models: Collection[str], accuracies: Mapping[str, float]) -> dict[str, float]:
    """The accuracies of these models; an error if one is missing, which would change a rank, a mean or a line."""
    selected = {model: accuracies[model] for model in models if model in accuracies}
    if len(selected) < len(models):
        raise NoDataError(f"predictions of all {len(models)} models; {len(selected)} are there")
    return selected


@cache
def _image_line(points: tuple[tuple[float, float], ...]) -> Fit:
    """The line through (original, new) accuracies, cached because several numbers are read off each line."""
    return fit(*np.array(points).T, scale="linear", resamples=RESAMPLES, procedure="testbed")


def _changes() -> list[_Row]:
    return [row for row in published("004", "2") if row.metric.endswith("change")]


@claim("004.average_change", of=_changes)
def average_change(row: _Row, data: Data) -> Recomputed:
    table = _full_table(row.setting, row.metric.removesuffix(" change"))
    mean = mean_of(published("004", table, metric="gap"))
    return Recomputed(-mean.value, mean.slack)


@claim("004.average_change_from_images", of=_changes)
def average_change_from_images(row: _Row, data: Data) -> float:
    table = _full_table(row.setting, row.metric.removesuffix(" change"))
    k = FULL[table].k
    # In the order of the table: a mean over a set would have other last digits in every process.
    models = list(dict.fromkeys(model for model, _ in _printed(table)))
    old = _all_of(models, data.accuracies("imagenet", k))
    new = _all_of(models, data.accuracies(row.setting, k))
    return float(np.mean([new[model] - old[model] for model in models]))


@claim("004.span")
def span(row: _Row, data: Data) -> Recomputed:
    hardest, easiest = ("15", "19") if row.metric.startswith("top1") else ("16", "20")
    largest = mean_of(published("004", hardest, metric="gap"))
    smallest = mean_of(published("004", easiest, metric="gap"))
    return Recomputed(largest.value - smallest.value, largest.slack + smallest.slack)


@claim("004.drops")
def drops(row: _Row, data: Data) -> float:
    printed = published("004", LINES[row.setting], metric="gap")
    gaps = [gap.value for gap in printed if not gap.model.startswith(_FISHER)]
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
    table = row.table
    model = row.model
    if row.metric == "rank change":
        printed_ranks = _printed(table, "rank")
        old = printed_ranks[model, original_of(row.setting)]
        new = printed_ranks[model, row.setting]
        return Recomputed(old.value - new.value)
    if table == "1":  # an excerpt of the full tables
        table = "11" if row.setting.startswith("cifar") else "15"
        model = _OTHER_NAMES.get(model, model)
    rank, equals = _table_ranks(table)[model, row.setting]
    return Recomputed(rank, slack=equals)


@cache
def _table_ranks(table: str) -> dict[tuple[str, str], tuple[int, int]]:
    """Rank of every model on both test sets, and how many others have the same printed accuracy."""
    ranks = {}
    for setting in (original_of(FULL[table].setting), FULL[table].setting):
        accuracies = {model: row.value for (model, where), row in _printed(table).items() if where == setting}
        equals = Counter(accuracies.values())
        order = sorted(accuracies, key=lambda model: (-accuracies[model], model))
        for rank, model in enumerate(order, start=1):
            ranks[model, setting] = (rank, equals[accuracies[model]] - 1)
    return ranks


def _with_intervals() -> list[_Row]:
    return _tables("1", "3", "4", "5", *FULL, "13", "14")


@cache
def _value_of_end() -> dict[tuple[str, ...], _Row]:
    """The printed number that each end of an interval belongs to."""
    values: dict[tuple[str, ...], _Row] = {}
    for row in _with_intervals():
        for end in ends_of([row]):
            values[end.table, end.model, end.setting, end.metric] = row
    return values


@claim("004.interval_ends", of=lambda: ends_of(_with_intervals()))
def interval_ends(row: _Row, data: Data) -> Recomputed:
    value = _value_of_end()[row.table, row.model, row.setting, row.metric]
    sizes = _HARDEST if row.table == "3" else _IMAGES
    n = sizes.get(row.setting, 10_000)
    # Both ends move with the accuracy, nearly one to one: as far as it may be off, they may be.
    low, high = clopper_pearson(value.value * n, n)
    return Recomputed(low if "lower" in row.metric else high, value.rounding)


@claim("004.accuracies_from_images", of=lambda: _rows(("1", *FULL), "top1", "top5", "gap"))
def accuracies_from_images(row: _Row, data: Data) -> float:
    if row.table == "1":
        model = _OTHER_NAMES.get(row.model, row.model)
        k = 1
    else:
        model = row.model
        k = FULL[row.table].k
    accuracies = data.accuracies(row.setting, k)
    if row.metric != "gap":
        return _released(model, accuracies)
    original_accuracies = data.accuracies(original_of(row.setting), k)
    return _released(model, original_accuracies) - _released(model, accuracies)


def _released(model: str, accuracies: Mapping[str, float]) -> float:
    if model not in accuracies:
        raise NoDataError("predictions of models that were not released")
    return accuracies[model]


@claim("004.ranks_from_images", of=lambda: _rows(tuple(FULL), "rank", "rank change"))
def ranks_from_images(row: _Row, data: Data) -> int:
    full_table = FULL[row.table]
    new = full_table.setting
    models = {model for model, setting in _printed(row.table) if setting == new}

    def rank(setting: str) -> int:
        accuracies = _all_of(models, data.accuracies(setting, full_table.k))
        return sorted(accuracies, key=lambda model: (-accuracies[model], model)).index(row.model) + 1

    if row.metric == "rank":
        return rank(row.setting)
    return rank(original_of(new)) - rank(new)


claim_missing("004")
