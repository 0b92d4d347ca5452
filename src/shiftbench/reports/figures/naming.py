"""Names beside points, none over another, none outside the axes.

Every name is tried at eight places around its point, close by first and then farther away with a thin line to the
point. Of the places where it covers no other name and stays inside, the one that covers the fewest points is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from shiftbench.arrays import FloatArray
from shiftbench.reports.figures.style import BLACK, GREY, SMALL, text_width, wrapped_name

#: Points between a mark and its name.
_NEAR = 4.0
_DISTANCES = (_NEAR, 9.0, 16.0, 25.0, 36.0, 50.0, 70.0)
_DIRECTIONS = 16
#: A name wider than this share of the axes is broken.
_WIDEST = 0.5
#: Points between text in a corner and the axes.
_GAP = 4.0
#: Behind text, so that it can be read over a line.
_VEIL = {"boxstyle": "square,pad=0.05", "facecolor": "white", "edgecolor": "none", "alpha": 0.7}
#: Half a mark, in points: what a name should not cover.
_MARK = 2.5


@dataclass(frozen=True)
class Place:
    """A box for a name, in points, and where it is relative to its point."""

    box: Bbox
    dx: float
    dy: float

    @property
    def far(self) -> bool:
        """Too far from its point for a reader to be sure whose name it is."""
        return math.hypot(self.dx, self.dy) > 1.5 * _NEAR

    def leader(self, at: FloatArray) -> FloatArray:
        """Points along the line from the point to its name."""
        reach = np.linspace(0.2, 1.0, 8 if self.far else 0)[:, None]
        return np.asarray(at + reach * np.array([self.dx, self.dy]))


def name_points(
    axes: Axes,
    points: Sequence[tuple[float, float, str]],
    obstacles: FloatArray,
    *,
    taken: Sequence[Bbox] = (),
    size: float = SMALL,
    colour: str = BLACK,
) -> list[str]:
    """Write names at (x, y, name) in data coordinates; the names for which there was no room are returned.

    ``obstacles`` are (n, 2) data coordinates that names should not cover, ``taken`` are boxes in display
    coordinates that they must not. The figure's layout must be final.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None
    points_per_pixel = 72 / figure.dpi
    frame = _scaled(axes.get_window_extent(), points_per_pixel)
    marks = axes.transData.transform(obstacles) * points_per_pixel if len(obstacles) else np.empty((0, 2))
    occupied = [_scaled(box, points_per_pixel) for box in taken]
    unnamed = []
    for x, y, name in points:
        at = axes.transData.transform((x, y)) * points_per_pixel
        text = wrapped_name(name, _WIDEST * frame.width, size)
        place = _best(at, text, size, frame, marks, occupied)
        if place is None:
            unnamed.append(name)
            continue
        occupied.append(place.box)
        marks = np.vstack([marks, place.leader(at)])
        _write(axes, x, y, text, place, size, colour)
    return unnamed


def ring(axes: Axes, points: Sequence[tuple[float, float, str]]) -> None:
    """Circles around points that are named among many others."""
    if points:
        x, y, _ = zip(*points, strict=True)
        axes.scatter(x, y, 18, facecolor="none", edgecolor=BLACK, linewidth=0.7, zorder=4)


def write_in_corner(axes: Axes, lines: Sequence[str], obstacles: FloatArray) -> Bbox | None:
    """Text in the corner where it covers least of (n, 2) data coordinates; its box in display coordinates."""
    if not lines:
        return None
    figure = axes.get_figure(root=True)
    assert figure is not None
    pixels = figure.dpi / 72
    frame, seen, gap = axes.get_window_extent(), axes.transData.transform(obstacles), _GAP * pixels
    width = max(text_width(line, SMALL) for line in lines) * pixels
    height = 1.3 * SMALL * len(lines) * pixels
    corners = []
    for right, top in ((1, 0), (0, 1), (1, 1), (0, 0)):
        left = frame.x1 - width - gap if right else frame.x0 + gap
        bottom = frame.y1 - height - gap if top else frame.y0 + gap
        box = Bbox.from_bounds(left, bottom, width, height)
        corners.append((marks_inside(box.padded(gap), seen), box, right, top))
    _, box, right, top = min(corners, key=lambda corner: corner[0])
    axes.annotate(
        "\n".join(lines), (right, top), (-_GAP if right else _GAP, -_GAP if top else _GAP), xycoords="axes fraction",
        textcoords="offset points", ha="right" if right else "left", va="top" if top else "bottom", fontsize=SMALL,
        color=BLACK, linespacing=1.3, gid="summary", zorder=5, bbox=_VEIL,
    )  # fmt: skip
    return box


def _best(
    at: FloatArray, name: str, size: float, frame: Bbox, marks: FloatArray, occupied: Sequence[Bbox]
) -> Place | None:
    best, lowest = None, math.inf
    lines = name.split("\n")
    width = max(text_width(line, size) for line in lines)
    for place in _places(at, width, 1.15 * size * len(lines)):
        box = place.box
        inside = frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1
        if not inside or any(box.overlaps(other) for other in occupied):
            continue
        crossed = sum(marks_inside(other, place.leader(at)) for other in occupied)
        cost = 12.0 * (marks_inside(box.padded(_MARK), marks) + crossed) + math.hypot(place.dx, place.dy)
        if cost < lowest:
            best, lowest = place, cost
    return best


def _places(at: FloatArray, width: float, height: float) -> Iterator[Place]:
    for distance in _DISTANCES:
        for step in range(_DIRECTIONS):
            angle = 2 * math.pi * step / _DIRECTIONS
            dx, dy = distance * math.cos(angle), distance * math.sin(angle)
            # The side of the box that faces the point lies at the distance.
            left = at[0] + dx - width * (1 - math.cos(angle)) / 2
            bottom = at[1] + dy - height * (1 - math.sin(angle)) / 2
            yield Place(Bbox.from_bounds(left, bottom, width, height), dx, dy)


def marks_inside(box: Bbox, marks: FloatArray) -> int:
    """How many of (n, 2) points lie in a box."""
    x, y = marks.T
    return int(((x > box.x0) & (x < box.x1) & (y > box.y0) & (y < box.y1)).sum())


def _write(axes: Axes, x: float, y: float, name: str, place: Place, size: float, colour: str) -> Annotation:
    angle = math.atan2(place.dy, place.dx)
    width, height = place.box.width, place.box.height
    # The middle of the box relative to the point: matplotlib then needs no alignment rules.
    middle = (place.dx + width * math.cos(angle) / 2, place.dy + height * math.sin(angle) / 2)
    line = {"arrowstyle": "-", "color": GREY, "lw": 0.4, "shrinkA": 0, "shrinkB": 1.5} if place.far else None
    return axes.annotate(
        name, (x, y), middle, textcoords="offset points", ha="center", va="center", fontsize=size, color=colour,
        arrowprops=line, annotation_clip=False, gid="name", zorder=5, linespacing=1.15,
        bbox=_VEIL,
    )  # fmt: skip


def _scaled(box: Bbox, factor: float) -> Bbox:
    return Bbox.from_extents(*(value * factor for value in box.extents))
