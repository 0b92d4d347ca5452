"""Corruptions by model: heat maps with the number in every cell, curves over severity; and further heat maps."""

from __future__ import annotations

from collections.abc import Sequence
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
from shiftbench.studies.fits import Correlation

__all__ = ["confusion", "correlations", "corruptions", "error_map", "error_map_of_run", "heatmap", "severity_grid"]

#: Height of a row of a heat map, in points; its names take at most this share of the width.
_ROW, _NAMES = 9.5, 0.4
#: Width and height of a panel of curves in centimetres.
_PANEL, _TALL = 2.9, 2.6


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
    known = values[np.isfinite(values)]
    if not known.size:
        raise StudyError("no corruption error to draw", found="; ".join(errors.notes) or None)
    texts = [[formatting.number(value, 0 if value >= 99.95 else 1, "") for value in row] for row in values]
    norm = Normalize(0.0, max(100.0, float(known.max())))
    return _map(
        values, texts, names, [column.replace("_", " ") for column in errors.columns], colormaps["YlOrBr"], norm,
        hidden=~np.isfinite(values), width=width, notes=[f"{errors.what}, %", *errors.notes], show_notes=show_notes,
        apart=1,
    )  # fmt: skip


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
    counts, of = confusion_counts(predictions), predictions.valid.sum()
    if not of:
        raise StudyError(f"no image of {predictions.setting!r} counts for {predictions.classifier}")
    wrong = counts - np.diag(np.diag(counts))
    mistakes = wrong.sum(axis=0) + wrong.sum(axis=1)
    used = np.flatnonzero(counts.sum(axis=0) + counts.sum(axis=1))
    shown = np.sort(used[np.argsort(-mistakes[used], kind="stable")[:most]])
    totals = counts.sum(axis=1)[shown, None]
    values = 100 * counts[np.ix_(shown, shown)] / np.maximum(totals, 1)
    texts = [[formatting.number(value, 0 if value >= 9.95 else 1, "") if value else "" for value in row]
             for row in values]  # fmt: skip
    names = [predictions.space.names[i] for i in shown]
    notes = [
        f"{predictions.classifier} in {predictions.setting}: rows are labels, columns predictions, % of the label's "
        f"images; {formatting.count(int(wrong.sum()))} of {formatting.count(int(of))} images are misclassified",
        *([f"the {len(shown)} of {len(used)} classes with the most mistakes"] if len(shown) < len(used) else []),
    ]
    return _map(
        values, texts, names, names, colormaps["YlOrBr"], Normalize(0.0, 100.0), hidden=values == 0, width=width,
        notes=notes, show_notes=show_notes,
    )  # fmt: skip


