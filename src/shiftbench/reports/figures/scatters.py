"""Accuracy under shift against accuracy without, every model a point (001 figures 1 and 2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from shiftbench.arrays import BoolArray, FloatArray
from shiftbench.errors import UnknownNameError, listed
from shiftbench.reports import formatting
from shiftbench.reports.figures.naming import name_points, ring, write_in_corner
from shiftbench.reports.figures.percent_axes import frame_axes
from shiftbench.reports.figures.scatter_panels import Panel, make_panel
from shiftbench.reports.figures.style import (
    BLACK,
    BLUE,
    DIAGONAL,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    YELLOW,
    PaperFigure,
    add_legend,
    finish,
    in_style,
    legend_mark,
    new_figure,
    panel_grid,
    panel_letter,
)
from shiftbench.studies.base import StudyError
from shiftbench.studies.study import ShiftAxes, Study
from shiftbench.studies.testbed import POINT_LEVEL, is_testbed

#: Colour and mark of the categories of 001; others get what is left.
_KNOWN = {
    "standard": (BLUE, "o"),
    "lp adversarial": (PURPLE, "D"),
    "robustness intervention": (ORANGE, "s"),
    "more data": (GREEN, "^"),
    "low accuracy": (GREY, "v"),
    "in no category": (GREY, "o"),
    "models": (BLUE, "o"),
}
_FURTHER = ((SKY, "P"), (BLACK, "p"), (YELLOW, "X"))
OWN, _OWN_STYLE = "own", (VERMILION, "*")
#: Height of a panel by its width.
_ASPECT = 0.9
#: So many models, or fewer, are all named.
_ALL_NAMED = 12
#: Places along an interval that names avoid.
_ALONG = 12

#: Legend text to colour and mark.
Styles = dict[str, tuple[str, str]]


@in_style
def scatter(
    study: Study,
    shifts: ShiftAxes | str | Sequence[ShiftAxes | str],
    *,
    x: str = "val",
    scale: str = "logit",
    own: Sequence[str] = (),
    named: Sequence[str] = (),
    models: Sequence[str] = (),
    colour_by: str = "category",
    level: float = 0.95,
    point_level: float | None = None,
    resamples: int = 1000,
    width: str | float = "single",
    show_notes: bool = True,
) -> PaperFigure:
    """One panel per shift: models, the baseline models' line with its bootstrap band, and y = x.

    A shift is a ``ShiftAxes`` or its name as in ``Study.shift``; ``x`` is the reference of names without one. ``own``
    are the reader's own models: drawn larger and named; ``named`` are others to be named. Without either, a dozen
    models or fewer are all named. The points' intervals are Clopper-Pearson.

    Args:
        study: The accuracies, and which models the line goes through.
        shifts: One panel each: ``ShiftAxes``, or names as in ``Study.shift``.
        x: Reference of names without one.
        scale: ``"logit"``, ``"probit"`` or ``"linear"``.
        own: The reader's own models: drawn larger and named.
        named: Other models to name.
        models: Only these models; the line is fitted to all. Default: all.
        colour_by: Column of the table of models that decides colours.
        level: Confidence level of the band and the line.
        point_level: Confidence level of the points' intervals; default: 0.995 for the ImageNet testbed's settings, as
            001 draws them, else ``level``.
        resamples: Number of bootstrap resamples.
        width: ``"single"`` (8.5 cm), ``"double"`` (17.5 cm), or centimetres.
        show_notes: Whether the notes are printed below the figure.
    """
    asked = [shifts] if isinstance(shifts, ShiftAxes | str) else list(shifts)
    if not asked:
        raise StudyError("no shift to draw", expected="at least one")
    for name in (*own, *named, *models):
        if name not in study.results.models:
            raise UnknownNameError("model", name, study.results.models)
    chosen = [study.shift(one, x) if isinstance(one, str) else one for one in asked]
    at_points = point_level or (POINT_LEVEL if is_testbed(study.results) else level)
    panels = [
        make_panel(study, one, scale=scale, level=level, point_level=at_points, resamples=resamples, models=models)
        for one in chosen
    ]
    rows, columns, side = panel_grid(len(panels), width, 6.0)
    levels = [f"intervals of points: {formatting.level_text(at_points)}"] if at_points != level else []
    notes = [*_notes(panels), *levels]
    figure = new_figure(width, rows * side * _ASPECT + 0.8, notes, show_notes=show_notes)
    kinds = {name: legend_label(study, name, own, colour_by) for panel in panels for name in panel.points.models}
    styles = category_styles(list(kinds.values()))
    legend: dict[str, Any] = {}
    for number, panel in enumerate(panels):
        axes = figure.add_subplot(rows, columns, number + 1)
        names = (panel.shift.x, panel.shift.y)
        frame_axes(axes, panel.x_axis, panel.y_axis, names, side, max(4, round(1.4 * side)))
        if len(panels) > 1:
            axes.set_title(panel_letter(number))
        legend |= _draw_lines(axes, panel, level)
        for label, (colour, mark) in styles.items():
            here = np.array([kinds[name] == label for name in panel.points.models])
            _draw_points(axes, panel, here, colour, mark, large=label == OWN)
    marks = {label: legend_mark(*style, large=label == OWN) for label, style in styles.items()}
    add_legend(figure, [*marks.values(), *legend.values()], [*marks, *legend])
    finish(figure)
    unnamed = [name for panel, axes in zip(panels, figure.axes, strict=True) for name in _name(axes, panel, own, named)]
    if unnamed:
        figure.notes = (*figure.notes, f"no room for the names of {listed(dict.fromkeys(unnamed), 8)}")
    return figure


def _notes(panels: Sequence[Panel]) -> list[str]:
    """Each note once, with the letters of its panels unless it holds for all."""
    found: dict[str, list[str]] = {}
    for number, panel in enumerate(panels):
        for note in panel.notes:
            found.setdefault(note, []).append(panel_letter(number))
    return [note if len(where) == len(panels) else f"{', '.join(where)} {note}" for note, where in found.items()]


def legend_label(study: Study, model: str, own: Sequence[str], column: str = "category") -> str:
    """What the legend calls a model's kind, by a column of the table of models."""
    if model in own:
        return OWN
    if study.models is None:
        return "models"
    return study.models.column(model, column).replace("_", " ") or f"in no {column}"


