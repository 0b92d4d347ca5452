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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from shiftbench.errors import ShiftbenchError, listed
from shiftbench.grouping import by_key
from shiftbench.metrics.base import Score
from shiftbench.metrics.bootstrap import EXACT_BOUND
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
        {"classifier": name, **{str(column.key): column.number(name) for column in grid.columns}}
        for name in grid.classifiers
    ]
    scores: list[dict[str, object]] = [
        {"classifier": name, "setting": column.setting, **column.scores[name].as_dict()}
        for name in grid.classifiers
        for column in grid.columns
        if name in column.scores
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
    #: By model.
    scores: Mapping[str, Score]
    #: "a", "b", ... where the same setting and metric needs several columns.
    mark: str = ""

    @property
    def key(self) -> _Key:
        return (self.setting, self.metric, self.provenance, self.level, self.method)

    @property
    def heading(self) -> str:
        return f"{self.setting} ({self.mark})" if self.mark else self.setting

    @cached_property
    def n(self) -> int:
        """The number of images of most scores."""
        counts = Counter(score.n for score in self.scores.values())
        return max(counts, key=lambda n: (counts[n], n))

    @cached_property
    def not_clearly_worse(self) -> set[str]:
        """The best model and those whose intervals overlap its interval; none where that would be all."""
        known = {name: score for name, score in self.scores.items() if not math.isnan(score.value)}
        if len(known) < 2:
            return set()
        best = (max if self.higher_is_better else min)(known.values(), key=lambda score: score.value)
        near = {name for name, one in known.items() if one is best or (one.high >= best.low and one.low <= best.high)}
        return set() if len(near) == len(known) else near

    def number(self, model: str) -> Number | str:
        score = self.scores.get(model)
        if score is None:
            return ""
        mark = ("" if score.n == self.n else "*") + ESTIMATE * (score.passes is not None)
        return Number(score.value, score.low, score.high, bold=model in self.not_clearly_worse, mark=mark)


class ScoreGrid:
    """Scores by model and column: which share a column, and what has to be noted."""

    def __init__(self, entries: Iterable[tuple[str, str, Score]]) -> None:
        models, found = dict[str, None](), dict[_Key, dict[str, Score]]()
        for model, setting, score in entries:
            models[model] = None
            column = found.setdefault((setting, score.metric, score.provenance, score.level, score.method), {})
            placed = column.setdefault(model, score)
            if str(placed.as_dict()) != str(score.as_dict()):  # as text, because nan is not equal to itself
                raise ShiftbenchError(
                    f"two different scores for {model!r} in {setting!r} have one provenance",
                    found=f"{score.metric} {placed.value:g} and {score.value:g}",
                    expected="one score, or provenance lines that differ",
                )
        self.classifiers = list(models)
        # In the order in which they first occur; the same provenance has the same letter in every setting.
        wanted, letters = Counter(key[:2] for key in found), dict[tuple[str, float, str], str]()
        self.columns = []
        for key, scores in found.items():
            first = next(iter(scores.values()))
            mark = letters.setdefault(key[2:], _letter(len(letters))) if wanted[key[:2]] > 1 else ""
            self.columns.append(ScoreColumn(*key, first.unit, first.higher_is_better, scores, mark))
        self._one_metric = len({column.metric for column in self.columns}) == 1
        self._one_unit = len({column.unit for column in self.columns}) == 1
        self._same_n = len({column.n for column in self.columns}) == 1

    def shown_column(self, column: ScoreColumn) -> Column:
        """One number of digits per column, so that the points stand under each other."""
        metric = column.metric if self._one_unit else f"{column.metric} {column.unit}".rstrip()
        return Column(
            str(column.key),
            column.heading,
            "number",
            places=formatting.digits(column.n, column.unit),
            times=100.0 if column.unit == "%" else 1.0,
            subheading="" if self._one_metric else metric,
            n="" if self._same_n else formatting.count(column.n),
        )

    @property
    def caption(self) -> str:
        metric = self.columns[0].metric if self._one_metric else ""
        unit = self.columns[0].unit if self._one_unit else ""
        return f"{metric}, {unit}" if metric and unit else metric or unit

    def notes(self) -> list[str]:
        """The lines under the table: interval and n, marks, provenance, what bold means."""
        if not self.columns:
            return []
        kinds = by_key(((column.level, column.method), column.metric) for column in self.columns)
        parts = []
        for (level, method), names in kinds.items():
            whose = f" ({listed(dict.fromkeys(names), 3)})" if len(kinds) > 1 else ""
            parts.append(f"{formatting.level_text(level)} intervals: {method}{whose}")
        if self._same_n:
            parts.append(f"n = {formatting.count(self.columns[0].n)}")
        notes = ["; ".join(parts)]
        marked = {column.mark: column for column in self.columns if column.mark}
        same_kind = len({(column.level, column.method) for column in marked.values()}) == 1
        for mark in sorted(marked, key=lambda mark: (len(mark), mark)):
            column = marked[mark]
            kind = "" if same_kind else f" ({formatting.level_text(column.level)}, {column.method})"
            notes.append(f"({mark}) {formatting.provenance(column.provenance) or 'provenance not known'}{kind}")
        odd: dict[tuple[str, int], dict[str, None]] = {}
        for column in self.columns:
            for name, score in column.scores.items():
                if score.n != column.n:
                    odd.setdefault((name, score.n), {})[column.heading] = None
        if odd:
            parts = [f"{name} n = {formatting.count(n)} in {listed(where, 3)}" for (name, n), where in odd.items()]
            notes.append(f"* another number of images than its column: {listed(parts, 3)}")
        every = [score for column in self.columns for score in column.scores.values()]
        passes = sorted({score.passes for score in every if score.passes is not None})
        if passes:
            some = " to ".join(formatting.count(number) for number in (*passes[:1], *passes[1:][-1:]))
            notes.append(f"{ESTIMATE} estimate of the full grid's number from {some} forward passes per model")
        notes += self._provenance_notes()
        if any(column.not_clearly_worse for column in self.columns):
            notes.append("bold: best, or its interval overlaps the best one's")
        return notes

    def _provenance_notes(self) -> list[str]:
        unmarked = [column for column in self.columns if not column.mark and column.provenance]
        lines = by_key((formatting.provenance(column.provenance), column) for column in unmarked)
        if len(lines) > _MOST_LINES:
            # What they have in common: the parts, between semicolons, that several of them share.
            counts = Counter(part for line in lines for part in dict.fromkeys(line.split("; ")))
            shared = [
                part if n == len(lines) else f"{part} ({n} of {len(lines)})" for part, n in counts.items() if n > 1
            ]
            return [f"provenance: {'; '.join(shared) or f'{len(lines)} different lines'}; in full in CSV and JSON"]
        if len(lines) == 1 and len(unmarked) == len(self.columns):
            return [f"provenance: {next(iter(lines))}"]
        # A setting's metrics can differ in provenance (one is divided by a baseline): then name it.
        several = Counter(setting for setting, _ in {(c.setting, c.provenance) for c in unmarked})
        notes = []
        for line, columns in lines.items():
            names = [c.setting if several[c.setting] == 1 else f"{c.setting} {c.metric}" for c in columns]
            notes.append(f"provenance of {listed(dict.fromkeys(names), 3)}: {line}")
        return notes


def _letter(index: int) -> str:
    """a to z, then aa, ab, ..."""
    head, tail = divmod(index, 26)
    return (_letter(head - 1) if head else "") + chr(ord("a") + tail)


def in_one_column(entries: Iterable[tuple[str, str, Score]]) -> Entries:
    """The same scores, those of one setting and metric under one method, so that they share a column.

    Where resampling shows no spread a score has an exact bound instead: another way to the same interval, and no
    reason to keep two models apart.
    """
    given = list(entries)
    methods = by_key(((setting, score.metric), score.method) for _, setting, score in given)
    joined = {}
    for place, found in ((place, dict.fromkeys(own)) for place, own in methods.items()):
        usual = [method for method in found if method != EXACT_BOUND]
        one_kind = len(found) == 1 or not usual
        joined[place] = next(iter(found)) if one_kind else f"{' or '.join(usual)}, exact where nothing varies"
    return [(name, setting, replace(score, method=joined[setting, score.metric])) for name, setting, score in given]
