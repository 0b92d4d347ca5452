"""Accuracy over severity, one small panel per corruption."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from shiftbench.arrays import FloatArray
from shiftbench.errors import argument, listed
from shiftbench.reports.accuracy_grids import SeverityGrid
from shiftbench.reports.figures.style import (
    CM,
    COLOURS,
    DASHES,
    MARKS,
    SMALL,
    PaperFigure,
    add_legend,
    finish,
    in_style,
    new_figure,
    panel_grid,
    shortened,
)
from shiftbench.studies.base import StudyError

#: Width and height of a panel in centimetres.
_PANEL, _TALL = 2.9, 2.6


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
            hint=f"choose some: {argument('models', flag='-c')}",
        )
    rows, columns, side = panel_grid(len(grid.corruptions), width, _PANEL)
    notes = [f"severity 0: {grid.clean_setting}"] if grid.clean is not None else []
    if grid.missing:
        notes.append(f"not drawn, a value is missing: {listed(grid.missing)}")
    figure = new_figure(width, rows * _TALL + 1.3, notes, show_notes=show_notes)
    first: Axes | None = None
    for number in range(len(grid.corruptions)):
        axes = figure.add_subplot(rows, columns, number + 1, sharex=first, sharey=first)
        first = first or axes
        _panel(axes, grid, number, side)
        _label_outer(axes, left=number % columns == 0, bottom=number + columns >= len(grid.corruptions))
    assert first is not None
    _limit(first, grid)
    add_legend(figure, [Line2D([], [], **_style(i, 3.0)) for i in range(len(grid.models))], grid.models)
    return finish(figure)


def _limit(axes: Axes, grid: SeverityGrid) -> None:
    """The limits that all panels share, from the accuracies and their intervals."""
    ends = [grid.low, grid.high, *([grid.clean.every] if grid.clean is not None else [])]
    low = 100 * min(float(np.nanmin(part)) for part in ends)
    high = 100 * max(float(np.nanmax(part)) for part in ends)
    axes.set_ylim(max(-2.0, low - 3), min(102.0, high + 3))
    axes.set_yticks([tick for tick in (0, 20, 40, 60, 80, 100) if low - 3 <= tick <= high + 3])
    severities = [*([0] if grid.clean is not None else []), *grid.severities]
    axes.set_xticks(severities)
    axes.set_xlim(severities[0] - 0.3, severities[-1] + 0.3)


def _label_outer(axes: Axes, *, left: bool, bottom: bool) -> None:
    """Numbers and names only where no other panel has them."""
    axes.tick_params(labelleft=left, labelbottom=bottom)
    axes.set_ylabel("accuracy (%)" if left else "")
    axes.set_xlabel("severity" if bottom else "")


def _panel(axes: Axes, grid: SeverityGrid, number: int, side_cm: float) -> None:
    axes.grid(visible=True)
    name = grid.corruptions[number].replace("_", " ")
    axes.set_title(shortened(name, 0.9 * side_cm * CM * 72, SMALL), fontsize=SMALL, fontweight="normal", loc="center")
    for i in range(len(grid.models)):
        x, values, low, high = _curve(grid, i, number)
        axes.fill_between(x, 100 * low, 100 * high, color=COLOURS[i], alpha=0.15, linewidth=0)
        axes.plot(x, 100 * values, **_style(i, 2.5))


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


def _style(i: int, size: float) -> dict[str, Any]:
    return {"color": COLOURS[i], "linestyle": DASHES[i], "marker": MARKS[i], "markersize": size, "linewidth": 0.9}
