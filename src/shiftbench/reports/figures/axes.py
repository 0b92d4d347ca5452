"""Axes for accuracies, and names beside points.

Points are placed by the scale's own function (logit, probit, linear), so that a fitted line is a straight one. An
accuracy of 0 or 100 % has no place on the logit and probit scales: it is put on the edge of the axes and drawn with a
mark of its own.

No name lies over another or outside the axes. Every name is tried at places around its point, close by first and then
farther away with a thin line to the point. Of the places where it covers no other name and stays inside, the one that
covers the fewest points is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.transforms import Bbox

from shiftbench.arrays import FloatArray
from shiftbench.reports.figures.style import BLACK, CM, GREY, SMALL, axis_label, text_width, wrapped_name
from shiftbench.studies.base import Scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

#: Share of the axis that is left free on either side.
_MARGIN = 0.05
#: With this many ticks, finer percentages are not tried.
_ENOUGH_TICKS = 4
#: Distances between ticks, finest first.
_STEPS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1.0)
#: Points between a mark and its name.
_NEAR = 4.0
_DISTANCES = (_NEAR, 9.0, 16.0, 25.0, 36.0, 50.0, 70.0)
_DIRECTIONS = 16
#: A name wider than this share of the axes is broken.
_MAX_NAME_SHARE = 0.5
#: Points between text in a corner and the axes.
_GAP = 4.0
#: Behind text, so that it can be read over a line.
_VEIL = {"boxstyle": "square,pad=0.05", "facecolor": "white", "edgecolor": "none", "alpha": 0.7}
#: Half a mark, in points: what a name should not cover.
_MARK = 2.5


@dataclass(frozen=True)
class PercentAxis:
    """One axis: a scale and, on it, the limits that are shown."""

    scale: Scale
    low: float
    high: float

    @staticmethod
    def around(scale: Scale, fractions: FloatArray, *, least: float | None = None) -> PercentAxis:
        """Limits around all accuracies that have a place; ``least`` is where the axis begins, as a fraction."""
        usable = scale.forward(fractions[scale.usable(fractions)])
        if not len(usable):
            usable = scale.forward(np.array([0.25, 0.75]))
        low = float(usable.min())
        high = float(usable.max())
        if least is not None and bool(scale.usable(np.array([least]))[0]):
            low = min(high, float(scale.forward(np.array([least]))[0]))
        margin = _MARGIN * (high - low) or 0.05
        low -= margin
        high += margin
        if scale.holds_ends:  # Nothing is below 0 or above 1.
            low = max(low, -0.02)
            high = min(high, 1.02)
        return PercentAxis(scale, low, high)

    def place(self, fractions: FloatArray) -> FloatArray:
        """Positions within the limits; what lies beyond an edge is put on it, nan stays nan."""
        with np.errstate(divide="ignore", invalid="ignore"):
            position = self.scale.forward(np.asarray(fractions, dtype=np.float64))
        return np.asarray(np.clip(position, self.low, self.high))

    def ticks(self, most: int) -> FloatArray:
        """Fractions that are shown, round ones first; at most about this many."""
        if self.scale.holds_ends:
            return self._even_ticks(most)
        min_distance = (self.high - self.low) / most
        # By position on the axis.
        ticks: dict[float, float] = {}
        for family, enough in _tick_families(most):
            fractions = family[self.scale.usable(family)]
            for position, fraction in zip(self.scale.forward(fractions), fractions, strict=True):
                inside = self.low <= position <= self.high
                if inside and all(abs(position - tick) >= min_distance for tick in ticks):
                    ticks[float(position)] = float(fraction)
            if len(ticks) >= enough:
                break
        return np.array([fraction for _, fraction in sorted(ticks.items())])

    def _even_ticks(self, most: int) -> FloatArray:
        """Multiples of the finest step that gives at most this many."""
        for step in _STEPS:
            first = np.ceil(self.low / step)
            last = np.floor(self.high / step)
            if last - first < most:
                return np.arange(first, last + 1) * step
        return np.array([])

    def label(self, axis: Axis, most: int) -> None:
        fractions = self.ticks(most)
        axis.set_ticks(self.scale.forward(fractions), [percent_text(fraction) for fraction in fractions])


def _tick_families(most: int) -> Iterator[tuple[FloatArray, int]]:
    """Percentages as fractions, rounder ones first, and with how many ticks finer ones are not tried."""
    yield np.array([0.5]), most
    tails = [1 / 10**power for power in range(1, 7)]
    yield np.array([*tails, *(1 - tail for tail in tails)]), most
    yield np.array([0.3, 0.7, 0.2, 0.8, 0.4, 0.6]), most
    for digit in (5, 2):
        tails = [digit / 10**power for power in range(2, 7)]
        yield np.array([*tails, *(1 - tail for tail in tails)]), _ENOUGH_TICKS
    for step in (0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0005, 0.0002, 0.0001):
        yield np.arange(1.0, round(1 / step)) * step, _ENOUGH_TICKS


def frame_axes(
    axes: Axes, x: PercentAxis, y: PercentAxis, settings: tuple[str, str], side_cm: float, most: int
) -> None:
    """Limits, ticks (at most about this many) and labels of accuracy against accuracy."""
    axes.set_xlim(x.low, x.high)
    axes.set_ylim(y.low, y.high)
    x.label(axes.xaxis, most)
    y.label(axes.yaxis, most)
    points = side_cm * CM * 72
    axes.set_xlabel(axis_label(settings[0], 0.78 * points))
    axes.set_ylabel(axis_label(settings[1], 0.62 * points))


def percent_text(fraction: float) -> str:
    """
    >>> percent_text(0.7), percent_text(0.999)
    ('70', '99.9')
    """
    return f"{round(100 * fraction, 6) + 0.0:g}"  # Rounding removes 0.1 + 0.2, adding zero removes -0.


@dataclass(frozen=True)
class NamePlace:
    """A box for a name, in points, and where it is relative to its point."""

    box: Bbox
    dx: float
    dy: float

    @property
    def far(self) -> bool:
        """Too far from its point for a reader to be sure whose name it is."""
        return math.hypot(self.dx, self.dy) > 1.5 * _NEAR

    def leader(self, point: FloatArray) -> FloatArray:
        """Points along the line from the point to its name; none where the name is close enough without one."""
        reach = np.linspace(0.2, 1.0, 8 if self.far else 0)[:, None]
        return np.asarray(point + reach * np.array([self.dx, self.dy]))


def name_points(
    axes: Axes, points: Sequence[tuple[float, float, str]], obstacles: FloatArray, *, taken: Sequence[Bbox] = ()
) -> list[str]:
    """Write names at (x, y, name) in data coordinates; the names for which there was no room are returned.

    ``obstacles`` are (n, 2) data coordinates that names should not cover, ``taken`` are boxes in display
    coordinates that they must not. The figure's layout must be final.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None
    points_per_pixel = 72 / figure.dpi
    frame = _scaled(axes.get_window_extent(), points_per_pixel)
    occupied = [_scaled(box, points_per_pixel) for box in taken]
    marks = np.empty((0, 2))
    if len(obstacles):
        marks = axes.transData.transform(obstacles) * points_per_pixel
    unnamed = []
    for x, y, name in points:
        point = axes.transData.transform((x, y)) * points_per_pixel
        text = wrapped_name(name, _MAX_NAME_SHARE * frame.width, SMALL)
        place = _best_place(point, text, frame, marks, occupied)
        if place is None:
            unnamed.append(name)
            continue
        occupied.append(place.box)
        marks = np.vstack([marks, place.leader(point)])
        _write_name(axes, text, (x, y), place)
    return unnamed


