"""The table of results: classifiers by settings, every cell a score with its interval.

Numbers of different provenance never share a column: a column is one (setting, metric, provenance, level,
method). Where one setting comes with two provenances it takes two columns, marked (a), (b), ..., and the
notes say what each mark stands for. A score from another number of images than the rest of its column is
marked with an asterisk.

Bold means: the best of its column, or not clearly worse, that is, its interval overlaps the best one's.
Overlap is a cautious rule; two classifiers on the same images are told apart more sharply by a paired test
(ComparisonTable). Nothing is bold where that would be every row.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from shiftbench.errors import ShiftbenchError, listed
from shiftbench.metrics.base import Score
from shiftbench.reports import formatting
from shiftbench.reports.base import Report

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Of more distinct provenance lines than this only what they share is shown.
_MOST_LINES = 6


class Entry(NamedTuple):
    """One number: who, where, what."""

    classifier: str
    setting: str
    score: Score


@dataclass(frozen=True)
class Column:
    """Scores that may be compared with each other."""

    setting: str
    metric: str
    provenance: str
    level: float
    method: str
    unit: str
    higher_is_better: bool
    #: "a", "b", ... where the same setting and metric needs several columns.
    mark: str = ""

    @property
    def key(self) -> tuple[str, str, str, float, str]:
        return (self.setting, self.metric, self.provenance, self.level, self.method)

    @property
    def heading(self) -> str:
        return f"{self.setting} ({self.mark})" if self.mark else self.setting


@dataclass(frozen=True)
class Cell:
    """One score as text."""

    value: str
    interval: str
    bold: bool
    #: Whether its n differs from the column's.
    odd_n: bool

    @property
    def shown(self) -> str:
        return self.value + "*" if self.odd_n else self.value


class ResultTable(Report):
    """Classifiers by settings.

    >>> table = ResultTable([
    ...     ("small", "clean", Score("top1", 0.70, 0.66, 0.74, n=500)),
    ...     ("large", "clean", Score("top1", 0.80, 0.76, 0.83, n=500)),
    ... ])
    >>> print(table.to_text(60))
    top1, %
    <BLANKLINE>
    classifier              clean
    ─────────────────────────────
    small       70.0 [66.0, 74.0]
    large       80.0 [76.0, 83.0]
    <BLANKLINE>
    95 % intervals: clopper-pearson; n = 500
    bold: best, or its interval overlaps the best one's
    <BLANKLINE>
    """

    def __init__(
        self, entries: Iterable[tuple[str, str, Score]], *, title: str = "", remarks: Sequence[str] = ()
    ) -> None:
        self.title, self.remarks = title, list(remarks)
        self.entries = [Entry(*entry) for entry in entries]
        self.classifiers = list(dict.fromkeys(entry.classifier for entry in self.entries))
        self.columns = _columns(self.entries)
        self._scores = self._place()
        self._usual_n = {column.key: self._most_common_n(column) for column in self.columns}
        self._bold = {column.key: self._not_clearly_worse(column) for column in self.columns}

    def score(self, classifier: str, column: Column) -> Score | None:
        return self._scores.get((classifier, column.key))

    def n(self, column: Column) -> int:
        """The number of images that most scores of the column come from."""
        return self._usual_n[column.key]

    def cell(self, classifier: str, column: Column) -> Cell:
        score = self.score(classifier, column)
        if score is None:
            return Cell("", "", bold=False, odd_n=False)
        # One number of digits a column, so that the points stand under each other.
        places = formatting.digits(self.n(column), column.unit)
        return Cell(
            formatting.number(score.value, places, column.unit),
            formatting.interval(score.low, score.high, places, column.unit),
            bold=classifier in self._bold[column.key],
            odd_n=score.n != self.n(column),
        )

    def sorted(self, by: str = "name", *, descending: bool | None = None) -> ResultTable:
        """The same table with its rows in order: ``"name"``, or best first by a setting or setting:metric."""
        if by == "name":
            order = sorted(self.classifiers, key=str.casefold, reverse=bool(descending))
        else:
            column = self._column(by)
            reverse = column.higher_is_better if descending is None else descending
            order = sorted(self.classifiers, key=lambda name: self._rank(name, column, reverse))
        place = {name: i for i, name in enumerate(order)}
        rows = sorted(self.entries, key=lambda entry: place[entry.classifier])
        return ResultTable(rows, title=self.title, remarks=self.remarks)

    @property
    def one_metric(self) -> bool:
        """Then its name is said once, on top."""
        return len({column.metric for column in self.columns}) == 1

    @property
    def one_unit(self) -> bool:
        return len({column.unit for column in self.columns}) == 1

    @property
    def caption(self) -> str:
        metric = self.columns[0].metric if self.one_metric else ""
        unit = self.columns[0].unit if self.one_unit else ""
        what = f"{metric}, {unit}" if metric and unit else metric or unit
        return " · ".join(part for part in (self.title, what) if part)

    def heading(self, column: Column) -> tuple[str, str]:
        """The lines over a column: setting, and metric unless the caption says it."""
        if self.one_metric:
            return column.heading, ""
        return column.heading, column.metric if self.one_unit else f"{column.metric} {column.unit}".rstrip()

    @property
    def same_n(self) -> bool:
        return len(set(self._usual_n.values())) == 1

    def notes(self, emphasis: str = "bold") -> list[str]:
        """The lines under the table: interval and n, marks, provenance, what the emphasis means."""
        if not self.columns:
            return self.remarks
        rule = f"{emphasis}: best, or its interval overlaps the best one's"
        return [
            self._interval_note(),
            *self._mark_notes(),
            *self._n_notes(),
            *self._provenance_notes(),
            *([rule] if any(self._bold.values()) else []),
            *self.remarks,
        ]

    def renderables(self, width: int, *, ascii_only: bool) -> Iterator[RenderableType]:
        from shiftbench.reports.terminal import result_table

        yield from result_table(self, width, ascii_only=ascii_only)

    def to_markdown(self) -> str:
        from shiftbench.reports.writers import result_markdown

        return result_markdown(self)

    def to_csv(self) -> str:
        from shiftbench.reports.writers import result_csv

        return result_csv(self)

    def to_latex(self) -> str:
        from shiftbench.reports.writers import result_latex

        return result_latex(self)

    def as_data(self) -> dict[str, Any]:
        from shiftbench.reports.writers import result_data

        return result_data(self)

    def _place(self) -> dict[tuple[str, tuple[str, str, str, float, str]], Score]:
        placed: dict[tuple[str, tuple[str, str, str, float, str]], Score] = {}
        for entry in self.entries:
            key = (entry.classifier, _key(entry))
            # repr, because nan is not equal to itself
            if key in placed and repr(placed[key]) != repr(entry.score):
                raise ShiftbenchError(
                    f"two different scores for {entry.classifier!r} in {entry.setting!r} have one provenance",
                    found=f"{entry.score.metric} {placed[key].value:g} and {entry.score.value:g}",
                    expected="one score, or provenance lines that tell them apart",
                )
            placed[key] = entry.score
        return placed

    def _column_scores(self, column: Column) -> dict[str, Score]:
        found = {name: self.score(name, column) for name in self.classifiers}
        return {name: score for name, score in found.items() if score is not None}

    def _most_common_n(self, column: Column) -> int:
        counts = Counter(score.n for score in self._column_scores(column).values())
        return max(counts, key=lambda n: (counts[n], n))

    def _not_clearly_worse(self, column: Column) -> set[str]:
        scores = {k: s for k, s in self._column_scores(column).items() if not math.isnan(s.value)}
        if len(scores) < 2:
            return set()
        sign = 1 if column.higher_is_better else -1
        best = max(scores.values(), key=lambda score: sign * score.value)
        if column.higher_is_better:
            near = {name for name, score in scores.items() if score is best or score.high >= best.low}
        else:
            near = {name for name, score in scores.items() if score is best or score.low <= best.high}
        return set() if len(near) == len(scores) else near

    def _column(self, by: str) -> Column:
        for column in self.columns:
            if by in (column.setting, column.heading, f"{column.setting}:{column.metric}"):
                return column
        raise ShiftbenchError(
            "no column to sort by",
            found=by,
            expected=f"'name' or one of {', '.join(column.setting for column in self.columns)}",
        )

    def _rank(self, classifier: str, column: Column, reverse: bool) -> tuple[bool, float]:
        score = self.score(classifier, column)
        if score is None or math.isnan(score.value):
            return (True, 0.0)  # last in either direction
        return (False, -score.value if reverse else score.value)

    def _interval_note(self) -> str:
        kinds: dict[tuple[float, str], list[str]] = {}
        for column in self.columns:
            kinds.setdefault((column.level, column.method), []).append(column.metric)
        parts = []
        for (level, method), names in kinds.items():
            whose = f" ({listed(dict.fromkeys(names), 3)})" if len(kinds) > 1 else ""
            parts.append(f"{formatting.level_text(level)} intervals: {method}{whose}")
        if self.same_n:
            parts.append(f"n = {formatting.count(self.n(self.columns[0]))}")
        return "; ".join(parts)

    def _mark_notes(self) -> list[str]:
        marked = {column.mark: column for column in self.columns if column.mark}
        same_kind = len({(column.level, column.method) for column in marked.values()}) == 1
        return [
            f"({mark}) {_describe(marked[mark], kind=not same_kind)}"
            for mark in sorted(marked, key=lambda mark: (len(mark), mark))
        ]

    def _n_notes(self) -> list[str]:
        odd: dict[tuple[str, int], list[str]] = {}
        for column in self.columns:
            for name, score in self._column_scores(column).items():
                if score.n != self.n(column):
                    odd.setdefault((name, score.n), []).append(column.heading)
        parts = [
            f"{name} n = {formatting.count(n)} in {listed(dict.fromkeys(settings), 3)}"
            for (name, n), settings in odd.items()
        ]
        return [f"* another number of images than its column: {listed(parts, 3)}"] if parts else []

    def _provenance_notes(self) -> list[str]:
        unmarked = [column for column in self.columns if not column.mark and column.provenance]
        lines: dict[str, list[Column]] = {}
        for column in unmarked:
            lines.setdefault(column.provenance, []).append(column)
        if len(lines) > _MOST_LINES:
            return [f"provenance: {_shared_parts(list(lines))}; in full in CSV and JSON"]
        if len(lines) == 1 and len(unmarked) == len(self.columns):
            return [f"provenance: {formatting.one_line(unmarked[0].provenance)}"]
        # A setting's metrics can differ in provenance (one is divided by a baseline): then say which.
        several = Counter(setting for setting, _ in {(c.setting, c.provenance) for c in unmarked})
        notes = []
        for line, columns in lines.items():
            names = [c.setting if several[c.setting] == 1 else f"{c.setting} {c.metric}" for c in columns]
            notes.append(f"provenance of {listed(dict.fromkeys(names), 3)}: {formatting.one_line(line)}")
        return notes


def _key(entry: Entry) -> tuple[str, str, str, float, str]:
    score = entry.score
    return (entry.setting, score.metric, score.provenance, score.level, score.method)


def _columns(entries: list[Entry]) -> list[Column]:
    """Columns in the order in which they first occur, with marks where a setting needs several."""
    first: dict[tuple[str, str, str, float, str], Entry] = {}
    for entry in entries:
        first.setdefault(_key(entry), entry)
    wanted = Counter(key[:2] for key in first)
    letters: dict[tuple[str, float, str], str] = {}
    columns = []
    for key, entry in first.items():
        mark = ""
        if wanted[key[:2]] > 1:
            # The same provenance has the same letter in every setting.
            mark = letters.setdefault(key[2:], _letter(len(letters)))
        score = entry.score
        columns.append(Column(*key, unit=score.unit, higher_is_better=score.higher_is_better, mark=mark))
    return columns


def _letter(index: int) -> str:
    """a to z, then aa, ab, ..."""
    head, tail = divmod(index, 26)
    return (_letter(head - 1) if head else "") + chr(ord("a") + tail)


def _describe(column: Column, *, kind: bool) -> str:
    provenance = formatting.one_line(column.provenance) or "provenance not known"
    return f"{provenance} ({formatting.level_text(column.level)}, {column.method})" if kind else provenance


def _shared_parts(lines: list[str]) -> str:
    """What many provenance lines have in common: the parts, between semicolons, that several of them say."""
    counts = Counter(part for line in lines for part in dict.fromkeys(formatting.one_line(line).split("; ")))
    shared = [
        part if count == len(lines) else f"{part} ({count} of {len(lines)})"
        for part, count in counts.items()
        if count > 1
    ]
    return "; ".join(shared) if shared else f"{len(lines)} different lines"
