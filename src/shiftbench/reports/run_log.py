"""The runs of a workspace, and the provenance of its results, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from shiftbench.errors import listed
from shiftbench.reports.models import software_notes
from shiftbench.reports.table import Column, Table
from shiftbench.runs.results import StoredResults
from shiftbench.store.run_records import RunRecord, is_alive, shown_date

NOT_RECORDED = "not recorded"


def run_log(run: StoredResults, *, last: int | None = None, of_models: bool = False) -> Table:
    """One row per run in order of date; with ``of_models`` only runs that had one of these models."""
    versions = {result.spec.classifier.version for result in run.results}
    records = [
        record
        for record in run.history.records
        if not of_models or versions.intersection(model.version for model in record.models)
    ]
    records = records[-last:] if last else records
    rows = [_run_row(run, record) for record in records]
    columns = [
        Column("started", "date (UTC)", "word"),
        Column("status", "status", "word"),
        Column("models", "models"),
        Column("results", "results", "word"),
        Column("versions", "versions", optional=True),
        Column("text", "command or call", "word"),
    ]
    full = [{**msgspec.to_builtins(record), "state": row["status"]} for record, row in zip(records, rows, strict=True)]
    lead = [] if rows else ["no runs are recorded"]
    return Table(columns, rows, lead=lead, data={"runs": full})


def _run_row(run: StoredResults, record: RunRecord) -> dict[str, Any]:
    made = sum(len(model.computed) + len(model.shared) for model in record.models)
    reused = sum(len(model.reused) for model in record.models)
    removed = sum(len(model.removed) for model in record.models)
    counts = [f"{n} {what}" for n, what in ((made, "computed"), (reused, "reused"), (removed, "removed")) if n]
    return {
        "started": shown_date(record.started),
        "status": _state(run, record),
        "models": listed([model.id for model in record.models], 3),
        "results": ", ".join(counts),
        "versions": _versions(record),
        "text": record.text,
    }


def _state(run: StoredResults, record: RunRecord) -> str:
    if record.status != "running":
        return record.status
    alive = is_alive(run.workspace, record)
    return "running or killed" if alive is None else "running" if alive else "killed"


def _versions(record: RunRecord) -> str:
    return ", ".join(f"{name} {version}" for name, version in record.software.versions.items())


def provenance_table(run: StoredResults) -> Table:
    """Where each result comes from: date, versions, assumed facts and data of the runs that computed it."""
    rows = _provenance_rows(run)
    merged: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        key = tuple(str(row[one]) for one in ("model", "made", "assumed", "data", "versions", "machine"))
        merged.setdefault(key, []).append(row["setting"])
    shown = [
        {"model": model, "settings": listed(settings, 3), "made": made, "assumed": assumed, "data": data,
         "versions": versions, "machine": machine}
        for (model, made, assumed, data, versions, machine), settings in merged.items()
    ]  # fmt: skip
    columns = [
        Column("model", "model"),
        Column("settings", "settings"),
        Column("made", "made (UTC)", "word"),
        Column("assumed", "assumed"),
        Column("data", "data"),
        Column("versions", "versions"),
        Column("machine", "machine", optional=True),
    ]
    notes = software_notes(run, run.results)
    return Table(columns, rows, shown=shown, title="provenance", notes=notes, keys=list(rows[0]) if rows else None)


def _provenance_rows(run: StoredResults) -> list[dict[str, Any]]:
    rows = []
    for result in run.results:
        makers = run.history.makers(result)
        assumed = run.history.assumed.get(result.spec.classifier.version)
        source = run.workspace.source(result.spec.dataset.name, result.spec.dataset.fingerprint)
        rows.append(
            {
                "model": result.title,
                "id": result.model_id,
                "setting": result.setting,
                "made": _each([shown_date(one.ended or one.started) for one in makers]),
                "assumed": NOT_RECORDED if assumed is None else ", ".join(assumed) or "nothing",
                "data": NOT_RECORDED if source is None else source[1],
                "versions": _each([_versions(one) for one in makers]),
                "machine": _each([f"{one.software.cpu}, {one.software.platform}" for one in makers]),
                "runs": ", ".join(one.id for one in makers),
                "key": result.key,
                "command": _each([one.text for one in makers]),
            }
        )
    return rows


def _each(values: Sequence[str]) -> str:
    """One value, or those of all runs that computed a part."""
    return " and ".join(dict.fromkeys(values)) or NOT_RECORDED
