"""Every model a point: accuracy under shift against accuracy without (001 figures 1 and 2), and effective robustness
against relative robustness or on another shift (001 figures 5, 10 and C.1).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from shiftbench.arrays import BoolArray, FloatArray
from shiftbench.errors import check_names, listed
from shiftbench.reports import formatting
from shiftbench.reports.accuracy_grids import AccuracyIntervals, accuracy_intervals
from shiftbench.reports.figures import style
from shiftbench.reports.figures.axes import PercentAxis, frame_axes, name_points, percent_text, ring, write_in_corner
from shiftbench.reports.figures.style import BLACK, DIAGONAL, PaperFigure, add_legend, finish, in_style, new_figure
from shiftbench.studies.base import Scale, StudyError, count_of, get_scale, whole
from shiftbench.studies.fits import Fit, Line, PiecewiseFit, correlate
from shiftbench.studies.study import ShiftAxes, Study
from shiftbench.studies.testbed import POINT_LEVEL, is_testbed

#: Colour and mark of the categories of 001.
_CATEGORY_STYLES = {
    "standard": (style.BLUE, "o"),
    "lp adversarial": (style.PURPLE, "D"),
    "robustness intervention": (style.ORANGE, "s"),
    "more data": (style.GREEN, "^"),
    "low accuracy": (style.GREY, "v"),
    "in no category": (style.GREY, "o"),
    "models": (style.BLUE, "o"),
}
#: Colour and mark of other categories, in turn.
_FURTHER_STYLES = ((style.SKY, "P"), (BLACK, "p"), (style.YELLOW, "X"))
#: What the legend calls the reader's own models, and how they are drawn.
_OWN = "own"
_OWN_STYLE = (style.VERMILION, "*")
#: Height of a panel by its width.
_ASPECT = 0.9
_ROBUSTNESS_ASPECT = 0.85
#: At most this many models are all named.
ALL_NAMED = 12
#: Places along an interval that names avoid.
_INTERVAL_STEPS = 12
#: Points of a drawn line.
_LINE_STEPS = 60


@dataclass(frozen=True)
class Points:
    """Models and their accuracies in the two settings of a shift."""

    models: tuple[str, ...]
    x: AccuracyIntervals
    y: AccuracyIntervals

    def where(self, selected: BoolArray) -> Points:
        models = tuple(itertools.compress(self.models, selected))
        return Points(models, self.x.where(selected), self.y.where(selected))

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
        segments = []
        for line, start, stop in self._sides():
            low, high = (float(np.clip(self._position(end), start, stop)) for end in line.x_range)
            for first, last, extrapolated in ((start, low, True), (low, high, False), (high, stop, True)):
                if last > first:
                    unit = whole(line.unit)
                    positions = np.linspace(first, last, _LINE_STEPS)
                    heights = self.scale.forward(line.predict(self.scale.inverse(positions) * unit) / unit)
                    segments.append((positions, heights, extrapolated))
        return segments

    def bands(self) -> list[tuple[FloatArray, FloatArray, FloatArray]]:
        """x, low and high of the band around each line, in axis positions."""
        bands = []
        for line, start, stop in self._sides():
            unit = whole(line.unit)
            positions = np.linspace(start, stop, _LINE_STEPS)
            band = line.band(self.scale.inverse(positions) * unit)
            if band is not None:
                bands.append((positions, self.y_axis.place(band.low / unit), self.y_axis.place(band.high / unit)))
        return bands

    def _sides(self) -> list[tuple[Fit, float, float]]:
        """Each line and the part of the x axis that it is for."""
        if self.line is None:
            return []
        low = self.x_axis.low
        high = self.x_axis.high
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
            pivot = percent_text(round(self.line.pivot / whole(self.line.unit), 4))
            return [
                f"knee at {pivot} %",
                f"below: slope {self.line.below.slope:.2f}, n = {self.line.below.n}",
                f"above: slope {self.line.above.slope:.2f}, n = {self.line.above.n}",
            ]
        slope = f"slope {self.line.slope:.2f}"
        slope_interval = self.line.slope_interval
        if slope_interval:
            slope += f" [{slope_interval.low:.2f}, {slope_interval.high:.2f}]"
        r2 = f"r² {self.line.r2:.3f}, " if np.isfinite(self.line.r2) else ""
        return [slope, f"{r2}n = {self.line.n}"]


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
    axis = get_scale(scale)
    results = study.results
    notes: list[str] = []
    all_points = Points(
        results.models,
        x=accuracy_intervals(results, shift.x, point_level),
        y=accuracy_intervals(results, shift.y, point_level),
    )
    if models:
        all_points = all_points.where(np.isin(results.models, models))
    evaluated = ~(np.isnan(all_points.x.value) | np.isnan(all_points.y.value))
    least = shift.least_x
    below = evaluated & (np.nan_to_num(all_points.x.value) < (least or 0.0))
    if not evaluated.all():
        notes.append(f"not shown, without a value: {count_of(int((~evaluated).sum()), 'model')}")
    if least is not None and below.any():
        notes.append(f"not shown, {shift.x} below {percent_text(least)} %: {count_of(int(below.sum()), 'model')}")
    drawn = evaluated & ~below
    if not drawn.any():
        raise StudyError(f"no model has both {shift.x} and {shift.y}", found="; ".join(notes))
    points = all_points.where(drawn)
    line: Line | None = None
    try:
        line = study.fit(
            shift.x, shift.y, min_x=shift.min_x, pivot=shift.pivot, scale=scale, level=level, resamples=resamples
        )
    except StudyError as error:
        notes.append(f"no line: {error.message}")
    x_axis = PercentAxis.around(axis, points.x.every, least=least)
    y_axis = PercentAxis.around(axis, points.y.every)
    edge = list(itertools.compress(points.models, points.on_edge(axis)))
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
        resamples: With 0, the line has no band.
        width: ``"single"`` (8.5 cm), ``"double"`` (17.5 cm), or centimetres.
        show_notes: Whether the notes are printed below the figure.
    """
    shifts = [shifts] if isinstance(shifts, ShiftAxes | str) else list(shifts)
    if not shifts:
        raise StudyError("no shift to draw", expected="at least one")
    check_names("model", (*own, *named, *models), study.results.models)
    models = _shown(study, models, own, colour_by)
    point_level = point_level or (POINT_LEVEL if is_testbed(study.results) else level)
    panels = []
    for shift in shifts:
        panel = make_panel(
            study,
            study.shift(shift, x) if isinstance(shift, str) else shift,
            scale=scale,
            level=level,
            point_level=point_level,
            resamples=resamples,
            models=models,
        )
        panels.append(panel)
    notes = _panel_notes(panels)
    if point_level != level:
        notes.append(f"intervals of points: {formatting.level_text(point_level)}")
    rows, columns, side = style.panel_grid(len(panels), width, 6.0)
    figure = new_figure(width, rows * side * _ASPECT + 0.8, notes, show_notes=show_notes)
    labels: dict[str, str] = {}
    for panel in panels:
        labels |= {name: _legend_label(study, name, own, colour_by) for name in panel.points.models}
    styles = _category_styles(list(labels.values()))
    legend: dict[str, object] = {}
    for number, panel in enumerate(panels):
        axes = figure.add_subplot(rows, columns, number + 1)
        settings = (panel.shift.x, panel.shift.y)
        frame_axes(axes, panel.x_axis, panel.y_axis, settings, side, max(4, round(1.4 * side)))
        if len(panels) > 1:
            axes.set_title(style.panel_letter(number))
        legend |= _draw_lines(axes, panel, level)
        for label, (colour, mark) in styles.items():
            labelled = np.array([labels[name] == label for name in panel.points.models])
            _draw_points(axes, panel, labelled, colour, mark, large=label == _OWN)
    marks = _legend_marks(styles)
    add_legend(figure, [*marks.values(), *legend.values()], [*marks, *legend])
    finish(figure)
    unnamed: list[str] = []
    for panel, axes in zip(panels, figure.axes, strict=True):
        unnamed += _name(axes, panel, own, named)
    return style.without_room(figure, unnamed)


