"""Reliability diagrams as text."""

from __future__ import annotations

import pytest

from shiftbench.metrics.calibration import reliability_diagram
from shiftbench.reports.calibration import diagram_lines


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_diagram_keeps_to_its_width_where_it_can(width: int, ascii_only: bool) -> None:
    bins = reliability_diagram([0.05, 0.55, 0.56, 0.95, 1.0], [0, 1, 0, 1, 1], 10)
    lines = diagram_lines(bins, width, ascii_only)
    assert len(lines) == 11 and all(len(line) <= max(width, 24) for line in lines)
    assert all(line.isascii() for line in lines) or not ascii_only
    assert lines[-1].lstrip().startswith("90") and " 2 " in lines[-1] and "100.0" in lines[-1]


def test_bars_and_marks_stand_where_the_numbers_say() -> None:
    """60 columns leave 22 for the bar: half of it for half right, and the mark at 85 % of it."""
    [line] = diagram_lines(reliability_diagram([0.85] * 4, [1, 1, 0, 0], 1), 60, True)[1:]
    assert line.split("]  ")[1] == "#" * 11 + " " * 7 + "|"
