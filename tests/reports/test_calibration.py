"""Reliability diagrams as text."""

from __future__ import annotations

from functools import partial

import pytest

from shiftbench.reports.table import Number, interval_chart

BINS = [("0–50 %, n = 4", Number(0.5, 0.25, 0.75)), ("50–100 %, n = 0", None)]


@pytest.mark.parametrize("width", [20, 60, 200])
def test_a_chart_keeps_to_its_width_where_it_can(width: int) -> None:
    for ascii_only in (True, False):
        lines = interval_chart(BINS, width, ascii_only, [0.75, None])
        assert len(lines) == 2 and all(len(line) <= max(width, 34) for line in lines)
        assert all(line.isascii() for line in lines) or not ascii_only


def test_values_ends_and_marks_stand_where_the_numbers_say() -> None:
    draw = partial(interval_chart, BINS, 15 + 2 + 11 + 7, True)
    assert draw()[0] == "0-50 %, n = 4    |----*----| 50.0"
    assert draw([0.7, None])[0] == "0-50 %, n = 4    |----*---o| 50.0"
    assert draw()[1].endswith(" -")
