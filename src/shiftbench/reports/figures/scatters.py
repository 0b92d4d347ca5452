"""Every model a point: accuracy under shift against accuracy without (001 figures 1 and 2), and effective robustness
against relative robustness or on another shift (001 figures 5, 10 and C.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from shiftbench.arrays import BoolArray, FloatArray
from shiftbench.errors import check_names, listed
from shiftbench.grouping import by_key
from shiftbench.reports import formatting
from shiftbench.reports.accuracy_grids import AccuracyIntervals, accuracy_intervals
from shiftbench.reports.figures import style
from shiftbench.reports.figures.axes import PercentAxis, frame_axes, name_points, percent_text, ring, write_in_corner
from shiftbench.reports.figures.style import BLACK, DIAGONAL, PaperFigure, add_legend, finish, in_style, new_figure
from shiftbench.studies.base import Scale, StudyError, count_of, get_scale, whole
from shiftbench.studies.fits import Fit, Line, PiecewiseFit, correlate
from shiftbench.studies.study import ShiftAxes, Study
from shiftbench.studies.testbed import POINT_LEVEL, is_testbed

#: Colour and mark of the categories of 001; others get what is left.
_KNOWN = {
    "standard": (style.BLUE, "o"),
    "lp adversarial": (style.PURPLE, "D"),
    "robustness intervention": (style.ORANGE, "s"),
    "more data": (style.GREEN, "^"),
    "low accuracy": (style.GREY, "v"),
    "in no category": (style.GREY, "o"),
    "models": (style.BLUE, "o"),
}
_FURTHER = ((style.SKY, "P"), (BLACK, "p"), (style.YELLOW, "X"))
_OWN, _OWN_STYLE = "own", (style.VERMILION, "*")
#: Height of a panel by its width.
_ASPECT, _ROBUSTNESS_ASPECT = 0.9, 0.85
#: At most this many models are all named.
ALL_NAMED = 12
#: Places along an interval that names avoid, and points of a drawn line.
_ALONG, _STEPS = 12, 60


@dataclass(frozen=True)
class Points:
    """Models and their accuracies in the two settings of a shift."""

    models: tuple[str, ...]
    x: AccuracyIntervals
    y: AccuracyIntervals

    def where(self, chosen: BoolArray) -> Points:
        models = tuple(name for name, here in zip(self.models, chosen, strict=True) if here)
        return Points(models, self.x.where(chosen), self.y.where(chosen))

    def on_edge(self, scale: Scale) -> BoolArray:
        return np.asarray(~(scale.usable(self.x.value) & scale.usable(self.y.value)))


@dataclass(frozen=True)
class Panel:
    """One shift: its points, its line if there is one, and notes."""

    shift: ShiftAxes
    points: Points
    line: Line | None
    x_axis: PercentAxis
    y_axis: PercentAxis
    notes: tuple[str, ...]

    @property
    def scale(self) -> Scale:
        return self.x_axis.scale

    def segments(self) -> list[tuple[FloatArray, FloatArray, bool]]:
        """x and y of the line's pieces in axis positions, and whether one lies beyond the models that were fitted."""
        found = []
        for line, start, stop in self._sides():
            low, high = (float(np.clip(self._position(end), start, stop)) for end in line.x_range)
            for first, last, outside in ((start, low, True), (low, high, False), (high, stop, True)):
                if last > first:
                    size, positions = whole(line.unit), np.linspace(first, last, _STEPS)
                    heights = self.scale.forward(line.predict(self.scale.inverse(positions) * size) / size)
                    found.append((positions, heights, outside))
        return found

    def bands(self) -> list[tuple[FloatArray, FloatArray, FloatArray]]:
        """x, low and high of the band around each line, in axis positions."""
        found = []
        for line, start, stop in self._sides():
            size, positions = whole(line.unit), np.linspace(start, stop, _STEPS)
            band = line.band(self.scale.inverse(positions) * size)
            if band is not None:
                found.append((positions, self.y_axis.place(band.low / size), self.y_axis.place(band.high / size)))
        return found

    def _sides(self) -> list[tuple[Fit, float, float]]:
        """Each line and the part of the x axis that it is for."""
        low, high = self.x_axis.low, self.x_axis.high
        if self.line is None:
            return []
        if isinstance(self.line, Fit):
            return [(self.line, low, high)]
        knee = self._position(self.line.pivot)
        return [(self.line.below, low, knee), (self.line.above, knee, high)]

    def _position(self, accuracy: float) -> float:
        """Where an accuracy in the line's unit lies on the x axis."""
        assert self.line is not None
        return float(self.x_axis.place(np.array([accuracy / whole(self.line.unit)]))[0])

    def summary(self) -> list[str]:
        """The line in short, for a corner of the panel."""
        if self.line is None:
            return []
        if isinstance(self.line, PiecewiseFit):
            sides = [(name, getattr(self.line, name)) for name in ("below", "above")]
            pivot = percent_text(round(self.line.pivot / whole(self.line.unit), 4))
            return [f"knee at {pivot} %", *(f"{name}: slope {one.slope:.2f}, n = {one.n}" for name, one in sides)]
        ends = self.line.slope_interval
        interval = f" [{ends.low:.2f}, {ends.high:.2f}]" if ends else ""
        r2 = f"r² {self.line.r2:.3f}, " if np.isfinite(self.line.r2) else ""
        return [f"slope {self.line.slope:.2f}{interval}", f"{r2}n = {self.line.n}"]


