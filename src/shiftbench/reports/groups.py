"""Accuracy by group as a table: a column a group, and the worst of them with its simultaneous interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shiftbench.datasets.factors import read_table, text_of
from shiftbench.datasets.manifest import PATH_COLUMNS
from shiftbench.errors import ShiftbenchError, argument
from shiftbench.metrics.accuracy import per_group, worst_group
from shiftbench.metrics.base import Score
from shiftbench.reports.scores import score_table
from shiftbench.reports.table import Table
from shiftbench.store.predictions import Predictions
from shiftbench.store.workspace import Result, Workspace

#: The column that every labelled set has.
CLASS = "class"
_ID_COLUMNS = ("id", "image_id", *PATH_COLUMNS)
#: For images whose column is empty.
_UNNAMED = "(none)"


def group_table(
    workspace: Workspace, results: Sequence[Result], by: str, *, table: str | Path | None = None, level: float = 0.95
) -> Table:
    """Top-1 accuracy of every result by the groups of a column.

    The column is one of ``table`` (a CSV, JSONL or Parquet file with an id per row), or was recorded with the dataset
    when the run was made, or is ``"class"``; results whose images do not have it are passed over.
    """
    looked_up = None if table is None else read_groups(table, by)
    used = results if table is not None else _with_column(workspace, results, by)
    settings = list(dict.fromkeys(result.setting for result in used))
    several = len(settings) > 1
    entries: list[tuple[str, str, Score]] = []
    remarks: list[str] = []
    for result in used:
        predictions = workspace.read(result, top_k=1, confidence=False, scores=False)
        groups = looked_up or _recorded(workspace, predictions, by)
        title, where = result.title, f"{result.setting} " if several else ""
        rows = per_group(predictions, groups, level=level)
        for row in rows:
            score = Score("top1", row.value, row.low, row.high, row.n, level, provenance=predictions.provenance)
            entries.append((title, f"{where}{by} {row.group}", score))
        least = worst_group(predictions, groups, level=level)
        entries.append((title, f"{where}worst {by}", replace(least, metric="top1")))
        if rows:
            worst = min(rows, key=lambda row: (row.value, -row.n))
            remarks.append(f"{where}worst {by} of {title}: {worst.group}, {worst.correct} of {worst.n} right")
    title = f"{len(settings)} settings by {by}" if several else f"{settings[0]} by {by}"
    return score_table(entries, title=title, remarks=[*remarks, _MEANING])


_MEANING = "worst: its interval holds for all groups together; the least of many noisy numbers looks worse than it is"


def read_groups(path: str | Path, by: str) -> dict[str, str]:
    """Image id to group, from a table with a column of ids and a column ``by``."""
    rows, _ = read_table(path)
    columns = list(rows[0]) if rows else []
    key = next((column for column in _ID_COLUMNS if column in columns), None)
    if key is None or by not in columns:
        raise ShiftbenchError(
            f"{path} does not give images a group",
            found=f"columns {', '.join(columns) or 'none'}",
            expected=f"a column 'id' and a column {by!r}",
        )
    groups: dict[str, str] = {}
    for row in rows:
        name, group = str(row[key]), text_of(row.get(by)) or _UNNAMED
        if groups.setdefault(name, group) != group:
            raise ShiftbenchError(f"{path} puts {name} into two groups", found=f"{groups[name]} and {group}")
    return groups


def _with_column(workspace: Workspace, results: Sequence[Result], by: str) -> Sequence[Result]:
    known = {result.key: [*workspace.columns_of(result.spec), CLASS] for result in results}
    found = [result for result in results if by in known[result.key]]
    if not found:
        columns = dict.fromkeys(column for columns in known.values() for column in columns)
        raise ShiftbenchError(
            f"no image has a column {by!r}",
            found=f"columns {', '.join(columns)}",
            hint=f"give a table with a column of image ids: {argument('table', 'META.csv')}",
        )
    return found


def _recorded(workspace: Workspace, predictions: Predictions, by: str) -> list[str]:
    columns = workspace.columns_of(predictions.spec)
    if by in columns:
        return [value or _UNNAMED for value in columns[by]]
    names = (*predictions.space.names, _UNNAMED)  # -1 is the last
    return [names[label] for label in predictions.labels.tolist()]