@in_style
def correlations(
    pairs: Sequence[tuple[str, str, Correlation]],
    *,
    rank: bool = False,
    width: str | float = "single",
    show_notes: bool = True,
) -> PaperFigure:
    """Every synthetic measure (rows) against every natural one (columns), as ``Study.correlations`` gives them.

    Pearson's r, or with ``rank`` Spearman's. A cell whose interval holds 0 is grey: there a correlation of either
    sign, or none, is possible.

    Args:
        pairs: (synthetic measure, natural measure, correlation).
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
    for first, second, one in pairs:
        at = rows.index(first), columns.index(second)
        values[at] = one.spearman if rank else one.pearson
        ends = one.spearman_interval if rank else one.pearson_interval
        unsure[at] = ends is None or ends.low <= 0.0 <= ends.high
    texts = [[formatting.number(value, 2, "", signed=True) for value in row] for row in values]
    counts = sorted({one.n for _, _, one in pairs})
    models = f"{counts[0]} models" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} models"
    notes = [
        f"{'rank' if rank else 'Pearson'} correlation of effective robustness over {models} outside the baseline",
        f"grey: the {formatting.level_text(pairs[0][2].level)} interval holds 0",
    ]
    return _map(
        values, texts, rows, columns, colormaps["RdBu"], TwoSlopeNorm(0.0, -1.0, 1.0), hidden=unsure, width=width,
        notes=notes, show_notes=show_notes,
    )  # fmt: skip


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
    names = [shortened(name, _NAMES * points, SMALL) for name in rows]
    cell = (points - max(style.text_width(name, SMALL) for name in names) - 14) / len(columns)
    widest = max(style.text_width(text, SMALL) for row in texts for text in row)
    size = min(SMALL, SMALL * (cell - 2) / widest)
    if size < 4.0:
        raise StudyError(
            "the columns are too narrow for their numbers",
            found=f"{len(texts[0])} columns",
            hint=f"a wider figure ({argument('width', 'double')}, or centimetres), or fewer columns",
        )
    heads = [shortened(name, 90.0, SMALL) for name in columns]
    tallest = max(style.text_width(head, SMALL) for head in heads)
    figure = new_figure(width, (len(rows) * _ROW + tallest + 16) / 72 / style.CM, notes, show_notes=show_notes)
    axes = figure.add_subplot()
    shown = np.ma.masked_array(np.nan_to_num(values), mask=hidden)
    axes.set_facecolor("#F2F2F2")
    axes.grid(visible=False)
    # Squares as vectors, not an image: sharp at any size.
    axes.pcolormesh(shown, cmap=colours, norm=norm, edgecolors="white", linewidth=0.4)
    axes.set_ylim(len(rows), 0)
    behind = colours(norm(shown.filled(0.0)))
    for i, row in enumerate(texts):
        for j, text in enumerate(row):
            # Black or white numbers, whichever stands out; grey where the cell is.
            dark = float(behind[i, j, :3] @ [0.299, 0.587, 0.114]) < 0.5
            colour = GREY if hidden[i, j] else "white" if dark else style.BLACK
            axes.text(j + 0.5, i + 0.5, text, ha="center", va="center_baseline", fontsize=size, color=colour)
    axes.set_yticks(np.arange(len(rows)) + 0.5, names)
    axes.set_xticks(np.arange(len(columns)) + 0.5, heads, rotation=90)
    axes.tick_params(length=0, labelsize=SMALL, labeltop=True, labelbottom=False)
    axes.spines[:].set_visible(False)
    if apart:
        axes.axvline(apart, color=style.BLACK, linewidth=0.8)
    return finish(figure)


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
    rows, columns, side = style.panel_grid(len(grid.corruptions), width, _PANEL)
    notes = [f"severity 0: {grid.clean_setting}"] if grid.clean is not None else []
    if grid.missing:
        notes.append(f"not drawn, a value is missing: {listed(grid.missing)}")
    figure = new_figure(width, rows * _TALL + 1.3, notes, show_notes=show_notes)
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
        left, bottom = number % columns == 0, number + columns >= len(grid.corruptions)
        axes.tick_params(labelleft=left, labelbottom=bottom)
        axes.set_ylabel("accuracy (%)" if left else "")
        axes.set_xlabel("severity" if bottom else "")
    assert first is not None
    ends = [grid.low, grid.high, *([grid.clean.every] if grid.clean is not None else [])]
    lowest = 100 * min(float(np.nanmin(part)) for part in ends)
    highest = 100 * max(float(np.nanmax(part)) for part in ends)
    first.set_ylim(max(-2.0, lowest - 3), min(102.0, highest + 3))
    step = next((step for step in (20, 10, 5) if highest - lowest > 2 * step), 2)
    first.set_yticks([tick for tick in range(0, 101, step) if lowest - 3 <= tick <= highest + 3])
    severities = [*([0] if grid.clean is not None else []), *grid.severities]
    first.set_xticks(severities)
    first.set_xlim(severities[0] - 0.3, severities[-1] + 0.3)
    style.add_legend(figure, [Line2D([], [], **_line_style(i, 3.0)) for i in range(len(grid.models))], grid.models)
    return finish(figure)


def _curve(grid: SeverityGrid, model: int, corruption: int) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Severity, accuracy, low and high of the points that are there."""
    x = np.array(grid.severities, dtype=np.float64)
    columns = [part[model, corruption] for part in (grid.accuracy, grid.low, grid.high)]
    if grid.clean is not None:
        x = np.append(0.0, x)
        without = (grid.clean.value, grid.clean.low, grid.clean.high)
        columns = [np.append(clean[model], part) for clean, part in zip(without, columns, strict=True)]
    known = np.isfinite(columns[0])
    return x[known], columns[0][known], columns[1][known], columns[2][known]


def _line_style(i: int, size: float) -> dict[str, Any]:
    return {
        "color": COLOURS[i],
        "linestyle": style.DASHES[i],
        "marker": style.MARKS[i],
        "markersize": size,
        "linewidth": 0.9,
    }
