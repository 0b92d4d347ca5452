"""What tables say about models: ids, assumed facts, the runs and software behind them, and their versions over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from shiftbench.errors import ShiftbenchError, StoreError, listed
from shiftbench.grouping import by_key
from shiftbench.metrics.base import Score
from shiftbench.metrics.paired import compare
from shiftbench.reports import formatting
from shiftbench.reports.formatting import count, named
from shiftbench.reports.table import Column, Diagram, Name, Number, Table, columns_of, interval_chart
from shiftbench.runs.results import StoredResults
from shiftbench.store.models import ModelVersion, differences
from shiftbench.store.run_records import RunRecord, is_alive, mixed_versions, shown_date
from shiftbench.store.spec import ResultSpec
from shiftbench.store.workspace import PartResult, Result

#: Marks of models: some of the preprocessing was assumed; trained on some of the images.
ASSUMED, TRAINED = "†", "‡"
#: Keys of columns that hold models, and what the keys of their ids and assumed facts begin with.
_MODEL_KEYS = {
    "classifier": "", "model": "", "first": "first_", "second": "second_", "stronger": "stronger_", "weaker": "weaker_",
    "better": None, "base": None,
}  # fmt: skip
_NOT_RECORDED = "not recorded"
#: Scores of a history that get a column; JSON has all.
_MOST = 4

ModelFacts = Mapping[str, Mapping[str, Any]]


def with_models(table: Table, run: StoredResults) -> Table:
    """The table with ids and assumed facts in its CSV and JSON, marks behind the names, and notes that explain them."""
    facts = run.model_facts()
    shown = _complete(table, facts) & set(run.classifiers)
    results = [result for result in run.results if result.title in shown]
    notes = [*version_notes(run, results), *mark_notes(run, results), *software_notes(run, results)]
    table.notes += notes
    table.remarks += notes
    if table.data is not None:
        for key, value in table.data.items():
            if isinstance(value, list):
                rows = [_row_with_facts(row, facts) if isinstance(row, Mapping) else row for row in value]
                table.data = {**table.data, key: rows}
        table.data = {**table.data, "notes": [*table.data.get("notes", []), *notes]}
    return table


def _complete(table: Table, facts: ModelFacts) -> set[str]:
    """Add facts and marks to a table and its parts; returns the models in it."""
    keys = [column.key for column in table.columns if column.key in _MODEL_KEYS]
    models = {row[key] for key in keys for row in table.shown if isinstance(row.get(key), str)}
    marks = _marks(facts)
    table.shown = [
        {**row, **{key: Name(row[key], marks[row[key]]) for key in keys if row.get(key) in marks}}
        for row in table.shown
    ]
    table.rows = [_row_with_facts(row, facts) for row in table.rows]
    prefixes = [prefix for key in keys if (prefix := _MODEL_KEYS[key]) is not None]
    known = [f"{prefix}{fact}" for prefix in prefixes for fact in ("id", "assumed", "training_images")]
    table.keys = [*table.csv_keys, *known]
    return models.union(*(_complete(part, facts) for part in table.parts))


def _row_with_facts(row: Mapping[str, Any], facts: ModelFacts) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, prefix in _MODEL_KEYS.items():
        known = facts.get(row[key]) if prefix is not None and isinstance(row.get(key), str) else None
        if known is not None:
            found |= {f"{prefix}{fact}": value for fact, value in known.items()}
    return {**row, **found}


def version_notes(run: StoredResults, results: Iterable[Result]) -> list[str]:
    """What differs between versions of one name that are shown together."""
    by_name: dict[str, dict[str, ModelVersion]] = {}
    for result in results:
        by_name.setdefault(result.name, {})[result.title] = run.models.titles[result.title]
    notes, dates = [], run.history.dates
    for versions in by_name.values():
        if len(versions) > 1:
            dated = [f"{t} ({dates.get(one.record.version, 'date not recorded')})" for t, one in versions.items()]
            notes.append(f"{named(dated)} differ in {named(differences(list(versions.values())))}")
    return notes


def mark_notes(run: StoredResults, results: Sequence[Result]) -> list[str]:
    """Which facts about which models were assumed, in one line for models of the same facts; which models were trained
    on images that they were evaluated on."""
    assumed = ((run.history.assumed.get(one.spec.classifier.version), one.title) for one in results)
    models = by_key((facts, title) for facts, title in dict.fromkeys(assumed) if facts)
    return [f"{TRAINED} {warning}" for warning in run.trained_on(results)] + [
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
            met = f"each image met {passes} of {shifts} shifts"
            found[f"estimates of the full grid: {met}, {made} of {full} shifted forward passes per model"] = None
    return list(found)


def figure_marks(run: StoredResults) -> tuple[dict[str, str], list[str]]:
    """Titles of the models that are marked with their marks, and the notes of a figure."""
    marks = _marks({title: facts for title, facts in run.model_facts().items() if title in run.classifiers})
    return marks, [*mark_notes(run, run.results), *design_notes(run.results)]


def _marks(facts: ModelFacts) -> dict[str, str]:
    signs = ((ASSUMED, "assumed"), (TRAINED, "training_images"))
    marks = {title: "".join(sign for sign, fact in signs if found[fact]) for title, found in facts.items()}
    return {title: mark for title, mark in marks.items() if mark}


def software_notes(run: StoredResults, results: Iterable[Result]) -> list[str]:
    """Versions that can change scores, if results that are shown together were made with different ones."""
    mixed = mixed_versions([record.software for result in results for record in run.history.makers(result)])
    parts = [
        f"{name} ({len(versions)} sets)" if name == "CPU features" else f"{name} {named(versions)}"
        for name, versions in mixed.items()
    ]
    if not parts:
        return []
    return [f"made with different versions, which can change scores: {'; '.join(parts)}; see table --provenance"]


def run_log(run: StoredResults, *, last: int | None = None, of_models: bool = False) -> Table:
    """One row per run in order of date; with ``of_models`` only runs that had one of these models."""
    versions = {result.spec.classifier.version for result in run.results}
    records = [
        record
        for record in run.history.records
        if not of_models or versions.intersection(model.version for model in record.models)
    ]
    records = records[-last:] if last else records
    rows: list[dict[str, Any]] = []
    for record in records:
        made = sum(len(model.computed) + len(model.shared) for model in record.models)
        reused, removed = (sum(len(getattr(m, kind)) for m in record.models) for kind in ("reused", "removed"))
        counts = [f"{n} {what}" for n, what in ((made, "computed"), (reused, "reused"), (removed, "removed")) if n]
        status: str = record.status
        if status == "running":
            alive = is_alive(run.workspace, record)
            status = "running or killed" if alive is None else "running" if alive else "killed"
        models = listed([model.id for model in record.models], 3)
        rows.append({"started": shown_date(record.started), "status": status, "models": models,
                     "results": ", ".join(counts), "versions": _versions(record), "text": record.text})  # fmt: skip
    full = [{**msgspec.to_builtins(record), "state": row["status"]} for record, row in zip(records, rows, strict=True)]
    return Table(columns_of("run-log"), rows, lead=[] if rows else ["no runs are recorded"], data={"runs": full})


def _versions(record: RunRecord) -> str:
    return ", ".join(f"{name} {version}" for name, version in record.software.versions.items())


def provenance_table(run: StoredResults) -> Table:
    """Where each result comes from: date, versions, assumed facts and data of the runs that computed it."""

    def each(values: Iterable[str]) -> str:
        """One value, or those of all runs that computed a part."""
        return " and ".join(dict.fromkeys(values)) or _NOT_RECORDED

    rows: list[dict[str, Any]] = []
    for result in run.results:
        makers = run.history.makers(result)
        assumed = run.history.assumed.get(result.spec.classifier.version)
        source = run.workspace.source(result.spec.dataset.name, result.spec.dataset.fingerprint)
        rows.append(
            {
                "model": result.title,
                "id": result.model_id,
                "setting": result.setting,
                "made": each(shown_date(one.ended or one.started) for one in makers),
                "assumed": _NOT_RECORDED if assumed is None else ", ".join(assumed) or "nothing",
                "training_images": run.training_images(result),
                "state": _state(result.spec),
                "data": _NOT_RECORDED if source is None else source[1],
                "versions": each(map(_versions, makers)),
                "machine": each(f"{one.software.cpu}, {one.software.platform}" for one in makers),
                "cpu_features": each(" ".join(one.software.cpu_features) for one in makers),
                "runs": ", ".join(one.id for one in makers),
                "key": result.key,
                "command": each(one.text for one in makers),
            }
        )
    same = ("model", "made", "assumed", "training_images", "data", "versions", "machine")
    merged = by_key((tuple(row[key] for key in same), row["setting"]) for row in rows)
    shown = [
        {**dict(zip(same, values, strict=True)), "settings": listed(settings, 3)} for values, settings in merged.items()
    ]
    notes = software_notes(run, run.results)
    return Table(
        columns_of("provenance"),
        rows,
        shown=shown,
        title="provenance",
        notes=notes,
        keys=list(rows[0]) if rows else None,
    )


def _state(spec: ResultSpec) -> str:
    """How a stateful model saw the images; empty for others."""
    size = spec.classifier.batch_size
    if size is None:
        return ""
    return f"reset before the setting; images shuffled by seed {spec.shift.seed}, in batches of {size}"


def history_table(run: StoredResults, *, level: float = 0.95) -> Table:
    """One row per version in order of its first run: accuracy, means under shift, and the change since the last one."""
    from shiftbench.reports.frames import score_rows

    first = run.history.first_runs
    versions = {one.title: one.spec.classifier.version for one in run.results}
    if not versions:
        raise StoreError("no results yet")
    order = sorted(versions, key=lambda title: first.get(versions[title], ""))
    # By model: accuracy of each setting that is not of a family, and the mean of each family.
    scores: dict[str, dict[str, Score]] = {title: {} for title in order}
    over: dict[tuple[str, str | None], set[tuple[str, float]]] = {}
    for row in score_rows(run, level=level):
        if row.corruption is None and row.score.metric == "top1":
            scores[row.model][row.setting] = row.score
        elif row.corruption is not None and row.severity is not None:
            over.setdefault((row.model, row.family), set()).add((row.corruption, row.severity))
    # Means over other corruptions or severities than those of the last version are not comparable with it.
    last = {family: places for title in order for (model, family), places in over.items() if model == title}
    apart = {(model, family) for (model, family), places in over.items() if places != last[family]}
    columns = list(dict.fromkeys(key for title in order for key in scores[title]))
    rows: list[dict[str, Any]] = []
    data = []
    for before, title in zip([None, *order], order, strict=False):
        moved = change = None
        if before is not None:
            try:
                moved = compare(*(run.predictions(one, columns[0]) for one in (title, before)), level=level)
                change = Number(moved.difference, moved.low, moved.high, formatting.digits(moved.n))
            except ShiftbenchError:  # other images, or not evaluated in this setting
                pass
        moment, own, p = first.get(versions[title]), scores[title], moved and moved.p
        date = shown_date(moment) if moment else ""
        cells = {
            key: Number(one.value, one.low, one.high, formatting.digits(one.n), mark="*" * ((title, key) in apart))
            for key, one in own.items()
        }
        rows.append({"date": date, "model": title, **dict.fromkeys(columns), **cells, "change": change, "p": p})
        shown_change = change and {"value": change.value, "low": change.low, "high": change.high}
        as_data = {key: score.as_dict() for key, score in own.items()}
        data.append({"model": title, "date": date, "scores": as_data, "change": shown_change, "p": p})
    shown = [
        Column("date", "first run (UTC)", "word"),
        Column("model", "model"),
        *(Column(key, key, "number", times=100) for key in columns[:_MOST]),
        Column("change", f"change in {columns[0]}", "points", times=100),
        Column("p", "p", "p", optional=True),
    ]
    notes = [
        "top-1 accuracy in percent; change: against the version before, in points, paired by image",
        *([f"{len(columns) - _MOST} more in --json: {', '.join(columns[_MOST:])}"] if len(columns) > _MOST else []),
    ]
    if odd := [f"{title} in {key}" for title in order for key in columns if (title, key) in apart]:
        notes.append(f"* over other corruptions or severities than the last version: {listed(odd, 3)}")
    charts = [
        Diagram(key, partial(interval_chart, [(row["model"], row[key]) for row in rows])) for key in columns[:_MOST]
    ]
    table = Table(shown, rows, notes=notes, data={"versions": data}, diagrams=charts if len(rows) > 1 else ())
    return with_models(table, run)
