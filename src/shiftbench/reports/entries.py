"""Scores on their way into a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from shiftbench.metrics.base import Score

Entries = list[tuple[str, str, Score]]


def in_one_column(entries: Iterable[tuple[str, str, Score]]) -> Entries:
    """The same scores, those of one setting and metric under one method, so that they share a column.

    Where resampling shows no spread a score has an exact bound instead: another way to the same interval, and no
    reason to keep two classifiers apart.
    """
    given = list(entries)
    methods: dict[tuple[str, str], dict[str, None]] = {}
    for _, setting, score in given:
        methods.setdefault((setting, score.metric), {})[score.method] = None
    return [
        (name, setting, replace(score, method=_joined(list(methods[setting, score.metric]))))
        for name, setting, score in given
    ]


def _joined(methods: Sequence[str]) -> str:
    usual = [method for method in methods if not method.startswith("exact")]
    if len(methods) == 1 or not usual:
        return methods[0]
    return f"{' or '.join(usual)}, exact where nothing varies"


def named(titles: Iterable[str]) -> str:
    """
    >>> named(["a", "b", "c"]), named(["a"])
    ('a, b and c', 'a')
    """
    *first, last = titles
    return f"{', '.join(first)} and {last}" if first else last
