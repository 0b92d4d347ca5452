"""Errors under corruption against accuracy (002 figures 2 to 4), seen against unseen ones, and bars of scores."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from shiftbench.arrays import FloatArray
from shiftbench.errors import argument, check_names, listed
from shiftbench.metrics.base import Score, SettingScore
from shiftbench.metrics.corruption import Baseline
from shiftbench.reports import formatting
from shiftbench.reports.accuracy_grids import AccuracyIntervals, SeverityGrid, divided_name, error_map, family_of_run
from shiftbench.reports.corruption import FamilyResults, on_one_axis
from shiftbench.reports.figures import style
from shiftbench.reports.figures.axes import name_points
from shiftbench.reports.figures.scatters import ALL_NAMED
from shiftbench.reports.figures.style import COLOURS, MARKS, PaperFigure, add_legend, finish, in_style, new_figure
from shiftbench.runs.results import StoredResults, scored_results
from shiftbench.studies.base import StudyError
from shiftbench.studies.models import Models

#: What the y axis is called if accuracies are drawn in place of errors.
_MEAN_ACCURACY = "mean accuracy under corruption"
#: Height of a bar, in points.
_BAR_HEIGHT = 6.0
#: Gap between two groups of bars, in points.
_GROUP_GAP = 4.0


@dataclass(frozen=True)
class ErrorPoints:
    """Models at x, with one or more errors each; all in percent.

    Attributes:
        models: Their names.
        x: Accuracies without corruption, or errors on seen corruptions.
        series: What is drawn against x, by what the legend calls it.
        labels: Labels of both axes.
        notes: What a reader must know.
        diagonal: Whether x and y are the same kind of number.
    """

    models: tuple[str, ...]
    x: AccuracyIntervals
    series: Mapping[str, AccuracyIntervals]
    labels: tuple[str, str]
    notes: tuple[str, ...] = ()
    diagonal: bool = False


def error_points_of_run(
    run: StoredResults,
    family: str | None = None,
    *,
    baseline: str | None = None,
    seen: Sequence[str] = (),
    unseen: Sequence[str] = (),
    accuracy: bool = False,
    level: float = 0.95,
) -> ErrorPoints:
    """mCE and relative mCE (mean errors where nothing divides) against accuracy, from stored predictions.

    Args:
        run: The results.
        family: Family of corrupted settings, if there are several.
        baseline: A model to divide by; default: the published AlexNet for ImageNet's classes.
        seen: Corruptions that the models may have seen in training: the x axis is the mean error on them.
        unseen: Corruptions for the y axis then; default: all others.
        accuracy: Mean accuracy over the corruptions in place of their errors (figure 4 of paper 000).
        level: Confidence level of the intervals.
    """
    results = family_of_run(run, family)
    if seen:
        return _seen_points_of_family(results, seen, unseen, level)
    divisor = None if accuracy else results.divisor(baseline)
    scored, notes = on_one_axis(results.scores(divisor, level=level))
    clean_results = [model.clean for model in scored if model.clean is not None]
    clean_scores = scored_results(run.part(clean_results), "top1", level)
    accuracies = {result.title: score for result, score in clean_scores}
    models = tuple(accuracies)
    if not models:
        raise StudyError(
            f"no model of {results.name} has an accuracy without corruption",
            hint=f"evaluate {results.clean or 'its reference'}, too",
        )
    series: dict[str, AccuracyIntervals] = {}
    for key in ("mce", "relative_mce") if scored[0].scores.mce else ("mean_error",):
        errors: dict[str, Score] = {}
        for model in scored:
            error = getattr(model.scores, key)
            if model.title in accuracies and error is not None:
                errors[model.title] = error
        if errors:
            name = next(iter(errors.values())).metric
            series[name] = _scores(errors, models)
    if accuracy:
        [mean_errors] = series.values()
        series = {_MEAN_ACCURACY: _complement(mean_errors)}
    return ErrorPoints(
        models,
        _scores(accuracies, models),
        series,
        labels=(f"{results.clean} accuracy (%)", f"{next(iter(series))} (%)"),
        notes=(*notes, f"{formatting.level_text(level)} intervals", *results.comparability(divisor)),
    )


def _seen_points_of_family(
    results: FamilyResults, seen: Sequence[str], unseen: Sequence[str], level: float
) -> ErrorPoints:
    corruption_of = {setting: corruption for (corruption, _), setting in results.places.items()}
    sides = _split(list(dict.fromkeys(corruption_of.values())), seen, unseen)
    errors: list[dict[str, Score]] = []
    # A model may lack a corruption of both sides: its note is kept once.
    notes: dict[str, None] = {}
    for side in sides:
        members = [member for member in results.members if corruption_of[member.setting] in side]
        side_results = replace(results, members=members)
        scored, dropped_notes = on_one_axis(side_results.scores(None, level=level, paired=False))
        notes |= dict.fromkeys(dropped_notes)
        errors.append({model.title: model.scores.mean_error for model in scored})
    seen_errors, unseen_errors = errors
    models = tuple(title for title in seen_errors if title in unseen_errors)
    return _seen_points(models, _scores(seen_errors, models), _scores(unseen_errors, models), sides, tuple(notes))


def error_points(
    grid: SeverityGrid,
    baseline: str | None = None,
    *,
    seen: Sequence[str] = (),
    unseen: Sequence[str] = (),
    accuracy: bool = False,
) -> ErrorPoints:
    """The same from a table of results, which has no images to resample: points without intervals in y.

    Args:
        grid: The accuracies with those on clean images, from ``severity_grid``.
        baseline: A model to divide by; default: as in ``error_map``.
        seen: As in ``error_points_of_run``.
        unseen: As in ``error_points_of_run``.
        accuracy: As in ``error_points_of_run``.
    """
    if seen:
        sides = _split(list(grid.corruptions), seen, unseen)
        return _seen_points(grid.models, _mean_error(grid, sides[0]), _mean_error(grid, sides[1]), sides)
    if grid.clean is None:
        raise StudyError("no accuracy without corruption", hint=f"name its setting: {argument('clean')}")
    x = AccuracyIntervals(100 * grid.clean.value, 100 * grid.clean.low, 100 * grid.clean.high)
    clean_label = f"{grid.clean_setting} accuracy (%)"
    if accuracy:
        means = grid.accuracy[:, grid.averaged].mean(axis=(1, 2))
        return ErrorPoints(
            grid.models, x, {_MEAN_ACCURACY: _exact(100 * means)}, (clean_label, f"{_MEAN_ACCURACY} (%)")
        )
    errors = error_map(grid, baseline)
    series = {errors.columns[0]: _exact(100 * errors.values[:, 0])}
    if errors.divisor is not None:
        rise = (grid.clean.value[:, None] - grid.accuracy.mean(axis=2))[:, grid.averaged]
        baseline_clean = _clean_error(grid, baseline, errors.divisor)
        averaged = [grid.corruptions[i] for i in grid.averaged]
        baseline_rise = [errors.divisor.mean(name, grid.severities) - baseline_clean for name in averaged]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = rise / np.array(baseline_rise)
        name = divided_name(grid.mean_name("relative CE"), errors.divisor)
        series[name] = _exact(100 * ratios.mean(axis=1))
    labels = (clean_label, f"{errors.columns[0]} (%)")
    return ErrorPoints(grid.models, x, series, labels, errors.notes)


def _clean_error(grid: SeverityGrid, baseline: str | None, divisor: Baseline) -> float:
    """The error without corruption of the named model of the table, or of the published divisor."""
    if baseline is None or grid.clean is None:
        return divisor.clean_error()
    return 1.0 - float(grid.clean.value[grid.models.index(baseline)])


def _mean_error(grid: SeverityGrid, corruptions: Sequence[str]) -> AccuracyIntervals:
    """The mean error of every model over these corruptions and all severities, in percent."""
    columns = [grid.corruptions.index(name) for name in corruptions]
    return _exact(100 * (1 - grid.accuracy[:, columns].mean(axis=(1, 2))))


def _split(corruptions: Sequence[str], seen: Sequence[str], unseen: Sequence[str]) -> tuple[list[str], list[str]]:
    """The seen and the unseen corruptions, by default all that were not seen."""
    check_names("corruption", (*seen, *unseen), corruptions)
    unseen = list(unseen) or [name for name in corruptions if name not in seen]
    if not unseen or set(seen) & set(unseen):
        raise StudyError("seen and unseen corruptions must differ", found=listed(set(seen) & set(unseen) or seen))
    return list(seen), unseen


def _seen_points(
    models: tuple[str, ...],
    x: AccuracyIntervals,
    y: AccuracyIntervals,
    sides: tuple[list[str], list[str]],
    remarks: tuple[str, ...] = (),
) -> ErrorPoints:
    seen, unseen = sides
    notes = (f"seen: {_corruption_list(seen)}", f"unseen: {_corruption_list(unseen)}", *remarks)
    labels = ("mean error on seen corruptions (%)", "mean error on unseen corruptions (%)")
    return ErrorPoints(models, x, {"models": y}, labels, notes, diagonal=True)


def _corruption_list(corruptions: Sequence[str]) -> str:
    return listed([name.replace("_", " ") for name in corruptions], 6)


def _scores(scores: Mapping[str, Score], models: Sequence[str]) -> AccuracyIntervals:
    """The scores of these models in percent; nan for a model without."""
    value = np.full(len(models), np.nan)
    low = np.full(len(models), np.nan)
    high = np.full(len(models), np.nan)
    for index, model in enumerate(models):
        if model in scores:
            value[index] = 100 * scores[model].value
            low[index] = 100 * scores[model].low
            high[index] = 100 * scores[model].high
    return AccuracyIntervals(value, low, high)


def _exact(values: FloatArray) -> AccuracyIntervals:
    return AccuracyIntervals(values, values, values)


def _complement(errors: AccuracyIntervals) -> AccuracyIntervals:
    """Accuracies in percent from errors; the ends of their intervals change places."""
    return AccuracyIntervals(100 - errors.value, 100 - errors.high, 100 - errors.low)


def size_points(entries: Sequence[SettingScore], models: Models) -> ErrorPoints:
    """Scores of models against their sizes (figure 6 of paper 000).

    Args:
        entries: The scores; each setting and metric becomes a series.
        models: The table of models, whose column ``size`` has millions of parameters.
    """
    sizes: dict[str, float] = {}
    without_size: dict[str, None] = {}
    scores_by_kind: dict[_BarKind, dict[str, Score]] = {}
    for entry in entries:
        size = _millions(models.column(entry.model, "size"))
        if size is None:
            without_size[entry.model] = None
            continue
        sizes[entry.model] = size
        scores_by_kind.setdefault(_BarKind(entry.setting, entry.score.metric), {})[entry.model] = entry.score
    if not sizes:
        raise StudyError(
            "no model has a size",
            found=f"{listed(without_size, 3)} without a number of parameters",
            expected="a table of models with a column `size`, in millions of parameters",
        )
    units = {score.unit for scores in scores_by_kind.values() for score in scores.values()}
    if units != {"%"}:
        raise StudyError("scores in other units than % have no common axis", found=listed(sorted(units)))
    names = tuple(sizes)
    series = {f"{kind.setting}, {kind.metric}": _scores(scores, names) for kind, scores in scores_by_kind.items()}
    notes = []
    if without_size:
        notes.append(f"not shown, of unknown size: {listed(without_size, 6)}")
    y_label = next(iter(series)) if len(series) == 1 else "score"
    labels = ("millions of parameters", f"{y_label} (%)")
    return ErrorPoints(names, _exact(np.array(list(sizes.values()))), series, labels, tuple(notes))


def _millions(text: str) -> float | None:
    """The number of parameters in millions; None for a description, such as "large"."""
    try:
        size = float(text)
    except ValueError:
        return None
    return size if math.isfinite(size) and size > 0 else None


@in_style
def mce(
    points: ErrorPoints, *, named: Sequence[str] = (), width: str | float = "single", show_notes: bool = True
) -> PaperFigure:
    """mCE and relative mCE against accuracy, or errors on unseen corruptions against those on seen ones.

    A model whose mCE falls while its relative mCE does not is more accurate, but not more robust in itself.

    Args:
        points: From ``error_points_of_run`` or ``error_points``.
        named: Models to name; default: all, of a dozen or fewer.
        width: ``"single"`` (8.5 cm), ``"double"`` (17.5 cm), or centimetres.
        show_notes: Whether the notes are printed below the figure.
    """
    check_names("model", named, points.models)
    if not named and len(points.models) <= ALL_NAMED:
        named = points.models
    has_error = np.any([np.isfinite(errors.value) for errors in points.series.values()], axis=0)
    usable = np.isfinite(points.x.value) & has_error
    if not usable.any():
        raise StudyError("no model has all numbers of the figure", found="; ".join(points.notes) or None)
    notes = list(points.notes)
    if not usable.all():
        notes.append(f"not shown, a number is missing: {listed(itertools.compress(points.models, ~usable))}")
    figure = new_figure(width, 0.8 * style.width_in_cm(width) + 0.5, notes, show_notes=show_notes)
    axes = figure.add_subplot()
    axes.set(xlabel=points.labels[0], ylabel=points.labels[1])
    drawn: list[tuple[float, float, str]] = []
    for number, errors in enumerate(points.series.values()):
        finite = usable & np.isfinite(errors.value)
        x = points.x.where(finite)
        y = errors.where(finite)
        _draw_series(axes, x, y, number)
        drawn += zip(x.value.tolist(), y.value.tolist(), itertools.compress(points.models, finite), strict=True)
    if points.diagonal:
        low = min(axes.get_xlim()[0], axes.get_ylim()[0])
        high = max(axes.get_xlim()[1], axes.get_ylim()[1])
        axes.plot([low, high], [low, high], **style.DIAGONAL, zorder=1)
        axes.set(xlim=[low, high], ylim=[low, high])
    axes.margins(0.08)
    if len(points.series) > 1:
        marks = [style.legend_mark(COLOURS[i], MARKS[i]) for i in range(len(points.series))]
        add_legend(figure, marks, list(points.series))
    # Ticks depend on the size of the axes, and the layout on the ticks: they are fixed first.
    limits = axes.get_xlim(), axes.get_ylim()
    for axis, (low, high) in zip((axes.xaxis, axes.yaxis), limits, strict=True):
        axis.set_ticks([tick for tick in MaxNLocator(6).tick_values(low, high) if low <= tick <= high])
    finish(figure)
    # A model is named at its point in its first series, which overwrites the others.
    point_of = {point[2]: point for point in reversed(drawn)}
    obstacles = np.array([(x, y) for x, y, _ in drawn])
    unnamed = name_points(axes, [point_of[name] for name in named if name in point_of], obstacles)
    return style.without_room(figure, unnamed)


def _draw_series(axes: Axes, x: AccuracyIntervals, y: AccuracyIntervals, number: int) -> None:
    """Draw points with their intervals, in the colour and with the mark of the series of this number."""
    axes.errorbar(
        x.value,
        y.value,
        xerr=_bar_lengths(x),
        yerr=_bar_lengths(y),
        fmt="none",
        ecolor=COLOURS[number],
        elinewidth=0.6,
    )
    axes.scatter(
        x.value,
        y.value,
        s=16,
        color=COLOURS[number],
        marker=MARKS[number],
        edgecolor="white",
        linewidth=0.3,
        zorder=3,
    )


def _bar_lengths(values: AccuracyIntervals) -> FloatArray:
    """(2, models): how far the interval reaches below and above the value."""
    return np.abs(np.stack([values.low, values.high]) - values.value)


@in_style
def bars(
    entries: Sequence[SettingScore],
    *,
    chance: Sequence[float] = (),
    width: str | float = "single",
    show_notes: bool = True,
) -> PaperFigure:
    """One bar per model and score with its interval, as 003 shows ImageNet-A accuracy and ImageNet-O AUPR.

    Args:
        entries: Scores as ``Run.scores`` gives them; models in the order of the first setting's score.
        chance: Scores of guessing, as fractions: a dashed line at each.
        width: ``"single"`` (8.5 cm), ``"double"`` (17.5 cm), or centimetres.
        show_notes: Whether the notes are printed below the figure.
    """
    chart = _BarChart.of([SettingScore(*entry) for entry in entries])
    kinds = list(chart.scores_by_kind)
    step = _BAR_HEIGHT * len(kinds) + _GROUP_GAP
    notes = [chart.interval_note()]
    if chance:
        levels = ", ".join(f"{chart.times * level:.1f}" for level in chance)
        notes.append(f"dashed: chance, {levels}")
    figure = new_figure(width, (step * len(chart.models) + 40) / 72 / style.CM, notes, show_notes=show_notes)
    axes = figure.add_subplot()
    axes.grid(visible=False, axis="y")
    for level in chance:
        axes.axvline(chart.times * level, color=style.GREY, linestyle="--", linewidth=0.8, zorder=4)
    handles = []
    for number, scores_by_model in enumerate(chart.scores_by_kind.values()):
        ranks = [rank for rank, model in enumerate(chart.models) if model in scores_by_model]
        positions = np.array(ranks) * step + (number + 0.5) * _BAR_HEIGHT
        rows = []
        for rank in ranks:
            score = scores_by_model[chart.models[rank]]
            rows.append((score.value, score.low, score.high))
        values, low, high = chart.times * np.array(rows).T
        drawn_bars = axes.barh(
            positions,
            values,
            0.85 * _BAR_HEIGHT,
            color=COLOURS[number],
            xerr=np.nan_to_num(np.abs(np.stack([low, high]) - values)),
            error_kw={"elinewidth": 0.6, "ecolor": style.GREY},
        )
        handles.append(drawn_bars)
    width_in_points = style.width_in_cm(width) * style.CM * 72
    names = [style.shortened(model, 0.4 * width_in_points, style.SMALL) for model in chart.models]
    axes.set_yticks([rank * step + len(kinds) * _BAR_HEIGHT / 2 for rank in range(len(names))], names)
    axes.set_ylim(step * len(names) - _GROUP_GAP / 2, -_GROUP_GAP / 2)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(chart.axis_label())
    if len(kinds) > 1:
        add_legend(figure, handles, [chart.label(kind) for kind in kinds])
    return finish(figure)


class _BarKind(NamedTuple):
    """What one bar of every model shows."""

    setting: str
    metric: str


@dataclass(frozen=True)
class _BarChart:
    """The scores of a bar chart: one group of bars per model, one colour per kind."""

    #: The models from top to bottom: the first kind's highest score first, models without one last.
    models: list[str]
    scores_by_kind: dict[_BarKind, dict[str, Score]]
    unit: str

    @classmethod
    def of(cls, entries: Sequence[SettingScore]) -> _BarChart:
        scores_by_kind: dict[_BarKind, dict[str, Score]] = {}
        for entry in entries:
            kind = _BarKind(entry.setting, entry.score.metric)
            scores_by_kind.setdefault(kind, {})[entry.model] = entry.score
        units = {entry.score.unit for entry in entries}
        if not entries or len(scores_by_kind) > len(COLOURS) or len(units) > 1:
            raise StudyError(
                "these scores can't share one axis",
                found=f"{len(scores_by_kind)} kinds of scores, {len(units)} units",
                expected=f"1 to {len(COLOURS)} kinds of one unit",
                hint=f"choose: {argument('settings', flag='-s')}, {argument('metric', flag='-m')}",
            )
        first_scores = next(iter(scores_by_kind.values()))

        def rank(model: str) -> float:
            score = first_scores.get(model)
            return math.inf if score is None or math.isnan(score.value) else -score.value

        models = sorted(dict.fromkeys(entry.model for entry in entries), key=rank)
        return cls(models, scores_by_kind, units.pop())

    @property
    def times(self) -> float:
        """The factor from scores to what the axis shows."""
        return 100.0 if self.unit == "%" else 1.0

    @property
    def one_metric(self) -> bool:
        return len({kind.metric for kind in self.scores_by_kind}) == 1

    def label(self, kind: _BarKind) -> str:
        return kind.setting if self.one_metric else f"{kind.setting}, {kind.metric}"

    def axis_label(self) -> str:
        first_kind = next(iter(self.scores_by_kind))
        quantity = first_kind.metric if self.one_metric else "score"
        if self.unit == "%":
            quantity += " (%)"
        return quantity if len(self.scores_by_kind) > 1 else f"{self.label(first_kind)}, {quantity}"

    def interval_note(self) -> str:
        levels: set[float] = set()
        methods: dict[str, None] = {}
        for scores in self.scores_by_kind.values():
            levels.update(score.level for score in scores.values())
            methods |= dict.fromkeys(score.method for score in scores.values())
        texts = [formatting.level_text(level) for level in sorted(levels)]
        return f"{' and '.join(texts)} intervals: {listed(methods)}"