def category_styles(labels: Sequence[str]) -> Styles:
    """Colour and mark by kind, the baseline category first and the reader's own last, so drawn on top."""
    found, order = set(labels) - {OWN}, list(_KNOWN)
    sort = sorted(found, key=lambda label: (order.index(label) if label in order else len(order), label))
    free = list(_FURTHER * (1 + len(found) // len(_FURTHER)))
    styles = {label: _KNOWN[label] if label in _KNOWN else free.pop(0) for label in sort}
    return {**styles, OWN: _OWN_STYLE} if OWN in labels else styles


def _draw_lines(axes: Axes, panel: Panel, level: float) -> dict[str, Any]:
    """The line with its band, and y = x where it can be seen; with what the legend shows of them."""
    legend: dict[str, Any] = {}
    for x, low, high in panel.bands():
        axes.fill_between(x, low, high, color=BLACK, alpha=0.15, linewidth=0, zorder=1.5)
        legend[f"{formatting.level_text(level)} band"] = Patch(color=BLACK, alpha=0.15, linewidth=0)
    for piece in panel.segments():
        dashes = (0, (4, 2)) if piece.extrapolated else "-"
        axes.plot(piece.x, piece.y, color=BLACK, linestyle=dashes, linewidth=0.9, zorder=3.5, gid="line")
        legend.setdefault("fit", Line2D([], [], color=BLACK, linewidth=0.9))
    start, stop = max(panel.x_axis.low, panel.y_axis.low), min(panel.x_axis.high, panel.y_axis.high)
    if start < stop:
        axes.plot([start, stop], [start, stop], **DIAGONAL, zorder=1, gid="y=x")
        legend["y = x"] = Line2D([], [], **DIAGONAL)
    return legend


def _draw_points(axes: Axes, panel: Panel, chosen: BoolArray, colour: str, mark: str, *, large: bool) -> None:
    points = panel.points.where(chosen)
    if not points.models:
        return
    x, y = panel.x_axis.place(points.x.value), panel.y_axis.place(points.y.value)
    bars = [
        np.abs(np.stack([axis.place(side.low), axis.place(side.high)]) - at)
        for axis, side, at in ((panel.x_axis, points.x, x), (panel.y_axis, points.y, y))
    ]
    few_points = len(panel.points.models) <= _ALL_NAMED
    axes.errorbar(
        x, y, xerr=bars[0], yerr=bars[1], fmt="none", ecolor=colour, elinewidth=0.6 if few_points else 0.4,
        alpha=0.9 if few_points else 0.35, zorder=2.5,
    )  # fmt: skip
    size = 42 if large else 16 if few_points else 8
    edge = points.on_edge(panel.scale)
    style: dict[str, Any] = {"marker": mark, "s": size, "zorder": 4 if large else 3, "clip_on": False}
    axes.scatter(
        x[~edge],
        y[~edge],
        color=colour,
        edgecolor=BLACK if large else "white",
        linewidth=0.5 if large else 0.25,
        **style,
    )
    axes.scatter(x[edge], y[edge], facecolor="white", edgecolor=colour, linewidth=0.8, gid="edge", **style)


def _name(axes: Axes, panel: Panel, own: Sequence[str], named: Sequence[str]) -> list[str]:
    """Write the line's numbers and the wanted names; the names that found no room."""
    points = panel.points
    x, y = panel.x_axis.place(points.x.value), panel.y_axis.place(points.y.value)
    marks = np.concatenate([np.column_stack([x, y]), *_drawn(panel)])
    box = write_in_corner(axes, panel.summary(), marks)
    wanted = [*own, *named]
    if not wanted and len(points.models) <= _ALL_NAMED:
        wanted = list(points.models)
    at = {name: i for i, name in enumerate(points.models)}
    asked = [(float(x[at[name]]), float(y[at[name]]), name) for name in dict.fromkeys(wanted) if name in at]
    ring(axes, [point for point in asked if point[2] in named])
    return name_points(axes, asked, marks, taken=[box] if box else [])


def _drawn(panel: Panel) -> list[FloatArray]:
    """Points along the line and, where models are few, along their intervals: names should not lie on them."""
    pieces = [np.column_stack([piece.x, piece.y])[::4] for piece in panel.segments()]
    if len(panel.points.models) > _ALL_NAMED:
        return pieces
    x, y = panel.points.x, panel.points.y
    across = np.linspace(panel.x_axis.place(x.low), panel.x_axis.place(x.high), _ALONG)
    along = np.linspace(panel.y_axis.place(y.low), panel.y_axis.place(y.high), _ALONG)
    middle = panel.x_axis.place(x.value), panel.y_axis.place(y.value)
    bars = [(across, np.broadcast_to(middle[1], across.shape)), (np.broadcast_to(middle[0], along.shape), along)]
    return [*pieces, *(np.column_stack([a.ravel(), b.ravel()]) for a, b in bars)]
