"""Scores of models in settings, as a table of intervals.

Numbers of different provenance never share a column: a column is one (setting, metric, provenance, level,
method). Where one setting comes with two provenances it takes two columns, marked (a), (b), ..., and the
notes explain each mark. A score from another number of images than the rest of its column is marked with an
asterisk.

Bold means: the best of its column, or not clearly worse, that is, its interval overlaps the best one's.
Overlap is a cautious rule; two models on the same images are compared more sharply by a paired test
(``reports.comparisons``). Nothing is bold where that would be every row.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from shiftbench.errors import ShiftbenchError, listed
from shiftbench.metrics.base import Score
from shiftbench.reports import formatting
from shiftbench.reports.table import Column, Diagram, Number, Table
from shiftbench.reports.writers import plain

#: Of more distinct provenance lines than this only what they share is shown.
_MOST_LINES = 6
_KEYS = ("classifier", "setting", "metric", "value", "low", "high", "n", "level", "method", "unit", "provenance")
#: Behind a number that a design estimates.
ESTIMATE = "~"
#: (model, setting, score)
Entries = list[tuple[str, str, Score]]
_Key = tuple[str, str, str, float, str]


def score_table(
    entries: Iterable[tuple[str, str, Score]],
    *,
    title: str = "",
    remarks: Sequence[str] = (),
    diagrams: Sequence[Diagram] = (),
) -> Table:
    """Models by settings.

    >>> table = score_table([
    ...     ("small", "clean", Score("top1", 0.70, 0.66, 0.74, n=500)),
    ...     ("large", "clean", Score("top1", 0.80, 0.76, 0.83, n=500)),
    ... ])
    >>> print(table.to_text(60))
    top1, %
    <BLANKLINE>
    model              clean
    ────────────────────────
    small  70.0 [66.0, 74.0]
    large  80.0 [76.0, 83.0]
    <BLANKLINE>
    95 % intervals: clopper-pearson; n = 500
    bold: best, or its interval overlaps the best one's
    <BLANKLINE>
    """
    grid = ScoreGrid(entries)
    columns = [Column("classifier", "model"), *(grid.shown_column(column) for column in grid.columns)]
    shown = [
        {"classifier": name, **{str(column.key): grid.number(name, column) for column in grid.columns}}
        for name in grid.classifiers
    ]
    found = [(name, one, grid.score(name, one)) for name in grid.classifiers for one in grid.columns]
    scores: list[dict[str, Any]] = [
        {"classifier": name, "setting": column.setting, **score.as_dict()} for name, column, score in found if score
    ]
    notes = grid.notes()
    return Table(
        columns,
        scores,
        shown=shown,
        keys=(*_KEYS, "passes") if any("passes" in score for score in scores) else _KEYS,
        title=" · ".join(part for part in (title, grid.caption) if part),
        lead=[] if shown else ["no results yet"],
        notes=notes,
        remarks=remarks,
        diagrams=diagrams,
        data={"title": title, "scores": [plain(score) for score in scores], "notes": [*notes, *remarks]},
        turned="setting",
    )


class ScoreEntry(NamedTuple):
    """One number: who, where, what."""

    classifier: str
    setting: str
    score: Score


@dataclass(frozen=True)
class ScoreColumn:
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
    def key(self) -> _Key:
        return (self.setting, self.metric, self.provenance, self.level, self.method)

    @property
    def heading(self) -> str:
        return f"{self.setting} ({self.mark})" if self.mark else self.setting


class ScoreGrid:
    """Scores by model and column: which share a column, which are best, and what has to be noted."""

    def __init__(self, entries: Iterable[tuple[str, str, Score]]) -> None:
        self.entries = [ScoreEntry(*entry) for entry in entries]
        self.classifiers = list(dict.fromkeys(entry.classifier for entry in self.entries))
        self.columns = _columns(self.entries)
        self._scores = self._place()
        self._usual_n = {column.key: self._most_common_n(column) for column in self.columns}
        self._bold = {column.key: self._not_clearly_worse(column) for column in self.columns}

    def score(self, classifier: str, column: ScoreColumn) -> Score | None:
        return self._scores.get((classifier, column.key))

    def n(self, column: ScoreColumn) -> int:
        """The number of images that most scores of the column come from."""
        return self._usual_n[column.key]

    def number(self, classifier: str, column: ScoreColumn) -> Number | str:
        score = self.score(classifier, column)
        if score is None:
            return ""
        bold, mark = classifier in self._bold[column.key], "" if score.n == self.n(column) else "*"
        return Number(score.value, score.low, score.high, bold=bold, mark=mark + ESTIMATE * (score.passes is not None))

    def shown_column(self, column: ScoreColumn) -> Column:
        """One number of digits per column, so that the points stand under each other."""
        heading, metric = self.heading(column)
        n = self.n(column)
        return Column(
            str(column.key),
            heading,
            "number",
            places=formatting.digits(n, column.unit),
            times=100.0 if column.unit == "%" else 1.0,
            subheading=metric,
            n="" if self.same_n else formatting.count(n),
        )

    @property
    def one_metric(self) -> bool:
        """Then the title has it."""
        return len({column.metric for column in self.columns}) == 1

    @property
    def one_unit(self) -> bool:
        return len({column.unit for column in self.columns}) == 1

    @property
    def caption(self) -> str:
        """Metric and unit, if all columns share them."""
        metric = self.columns[0].metric if self.columns and self.one_metric else ""
        unit = self.columns[0].unit if self.columns and self.one_unit else ""
        return f"{metric}, {unit}" if metric and unit else metric or unit

    def heading(self, column: ScoreColumn) -> tuple[str, str]:
        """The lines over a column: setting, and metric unless the caption has it."""
        if self.one_metric:
            return column.heading, ""
        return column.heading, column.metric if self.one_unit else f"{column.metric} {column.unit}".rstrip()

    @property
    def same_n(self) -> bool:
        return len(set(self._usual_n.values())) == 1

    def notes(self) -> list[str]:
        """The lines under the table: interval and n, marks, provenance, what bold means."""
        if not self.columns:
            return []
        rule = "bold: best, or its interval overlaps the best one's"
        return [
            self._interval_note(),
            *self._mark_notes(),
            *self._n_notes(),
            *self._estimate_notes(),
            *self._provenance_notes(),
            *([rule] if any(self._bold.values()) else []),
        ]

    def _place(self) -> dict[tuple[str, _Key], Score]:
        placed: dict[tuple[str, _Key], Score] = {}
        for entry in self.entries:
            key = (entry.classifier, _key(entry))
            # As text, because nan is not equal to itself.
            if key in placed and str(placed[key].as_dict()) != str(entry.score.as_dict()):
                raise ShiftbenchError(
                    f"two different scores for {entry.classifier!r} in {entry.setting!r} have one provenance",
                    found=f"{entry.score.metric} {placed[key].value:g} and {entry.score.value:g}",
                    expected="one score, or provenance lines that differ",
                )
            placed[key] = entry.score
        return placed

    def _column_scores(self, column: ScoreColumn) -> dict[str, Score]:
        found = {name: self.score(name, column) for name in self.classifiers}
        return {name: score for name, score in found.items() if score is not None}

    def _most_common_n(self, column: ScoreColumn) -> int:
        counts = Counter(score.n for score in self._column_scores(column).values())
        return max(counts, key=lambda n: (counts[n], n))

    def _not_clearly_worse(self, column: ScoreColumn) -> set[str]:
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

    def _estimate_notes(self) -> list[str]:
        passes = sorted({one.score.passes for one in self.entries if one.score.passes is not None})
        some = " to ".join(formatting.count(number) for number in (*passes[:1], *passes[1:][-1:]))
        return [f"{ESTIMATE} estimate of the full grid's number from {some} forward passes per model"] if passes else []

    def _provenance_notes(self) -> list[str]:
        unmarked = [column for column in self.columns if not column.mark and column.provenance]
        lines: dict[str, list[ScoreColumn]] = {}
        for column in unmarked:
            lines.setdefault(column.provenance, []).append(column)
        if len(lines) > _MOST_LINES:
            return [f"provenance: {_shared_parts(list(lines))}; in full in CSV and JSON"]
        if len(lines) == 1 and len(unmarked) == len(self.columns):
            return [f"provenance: {formatting.one_line(unmarked[0].provenance)}"]
        # A setting's metrics can differ in provenance (one is divided by a baseline): then name it.
        several = Counter(setting for setting, _ in {(c.setting, c.provenance) for c in unmarked})
        notes = []
        for line, columns in lines.items():
            names = [c.setting if several[c.setting] == 1 else f"{c.setting} {c.metric}" for c in columns]
            notes.append(f"provenance of {listed(dict.fromkeys(names), 3)}: {formatting.one_line(line)}")
        return notes


def _key(entry: ScoreEntry) -> _Key:
    score = entry.score
    return (entry.setting, score.metric, score.provenance, score.level, score.method)


def _columns(entries: list[ScoreEntry]) -> list[ScoreColumn]:
    """Columns in the order in which they first occur, with marks where a setting needs several."""
    first: dict[_Key, ScoreEntry] = {}
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
        columns.append(ScoreColumn(*key, unit=score.unit, higher_is_better=score.higher_is_better, mark=mark))
    return columns


def _letter(index: int) -> str:
    """a to z, then aa, ab, ..."""
    head, tail = divmod(index, 26)
    return (_letter(head - 1) if head else "") + chr(ord("a") + tail)


def _describe(column: ScoreColumn, *, kind: bool) -> str:
    provenance = formatting.one_line(column.provenance) or "provenance not known"
    return f"{provenance} ({formatting.level_text(column.level)}, {column.method})" if kind else provenance


def _shared_parts(lines: list[str]) -> str:
    """What many provenance lines have in common: the parts, between semicolons, that several of them share."""
    counts = Counter(part for line in lines for part in dict.fromkeys(formatting.one_line(line).split("; ")))
    shared = [
        part if count == len(lines) else f"{part} ({count} of {len(lines)})"
        for part, count in counts.items()
        if count > 1
    ]
    return "; ".join(shared) if shared else f"{len(lines)} different lines"


def in_one_column(entries: Iterable[tuple[str, str, Score]]) -> Entries:
    """The same scores, those of one setting and metric under one method, so that they share a column.

    Where resampling shows no spread a score has an exact bound instead: another way to the same interval, and no
    reason to keep two models apart.
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
