"""An original test set and a new one (004): ranks, accuracies, selection frequencies, and the review's revisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from shiftbench.arrays import FloatArray
from shiftbench.errors import listed
from shiftbench.reports import formatting
from shiftbench.reports.figures import style
from shiftbench.reports.figures.axes import PercentAxis, frame_axes, name_points, ring
from shiftbench.reports.figures.style import BLUE, COLOURS, PaperFigure, add_legend, finish, in_style, new_figure
from shiftbench.reports.study_tables import bin_text
from shiftbench.studies.base import StudyError, get_scale, whole
from shiftbench.studies.reproducibility import BinnedAccuracies, Reproducibility

#: Models that are named: those that won or lost most places.
_MOVERS = 4
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
    left, right = (figure.add_subplot(*((2, 1) if narrow else (1, 2)), place) for place in (1, 2))
    accuracy_points = _accuracies(left, result, original, new, side)
    rank_points = _ranks(right, result)
    handles = [*(style.legend_mark(*one) for one in _BY_CHANGE.values()), Line2D([], [], **style.DIAGONAL)]
    add_legend(figure, handles, ["same rank", "places won", "places lost", "y = x"])
    finish(figure)
    movers = sorted((row for row in result.rows if row.rank_change), key=lambda row: -abs(row.rank_change))[:_MOVERS]
    wanted = [row.model for row in movers] if named is None else list(named)
    at = {row.model: i for i, row in enumerate(result.rows)}
    lost = [name for name in wanted if name not in at]
    if lost:
        raise StudyError("no model of that name has both accuracies", found=listed(lost), expected=listed(at))
    for axes, points in ((left, accuracy_points), (right, rank_points)):
        asked = [(float(points[at[name], 0]), float(points[at[name], 1]), name) for name in wanted]
        ring(axes, asked)
        style.without_room(figure, name_points(axes, asked, points))
    return figure


def _accuracies(axes: Axes, result: Reproducibility, original: str, new: str, side_cm: float) -> FloatArray:
    size, scale = whole(result.unit), get_scale("linear")
    columns = {
        name: np.array([getattr(row, name) for row in result.rows]) / size
        for name in ("original", "original_low", "original_high", "new", "new_low", "new_high")
    }
    every = [PercentAxis.around(scale, np.concatenate([columns[n], columns[f"{n}_low"], columns[f"{n}_high"]]))
             for n in ("original", "new")]  # fmt: skip
    frame_axes(axes, every[0], every[1], (original, new), side_cm, 9)
    low, high = (f(*(getattr(axis, end) for axis in every)) for f, end in ((min, "low"), (max, "high")))
    axes.plot([low, high], [low, high], **style.DIAGONAL)
    errors = [np.abs(np.stack([columns[f"{n}_low"], columns[f"{n}_high"]]) - columns[n]) for n in ("original", "new")]
    axes.errorbar(columns["original"], columns["new"], xerr=errors[0], yerr=errors[1], fmt="none", ecolor=style.GREY,
                  elinewidth=0.4, alpha=0.6)  # fmt: skip
    _by_change(axes, result, columns["original"], columns["new"])
    return np.column_stack([columns["original"], columns["new"]])


def _ranks(axes: Axes, result: Reproducibility) -> FloatArray:
    places = np.array([(row.rank, row.new_rank) for row in result.rows], dtype=np.float64)
    count = len(places)
    axes.plot([1, count], [1, count], **style.DIAGONAL)
    _by_change(axes, result, places[:, 0], places[:, 1])
    margin = 0.03 * count + 0.5
    # The best is at the top right, as on the left.
    ends = (count + margin, 1 - margin)
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if count / step <= 7)
    ticks = [1, *(n for n in range(step, count + 1, step) if n > 1)]
    axes.set(xlim=ends, ylim=ends, xticks=ticks, yticks=ticks, xlabel="original rank", ylabel="new rank")
    return places


def _by_change(axes: Axes, result: Reproducibility, x: FloatArray, y: FloatArray) -> None:
    change = np.sign([row.rank_change for row in result.rows])
    for sign, (colour, mark) in _BY_CHANGE.items():
        here = change == sign
        axes.scatter(x[here], y[here], s=12, color=colour, marker=mark, edgecolor="white", linewidth=0.25, zorder=3)


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
    empty = [bin_text(one, last=one is binned.mean[-1]) for one in binned.mean if not one.images]
    notes = [*([f"no images in {', '.join(empty)}"] if empty else []), *binned.notes]
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
    filled = [i for i, one in enumerate(binned.mean) if one.images]
    lines = {name: [(i, found[i].accuracy or 0.0) for i in filled] for name, found in binned.by_model.items()}
    handles, labels = _model_lines(axes, {name: np.array(points) for name, points in lines.items()})
    if len(binned.by_model) > 1:
        mean = [binned.mean[i] for i in filled]
        y = [100 * (one.accuracy or 0.0) for one in mean]
        ends = np.array([[100 * (one.low or 0.0) for one in mean], [100 * (one.high or 0.0) for one in mean]])
        bars = axes.errorbar(filled, y, yerr=np.abs(ends - y), color=style.BLACK, marker="o", markersize=4,
                             linewidth=1.4, capsize=2, zorder=4)  # fmt: skip
        handles.append(bars)
        labels.append("mean")
    texts = [f"{bin_text(one, last=one is binned.mean[-1])}\nn = {one.images:,}" for one in binned.mean]
    axes.set_xticks(range(len(binned.mean)), texts)
    axes.set(xlim=(-0.3, len(binned.mean) - 0.7), ylim=(0, 100), xlabel="selection frequency")
    add_legend(figure, handles, labels)


def _model_lines(axes: Axes, models: Mapping[str, FloatArray]) -> tuple[list[object], list[str]]:
    """A line per model, in grey if there are more than colours; what the legend shows of them.

    A row is a point: place and accuracy, and the ends of its interval if they are to be drawn, beside each other.
    """
    if len(models) > len(COLOURS):
        for found in models.values():
            axes.plot(found[:, 0], 100 * found[:, 1], color=style.GREY, linewidth=0.4, alpha=0.6)
        return [Line2D([], [], color=style.GREY, linewidth=0.6)], [f"{len(models)} models"]
    handles: list[object] = []
    for number, found in enumerate(models.values()):
        x, y, *ends = found.T * [[1], *[[100]] * (found.shape[1] - 1)]
        x = x + (0.3 * ((number + 0.5) / len(models) - 0.5) if ends else 0)
        colour, mark = COLOURS[number], style.MARKS[number]
        handles += axes.plot(x, y, color=colour, marker=mark, markersize=3, linewidth=0.8)
        if ends:
            axes.errorbar(x, y, yerr=np.abs(np.stack(ends) - y), fmt="none", ecolor=colour, elinewidth=0.6)
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
    places, counts, step = np.arange(len(changed)), list(changed.values()), -(-len(changed) // 12)
    many = max(map(len, accuracies.values())) > len(COLOURS)
    notes = [] if many else [f"{formatting.level_text(level)} intervals"]
    figure = new_figure(width, rows * 0.85 * side + 0.6, notes, show_notes=show_notes)
    handles, labels = list[object](), list[str]()
    for number, (metric, models) in enumerate(accuracies.items(), 1):
        axes = figure.add_subplot(rows, columns, number, ylabel=f"{metric} accuracy (%)")
        handles, labels = _model_lines(axes, {m: np.column_stack([places, found]) for m, found in models.items()})
        if many:
            mean = 100 * np.mean([np.array(found)[:, 0] for found in models.values()], axis=0)
            handles += axes.plot(places, mean, color=style.BLACK, marker="o", linewidth=1.4)
            labels += ["mean"]
    axes = figure.add_subplot(rows, columns, len(accuracies) + 1, ylabel="images changed")
    axes.bar(places[1:], counts[1:], color=style.GREY, width=0.6)
    axes.locator_params(axis="y", integer=True)
    for axes in figure.axes:
        axes.set(xlim=(-0.5, len(places) - 0.5), xlabel="revision")
        axes.set_xticks(places[::step], list(changed)[::step])
    add_legend(figure, handles, labels)
    return finish(figure)


def _against(
    figure: PaperFigure, axes: Axes, binned: BinnedAccuracies, original: Mapping[str, float] | BinnedAccuracies
) -> None:
    if isinstance(original, BinnedAccuracies):
        columns = {name: [one.accuracy for one in found] for name, found in original.by_model.items()}
    else:
        columns = {name: [accuracy] * len(binned.mean) for name, accuracy in original.items()}
    models = [name for name in binned.by_model if name in columns]
    if not models:
        raise StudyError("no model has both an original accuracy and bins", found=listed(columns))
    xs = 100 * np.array([columns[name] for name in models], dtype=np.float64)  # (models, bins)
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
    limits = float(np.nanmin(xs)) - margin, float(np.nanmax(xs)) + margin
    handles += axes.plot(limits, limits, **style.DIAGONAL)
    labels.append("y = x")
    axes.set_xlim(*limits)
    add_legend(figure, handles, labels)