def make_panel(
    study: Study,
    shift: ShiftAxes,
    *,
    scale: str,
    level: float,
    point_level: float,
    resamples: int,
    models: Sequence[str] = (),
) -> Panel:
    """The panel of one shift, with the models that have both accuracies, above the shift's threshold.

    Notes name the others, and the reason where no line can be fitted.
    """
    axis, notes = get_scale(scale), list[str]()
    results = study.results
    every = Points(results.models, *(accuracy_intervals(results, one, point_level) for one in (shift.x, shift.y)))
    if models:
        every = every.where(np.isin(results.models, models))
    known = ~(np.isnan(every.x.value) | np.isnan(every.y.value))
    least = shift.least_x
    below = known & (np.nan_to_num(every.x.value) < (least or 0.0))
    if not known.all():
        notes.append(f"not shown, without a value: {count_of(int((~known).sum()), 'model')}")
    if least is not None and below.any():
        notes.append(f"not shown, {shift.x} below {percent_text(least)} %: {count_of(int(below.sum()), 'model')}")
    shown = known & ~below
    if not shown.any():
        raise StudyError(f"no model has both {shift.x} and {shift.y}", found="; ".join(notes))
    points = every.where(shown)
    line: Line | None = None
    try:
        line = study.fit(
            shift.x, shift.y, min_x=shift.min_x, pivot=shift.pivot, scale=scale, level=level, resamples=resamples
        )
    except StudyError as error:
        notes.append(f"no line: {error.message}")
    x_axis = PercentAxis.around(axis, points.x.every, least=least)
    y_axis = PercentAxis.around(axis, points.y.every)
    edge = [name for name, here in zip(points.models, points.on_edge(axis), strict=True) if here]
    if edge:
        notes.append(f"hollow, on the edge: 0 and 100 % have no place on the {scale} scale ({listed(edge, 6)})")
    return Panel(shift, points, line, x_axis, y_axis, tuple(notes))


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
    check_names("model", (*own, *named, *models), study.results.models)
    models = _shown(study, models, own, colour_by)
    chosen = [study.shift(one, x) if isinstance(one, str) else one for one in asked]
    at_points = point_level or (POINT_LEVEL if is_testbed(study.results) else level)
    panels = [
        make_panel(study, one, scale=scale, level=level, point_level=at_points, resamples=resamples, models=models)
        for one in chosen
    ]
    rows, columns, side = style.panel_grid(len(panels), width, 6.0)
    # Each note once, with the letters of its panels unless it holds for all.
    where = by_key((note, style.panel_letter(number)) for number, panel in enumerate(panels) for note in panel.notes)
    notes = [note if len(of) == len(panels) else f"{', '.join(of)} {note}" for note, of in where.items()]
    if at_points != level:
        notes.append(f"intervals of points: {formatting.level_text(at_points)}")
    figure = new_figure(width, rows * side * _ASPECT + 0.8, notes, show_notes=show_notes)
    kinds = {name: _legend_label(study, name, own, colour_by) for panel in panels for name in panel.points.models}
    styles = _category_styles(list(kinds.values()))
    legend: dict[str, object] = {}
    for number, panel in enumerate(panels):
        axes = figure.add_subplot(rows, columns, number + 1)
        names = (panel.shift.x, panel.shift.y)
        frame_axes(axes, panel.x_axis, panel.y_axis, names, side, max(4, round(1.4 * side)))
        if len(panels) > 1:
            axes.set_title(style.panel_letter(number))
        legend |= _draw_lines(axes, panel, level)
        for label, (colour, mark) in styles.items():
            here = np.array([kinds[name] == label for name in panel.points.models])
            _draw_points(axes, panel, here, colour, mark, large=label == _OWN)
    marks = {label: style.legend_mark(*one, large=label == _OWN) for label, one in styles.items()}
    add_legend(figure, [*marks.values(), *legend.values()], [*marks, *legend])
    finish(figure)
    unnamed = [name for panel, axes in zip(panels, figure.axes, strict=True) for name in _name(axes, panel, own, named)]
    return style.without_room(figure, unnamed)


