"""A reliability diagram as lines of text: for each bin of confidence how often the classifier is right."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shiftbench.metrics.calibration import ReliabilityBin
from shiftbench.reports import formatting

LEGEND = "bar: share that is right; mark: mean confidence. A bar that ends short of its mark is overconfident."
_HEADER = ("confidence %", "n", "right %", "")
_LEAST_BAR, _MOST_BAR, _GAP = 10, 50, 2
_UNICODE, _ASCII = ("█", "│"), ("#", "|")


def diagram_lines(bins: Sequence[ReliabilityBin], width: int, *, ascii_only: bool) -> list[str]:
    """A line a bin, the most confident last.

    >>> made = [ReliabilityBin(0.0, 0.5, 4, 0.4, 0.25, 0.0, 0.8), ReliabilityBin(0.5, 1.0, 0, *[math.nan] * 4)]
    >>> print("\\n".join(diagram_lines(made, 55, ascii_only=True)))
    confidence %  n  right %
            0-50  4     25.0 [0.0, 80.0]  ####  |
          50-100  0
    """
    whole = [_HEADER, *(_cells(one) for one in bins)]
    # In a narrow terminal the picture says more than the ends of the intervals.
    short = [(*row[:3], "") for row in whole]
    rows, room = next((r, _room(r, width)) for r in (whole, short) if r is short or _room(r, width) >= _LEAST_BAR)
    marks = _ASCII if ascii_only else _UNICODE
    drawn = ["", *(_bar(one, room, marks) if one.n else "" for one in bins)]
    lines = [_line(row, _sizes(rows), drawing) for row, drawing in zip(rows, drawn, strict=True)]
    return [formatting.ascii_text(line) for line in lines] if ascii_only else lines


def _cells(one: ReliabilityBin) -> tuple[str, str, str, str]:
    """Confidence, images, accuracy and its interval."""
    share, ends = formatting.number(one.accuracy, 1), formatting.interval(one.low, one.high, 1)
    name = f"{100 * one.start:.3g}–{100 * one.stop:.3g}"
    return (name, formatting.count(one.n), share if one.n else "", f" {ends}" if one.n else "")


def _sizes(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _room(rows: Sequence[Sequence[str]], width: int) -> int:
    """What is left for the bars."""
    return max(0, min(_MOST_BAR, width - sum(_sizes(rows)) - 3 * _GAP))


def _line(row: Sequence[str], sizes: Sequence[int], drawing: str) -> str:
    gap, (name, n, right, ends) = " " * _GAP, sizes
    return f"{row[0]:>{name}}{gap}{row[1]:>{n}}{gap}{row[2]:>{right}}{row[3]:<{ends}}{gap}{drawing}".rstrip()


def _bar(one: ReliabilityBin, width: int, marks: tuple[str, str]) -> str:
    if not width:
        return ""
    full, mark = marks
    bar = full * round(one.accuracy * width)
    place = min(width - 1, math.floor(one.confidence * width))
    return f"{bar:<{width}}"[:place] + mark + f"{bar:<{width}}"[place + 1 :]
