"""The versions of a model over time: a small table and a chart."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from shiftbench.errors import ShiftbenchError, StoreError
from shiftbench.metrics.base import Score
from shiftbench.metrics.paired import Comparison, compare
from shiftbench.reports import formatting
from shiftbench.reports.models import with_models
from shiftbench.reports.score_rows import score_rows
from shiftbench.reports.table import Column, Diagram, Number, Table
from shiftbench.runs.results import StoredResults
from shiftbench.store.run_records import shown_date

#: Scores that get a column; JSON has all.
_MOST = 4


def history_table(run: StoredResults, *, level: float = 0.95) -> Table:
    """One row per version in order of its first run: accuracy, means under shift, and the change since the last one."""
    first = run.history.first_runs
    versions = {one.title: one.spec.classifier.version for one in run.results}
    if not versions:
        raise StoreError("no results yet")
    order = sorted(versions, key=lambda title: first.get(versions[title], ""))
    scores = _scores(run, level)
    columns = list(dict.fromkeys(key for title in order for key in scores[title]))
    single = columns[0]
    rows: list[dict[str, Any]] = []
    for before, title in zip([None, *order], order, strict=False):
        moved = None if before is None else _change(run, single, title, before, level)
        moment = first.get(versions[title])
        rows.append(
            {
                "date": shown_date(moment) if moment else "",
                "model": title,
                **{key: _number(scores[title].get(key)) for key in columns},
                "change": Number(moved.difference, moved.low, moved.high, formatting.digits(moved.n))
                if moved
                else None,
                "p": moved and moved.p,
            }
        )
    shown = [
        Column("date", "first run (UTC)", "word"),
        Column("model", "model"),
        *(Column(key, key, "number", times=100) for key in columns[:_MOST]),
        Column("change", f"change in {single}", "points", times=100),
        Column("p", "p", "p", optional=True),
    ]
    data = [_data(row, scores[row["model"]]) for row in rows]
    notes = [
        "top-1 accuracy in percent; change: against the version before, in points, paired by image",
        *([f"{len(columns) - _MOST} more in --json: {', '.join(columns[_MOST:])}"] if len(columns) > _MOST else []),
    ]
    charts = [Diagram(key, partial(chart_lines, [(row["model"], row[key]) for row in rows])) for key in columns[:_MOST]]
    table = Table(shown, rows, notes=notes, data={"versions": data}, diagrams=charts if len(rows) > 1 else ())
    return with_models(table, run)


def _scores(run: StoredResults, level: float) -> dict[str, dict[str, Score]]:
    """By model: accuracy of each setting that is not of a family, and the mean of each family."""
    found: dict[str, dict[str, Score]] = {one.title: {} for one in run.results}
    for row in score_rows(run, level=level):
        if row.corruption is None and row.score.metric == "top1":
            found[row.model][row.setting] = row.score
    return found


def _change(run: StoredResults, setting: str, new: str, old: str, level: float) -> Comparison | None:
    try:
        return compare(run.predictions(new, setting), run.predictions(old, setting), level=level)
    except ShiftbenchError:  # other images, or not evaluated in this setting
        return None


def _number(score: Score | None) -> Number | None:
    return None if score is None else Number(score.value, score.low, score.high, formatting.digits(score.n))


def _data(row: dict[str, Any], scores: dict[str, Score]) -> dict[str, Any]:
    change = row["change"]
    return {
        "model": row["model"],
        "date": row["date"],
        "scores": {key: score.as_dict() for key, score in scores.items()},
        "change": None if change is None else {"value": change.value, "low": change.low, "high": change.high},
        "p": row["p"],
    }


def chart_lines(values: Sequence[tuple[str, Number | None]], width: int, ascii_only: bool) -> list[str]:
    """A line per version: the value, and its interval, on one scale.

    >>> print("\\n".join(chart_lines([("a", Number(0.5, 0.4, 0.6)), ("b", Number(0.6, 0.5, 0.7))], 29, False)))
    a  ├─────●─────┤       50.0
    b        ├─────●─────┤ 60.0
    """
    known = [one for _, one in values if one is not None and one.low is not None and one.high is not None]
    if not known:
        return []
    low, high = min(float(one.low or 0) for one in known), max(float(one.high or 0) for one in known)
    names = max(len(name) for name, _ in values)
    room = max(width - names - 2 - 7, 10)
    left, line, dot, right = "|-*|" if ascii_only else "├─●┤"
    lines = []
    for name, one in values:
        if one is None or one.value is None:
            lines.append(f"{name:<{names}}  {formatting.MISSING}")
            continue
        ends = [float(end) for end in (one.low, one.value, one.high) if end is not None]
        start, middle, stop = (round((end - low) / ((high - low) or 1) * (room - 1)) for end in (ends * 3)[:3])
        bar = [" "] * room
        bar[start : stop + 1] = line * (stop + 1 - start)
        bar[start], bar[stop], bar[middle] = left, right, dot
        lines.append(f"{name:<{names}}  {''.join(bar)} {formatting.number(one.value, 1)}")
    return lines
