"""What one panel of a scatter plot shows: models, the line through the baseline models, axes, and notes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shiftbench.arrays import BoolArray, FloatArray
from shiftbench.errors import listed
from shiftbench.reports.accuracy_grids import AccuracyIntervals, accuracy_intervals
from shiftbench.reports.figures.percent_axes import PercentAxis, percent_text
from shiftbench.studies.base import Scale, StudyError, count_of, get_scale, whole
from shiftbench.studies.fits import Fit, Line, PiecewiseFit
from shiftbench.studies.study import ShiftAxes, Study

#: Points of a drawn line.
_STEPS = 60


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
        """The models that the scale has no place for."""
        return np.asarray(~(scale.usable(self.x.value) & scale.usable(self.y.value)))


@dataclass(frozen=True)
class Segment:
    """A piece of the line, in axis positions."""

    x: FloatArray
    y: FloatArray
    #: Beyond the models that were fitted.
    extrapolated: bool


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

    def segments(self) -> list[Segment]:
        """The line within the x axis: fitted pieces and, beyond their models, extrapolated ones."""
        found = []
        for line, start, stop in self._sides():
            inner = [float(np.clip(self._position(end), start, stop)) for end in line.x_range]
            ends = [(start, inner[0], True), (inner[0], inner[1], False), (inner[1], stop, True)]
            found += [self._segment(line, a, b, outside) for a, b, outside in ends if b > a]
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

    def _segment(self, line: Fit, start: float, stop: float, outside: bool) -> Segment:
        size, positions = whole(line.unit), np.linspace(start, stop, _STEPS)
        heights = self.scale.forward(line.predict(self.scale.inverse(positions) * size) / size)
        return Segment(positions, heights, outside)

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
    """The panel of one shift; if no line can be fitted, a note gives the reason."""
    axis = get_scale(scale)
    points, notes = _points(study, shift, point_level, models)
    line: Line | None = None
    try:
        line = study.fit(
            shift.x, shift.y, min_x=shift.min_x, pivot=shift.pivot, scale=scale, level=level, resamples=resamples
        )
    except StudyError as error:
        notes.append(f"no line: {error.message}")
    x_axis = PercentAxis.around(axis, points.x.every, least=_threshold(shift))
    y_axis = PercentAxis.around(axis, points.y.every)
    edge = [name for name, here in zip(points.models, points.on_edge(axis), strict=True) if here]
    if edge:
        notes.append(f"hollow, on the edge: 0 and 100 % have no place on the {scale} scale ({listed(edge, 6)})")
    return Panel(shift, points, line, x_axis, y_axis, tuple(notes))


def _threshold(shift: ShiftAxes) -> float | None:
    """The least x that is shown, as a fraction; it may be given in percent."""
    return shift.min_x / 100 if shift.min_x is not None and shift.min_x > 1 else shift.min_x


def _points(study: Study, shift: ShiftAxes, level: float, only: Sequence[str]) -> tuple[Points, list[str]]:
    """The models with both accuracies, above the shift's threshold; notes on the others."""
    results = study.results
    x, y = (accuracy_intervals(results, setting, level) for setting in (shift.x, shift.y))
    points = Points(results.models, x, y)
    if only:
        points = points.where(np.isin(results.models, only))
    known = ~(np.isnan(points.x.value) | np.isnan(points.y.value))
    least = _threshold(shift)
    below = known & (np.nan_to_num(points.x.value) < (least or 0.0))
    notes = []
    if not known.all():
        notes.append(f"not shown, without a value: {count_of(int((~known).sum()), 'model')}")
    if least is not None and below.any():
        notes.append(f"not shown, {shift.x} below {percent_text(least)} %: {count_of(int(below.sum()), 'model')}")
    shown = known & ~below
    if not shown.any():
        raise StudyError(f"no model has both {shift.x} and {shift.y}", found="; ".join(notes))
    return points.where(shown), notes
