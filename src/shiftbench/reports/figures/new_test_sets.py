"""An original test set and a new one (004): ranks, accuracies, selection frequencies, and the review's revisions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from shiftbench.arrays import FloatArray
from shiftbench.errors import listed
from shiftbench.reports import formatting
from shiftbench.reports.accuracy_grids import AccuracyIntervals
from shiftbench.reports.figures import style
from shiftbench.reports.figures.axes import PercentAxis, frame_axes, name_points, ring
from shiftbench.reports.figures.style import BLUE, COLOURS, PaperFigure, add_legend, finish, in_style, new_figure
from shiftbench.reports.study_tables import bin_text
from shiftbench.studies.base import StudyError, get_scale, whole
from shiftbench.studies.reproducibility import BinnedAccuracies, Reproducibility

#: Models that are named: those that won or lost most places.
_MAX_MOVERS = 4
#: Colour and mark by the sign of the change in rank.
_BY_CHANGE = {0: (BLUE, "o"), 1: (style.GREEN, "^"), -1: (style.VERMILION, "v")}
#: Bins from rare to frequent, light to dark: an order that also prints in grey.
_BIN_COLOURS = "viridis_r"


@in_style
def rank(
    result: Reproducibility,
    original: str,
    new: str,
    *,
    named: Sequence[str] | None = None,
    width: str | float = "double",
    show_notes: bool = True,
) -> PaperFigure:
    """Accuracy and rank on the original test set against the new one.

    Left, accuracies with their Clopper-Pearson intervals: how far the points lie below y = x is the drop. Right,
    ranks: on the diagonal the order is the same.

    Args:
        result: The comparison of both test sets.
        original: Name of the original test set.
        new: Name of the new test set.
        named: Models to name; default: those whose rank changed most.
        width: ``"single"`` (8.5 cm), ``"double"`` (17.5 cm), or centimetres.
        show_notes: Whether the notes are printed below the figure.
    """
    narrow = style.width_in_cm(width) < 12
    side = style.width_in_cm(width) if narrow else style.width_in_cm(width) / 2
    times = 100 / whole(result.unit)
    notes = [
        f"{formatting.level_text(result.level)} intervals; mean change {result.mean_change * times:+.1f} points",
        *result.notes,
    ]
    figure = new_figure(width, (2 if narrow else 1) * side * 0.9 + 0.6, notes, show_notes=show_notes)
    grid = (2, 1) if narrow else (1, 2)
    accuracy_axes = figure.add_subplot(*grid, 1)
    rank_axes = figure.add_subplot(*grid, 2)
    accuracy_points = _accuracies(accuracy_axes, result, original, new, side)
    rank_points = _ranks(rank_axes, result)
    handles = [style.legend_mark(colour, mark) for colour, mark in _BY_CHANGE.values()]
    handles.append(Line2D([], [], **style.DIAGONAL))
    add_legend(figure, handles, ["same rank", "places won", "places lost", "y = x"])
    finish(figure)
    names = _movers(result) if named is None else list(named)
    index_of = {row.model: index for index, row in enumerate(result.rows)}
    unknown = [name for name in names if name not in index_of]
    if unknown:
        raise StudyError("no model of that name has both accuracies", found=listed(unknown), expected=listed(index_of))
    for axes, points in ((accuracy_axes, accuracy_points), (rank_axes, rank_points)):
        named_points = []
        for name in names:
            x, y = points[index_of[name]]
            named_points.append((float(x), float(y), name))
        ring(axes, named_points)
        style.without_room(figure, name_points(axes, named_points, points))
    return figure


def _movers(result: Reproducibility) -> list[str]:
    """The models whose rank changed most."""
    moved = [row for row in result.rows if row.rank_change]
    moved.sort(key=lambda row: -abs(row.rank_change))
    return [row.model for row in moved[:_MAX_MOVERS]]


def _accuracies(axes: Axes, result: Reproducibility, original: str, new: str, side_cm: float) -> FloatArray:
    """Draw the accuracies; (models, 2) positions of the points."""
    scale = get_scale("linear")
    unit = whole(result.unit)
    # Columns of value and interval ends, one row per model.
    on_original = np.array([(row.original, row.original_low, row.original_high) for row in result.rows]) / unit
    on_new = np.array([(row.new, row.new_low, row.new_high) for row in result.rows]) / unit
    x = AccuracyIntervals(*on_original.T)
    y = AccuracyIntervals(*on_new.T)
    x_axis = PercentAxis.around(scale, x.every)
    y_axis = PercentAxis.around(scale, y.every)
    frame_axes(axes, x_axis, y_axis, (original, new), side_cm, 9)
    low = min(x_axis.low, y_axis.low)
    high = max(x_axis.high, y_axis.high)
    axes.plot([low, high], [low, high], **style.DIAGONAL)
    axes.errorbar(
        x.value,
        y.value,
        xerr=np.abs(np.stack([x.low, x.high]) - x.value),
        yerr=np.abs(np.stack([y.low, y.high]) - y.value),
        fmt="none",
        ecolor=style.GREY,
        elinewidth=0.4,
        alpha=0.6,
    )
    _by_change(axes, result, x.value, y.value)
    return np.column_stack([x.value, y.value])


def _ranks(axes: Axes, result: Reproducibility) -> FloatArray:
    """Draw the ranks; (models, 2) positions of the points."""
    ranks = np.array([(row.rank, row.new_rank) for row in result.rows], dtype=np.float64)
    count = len(ranks)
    axes.plot([1, count], [1, count], **style.DIAGONAL)
    _by_change(axes, result, ranks[:, 0], ranks[:, 1])
    margin = 0.03 * count + 0.5
    # The best is at the top right, as on the left.
    limits = (count + margin, 1 - margin)
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if count / step <= 7)
    ticks = [1, *(n for n in range(step, count + 1, step) if n > 1)]
    axes.set(xlim=limits, ylim=limits, xticks=ticks, yticks=ticks, xlabel="original rank", ylabel="new rank")
    return ranks


def _by_change(axes: Axes, result: Reproducibility, x: FloatArray, y: FloatArray) -> None:
    """Draw the points, with colours and marks for models that won or lost places."""
    signs = np.sign([row.rank_change for row in result.rows])
    for sign, (colour, mark) in _BY_CHANGE.items():
        rows = signs == sign
        axes.scatter(x[rows], y[rows], s=12, color=colour, marker=mark, edgecolor="white", linewidth=0.25, zorder=3)


@in_style
def bins(
    binned: BinnedAccuracies,
    setting: str,
    *,
    original: Mapping[str, float] | BinnedAccuracies | None = None,
    original_setting: str = "",
    width: str | float = "single",
    show_notes: bool = True,
) -> PaperFigure:
    """Accuracy by how many people selected the images.

    One line per model and their mean with its interval, over the bins. With ``original``, the models' accuracies on
    another test set as fractions, one point per model and bin against these (004 figures 15 to 17).

    Args:
        binned: Accuracies by bin.
        setting: Name of the setting, for the axis.
        original: Accuracies of the models on another test set, as fractions; or these by bin, too (004 figure 17).
        original_setting: Its name, for the axis.
        width: ``"single"`` (8.5 cm), ``"double"`` (17.5 cm), or centimetres.
        show_notes: Whether the notes are printed below the figure.
    """
    last_bin = binned.mean[-1]
    empty = [bin_text(each, last=each is last_bin) for each in binned.mean if not each.images]
    notes = list(binned.notes)
    if empty:
        notes.insert(0, f"no images in {', '.join(empty)}")
    figure = new_figure(width, 0.75 * style.width_in_cm(width) + 0.5, notes, show_notes=show_notes)
    axes = figure.add_subplot()
    if original is None:
        _over_bins(figure, axes, binned)
    else:
        _against(figure, axes, binned, original)
        axes.set_xlabel(style.axis_label(original_setting, 0.78 * style.width_in_cm(width) * style.CM * 72))
    axes.set_ylabel(style.axis_label(setting, 0.55 * style.width_in_cm(width) * style.CM * 72))
    return finish(figure)


def _over_bins(figure: PaperFigure, axes: Axes, binned: BinnedAccuracies) -> None:
    """Draw a line per model over the bins that hold images, and the mean of the models with its interval in black."""
    filled = [i for i, mean in enumerate(binned.mean) if mean.images]
    lines = {}
    for model, accuracies in binned.by_model.items():
        lines[model] = np.array([(i, accuracies[i].accuracy or 0.0) for i in filled])
    handles, labels = _model_lines(axes, lines)
    if len(binned.by_model) > 1:
        means = [binned.mean[i] for i in filled]
        y = [100 * (mean.accuracy or 0.0) for mean in means]
        low = [100 * (mean.low or 0.0) for mean in means]
        high = [100 * (mean.high or 0.0) for mean in means]
        mean_line = axes.errorbar(
            filled,
            y,
            yerr=np.abs(np.array([low, high]) - y),
            color=style.BLACK,
            marker="o",
            markersize=4,
            linewidth=1.4,
            capsize=2,
            zorder=4,
        )
        handles.append(mean_line)
        labels.append("mean")
    last_bin = binned.mean[-1]
    texts = [f"{bin_text(mean, last=mean is last_bin)}\nn = {mean.images:,}" for mean in binned.mean]
    axes.set_xticks(range(len(binned.mean)), texts)
    axes.set(xlim=(-0.3, len(binned.mean) - 0.7), ylim=(0, 100), xlabel="selection frequency")
    add_legend(figure, handles, labels)


def _model_lines(axes: Axes, models: Mapping[str, FloatArray]) -> tuple[list[object], list[str]]:
    """A line per model, in grey if there are more than colours; what the legend shows of them.

    A row is a point: its position and its accuracy, and, if it is to be drawn, its interval. The lines of models with
    intervals are drawn beside each other.
    """
    if len(models) > len(COLOURS):
        for points in models.values():
            axes.plot(points[:, 0], 100 * points[:, 1], color=style.GREY, linewidth=0.4, alpha=0.6)
        return [Line2D([], [], color=style.GREY, linewidth=0.6)], [f"{len(models)} models"]
    handles: list[object] = []
    for number, points in enumerate(models.values()):
        x = points[:, 0]
        y = 100 * points[:, 1]
        interval = 100 * points[:, 2:].T
        if len(interval):
            x = x + 0.3 * ((number + 0.5) / len(models) - 0.5)
        colour = COLOURS[number]
        handles += axes.plot(x, y, color=colour, marker=style.MARKS[number], markersize=3, linewidth=0.8)
        if len(interval):
            axes.errorbar(x, y, yerr=np.abs(interval - y), fmt="none", ecolor=colour, elinewidth=0.6)
    return handles, list(models)


@in_style
def revisions(
    accuracies: Mapping[str, Mapping[str, Sequence[Sequence[float]]]],
    changed: Mapping[str, int],
    *,
    level: float = 0.95,
    width: str | float = "double",
    show_notes: bool = True,
) -> PaperFigure:
    """Did the review make a set easier or harder? Accuracy by revision (004 figure 7).

    One panel per metric with one line per model, and a panel with the number of images that each revision replaced.

    Args:
        accuracies: By metric (``"top-1"``) and model, for each revision: accuracy, lower and upper end of its interval.
        changed: By name of the revision, oldest first: images that the previous one does not have; the first is not
            shown.
        level: Confidence level of the intervals.
        width: ``"single"`` (8.5 cm), ``"double"`` (17.5 cm), or centimetres.
        show_notes: Whether the notes are printed below the figure.
    """
    rows, columns, side = style.panel_grid(len(accuracies) + 1, width, 5.8)
    positions = np.arange(len(changed))
    many = max(map(len, accuracies.values())) > len(COLOURS)
    notes = [] if many else [f"{formatting.level_text(level)} intervals"]
    figure = new_figure(width, rows * 0.85 * side + 0.6, notes, show_notes=show_notes)
    handles: list[object] = []
    labels: list[str] = []
    for number, (metric, models) in enumerate(accuracies.items(), 1):
        axes = figure.add_subplot(rows, columns, number, ylabel=f"{metric} accuracy (%)")
        lines = {model: np.column_stack([positions, intervals]) for model, intervals in models.items()}
        handles, labels = _model_lines(axes, lines)
        if many:
            mean = 100 * np.mean([np.array(intervals)[:, 0] for intervals in models.values()], axis=0)
            handles += axes.plot(positions, mean, color=style.BLACK, marker="o", linewidth=1.4)
            labels += ["mean"]
    axes = figure.add_subplot(rows, columns, len(accuracies) + 1, ylabel="images changed")
    axes.bar(positions[1:], list(changed.values())[1:], color=style.GREY, width=0.6)
    axes.locator_params(axis="y", integer=True)
    tick_step = math.ceil(len(changed) / 12)
    for axes in figure.axes:
        axes.set(xlim=(-0.5, len(positions) - 0.5), xlabel="revision")
        axes.set_xticks(positions[::tick_step], list(changed)[::tick_step])
    add_legend(figure, handles, labels)
    return finish(figure)


def _against(
    figure: PaperFigure, axes: Axes, binned: BinnedAccuracies, original: Mapping[str, float] | BinnedAccuracies
) -> None:
    """Draw a point per model and bin: its accuracy in the bin, over its accuracy on the original test set."""
    # By model: the accuracy on the original test set that each bin is drawn against.
    accuracies: dict[str, list[float | None]] = {}
    if isinstance(original, BinnedAccuracies):
        for model, model_bins in original.by_model.items():
            accuracies[model] = [frequency_bin.accuracy for frequency_bin in model_bins]
    else:
        for model, accuracy in original.items():
            accuracies[model] = [accuracy] * len(binned.mean)
    models = [model for model in binned.by_model if model in accuracies]
    if not models:
        raise StudyError("no model has both an original accuracy and bins", found=listed(accuracies))
    xs = 100 * np.array([accuracies[model] for model in models], dtype=np.float64)  # (models, bins)
    handles: list[Any] = []
    labels: list[str] = []
    for i, mean in enumerate(binned.mean):
        if not mean.images:
            continue
        colour = colormaps[_BIN_COLOURS](0.1 + 0.85 * i / max(1, len(binned.mean) - 1))
        y = np.array([100 * (binned.by_model[name][i].accuracy or 0.0) for name in models])
        shared: dict[str, Any] = {"color": colour, "marker": style.MARKS[i % len(style.MARKS)]}
        axes.scatter(xs[:, i], y, s=10, edgecolor="white", linewidth=0.25, zorder=3, **shared)
        handles.append(Line2D([], [], linestyle="none", markersize=4, **shared))
        labels.append(f"{bin_text(mean, last=i == len(binned.mean) - 1)}, n = {mean.images:,}")
    margin = 0.05 * float(np.nanmax(xs) - np.nanmin(xs)) or 1.0
    limits = (float(np.nanmin(xs)) - margin, float(np.nanmax(xs)) + margin)
    handles += axes.plot(limits, limits, **style.DIAGONAL)
    labels.append("y = x")
    axes.set_xlim(*limits)
    add_legend(figure, handles, labels)
