"""Errors under corruption against accuracy (002 figures 2 to 4), seen against unseen ones, and bars of scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.ticker import MaxNLocator

from shiftbench.arrays import FloatArray
from shiftbench.errors import argument, check_names, listed
from shiftbench.metrics.base import Score, metrics
from shiftbench.reports import formatting
from shiftbench.reports.accuracy_grids import AccuracyIntervals, SeverityGrid, error_map, family_of_run
from shiftbench.reports.corruption import on_one_axis
from shiftbench.reports.figures import style
from shiftbench.reports.figures.axes import name_points
from shiftbench.reports.figures.scatters import ALL_NAMED
from shiftbench.reports.figures.style import COLOURS, MARKS, PaperFigure, add_legend, finish, in_style, new_figure
from shiftbench.runs.results import StoredResults
from shiftbench.studies.base import StudyError

#: Height of a bar and of the gap between two groups, in points.
_BAR, _GAP = 6.0, 4.0


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
    level: float = 0.95,
) -> ErrorPoints:
    """mCE and relative mCE (mean errors where nothing divides) against accuracy, from stored predictions.

    Args:
        run: The results.
        family: Family of corrupted settings, if there are several.
        baseline: A model to divide by; default: the published AlexNet for ImageNet's classes.
        seen: Corruptions that the models may have seen in training: the x axis is the mean error on them.
        unseen: Corruptions for the y axis then; default: all others.
        level: Confidence level of the intervals.
    """
    one = family_of_run(run, family)
    if seen:
        places = {setting: place[0] for place, setting in one.places.items()}
        chosen = _split(list(dict.fromkeys(places.values())), seen, unseen)
        sides, notes = list[dict[str, Score]](), tuple[str, ...]()
        for wanted in chosen:
            part = replace(one, members=[own for own in one.members if places[own.setting] in wanted])
            scored, lost = on_one_axis(part.scores(None, level=level, paired=False))
            notes += lost
            sides.append({title: scores.mean_error for title, scores, _ in scored})
        both = tuple(title for title in sides[0] if title in sides[1])
        once = tuple(dict.fromkeys(notes))  # a model may lack both sides
        return _seen_points(both, _scores(sides[0], both), _scores(sides[1], both), chosen, once)
    divisor = one.divisor(baseline)
    found, notes = on_one_axis(one.scores(divisor, level=level))
    accuracies = {title: metrics.get("top1")(read, level=level) for title, _, read in found if read is not None}
    models = tuple(accuracies)
    if not models:
        raise StudyError(
            f"no model of {one.name} has an accuracy without corruption",
            hint=f"evaluate {one.clean or 'its reference'}, too",
        )
    by_title = {title: scores for title, scores, _ in found}
    first = found[0][1]
    kept: dict[str, AccuracyIntervals] = {}
    for key in ("mce", "relative_mce") if first.mce else ("mean_error",):
        scores = {title: score for title in models if (score := getattr(by_title[title], key)) is not None}
        if scores:
            kept[next(iter(scores.values())).metric] = _scores(scores, models)
    labels = f"{one.clean} accuracy (%)", f"{next(iter(kept))} (%)"
    notes += f"{formatting.level_text(level)} intervals", *one.comparability(divisor)
    return ErrorPoints(models, _scores(accuracies, models), kept, labels, notes)


def error_points(
    grid: SeverityGrid, baseline: str | None = None, *, seen: Sequence[str] = (), unseen: Sequence[str] = ()
) -> ErrorPoints:
    """The same from a table of results, which has no images to resample: points without intervals in y.

    Args:
        grid: The accuracies with those on clean images, from ``severity_grid``.
        baseline: A model to divide by; default: plain mean errors.
        seen: As in ``error_points_of_run``.
        unseen: As in ``error_points_of_run``.
    """
    if seen:
        chosen = _split(list(grid.corruptions), seen, unseen)
        at = [[grid.corruptions.index(name) for name in names] for names in chosen]
        x, y = (_exact(100 * (1 - grid.accuracy[:, columns].mean(axis=(1, 2)))) for columns in at)
        return _seen_points(grid.models, x, y, chosen)
    if grid.clean is None:
        raise StudyError("no accuracy without corruption", hint=f"name its setting: {argument('clean')}")
    errors = error_map(grid, baseline)
    series = {errors.columns[0]: _exact(100 * errors.values[:, 0])}
    if baseline is not None:
        rise = (grid.clean.value[:, None] - grid.accuracy.mean(axis=2))[:, grid.averaged]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = rise / rise[grid.models.index(baseline)]
        series[grid.mean_name("relative CE")] = _exact(100 * ratios.mean(axis=1))
    x = AccuracyIntervals(100 * grid.clean.value, 100 * grid.clean.low, 100 * grid.clean.high)
    labels = (f"{grid.clean_setting} accuracy (%)", f"{errors.columns[0]} (%)")
    return ErrorPoints(grid.models, x, series, labels, errors.notes)


def _split(known: Sequence[str], seen: Sequence[str], unseen: Sequence[str]) -> tuple[list[str], list[str]]:
    check_names("corruption", (*seen, *unseen), known)
    others = list(unseen) or [name for name in known if name not in seen]
    if not others or set(seen) & set(others):
        raise StudyError("seen and unseen corruptions must differ", found=listed(set(seen) & set(others) or seen))
    return list(seen), others


def _seen_points(
    models: tuple[str, ...], x: AccuracyIntervals, y: AccuracyIntervals, chosen: tuple[list[str], list[str]],
    remarks: tuple[str, ...] = (),
) -> ErrorPoints:  # fmt: skip
    notes = [f"{which}: {listed([name.replace('_', ' ') for name in names], 6)}"
             for which, names in zip(("seen", "unseen"), chosen, strict=True)]  # fmt: skip
    labels = ("mean error on seen corruptions (%)", "mean error on unseen corruptions (%)")
    return ErrorPoints(models, x, {"models": y}, labels, (*notes, *remarks), diagonal=True)


def _scores(scores: Mapping[str, Score], models: Sequence[str]) -> AccuracyIntervals:
    parts = [[100 * getattr(scores[name], key) if name in scores else np.nan for name in models]
             for key in ("value", "low", "high")]  # fmt: skip
    return AccuracyIntervals(*(np.array(part) for part in parts))


def _exact(values: FloatArray) -> AccuracyIntervals:
    return AccuracyIntervals(values, values, values)


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
    wanted = named or (points.models if len(points.models) <= ALL_NAMED else ())
    usable = np.isfinite(points.x.value) & np.any([np.isfinite(one.value) for one in points.series.values()], axis=0)
    if not usable.any():
        raise StudyError("no model has all numbers of the figure", found="; ".join(points.notes) or None)
    lost = [name for name, here in zip(points.models, usable, strict=True) if not here]
    notes = [*points.notes, *([f"not shown, a number is missing: {listed(lost)}"] if lost else [])]
    figure = new_figure(width, 0.8 * style.width_in_cm(width) + 0.5, notes, show_notes=show_notes)
    axes = figure.add_subplot()
    axes.set(xlabel=points.labels[0], ylabel=points.labels[1])
    drawn = []
    for number, one in enumerate(points.series.values()):
        here = usable & np.isfinite(one.value)
        x, y = points.x.where(here), one.where(here)
        bars = [np.abs(np.stack([side.low, side.high]) - side.value) for side in (x, y)]
        axes.errorbar(x.value, y.value, xerr=bars[0], yerr=bars[1], fmt="none", ecolor=COLOURS[number], elinewidth=0.6)
        axes.scatter(x.value, y.value, s=16, color=COLOURS[number], marker=MARKS[number], edgecolor="white",
                     linewidth=0.3, zorder=3)  # fmt: skip
        names = [name for name, shown in zip(points.models, here, strict=True) if shown]
        drawn += [(float(a), float(b), name) for a, b, name in zip(x.value, y.value, names, strict=True)]
    if points.diagonal:
        ends = [min(axes.get_xlim()[0], axes.get_ylim()[0]), max(axes.get_xlim()[1], axes.get_ylim()[1])]
        axes.plot(ends, ends, **style.DIAGONAL, zorder=1)
        axes.set(xlim=ends, ylim=ends)
    axes.margins(0.08)
    if len(points.series) > 1:
        add_legend(
            figure, [style.legend_mark(COLOURS[i], MARKS[i]) for i in range(len(points.series))], list(points.series)
        )
    # Ticks depend on the size of the axes, and the layout on the ticks: they are fixed first.
    limits = axes.get_xlim(), axes.get_ylim()
    for axis, (low, high) in zip((axes.xaxis, axes.yaxis), limits, strict=True):
        axis.set_ticks([tick for tick in MaxNLocator(6).tick_values(low, high) if low <= tick <= high])
    finish(figure)
    first = {name: (x, y, name) for x, y, name in reversed(drawn)}  # a model's point in its first series
    unnamed = name_points(axes, [first[name] for name in wanted if name in first], np.array([p[:2] for p in drawn]))
    return style.without_room(figure, unnamed)


@in_style
def bars(
    entries: Sequence[tuple[str, str, Score]], *, width: str | float = "single", show_notes: bool = True
) -> PaperFigure:
    """One bar per model and score with its interval, as 003 shows ImageNet-A accuracy and ImageNet-O AUPR.

    Args:
        entries: (model, setting, score), as ``Run.scores`` gives them; models in the order of the first score.
        width: ``"single"`` (8.5 cm), ``"double"`` (17.5 cm), or centimetres.
        show_notes: Whether the notes are printed below the figure.
    """
    models = list(dict.fromkeys(model for model, _, _ in entries))
    kinds = list(dict.fromkeys((setting, score.metric) for _, setting, score in entries))
    units = {score.unit for _, _, score in entries}
    if not entries or len(kinds) > len(COLOURS) or len(units) > 1:
        raise StudyError(
            "these scores can't share one axis",
            found=f"{len(kinds)} kinds of scores, {len(units)} units",
            expected=f"1 to {len(COLOURS)} kinds of one unit",
            hint=f"choose: {argument('settings', flag='-s')}, {argument('metric', flag='-m')}",
        )
    found = {(model, setting, score.metric): score for model, setting, score in entries}
    first = {model: found[model, *kinds[0]].value for model in models if (model, *kinds[0]) in found}
    ranked = sorted(models, key=lambda model: -np.nan_to_num(first.get(model, np.nan), nan=-np.inf))
    one_metric = len({metric for _, metric in kinds}) == 1
    labels = [setting if one_metric else f"{setting}, {metric}" for setting, metric in kinds]
    times, unit = (100.0, " (%)") if units == {"%"} else (1.0, "")
    points = style.width_in_cm(width) * style.CM * 72
    names = [style.shortened(name, 0.4 * points, style.SMALL) for name in ranked]
    levels = sorted({score.level for _, _, score in entries})
    methods = dict.fromkeys(score.method for _, _, score in entries)
    notes = [f"{' and '.join(map(formatting.level_text, levels))} intervals: {listed(methods)}"]
    step = _BAR * len(kinds) + _GAP
    figure = new_figure(width, (step * len(ranked) + 40) / 72 / style.CM, notes, show_notes=show_notes)
    axes = figure.add_subplot()
    axes.grid(visible=False, axis="y")
    handles = []
    for number, kind in enumerate(kinds):
        rows = [(i, score) for i, model in enumerate(ranked) if (score := found.get((model, *kind))) is not None]
        at = np.array([i * step + (number + 0.5) * _BAR for i, _ in rows])
        values, low, high = (times * np.array([getattr(s, key) for _, s in rows]) for key in ("value", "low", "high"))
        errors = np.nan_to_num(np.abs(np.stack([low, high]) - values))
        handles.append(axes.barh(at, values, 0.85 * _BAR, color=COLOURS[number], xerr=errors,
                                 error_kw={"elinewidth": 0.6, "ecolor": style.GREY}))  # fmt: skip
    axes.set_yticks([i * step + len(kinds) * _BAR / 2 for i in range(len(ranked))], names)
    axes.set_ylim(step * len(ranked) - _GAP / 2, -_GAP / 2)
    axes.tick_params(axis="y", length=0)
    what = kinds[0][1] if one_metric else "score"
    axes.set_xlabel(f"{what}{unit}" if len(kinds) > 1 else f"{labels[0]}, {what}{unit}")
    if len(kinds) > 1:
        add_legend(figure, handles, labels)
    return finish(figure)