def _panel_notes(panels: Sequence[Panel]) -> list[str]:
    """Each note once, with the letters of its panels unless it holds for all."""
    letters_of: dict[str, list[str]] = {}
    for number, panel in enumerate(panels):
        for note in panel.notes:
            letters_of.setdefault(note, []).append(style.panel_letter(number))
    notes = []
    for note, letters in letters_of.items():
        notes.append(note if len(letters) == len(panels) else f"{', '.join(letters)} {note}")
    return notes


def _legend_marks(styles: Mapping[str, tuple[str, str]]) -> dict[str, Line2D]:
    return {label: style.legend_mark(colour, mark, large=label == _OWN) for label, (colour, mark) in styles.items()}


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
    ranks = {label: rank for rank, label in enumerate(_CATEGORY_STYLES)}
    further_styles = itertools.cycle(_FURTHER_STYLES)
    styles = {}
    for label in sorted(set(labels) - {_OWN}, key=lambda label: (ranks.get(label, len(ranks)), label)):
        if label in _CATEGORY_STYLES:
            styles[label] = _CATEGORY_STYLES[label]
        else:
            styles[label] = next(further_styles)
    if _OWN in labels:
        styles[_OWN] = _OWN_STYLE
    return styles


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
    start = max(panel.x_axis.low, panel.y_axis.low)
    stop = min(panel.x_axis.high, panel.y_axis.high)
    if start < stop:
        axes.plot([start, stop], [start, stop], **DIAGONAL, zorder=1, gid="y=x")
        legend["y = x"] = Line2D([], [], **DIAGONAL)
    return legend


