"""Axes for accuracies: logit, probit or linear positions, ticks in percent, two edges.

Points are placed by the scale's own function, so that a fitted line is a straight one. An accuracy of 0 or 100 %
has no place on the logit and probit scales: it is put on the edge of the axes and drawn with a mark of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shiftbench.arrays import FloatArray
from shiftbench.reports.figures.style import CM, axis_label
from shiftbench.studies.base import Scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

#: Share of the axis that is left free on either side.
_MARGIN = 0.05
_ENOUGH = 4
#: Distances between ticks, finest first.
_STEPS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1.0)


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
        low, high = (float(usable.min()), float(usable.max())) if len(usable) else _middle(scale)
        if least is not None and bool(scale.usable(np.array([least]))[0]):
            low = min(high, float(scale.forward(np.array([least]))[0]))
        margin = _MARGIN * (high - low) or 0.05
        low, high = low - margin, high + margin
        if scale.holds_ends:  # nothing is below 0 or above 1
            low, high = max(low, -0.02), min(high, 1.02)
        return PercentAxis(scale, low, high)

    def place(self, fractions: FloatArray) -> FloatArray:
        """Positions within the limits; what lies beyond an edge is put on it, nan stays nan."""
        with np.errstate(divide="ignore", invalid="ignore"):
            position = self.scale.forward(np.asarray(fractions, dtype=np.float64))
        return np.asarray(np.clip(position, self.low, self.high))

    def ticks(self, most: int) -> FloatArray:
        """Fractions that are shown, round ones first; at most about so many."""
        if self.scale.holds_ends:
            return self._even_ticks(most)
        gap = (self.high - self.low) / most
        taken: list[tuple[float, float]] = []
        for family, enough in _families(most):
            fractions = family[self.scale.usable(family)]
            for position, fraction in zip(self.scale.forward(fractions), fractions, strict=True):
                inside = self.low <= position <= self.high
                if inside and all(abs(position - other) >= gap for other, _ in taken):
                    taken.append((float(position), float(fraction)))
            if len(taken) >= enough:
                break
        return np.array([fraction for _, fraction in sorted(taken)])

    def _even_ticks(self, most: int) -> FloatArray:
        for step in _STEPS:
            first, last = np.ceil(self.low / step), np.floor(self.high / step)
            if last - first < most:
                return np.arange(first, last + 1) * step
        return np.array([])

    def label(self, axis: Axis, most: int) -> None:
        """Put the ticks on a Matplotlib axis."""
        fractions = self.ticks(most)
        axis.set_ticks(self.scale.forward(fractions), [percent_text(fraction) for fraction in fractions])


def frame_axes(
    axes: Axes, x: PercentAxis, y: PercentAxis, settings: tuple[str, str], side_cm: float, most: int
) -> None:
    """Limits, ticks (at most about so many) and labels of accuracy against accuracy."""
    axes.grid(visible=True)
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
    return f"{round(100 * fraction, 6) + 0.0:g}"  # neither 0.1 + 0.2 nor -0


def _families(most: int) -> Iterator[tuple[FloatArray, int]]:
    """Percentages as fractions, rounder ones first, and with how many ticks finer ones are not tried."""
    yield np.array([0.5]), most
    tails = [float(f"1e-{power}") for power in range(1, 7)]
    yield np.array([*tails, *(1 - tail for tail in tails)]), most
    yield np.array([0.3, 0.7, 0.2, 0.8, 0.4, 0.6]), most
    for digit in (5, 2):
        small = [float(f"{digit}e-{power}") for power in range(2, 7)]
        yield np.array([*small, *(1 - part for part in small)]), _ENOUGH
    for step in (0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0005, 0.0002, 0.0001):
        yield np.arange(1.0, round(1 / step)) * step, _ENOUGH


def _middle(scale: Scale) -> tuple[float, float]:
    low, high = scale.forward(np.array([0.25, 0.75]))
    return float(low), float(high)