def _shown(study: Study, models: Sequence[str], own: Sequence[str], colour_by: str) -> list[str]:
    """The models to draw, own ones always among them; none: all."""
    if study.models is not None and colour_by != "category":
        study.models.check_column(colour_by)
    return list(dict.fromkeys((*models, *own))) if models else []


def _legend_label(study: Study, model: str, own: Sequence[str], column: str = "category") -> str:
    """What the legend calls a model's kind, by a column of the table of models."""
    if model in own:
        return _OWN
    if study.models is None:
        return "models"
    return study.models.column(model, column).replace("_", " ") or f"in no {column}"


def _category_styles(labels: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Colour and mark by kind, the baseline category first and the reader's own last, so drawn on top."""
    found, order = set(labels) - {_OWN}, list(_KNOWN)
    sort = sorted(found, key=lambda label: (order.index(label) if label in order else len(order), label))
    free = list(_FURTHER * (1 + len(found) // len(_FURTHER)))
    styles = {label: _KNOWN[label] if label in _KNOWN else free.pop(0) for label in sort}
    return {**styles, _OWN: _OWN_STYLE} if _OWN in labels else styles


def _draw_lines(axes: Axes, panel: Panel, level: float) -> dict[str, object]:
    """The line with its band, and y = x where it can be seen; with what the legend shows of them."""
    legend: dict[str, object] = {}
    for x, low, high in panel.bands():
        axes.fill_between(x, low, high, color=BLACK, alpha=0.15, linewidth=0, zorder=1.5)
        legend[f"{formatting.level_text(level)} band"] = Patch(color=BLACK, alpha=0.15, linewidth=0)
    for x, y, extrapolated in panel.segments():
        dashes = (0, (4, 2)) if extrapolated else "-"
        axes.plot(x, y, color=BLACK, linestyle=dashes, linewidth=0.9, zorder=3.5, gid="line")
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
    few = len(panel.points.models) <= ALL_NAMED
    axes.errorbar(x, y, xerr=bars[0], yerr=bars[1], fmt="none", ecolor=colour, elinewidth=0.6 if few else 0.4,
                  alpha=0.9 if few else 0.35, zorder=2.5)  # fmt: skip
    edge = points.on_edge(panel.scale)
    size = 42 if large else 16 if few else 8
    shared: dict[str, Any] = {"marker": mark, "s": size, "zorder": 4 if large else 3, "clip_on": False}
    outline, line = (BLACK, 0.5) if large else ("white", 0.25)
    axes.scatter(x[~edge], y[~edge], color=colour, edgecolor=outline, linewidth=line, **shared)
    axes.scatter(x[edge], y[edge], facecolor="white", edgecolor=colour, linewidth=0.8, gid="edge", **shared)


def _name(axes: Axes, panel: Panel, own: Sequence[str], named: Sequence[str]) -> list[str]:
    """Write the line's numbers and the wanted names; the names that found no room."""
    points, x_axis, y_axis = panel.points, panel.x_axis, panel.y_axis
    x, y = x_axis.place(points.x.value), y_axis.place(points.y.value)
    # Names should not lie on points, on the line or, where models are few, on their intervals.
    drawn = [np.column_stack([x, y]), *(np.column_stack(piece[:2])[::4] for piece in panel.segments())]
    if len(points.models) <= ALL_NAMED:
        across = np.linspace(x_axis.place(points.x.low), x_axis.place(points.x.high), _ALONG)
        along = np.linspace(y_axis.place(points.y.low), y_axis.place(points.y.high), _ALONG)
        drawn.append(np.column_stack([across.ravel(), np.broadcast_to(y, across.shape).ravel()]))
        drawn.append(np.column_stack([np.broadcast_to(x, along.shape).ravel(), along.ravel()]))
    marks = np.concatenate(drawn)
    box = write_in_corner(axes, panel.summary(), marks)
    wanted = [*own, *named]
    if not wanted and len(points.models) <= ALL_NAMED:
        wanted = list(points.models)
    at = {name: i for i, name in enumerate(points.models)}
    asked = [(float(x[at[name]]), float(y[at[name]]), name) for name in dict.fromkeys(wanted) if name in at]
    ring(axes, [point for point in asked if point[2] in named])
    return name_points(axes, asked, marks, taken=[box] if box else [])


@in_style
def robustness(
    study: Study,
    shift: tuple[str, ShiftAxes],
    against: tuple[str, ShiftAxes] | None = None,
    *,
    own: Sequence[str] = (),
    named: Sequence[str] = (),
    models: Sequence[str] = (),
    colour_by: str = "category",
    scale: str = "logit",
    level: float = 0.95,
    width: str | float = "single",
    show_notes: bool = True,
) -> PaperFigure:
    """Every model a point: rho on one shift against rho on another, or against tau on the same shift.

    Args:
        study: The accuracies, and which models the line goes through.
        shift: Name and axes of the shift on the y axis.
        against: Name and axes of the shift on the x axis; default: tau on ``shift`` against rho on it.
        own: The reader's own models: drawn larger and named.
        named: Other models to name.
        models: Only these models; default: all.
        colour_by: Column of the table of models that decides colours.
        scale: Scale of the line: ``"logit"``, ``"probit"`` or ``"linear"``.
        level: Confidence level of the correlation's interval.
        width: ``"single"`` (8.5 cm), ``"double"`` (17.5 cm), or centimetres.
        show_notes: Whether the notes are printed below the figure.
    """

    def rho_on(axes: ShiftAxes) -> dict[str, float]:
        return study.effective(axes.x, axes.y, min_x=axes.min_x, pivot=axes.pivot, scale=scale, resamples=0).rho

    points, rho = 100.0 / whole(study.results.unit), rho_on(shift[1])
    xs, ys = (rho, study.relative(shift[1].y).tau) if against is None else (rho_on(against[1]), rho)
    check_names("model", (*own, *named, *models), study.results.models)
    models = _shown(study, models, own, colour_by)
    shown = [name for name in (models or study.results.models) if name in xs and name in ys]
    if not shown:
        raise StudyError("no model has both measures", hint="tau needs a table of models with a column base_model")
    lost = len(models or study.results.models) - len(shown)
    notes = [f"not shown, without a value: {count_of(lost, 'model')}"] if lost else []
    figure = new_figure(width, style.width_in_cm(width) * _ROBUSTNESS_ASPECT, notes, show_notes=show_notes)
    axes = figure.add_subplot()
    axes.axhline(0, **DIAGONAL, zorder=1)
    axes.axvline(0, **DIAGONAL, zorder=1)
    axes.set_xlabel(f"effective robustness, {(against or shift)[0]} (points)")
    axes.set_ylabel(f"{'relative' if against is None else 'effective'} robustness, {shift[0]} (points)")
    at = {name: (points * xs[name], points * ys[name]) for name in shown}
    labels = {name: _legend_label(study, name, own, colour_by) for name in shown}
    styles = _category_styles(list(labels.values()))
    for label, (colour, mark) in styles.items():
        here = np.array([at[name] for name in shown if labels[name] == label])
        size, order, outline = (42, 4, BLACK) if label == _OWN else (12, 3, "white")
        axes.scatter(here[:, 0], here[:, 1], color=colour, marker=mark, s=size, zorder=order, edgecolor=outline,
                     linewidth=0.4)  # fmt: skip
    handles = [style.legend_mark(*one, large=label == _OWN) for label, one in styles.items()]
    add_legend(figure, handles, list(styles))
    finish(figure)
    marks = np.array(list(at.values()))
    # The correlation over the shown models that are not standard.
    summary, others = [], zip(study.results.models, study.others, strict=True) if study.models is not None else ()
    over = [name for name, here in others if here and name in shown]
    if len(over) >= 3:
        found = correlate({name: xs[name] for name in over}, {name: ys[name] for name in over}, level=level)
        ends = formatting.interval(*found.pearson_interval, 2, "") if found.pearson_interval else ""
        summary = [f"r {found.pearson:.2f} {ends}".rstrip(), f"n = {found.n}"]
    box = write_in_corner(axes, summary, marks)
    wanted = [(*at[name], name) for name in dict.fromkeys([*own, *named]) if name in at]
    return style.without_room(figure, name_points(axes, wanted, marks, taken=[box] if box else []))