def _scaled(box: Bbox, scale: float) -> Bbox:
    return Bbox.from_extents(*(value * scale for value in box.extents))


def _write_name(axes: Axes, text: str, point: tuple[float, float], place: NamePlace) -> None:
    angle = math.atan2(place.dy, place.dx)
    # The middle of the box relative to the point: matplotlib then needs no alignment rules.
    middle = (
        place.dx + place.box.width * math.cos(angle) / 2,
        place.dy + place.box.height * math.sin(angle) / 2,
    )
    leader = None
    if place.far:
        leader = {"arrowstyle": "-", "color": GREY, "lw": 0.4, "shrinkA": 0, "shrinkB": 1.5}
    axes.annotate(
        text,
        point,
        middle,
        textcoords="offset points",
        ha="center",
        va="center",
        fontsize=SMALL,
        color=BLACK,
        arrowprops=leader,
        annotation_clip=False,
        gid="name",
        zorder=5,
        linespacing=1.15,
        bbox=_VEIL,
    )


def _best_place(
    point: FloatArray, name: str, frame: Bbox, marks: FloatArray, occupied: Sequence[Bbox]
) -> NamePlace | None:
    """The place that covers the fewest marks, of equal ones the nearest; None if the name fits nowhere."""
    best = None
    lowest_cost = math.inf
    for place in _places(point, name):
        box = place.box
        inside = frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1
        if not inside or any(box.overlaps(name_box) for name_box in occupied):
            continue
        crossed = sum(marks_inside(name_box, place.leader(point)) for name_box in occupied)
        covered = marks_inside(box.padded(_MARK), marks)
        cost = 12.0 * (covered + crossed) + math.hypot(place.dx, place.dy)
        if cost < lowest_cost:
            best = place
            lowest_cost = cost
    return best


