"""Numbers on their way to the page: rounded so that the file stays small, and null where nothing is defined."""

from __future__ import annotations

import math

from shiftbench.metrics.base import Score
from shiftbench.reports.page.payload import Cell

#: Significant digits of a value: lines through accuracies near 0 then agree with Python's to four digits.
_DIGITS = 7
_END_PLACES = 5


def cell(value: float, low: float = math.nan, high: float = math.nan, n: float = math.nan) -> Cell | None:
    """
    >>> cell(0.76134567, 0.7575, 0.7651, 50_000), cell(0.5), cell(float("nan"))
    ((0.7613457, 0.7575, 0.7651, 50000), (0.5, None, None, None), None)
    """
    if not math.isfinite(value):
        return None
    both = math.isfinite(low) and math.isfinite(high)
    ends = (round(low, _END_PLACES), round(high, _END_PLACES)) if both else (None, None)
    return rounded(value), *ends, _count(n)


def score_cell(score: Score | None) -> Cell | None:
    return None if score is None else cell(score.value, score.low, score.high, score.n)


def rounded(value: float) -> float:
    """As the value of a cell, so that a threshold and a cell that were equal stay equal."""
    return float(f"{value:.{_DIGITS}g}")


def _count(n: float) -> float | None:
    if not math.isfinite(n):
        return None
    return int(n) if n == int(n) else float(n)
