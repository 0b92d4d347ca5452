"""What a table has to say about its models: their ids, what was assumed about them, and with what they were run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from shiftbench.errors import listed
from shiftbench.reports.formatting import count
from shiftbench.reports.scores import named
from shiftbench.reports.table import Column, Name, Table
from shiftbench.runs.results import StoredResults
from shiftbench.store.models import ModelVersion, differences
from shiftbench.store.run_records import Software, mixed_versions
from shiftbench.store.workspace import PartResult, Result

#: Marks a model some of whose preprocessing was assumed.
ASSUMED = "†"
#: Keys of columns that hold models, and what the keys of their ids and assumed facts begin with.
_MODEL_KEYS = {
    "classifier": "", "model": "", "first": "first_", "second": "second_", "stronger": "stronger_", "weaker": "weaker_",
    "better": None, "base": None,
}  # fmt: skip


def with_models(table: Table, run: StoredResults) -> Table:
    """The table with ids and assumed facts in its CSV and JSON, marks behind the names, and notes that explain them."""
    shown = _models_in(table) & set(run.classifiers)
    results = [result for result in run.results if result.title in shown]
    notes = [*version_notes(run, results), *assumed_notes(run, results), *software_notes(run, results)]
    facts = run.model_facts()
    marked = {title for title, found in facts.items() if found["assumed"]}
    _complete(table, facts, marked)
    table.notes += notes
    table.remarks += notes
    if table.data is not None:
        table.data = {key: _with_facts(value, facts) for key, value in table.data.items()}
        table.data["notes"] = [*table.data.get("notes", []), *notes]
    return table


def _models_in(table: Table) -> set[str]:
    own = {row[one.key] for one in _model_columns(table) for row in table.shown if isinstance(row.get(one.key), str)}
    return own.union(*(_models_in(part) for part in table.parts))


def _model_columns(table: Table) -> list[Column]:
    return [column for column in table.columns if column.key in _MODEL_KEYS]


def _complete(table: Table, facts: Mapping[str, Mapping[str, Any]], marked: set[str]) -> None:
    columns = _model_columns(table)
    table.shown = [
        {**row, **{one.key: Name(row[one.key], ASSUMED) for one in columns if row.get(one.key) in marked}}
        for row in table.shown
    ]
    table.rows = [_row_with_facts(row, facts) for row in table.rows]
    prefixes = [_MODEL_KEYS[one.key] for one in columns]
    more = [f"{prefix}{fact}" for prefix in prefixes if prefix is not None for fact in ("id", "assumed")]
    table.keys = [*table.csv_keys, *more]
    for part in table.parts:
        _complete(part, facts, marked)


def _with_facts(value: Any, facts: Mapping[str, Mapping[str, Any]]) -> Any:
    if isinstance(value, list):
        return [_row_with_facts(row, facts) if isinstance(row, Mapping) else row for row in value]
    return value


def _row_with_facts(row: Mapping[str, Any], facts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, prefix in _MODEL_KEYS.items():
        known = facts.get(row[key]) if prefix is not None and isinstance(row.get(key), str) else None
        if known is not None:
            found |= {f"{prefix}{fact}": value for fact, value in known.items()}
    return {**row, **found}


def version_notes(run: StoredResults, results: Iterable[Result]) -> list[str]:
    """What differs between versions of one name that are shown together."""
    by_name: dict[str, dict[str, ModelVersion]] = {}
    titles = run.models.titles
    for result in results:
        by_name.setdefault(result.name, {})[result.title] = titles[result.title]
    dates = run.history.dates
    return [
        f"{named(f'{title} ({dates.get(one.record.version, _UNDATED)})' for title, one in versions.items())} "
        f"differ in {named(differences(list(versions.values())))}"
        for versions in by_name.values()
        if len(versions) > 1
    ]


_UNDATED = "date not recorded"


def assumed_notes(run: StoredResults, results: Iterable[Result]) -> list[str]:
    """Which facts about which models were assumed, in one line for models of the same facts."""
    models: dict[tuple[str, ...], dict[str, None]] = {}
    for result in results:
        facts = run.history.assumed.get(result.spec.classifier.version, ())
        if facts:
            models.setdefault(facts, {})[result.title] = None
    return [
        f"{ASSUMED} assumed, neither given nor stated by the model: {named(facts)} of {listed(titles, 3)}; "
        "confirm or correct with --preprocess (preprocessing=...)"
        for facts, titles in models.items()
    ]


def design_notes(results: Iterable[Result]) -> list[str]:
    """That some of these results are on the images that a design chose, and what that took."""
    found: dict[str, None] = {}
    for result in results:
        if isinstance(result, PartResult):
            passes, shifts = len(result.passes.results), result.passes.shifts
            made, full = (count(number * result.spec.images) for number in (passes, shifts))
            found[
                f"estimates of the full grid: each image met {passes} of {shifts} shifts, "
                f"{made} of {full} shifted forward passes per model"
            ] = None
    return list(found)


def figure_notes(run: StoredResults) -> list[str]:
    """What figures say of all results of a run."""
    return [*assumed_notes(run, run.results), *design_notes(run.results)]


def assumed_models(run: StoredResults) -> list[str]:
    """Titles of the models that are marked."""
    facts = run.model_facts()
    return [title for title in run.classifiers if facts[title]["assumed"]]


def software_notes(run: StoredResults, results: Iterable[Result]) -> list[str]:
    """Versions that can change scores, if results that are shown together were made with different ones."""
    software: list[Software] = [record.software for result in results for record in run.history.makers(result)]
    mixed = mixed_versions(software)
    if not mixed:
        return []
    parts = [
        f"{name} ({len(versions)} sets)" if name == "CPU features" else f"{name} {named(versions)}"
        for name, versions in mixed.items()
    ]
    return [f"made with different versions, which can change scores: {'; '.join(parts)}; see table --provenance"]