def _places(point: FloatArray, name: str) -> Iterator[NamePlace]:
    """All places of a name around its point, the closest first."""
    lines = name.split("\n")
    width = max(text_width(line, SMALL) for line in lines)
    height = 1.15 * SMALL * len(lines)
    for distance in _DISTANCES:
        for step in range(_DIRECTIONS):
            angle = 2 * math.pi * step / _DIRECTIONS
            dx = distance * math.cos(angle)
            dy = distance * math.sin(angle)
            # The side of the box that faces the point lies at the distance.
            left = point[0] + dx - width * (1 - math.cos(angle)) / 2
            bottom = point[1] + dy - height * (1 - math.sin(angle)) / 2
            yield NamePlace(Bbox.from_bounds(left, bottom, width, height), dx, dy)


def marks_inside(box: Bbox, marks: FloatArray) -> int:
    x, y = marks.T
    return int(((x > box.x0) & (x < box.x1) & (y > box.y0) & (y < box.y1)).sum())


def ring(axes: Axes, points: Sequence[tuple[float, float, str]]) -> None:
    """Circles around points that are named among many others."""
    if points:
        x, y, _ = zip(*points, strict=True)
        axes.scatter(x, y, 18, facecolor="none", edgecolor=BLACK, linewidth=0.7, zorder=4)


class _Corner(NamedTuple):
    """A corner of the axes."""

    right: bool
    top: bool

    def inwards(self, distance: float) -> tuple[float, float]:
        """The offset of a text that keeps this distance from both edges."""
        return (-distance if self.right else distance, -distance if self.top else distance)


def write_in_corner(axes: Axes, lines: Sequence[str], obstacles: FloatArray) -> Bbox | None:
    """Text in the corner where it covers least of (n, 2) data coordinates; its box in display coordinates."""
    if not lines:
        return None
    figure = axes.get_figure(root=True)
    assert figure is not None
    pixels = figure.dpi / 72
    frame = axes.get_window_extent()
    marks = axes.transData.transform(obstacles)
    gap = _GAP * pixels
    width = max(text_width(line, SMALL) for line in lines) * pixels
    height = 1.3 * SMALL * len(lines) * pixels
    best = _Corner(right=True, top=False)
    best_box: Bbox | None = None
    fewest_marks = 0
    for corner in (
        best,
        _Corner(right=False, top=True),
        _Corner(right=True, top=True),
        _Corner(right=False, top=False),
    ):
        left = frame.x1 - width - gap if corner.right else frame.x0 + gap
        bottom = frame.y1 - height - gap if corner.top else frame.y0 + gap
        box = Bbox.from_bounds(left, bottom, width, height)
        covered = marks_inside(box.padded(gap), marks)
        if best_box is None or covered < fewest_marks:
            best = corner
            best_box = box
            fewest_marks = covered
    axes.annotate(
        "\n".join(lines),
        (best.right, best.top),
        best.inwards(_GAP),
        xycoords="axes fraction",
        textcoords="offset points",
        ha="right" if best.right else "left",
        va="top" if best.top else "bottom",
        fontsize=SMALL,
        color=BLACK,
        linespacing=1.3,
        gid="summary",
        zorder=5,
        bbox=_VEIL,
    )
    return best_box
