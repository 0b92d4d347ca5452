"""Heat maps with the number in every cell: corruption errors by model, and correlations of robustness."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize, TwoSlopeNorm

from shiftbench.arrays import BoolArray, FloatArray
from shiftbench.reports import formatting
from shiftbench.reports.accuracy_grids import ErrorMap, error_map, error_map_of_run, severity_grid
from shiftbench.reports.figures.style import (
    BLACK,
    CM,
    GREY,
    SMALL,
    PaperFigure,
    finish,
    in_style,
    new_figure,
    shortened,
    text_width,
    width_in_cm,
)
from shiftbench.reports.summary import confusion_counts
from shiftbench.store.predictions import Predictions
from shiftbench.studies.base import StudyError
from shiftbench.studies.fits import Correlation

__all__ = ["confusion", "correlations", "error_map", "error_map_of_run", "heatmap", "severity_grid"]

#: Height of a row, in points.
_ROW = 9.5
#: Names take at most this share of the width.
_NAMES = 0.4


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
    points = width_in_cm(width) * CM * 72
    names = [shortened(name, _NAMES * points, SMALL) for name in rows]
    cell = (points - max(text_width(name, SMALL) for name in names) - 14) / len(columns)
    size = _fitting_size(texts, cell)
    heads = [shortened(name, 90.0, SMALL) for name in columns]
    tallest = max(text_width(head, SMALL) for head in heads)
    height = (len(rows) * _ROW + tallest + 16) / 72 / CM
    figure = new_figure(width, height, notes, show_notes=show_notes)
    axes = figure.add_subplot()
    shown = np.ma.masked_array(np.nan_to_num(values), mask=hidden)
    axes.set_facecolor("#F2F2F2")
    # Squares as vectors, not an image: sharp at any size.
    axes.pcolormesh(shown, cmap=colours, norm=norm, edgecolors="white", linewidth=0.4)
    axes.set_ylim(len(rows), 0)
    _write_cells(axes, texts, colours(norm(shown.filled(0.0))), hidden, size)
    axes.set_yticks(np.arange(len(rows)) + 0.5, names)
    axes.set_xticks(np.arange(len(columns)) + 0.5, heads, rotation=90)
    axes.tick_params(length=0, labelsize=SMALL, labeltop=True, labelbottom=False)
    axes.spines[:].set_visible(False)
    if apart:
        axes.axvline(apart, color=BLACK, linewidth=0.8)
    return finish(figure)


def _fitting_size(texts: Sequence[Sequence[str]], cell: float) -> float:
    """The largest legible size of the numbers; cells too narrow for it are refused."""
    widest = max(text_width(text, SMALL) for row in texts for text in row)
    size = min(SMALL, SMALL * (cell - 2) / widest)
    if size < 4.0:
        raise StudyError(
            "the columns are too narrow for their numbers",
            found=f"{len(texts[0])} columns",
            hint="a wider figure (--width double, or centimetres), or fewer columns",
        )
    return size


def _write_cells(
    axes: Axes, texts: Sequence[Sequence[str]], colours: FloatArray, hidden: BoolArray, size: float
) -> None:
    """Black or white numbers, whichever stands out; grey where the cell is."""
    for i, row in enumerate(texts):
        for j, text in enumerate(row):
            dark = float(colours[i, j, :3] @ [0.299, 0.587, 0.114]) < 0.5
            colour = GREY if hidden[i, j] else "white" if dark else BLACK
            axes.text(j + 0.5, i + 0.5, text, ha="center", va="center_baseline", fontsize=size, color=colour)
