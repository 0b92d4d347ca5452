"""Corruptions by model: heat maps with the number in every cell, curves over severity; and further heat maps."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize, TwoSlopeNorm
from matplotlib.lines import Line2D

from shiftbench.arrays import BoolArray, FloatArray
from shiftbench.errors import argument, listed
from shiftbench.reports import formatting
from shiftbench.reports.accuracy_grids import ErrorMap, SeverityGrid, error_map, error_map_of_run, severity_grid
from shiftbench.reports.figures import style
from shiftbench.reports.figures.style import COLOURS, GREY, SMALL, PaperFigure, finish, in_style, new_figure, shortened
from shiftbench.reports.summary import confusion_counts
from shiftbench.store.predictions import Predictions
from shiftbench.studies.base import StudyError
from shiftbench.studies.study import ShiftCorrelation

__all__ = ["confusion", "correlations", "corruptions", "error_map", "error_map_of_run", "heatmap", "severity_grid"]

#: Height of a row of a heat map, in points.
_ROW_HEIGHT = 9.5
#: The names of the rows take at most this share of the width.
_MAX_NAME_SHARE = 0.4
#: Width and height of a panel of curves in centimetres.
_PANEL_WIDTH = 2.9
_PANEL_HEIGHT = 2.6


@in_style
def heatmap(errors: ErrorMap, *, width: str | float = "double", show_notes: bool = True) -> PaperFigure:
    """Corruption errors by model and corruption, in percent; the mean over corruptions stands apart.

    The lowest mean is the first row.

    Args:
        errors: The errors, from ``error_map``.
        width: ``"single"`` (8.5 cm), ``"double"`` (17.5 cm), or centimetres.
        show_notes: Whether the notes are printed below the figure.
    """
    order = np.argsort(np.nan_to_num(errors.values[:, 0], nan=np.inf), kind="stable")
    values = 100 * errors.values[order]
    names = [errors.models[i] for i in order]
    finite = values[np.isfinite(values)]
    if not finite.size:
        raise StudyError("no corruption error to draw", found="; ".join(errors.notes) or None)
    return _map(
        values,
        _cell_texts(values, _error_text),
        names,
        [column.replace("_", " ") for column in errors.columns],
        colormaps["YlOrBr"],
        Normalize(0.0, max(100.0, float(finite.max()))),
        hidden=~np.isfinite(values),
        width=width,
        notes=[f"{errors.what}, %", *errors.notes],
        show_notes=show_notes,
        apart=1,
    )


def _cell_texts(values: FloatArray, write: Callable[[float], str]) -> list[list[str]]:
    return [list(map(write, row)) for row in values]


def _error_text(value: float) -> str:
    """An error that would print as 100.0 loses its decimal, to fit into a cell."""
    return formatting.number(value, 0 if value >= 99.95 else 1, "")


def _share_text(value: float) -> str:
    """Empty cells stay empty, so that mistakes stand out."""
    if not value:
        return ""
    return formatting.number(value, 0 if value >= 9.95 else 1, "")


def _correlation_text(value: float) -> str:
    return formatting.number(value, 2, "", signed=True)


@in_style
def confusion(
    predictions: Predictions, *, most: int = 20, width: str | float = "double", show_notes: bool = True
) -> PaperFigure:
    """The confusion matrix of one model in one setting: labels by predictions, in percent of a label's images.

    Of more than ``most`` classes, those with the most mistakes, as labels or predictions, are drawn.

    Args:
        predictions: Predictions with one label per image.
        most: Largest number of classes to draw.
        width: ``"single"`` (8.5 cm), ``"double"`` (17.5 cm), or centimetres.
        show_notes: Whether the notes are printed below the figure.
    """
    counts = confusion_counts(predictions)
    n_images = predictions.valid.sum()
    if not n_images:
        raise StudyError(f"no image of {predictions.setting!r} counts for {predictions.classifier}")
    wrong = counts - np.diag(np.diag(counts))
    mistakes = wrong.sum(axis=0) + wrong.sum(axis=1)
    used = np.flatnonzero(counts.sum(axis=0) + counts.sum(axis=1))
    drawn = np.sort(used[np.argsort(-mistakes[used], kind="stable")[:most]])
    totals = counts.sum(axis=1)[drawn, None]
    values = 100 * counts[np.ix_(drawn, drawn)] / np.maximum(totals, 1)
    names = [predictions.space.names[i] for i in drawn]
    notes = [
        f"{predictions.classifier} in {predictions.setting}: rows are labels, columns predictions, % of the label's "
        f"images; {formatting.count(int(wrong.sum()))} of {formatting.count(int(n_images))} images are misclassified"
    ]
    if len(drawn) < len(used):
        notes.append(f"the {len(drawn)} of {len(used)} classes with the most mistakes")
    return _map(
        values,
        _cell_texts(values, _share_text),
        names,
        names,
        colormaps["YlOrBr"],
        Normalize(0.0, 100.0),
        hidden=values == 0,
        width=width,
        notes=notes,
        show_notes=show_notes,
    )


@in_style
def correlations(
    pairs: Sequence[ShiftCorrelation],
    *,
    rank: bool = False,
    width: str | float = "single",
    show_notes: bool = True,
) -> PaperFigure:
    """Every synthetic measure (rows) against every natural one (columns), as ``Study.correlations`` gives them.

    Pearson's r, or with ``rank`` Spearman's. A cell whose interval holds 0 is grey: there a correlation of either
    sign, or none, is possible.

    Args:
        pairs: The correlation of each synthetic measure with each natural one.
        rank: Spearman's rank correlation in place of Pearson's.
        width: ``"single"`` (8.5 cm), ``"double"`` (17.5 cm), or centimetres.
        show_notes: Whether the notes are printed below the figure.
    """
    if not pairs:
        raise StudyError("no correlations to draw", expected="at least one pair of measures")
    rows = list(dict.fromkeys(first for first, _, _ in pairs))
    columns = list(dict.fromkeys(second for _, second, _ in pairs))
    values = np.full((len(rows), len(columns)), np.nan)
    unsure = np.ones(values.shape, dtype=bool)
    for first, second, correlation in pairs:
        cell = (rows.index(first), columns.index(second))
        values[cell] = correlation.spearman if rank else correlation.pearson
        interval = correlation.spearman_interval if rank else correlation.pearson_interval
        unsure[cell] = interval is None or interval.low <= 0.0 <= interval.high
    counts = sorted({correlation.n for _, _, correlation in pairs})
    models = f"{counts[0]} models" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} models"
    _, _, any_correlation = pairs[0]
    notes = [
        f"{'rank' if rank else 'Pearson'} correlation of effective robustness over {models} outside the baseline",
        f"grey: the {formatting.level_text(any_correlation.level)} interval holds 0",
    ]
    return _map(
        values,
        _cell_texts(values, _correlation_text),
        rows,
        columns,
        colormaps["RdBu"],
        TwoSlopeNorm(0.0, -1.0, 1.0),
        hidden=unsure,
        width=width,
        notes=notes,
        show_notes=show_notes,
    )


def _map(
    values: FloatArray,
    texts: Sequence[Sequence[str]],
    rows: Sequence[str],
    columns: Sequence[str],
    colours: Colormap,
    norm: Normalize,
    *,
    hidden: BoolArray,
    width: str | float,
    notes: Sequence[str],
    show_notes: bool,
    apart: int = 0,
) -> PaperFigure:
    """Cells with numbers; ``hidden`` ones are grey, the first ``apart`` columns are set off by a line."""
    points = style.width_in_cm(width) * style.CM * 72
    names = [shortened(name, _MAX_NAME_SHARE * points, SMALL) for name in rows]
    cell_width = (points - max(style.text_width(name, SMALL) for name in names) - 14) / len(columns)
    widest = max(style.text_width(text, SMALL) for text in itertools.chain.from_iterable(texts))
    size = min(SMALL, SMALL * (cell_width - 2) / widest)
    if size < 4.0:
        raise StudyError(
            "the columns are too narrow for their numbers",
            found=f"{len(texts[0])} columns",
            hint=f"a wider figure ({argument('width', 'double')}, or centimetres), or fewer columns",
        )
    headings = [shortened(name, 90.0, SMALL) for name in columns]
    tallest = max(style.text_width(heading, SMALL) for heading in headings)
    figure = new_figure(width, (len(rows) * _ROW_HEIGHT + tallest + 16) / 72 / style.CM, notes, show_notes=show_notes)
    axes = figure.add_subplot()
    visible = np.ma.masked_array(np.nan_to_num(values), mask=hidden)
    axes.set_facecolor("#F2F2F2")
    axes.grid(visible=False)
    # Squares are drawn as vectors, not as an image, so that they are sharp at any size.
    axes.pcolormesh(visible, cmap=colours, norm=norm, edgecolors="white", linewidth=0.4)
    axes.set_ylim(len(rows), 0)
    backgrounds = colours(norm(visible.filled(0.0)))
    for i, row in enumerate(texts):
        for j, text in enumerate(row):
            colour = GREY if hidden[i, j] else _readable_on(backgrounds[i, j])
            axes.text(j + 0.5, i + 0.5, text, ha="center", va="center_baseline", fontsize=size, color=colour)
    axes.set_yticks(np.arange(len(rows)) + 0.5, names)
    axes.set_xticks(np.arange(len(columns)) + 0.5, headings, rotation=90)
    axes.tick_params(length=0, labelsize=SMALL, labeltop=True, labelbottom=False)
    axes.spines[:].set_visible(False)
    if apart:
        axes.axvline(apart, color=style.BLACK, linewidth=0.8)
    return finish(figure)


def _readable_on(background: FloatArray) -> str:
    """Black or white, whichever stands out from the colour."""
    dark = float(background[:3] @ [0.299, 0.587, 0.114]) < 0.5
    return "white" if dark else style.BLACK


@in_style
def corruptions(grid: SeverityGrid, *, width: str | float = "double", show_notes: bool = True) -> PaperFigure:
    """One line per model with its Clopper-Pearson band; severity 0 is the clean accuracy where it is known.

    All panels share their axes, so that corruptions can be compared, too.

    Args:
        grid: The accuracies, from ``severity_grid``.
        width: ``"single"`` (8.5 cm), ``"double"`` (17.5 cm), or centimetres.
        show_notes: Whether the notes are printed below the figure.
    """
    if len(grid.models) > len(COLOURS):
        raise StudyError(
            "too many models for one figure",
            found=len(grid.models),
            expected=f"{len(COLOURS)} or fewer",
            hint="choose some: -c; in Python, run.select(models=...)",
        )
    rows, columns, side = style.panel_grid(len(grid.corruptions), width, _PANEL_WIDTH)
    notes = [f"severity 0: {grid.clean_setting}"] if grid.clean is not None else []
    if grid.missing:
        notes.append(f"not drawn, a value is missing: {listed(grid.missing)}")
    figure = new_figure(width, rows * _PANEL_HEIGHT + 1.3, notes, show_notes=show_notes)
    first: Axes | None = None
    for number, name in enumerate(grid.corruptions):
        axes = figure.add_subplot(rows, columns, number + 1, sharex=first, sharey=first)
        first = first or axes
        title = shortened(name.replace("_", " "), 0.9 * side * style.CM * 72, SMALL)
        axes.set_title(title, fontsize=SMALL, fontweight="normal", loc="center")
        for i in range(len(grid.models)):
            x, values, low, high = _curve(grid, i, number)
            axes.fill_between(x, 100 * low, 100 * high, color=COLOURS[i], alpha=0.15, linewidth=0)
            axes.plot(x, 100 * values, **_line_style(i, 2.5))
        # Numbers and names only where no other panel has them.
        left = number % columns == 0
        bottom = number + columns >= len(grid.corruptions)
        axes.tick_params(labelleft=left, labelbottom=bottom)
        axes.set_ylabel("accuracy (%)" if left else "")
        axes.set_xlabel("severity" if bottom else "")
    assert first is not None
    _set_limits(first, grid)
    style.add_legend(figure, [Line2D([], [], **_line_style(i, 3.0)) for i in range(len(grid.models))], grid.models)
    return finish(figure)


def _set_limits(axes: Axes, grid: SeverityGrid) -> None:
    """Limits and ticks around all intervals and severities."""
    accuracies = [grid.low, grid.high]
    severities = list(grid.severities)
    if grid.clean is not None:
        accuracies.append(grid.clean.every)
        severities.insert(0, 0)
    lowest = 100 * min(float(np.nanmin(values)) for values in accuracies)
    highest = 100 * max(float(np.nanmax(values)) for values in accuracies)
    axes.set_ylim(max(-2.0, lowest - 3), min(102.0, highest + 3))
    step = next((step for step in (20, 10, 5) if highest - lowest > 2 * step), 2)
    axes.set_yticks([tick for tick in range(0, 101, step) if lowest - 3 <= tick <= highest + 3])
    axes.set_xticks(severities)
    axes.set_xlim(severities[0] - 0.3, severities[-1] + 0.3)


def _curve(grid: SeverityGrid, model: int, corruption: int) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Severity, accuracy, low and high of the points that are there."""
    severities = np.array(grid.severities, dtype=np.float64)
    values = grid.accuracy[model, corruption]
    low = grid.low[model, corruption]
    high = grid.high[model, corruption]
    if grid.clean is not None:
        severities = np.append(0.0, severities)
        values = np.append(grid.clean.value[model], values)
        low = np.append(grid.clean.low[model], low)
        high = np.append(grid.clean.high[model], high)
    finite = np.isfinite(values)
    return severities[finite], values[finite], low[finite], high[finite]


def _line_style(i: int, size: float) -> dict[str, Any]:
    return {
        "color": COLOURS[i],
        "linestyle": style.DASHES[i],
        "marker": style.MARKS[i],
        "markersize": size,
        "linewidth": 0.9,
    }