def _draw_points(axes: Axes, panel: Panel, selected: BoolArray, colour: str, mark: str, *, large: bool) -> None:
    points = panel.points.where(selected)
    if not points.models:
        return
    x = panel.x_axis.place(points.x.value)
    y = panel.y_axis.place(points.y.value)
    few = len(panel.points.models) <= ALL_NAMED
    axes.errorbar(
        x,
        y,
        xerr=_bar_lengths(panel.x_axis, points.x),
        yerr=_bar_lengths(panel.y_axis, points.y),
        fmt="none",
        ecolor=colour,
        elinewidth=0.6 if few else 0.4,
        alpha=0.9 if few else 0.35,
        zorder=2.5,
    )
    if large:
        size = 42
    elif few:
        size = 16
    else:
        size = 8
    shared: dict[str, Any] = {"marker": mark, "s": size, "zorder": 4 if large else 3, "clip_on": False}
    edge = points.on_edge(panel.scale)
    axes.scatter(
        x[~edge],
        y[~edge],
        color=colour,
        edgecolor=BLACK if large else "white",
        linewidth=0.5 if large else 0.25,
        **shared,
    )
    axes.scatter(x[edge], y[edge], facecolor="white", edgecolor=colour, linewidth=0.8, gid="edge", **shared)


def _bar_lengths(axis: PercentAxis, accuracies: AccuracyIntervals) -> FloatArray:
    """(2, models): how far the interval reaches below and above the value, on the axis."""
    interval = np.stack([axis.place(accuracies.low), axis.place(accuracies.high)])
    return np.abs(interval - axis.place(accuracies.value))


def _name(axes: Axes, panel: Panel, own: Sequence[str], named: Sequence[str]) -> list[str]:
    """Write the line's numbers and the names that are asked for; the names that found no room."""
    models = panel.points.models
    x = panel.x_axis.place(panel.points.x.value)
    y = panel.y_axis.place(panel.points.y.value)
    marks = _obstacles(panel, x, y)
    summary_box = write_in_corner(axes, panel.summary(), marks)
    names = [*own, *named]
    if not names and len(models) <= ALL_NAMED:
        names = list(models)
    index_of = {model: index for index, model in enumerate(models)}
    points = []
    for name in dict.fromkeys(names):
        if name in index_of:
            index = index_of[name]
            points.append((float(x[index]), float(y[index]), name))
    ring(axes, [point for point in points if point[2] in named])
    return name_points(axes, points, marks, taken=[summary_box] if summary_box else [])


