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
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from shiftbench.errors import ShiftbenchError, listed
from shiftbench.grouping import by_key
from shiftbench.metrics.base import Score, SettingScore
from shiftbench.metrics.bootstrap import EXACT_BOUND, SAME_OUTCOME
from shiftbench.reports import formatting
from shiftbench.reports.table import Column, Diagram, ModelRecords, Number, Table
from shiftbench.reports.writers import plain

#: Of more distinct provenance lines than this only what they share is shown.
_MAX_PROVENANCE_LINES = 6
_KEYS = ("classifier", "setting", "metric", "value", "low", "high", "n", "level", "method", "unit", "provenance")
#: Behind a number that a design estimates.
ESTIMATE = "~"
_Key = tuple[str, str, str, float, str]


def score_table(
    entries: Iterable[SettingScore],
    *,
    title: str = "",
    remarks: Sequence[str] = (),
    diagrams: Sequence[Diagram] = (),
) -> Table:
    """Models by settings.

    >>> table = score_table([
    ...     SettingScore("small", "clean", Score("top1", 0.70, 0.66, 0.74, n=500)),
    ...     SettingScore("large", "clean", Score("top1", 0.80, 0.76, 0.83, n=500)),
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
    columns = [Column("classifier", "model", "model"), *(grid.shown_column(column) for column in grid.columns)]
    shown: list[dict[str, object]] = []
    scores: list[dict[str, object]] = []
    for model in grid.classifiers:
        numbers = {str(column.key): column.number(model) for column in grid.columns}
        shown.append({"classifier": model, **numbers})
        for column in grid.columns:
            if model in column.scores:
                fields = column.scores[model].as_dict()
                scores.append({"classifier": model, "setting": column.setting, **fields})
    notes = grid.notes()
    keys: tuple[str, ...] = _KEYS
    if any("passes" in score for score in scores):
        keys += ("passes",)
    return Table(
        columns,
        scores,
        shown=shown,
        keys=keys,
        title=" · ".join(filter(None, (title, grid.caption))),
        lead=[] if shown else ["no results yet"],
        notes=notes,
        remarks=remarks,
        diagrams=diagrams,
        data={
            "title": title,
            "scores": ModelRecords([plain(score) for score in scores], {"classifier": ""}),
            "notes": [*notes, *remarks],
        },
        turned="setting",
    )


def pivot_table(entries: Iterable[SettingScore], *, title: str = "") -> Table:
    """One row per model and one column per setting, values only: what `study --results` and spreadsheets read.

    >>> table = pivot_table([
    ...     SettingScore("small", "clean", Score("top1", 0.70, 0.66, 0.74, n=500)),
    ...     SettingScore("small", "fog", Score("top1", 0.50, 0.46, 0.54, n=500)),
    ... ])
    >>> print(table.to_csv().strip())
    model,clean,fog
    small,0.7,0.5
    """
    grid = ScoreGrid(entries)
    columns_of_setting = Counter(column.heading for column in grid.columns)
    columns = [Column("model", "model", "model")]
    rows: dict[str, dict[str, object]] = {model: {"model": model} for model in grid.classifiers}
    for column in grid.columns:
        heading = column.heading
        if columns_of_setting[heading] > 1:
            heading = f"{heading} {column.metric}"
        columns.append(replace(grid.shown_column(column), key=heading, heading=heading, subheading="", n=""))
        for model, score in column.scores.items():
            rows[model][heading] = score.value
    notes = [note for note in grid.notes() if not note.startswith("bold: ")]
    return Table(
        columns,
        list(rows.values()),
        keys=[column.key for column in columns],
        title=" · ".join(part for part in (title, grid.caption) if part),
        lead=[] if rows else ["no results yet"],
        notes=notes,
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
        defined = {model: score for model, score in self.scores.items() if not math.isnan(score.value)}
        if len(defined) < 2:
            return set()
        if self.higher_is_better:
            best = max(defined.values(), key=lambda score: score.value)
        else:
            best = min(defined.values(), key=lambda score: score.value)
        near = {model for model, score in defined.items() if score is best or _overlap(score, best)}
        return set() if len(near) == len(defined) else near

    def number(self, model: str) -> Number | str:
        score = self.scores.get(model)
        if score is None:
            return ""
        mark = "" if score.n == self.n else "*"
        if score.passes is not None:
            mark += ESTIMATE
        return Number(score.value, score.low, score.high, bold=model in self.not_clearly_worse, mark=mark)


def _overlap(first: Score, second: Score) -> bool:
    return first.high >= second.low and first.low <= second.high


class ScoreGrid:
    """Scores by model and column: which share a column, and what has to be noted."""

    def __init__(self, entries: Iterable[SettingScore]) -> None:
        models: dict[str, None] = {}
        by_column: dict[_Key, dict[str, Score]] = {}
        for model, setting, score in entries:
            models[model] = None
            column = by_column.setdefault((setting, score.metric, score.provenance, score.level, score.method), {})
            earlier = column.setdefault(model, score)
            # As text, because nan is not equal to itself.
            if earlier is not score and str(earlier.as_dict()) != str(score.as_dict()):
                raise ShiftbenchError(
                    f"two different scores for {model!r} in {setting!r} have one provenance",
                    found=f"{score.metric} {earlier.value:g} and {score.value:g}",
                    expected="one score, or provenance lines that differ",
                )
        self.classifiers = list(models)
        self.columns = _score_columns(by_column)
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
        return ", ".join(filter(None, (metric, unit)))

    def notes(self) -> list[str]:
        """The lines under the table: interval and n, marks, provenance, what bold means."""
        if not self.columns:
            return []
        notes = [
            self._interval_note(),
            *self._letter_notes(),
            *self._size_notes(),
            *self._estimate_notes(),
            *self._provenance_notes(),
        ]
        if any(column.not_clearly_worse for column in self.columns):
            notes.append("bold: best, or its interval overlaps the best one's")
        return notes

    def _interval_note(self) -> str:
        kinds = by_key(((column.level, column.method), column.metric) for column in self.columns)
        parts = []
        for (level, method), metrics in kinds.items():
            part = f"{formatting.level_text(level)} intervals: {method}"
            if len(kinds) > 1:
                part += f" ({listed(dict.fromkeys(metrics), 3)})"
            parts.append(part)
        if self._same_n:
            parts.append(f"n = {formatting.count(self.columns[0].n)}")
        return "; ".join(parts)

    def _letter_notes(self) -> list[str]:
        """What the letters (a), (b), ... behind settings stand for."""
        marked = {column.mark: column for column in self.columns if column.mark}
        same_kind = len({(column.level, column.method) for column in marked.values()}) == 1
        notes = []
        for mark in sorted(marked, key=lambda mark: (len(mark), mark)):
            column = marked[mark]
            note = f"({mark}) {formatting.provenance(column.provenance) or 'provenance not known'}"
            if not same_kind:
                note += f" ({formatting.level_text(column.level)}, {column.method})"
            notes.append(note)
        return notes

    def _size_notes(self) -> list[str]:
        """Which scores are over another number of images than their column."""
        headings: dict[tuple[str, int], dict[str, None]] = {}
        for column in self.columns:
            for model, score in column.scores.items():
                if score.n != column.n:
                    headings.setdefault((model, score.n), {})[column.heading] = None
        if not headings:
            return []
        parts = []
        for (model, n), columns in headings.items():
            parts.append(f"{model} n = {formatting.count(n)} in {listed(columns, 3)}")
        return [f"* another number of images than its column: {listed(parts, 3)}"]

    def _estimate_notes(self) -> list[str]:
        """A note if scores are estimates of a design, with its number of forward passes."""
        numbers: set[int] = set()
        for column in self.columns:
            numbers.update(score.passes for score in column.scores.values() if score.passes is not None)
        if not numbers:
            return []
        passes = formatting.count(min(numbers))
        if len(numbers) > 1:
            passes += f" to {formatting.count(max(numbers))}"
        return [f"{ESTIMATE} estimate of the full grid's number from {passes} forward passes per model"]

    def _provenance_notes(self) -> list[str]:
        """Where the numbers come from, in as few notes as possible.

        A single line if all columns share their provenance, a note for each if there are few, else what they share.
        """
        unmarked = [column for column in self.columns if not column.mark and column.provenance]
        by_line = by_key((formatting.provenance(column.provenance), column) for column in unmarked)
        if len(by_line) > _MAX_PROVENANCE_LINES:
            shared = "; ".join(_shared_parts(by_line)) or f"{len(by_line)} different lines"
            return [f"provenance: {shared}; in full in CSV and JSON"]
        if len(by_line) == 1 and len(unmarked) == len(self.columns):
            return [f"provenance: {next(iter(by_line))}"]
        # A setting's metrics can differ in provenance (one is divided by a baseline): then name it.
        origins = {(column.setting, column.provenance) for column in unmarked}
        provenances = Counter(setting for setting, _ in origins)
        notes = []
        for line, columns in by_line.items():
            names: dict[str, None] = {}
            for column in columns:
                name = column.setting if provenances[column.setting] == 1 else f"{column.setting} {column.metric}"
                names[name] = None
            notes.append(f"provenance of {listed(names, 3)}: {line}")
        return notes


def _score_columns(by_column: Mapping[_Key, Mapping[str, Score]]) -> list[ScoreColumn]:
    """The columns in the order in which they first occur; the same provenance has the same letter in every setting."""
    columns_of_setting = Counter((setting, metric) for setting, metric, *_ in by_column)
    letters: dict[tuple[str, float, str], str] = {}
    columns = []
    for key, scores in by_column.items():
        setting, metric, *_ = key
        origin = key[2:]
        mark = ""
        if columns_of_setting[setting, metric] > 1:
            mark = letters.setdefault(origin, _letter(len(letters)))
        first = next(iter(scores.values()))
        columns.append(ScoreColumn(*key, first.unit, first.higher_is_better, scores, mark))
    return columns


def _shared_parts(lines: Collection[str]) -> list[str]:
    """The parts, between semicolons, that several lines have in common, and how many lines have them."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(dict.fromkeys(line.split("; "), 1))
    shared = []
    for part, n in counts.items():
        if n == len(lines):
            shared.append(part)
        elif n > 1:
            shared.append(f"{part} ({n} of {len(lines)})")
    return shared


def _letter(index: int) -> str:
    """a to z, then aa, ab, ..."""
    head, tail = divmod(index, 26)
    letter = chr(ord("a") + tail)
    return _letter(head - 1) + letter if head else letter


def in_one_column(entries: Iterable[SettingScore]) -> list[SettingScore]:
    """The same scores, those of one setting and metric under one method, so that they share a column.

    Where resampling shows no spread a score has an exact bound instead: another way to the same interval, and no
    reason to keep two models apart.
    """
    entries = list(entries)
    methods = by_key(((setting, score.metric), score.method) for _, setting, score in entries)
    joined = {column: _joined_method(list(dict.fromkeys(names))) for column, names in methods.items()}
    in_column = []
    for entry in entries:
        method = joined[entry.setting, entry.score.metric]
        in_column.append(entry._replace(score=replace(entry.score, method=method)))
    return in_column


def _joined_method(methods: Sequence[str]) -> str:
    usual = [method for method in methods if method not in (EXACT_BOUND, SAME_OUTCOME)]
    if len(methods) == 1 or not usual:
        return methods[0]
    return f"{' or '.join(usual)}, exact where nothing varies"