def _obstacles(panel: Panel, x: FloatArray, y: FloatArray) -> FloatArray:
    """Where names should not lie: on points, on the line or, where models are few, on their intervals."""
    obstacles = [np.column_stack([x, y])]
    for line_x, line_y, _ in panel.segments():
        obstacles.append(np.column_stack([line_x, line_y])[::4])
    points = panel.points
    if len(points.models) <= ALL_NAMED:
        across = np.linspace(panel.x_axis.place(points.x.low), panel.x_axis.place(points.x.high), _INTERVAL_STEPS)
        along = np.linspace(panel.y_axis.place(points.y.low), panel.y_axis.place(points.y.high), _INTERVAL_STEPS)
        obstacles.append(np.column_stack([across.ravel(), np.broadcast_to(y, across.shape).ravel()]))
        obstacles.append(np.column_stack([np.broadcast_to(x, along.shape).ravel(), along.ravel()]))
    return np.concatenate(obstacles)


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

    rho = rho_on(shift[1])
    if against is None:
        xs = rho
        ys = study.relative(shift[1].y).tau
    else:
        xs = rho_on(against[1])
        ys = rho
    check_names("model", (*own, *named, *models), study.results.models)
    notes = []
    if against is not None and not models and study.models is not None and any(study.others):
        # The line goes through the standard models: they have no robustness of their own to compare (001, figure 5).
        models = [*itertools.compress(study.results.models, study.others), *own]
        notes.append("shown: models that are not standard, which r is over")
    models = _shown(study, models, own, colour_by) or list(study.results.models)
    drawn_models = [name for name in models if name in xs and name in ys]
    if not drawn_models:
        raise StudyError("no model has both measures", hint="tau needs a table of models with a column base_model")
    if len(drawn_models) < len(models):
        notes.append(f"not shown, without a value: {count_of(len(models) - len(drawn_models), 'model')}")
    figure = new_figure(width, style.width_in_cm(width) * _ROBUSTNESS_ASPECT, notes, show_notes=show_notes)
    axes = figure.add_subplot()
    axes.axhline(0, **DIAGONAL, zorder=1)
    axes.axvline(0, **DIAGONAL, zorder=1)
    axes.set_xlabel(f"effective robustness, {(against or shift)[0]} (points)")
    axes.set_ylabel(f"{'relative' if against is None else 'effective'} robustness, {shift[0]} (points)")
    percentage_points = 100.0 / whole(study.results.unit)
    points = {name: (percentage_points * xs[name], percentage_points * ys[name]) for name in drawn_models}
    labels = {name: _legend_label(study, name, own, colour_by) for name in drawn_models}
    _draw_by_label(axes, points, labels)
    handles = _legend_marks(_category_styles(list(labels.values())))
    add_legend(figure, list(handles.values()), list(handles))
    finish(figure)
    marks = np.array(list(points.values()))
    summary = _correlation_summary(study, drawn_models, xs, ys, level)
    summary_box = write_in_corner(axes, summary, marks)
    named_points = [(*points[name], name) for name in dict.fromkeys([*own, *named]) if name in points]
    unnamed = name_points(axes, named_points, marks, taken=[summary_box] if summary_box else [])
    return style.without_room(figure, unnamed)


def _draw_by_label(axes: Axes, points: Mapping[str, tuple[float, float]], labels: Mapping[str, str]) -> None:
    """Draw the models in the colours of their labels, the reader's own larger and on top."""
    for label, (colour, mark) in _category_styles(list(labels.values())).items():
        labelled = np.array([point for name, point in points.items() if labels[name] == label])
        size = 12
        layer = 3
        edge = "white"
        if label == _OWN:
            size = 42
            layer = 4
            edge = BLACK
        axes.scatter(
            labelled[:, 0],
            labelled[:, 1],
            color=colour,
            marker=mark,
            s=size,
            zorder=layer,
            edgecolor=edge,
            linewidth=0.4,
        )


def _correlation_summary(
    study: Study, models: Sequence[str], xs: Mapping[str, float], ys: Mapping[str, float], level: float
) -> list[str]:
    """The correlation over those of the models that are not standard; nothing for fewer than three."""
    if study.models is None:
        return []
    names = [name for name in itertools.compress(study.results.models, study.others) if name in models]
    if len(names) < 3:
        return []
    correlation = correlate(xs, ys, models=names, level=level)
    interval = ""
    if correlation.pearson_interval:
        interval = formatting.interval(*correlation.pearson_interval, 2, "")
    return [f"r {correlation.pearson:.2f} {interval}".rstrip(), f"n = {correlation.n}"]
