"""What tables say about models: ids, assumed facts, the runs and software behind them, and their versions over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from shiftbench.errors import ShiftbenchError, StoreError, listed
from shiftbench.grouping import by_key
from shiftbench.metrics.base import Score
from shiftbench.metrics.paired import Comparison, compare
from shiftbench.reports import formatting
from shiftbench.reports.formatting import count, named
from shiftbench.reports.table import (
    Column,
    Diagram,
    ModelRecords,
    Name,
    Number,
    Row,
    Table,
    as_row,
    columns_of,
    interval_chart,
    keys_of,
)
from shiftbench.runs.results import ModelFacts, StoredResults
from shiftbench.store.models import ModelVersion, differences
from shiftbench.store.run_records import RunRecord, is_alive, mixed_versions, shown_date
from shiftbench.store.spec import ResultSpec
from shiftbench.store.workspace import PartResult, Result

#: The mark of a model whose preprocessing was assumed in part.
ASSUMED = "†"
#: The mark of a model that was trained on some of the images.
TRAINED = "‡"
_NOT_RECORDED = "not recorded"
#: Scores of a history that get a column; JSON has all.
_MAX_HISTORY_COLUMNS = 4


def with_models(table: Table, run: StoredResults) -> Table:
    """The table with ids and assumed facts in its CSV and JSON, marks behind the names, and notes that explain them.

    Models are what the table declares as such: columns of the kind "model", and ``ModelRecords`` in its data.
    """
    facts = run.model_facts()
    shown_models = _complete(table, facts) & set(run.classifiers)
    results = [result for result in run.results if result.title in shown_models]
    notes = [*version_notes(run, results), *mark_notes(run, results), *software_notes(run, results)]
    table.notes += notes
    table.remarks += notes
    if table.data is not None:
        completed: dict[str, object] = {}
        for key, value in table.data.items():
            if isinstance(value, ModelRecords):
                value = replace(value, rows=[_with_facts(row, value.models, facts) for row in value.as_rows])
            completed[key] = value
        data_notes = table.data.get("notes", [])
        assert isinstance(data_notes, list)
        completed["notes"] = [*data_notes, *notes]
        table.data = completed
    return table


def _complete(table: Table, facts: Mapping[str, ModelFacts]) -> set[str]:
    """Add facts and marks to a table and its parts; returns the models in it."""
    columns = [column.key for column in table.columns if column.kind == "model"]
    marks = _marks(facts)
    models: set[str] = set()
    marked_rows: list[Row] = []
    for row in table.shown:
        marked_row = dict(row)
        for key in columns:
            title = row.get(key)
            if isinstance(title, str):
                models.add(title)
                if title in marks:
                    marked_row[key] = Name(title, marks[title])
        marked_rows.append(marked_row)
    table.shown = marked_rows
    model_keys = table.model_keys
    table.rows = [_with_facts(row, model_keys, facts) for row in table.rows]
    csv_keys = table.csv_keys
    for prefix in model_keys.values():
        csv_keys += [f"{prefix}{fact}" for fact in keys_of(ModelFacts)]
    table.keys = csv_keys
    for part in table.parts:
        models |= _complete(part, facts)
    return models


def _with_facts(row: Row, models: Mapping[str, str], facts: Mapping[str, ModelFacts]) -> Row:
    """The row with the facts of the models that it names.

    ``models`` are the fields of the row that hold names of models, and the prefix of the keys of each one's facts.
    """
    completed = dict(row)
    for key, prefix in models.items():
        title = row[key]
        if isinstance(title, str) and title in facts:
            for fact, value in as_row(facts[title]).items():
                completed[f"{prefix}{fact}"] = value
    return completed


def version_notes(run: StoredResults, results: Iterable[Result]) -> list[str]:
    """What differs between versions of one name that are shown together."""
    by_name: dict[str, dict[str, ModelVersion]] = {}
    for result in results:
        by_name.setdefault(result.name, {})[result.title] = run.models.titles[result.title]
    dates = run.history.dates
    notes = []
    for versions in by_name.values():
        if len(versions) > 1:
            dated_titles = []
            for title, version in versions.items():
                date = dates.get(version.record.version, "date not recorded")
                dated_titles.append(f"{title} ({date})")
            notes.append(f"{named(dated_titles)} differ in {named(differences(list(versions.values())))}")
    return notes


def mark_notes(run: StoredResults, results: Sequence[Result]) -> list[str]:
    """Which facts about which models were assumed, in one line for models of the same facts; which models were trained
    on images or corruptions that they were evaluated on."""
    titles_by_facts: dict[tuple[str, ...], dict[str, None]] = {}
    assumed_facts = run.assumed_facts()
    for result in results:
        assumed = assumed_facts.get(result.spec.classifier.version)
        if assumed:
            titles_by_facts.setdefault(assumed, {})[result.title] = None
    notes = []
    for warning in run.trained_on(results):
        # Only scores on training images have the mark.
        notes.append(f"{TRAINED} {warning}" if warning.code == "training-images" else str(warning))
    for assumed, titles in titles_by_facts.items():
        notes.append(
            f"{ASSUMED} assumed, neither given nor stated by the model: {named(assumed)} of {listed(titles, 3)}; "
            "confirm or correct with --preprocess (preprocessing=...)"
        )
    return notes


def design_notes(results: Iterable[Result]) -> list[str]:
    """That some of these results are on the images that a design chose, and what that took."""
    notes: dict[str, None] = {}
    for result in results:
        if isinstance(result, PartResult):
            passes = len(result.passes.results)
            shifts = result.passes.shifts
            passes_run = count(passes * result.spec.images)
            passes_of_grid = count(shifts * result.spec.images)
            note = (
                f"estimates of the full grid: each image met {passes} of {shifts} shifts, "
                f"{passes_run} of {passes_of_grid} shifted forward passes per model"
            )
            notes[note] = None
    return list(notes)


def figure_marks(run: StoredResults) -> tuple[dict[str, str], list[str]]:
    """Titles of the models that are marked with their marks, and the notes of a figure."""
    marks = _marks({title: facts for title, facts in run.model_facts().items() if title in run.classifiers})
    return marks, [*mark_notes(run, run.results), *design_notes(run.results)]


def _marks(facts: Mapping[str, ModelFacts]) -> dict[str, str]:
    """The marks of each model that has any, by title."""
    marks: dict[str, str] = {}
    for title, model_facts in facts.items():
        mark = ""
        if model_facts.assumed:
            mark += ASSUMED
        if model_facts.training_images:
            mark += TRAINED
        if mark:
            marks[title] = mark
    return marks


def software_notes(run: StoredResults, results: Iterable[Result]) -> list[str]:
    """Versions that can change scores, if results that are shown together were made with different ones."""
    software = []
    for result in results:
        software += [record.software for record in run.history.makers(result)]
    parts = []
    for name, versions in mixed_versions(software).items():
        if name == "CPU features":
            parts.append(f"{name} ({len(versions)} sets)")
        else:
            parts.append(f"{name} {named(versions)}")
    if not parts:
        return []
    return [f"made with different versions, which can change scores: {'; '.join(parts)}; see table --provenance"]


@dataclass(frozen=True)
class _LogRow:
    """A run, as the log shows it."""

    started: str
    status: str
    models: str
    results: str
    versions: str
    #: The command.
    text: str


def run_log(run: StoredResults, *, last: int | None = None, of_models: bool = False) -> Table:
    """One row per run in order of date; with ``of_models`` only runs that had one of these models."""
    records = list(run.history.records)
    if of_models:
        versions = {result.spec.classifier.version for result in run.results}
        records = [record for record in records if _has_version(record, versions)]
    if last:
        records = records[-last:]
    rows: list[_LogRow] = []
    data: list[dict[str, object]] = []
    for record in records:
        status = _status(run, record)
        row = _LogRow(
            started=shown_date(record.started),
            status=status,
            models=listed([model.id for model in record.models], 3),
            results=_result_counts(record),
            versions=_versions(record),
            text=record.text,
        )
        rows.append(row)
        data.append({**msgspec.to_builtins(record), "state": status})
    lead = [] if rows else ["no runs are recorded"]
    return Table(columns_of("run-log"), rows, lead=lead, data={"runs": data})


def _has_version(record: RunRecord, versions: Set[str]) -> bool:
    """Whether a run had one of these models."""
    return any(model.version in versions for model in record.models)


def _result_counts(record: RunRecord) -> str:
    counts = Counter[str]()
    for model in record.models:
        counts["computed"] += len(model.computed) + len(model.shared)
        counts["reused"] += len(model.reused)
        counts["removed"] += len(model.removed)
    return ", ".join(f"{n} {kind}" for kind, n in counts.items() if n)


def _status(run: StoredResults, record: RunRecord) -> str:
    """The recorded status; a run that is recorded as running may have been killed."""
    if record.status != "running":
        return record.status
    alive = is_alive(run.workspace, record.id)
    if alive is None:
        return "running or killed"
    return "running" if alive else "killed"


def _versions(record: RunRecord) -> str:
    return ", ".join(f"{name} {version}" for name, version in record.software.versions.items())


@dataclass(frozen=True)
class _Provenance:
    """Where a result comes from."""

    model: str
    id: str
    setting: str
    #: When, in UTC.
    made: str
    assumed: str
    #: How many of its images the model was trained on; None if that is not known.
    training_images: int | None
    #: How a model whose answers depend on earlier images, or on the batch, saw them.
    state: str
    #: The path or URL of the images.
    data: str
    versions: str
    machine: str
    cpu_features: str
    runs: str
    #: That of the result in the workspace.
    key: str
    command: str


@dataclass(frozen=True)
class _SharedProvenance:
    """What people see: the settings of a model whose results have the same origin."""

    model: str
    made: str
    assumed: str
    training_images: int | None
    data: str
    versions: str
    machine: str


def provenance_table(run: StoredResults) -> Table:
    """Where each result comes from: date, versions, assumed facts and data of the runs that computed it."""
    assumed_facts = run.assumed_facts()
    rows = [_provenance(run, result, assumed_facts) for result in run.results]
    settings_by_origin = by_key((_shared(row), row.setting) for row in rows)
    shown_rows = []
    for origin, settings in settings_by_origin.items():
        shown_rows.append({**as_row(origin), "settings": listed(settings, 3)})
    return Table(
        columns_of("provenance"),
        rows,
        shown=shown_rows,
        title="provenance",
        notes=software_notes(run, run.results),
        keys=keys_of(_Provenance) if rows else None,
    )


def _shared(row: _Provenance) -> _SharedProvenance:
    return _SharedProvenance(row.model, row.made, row.assumed, row.training_images, row.data, row.versions, row.machine)


def _provenance(run: StoredResults, result: Result, assumed_facts: Mapping[str, Sequence[str]]) -> _Provenance:
    spec = result.spec
    makers = run.history.makers(result)
    assumed = assumed_facts.get(spec.classifier.version)
    source = run.workspace.source(spec.dataset.name, spec.dataset.fingerprint)
    if assumed is None:
        assumed_text = _NOT_RECORDED
    else:
        assumed_text = ", ".join(assumed) or "nothing"
    return _Provenance(
        model=result.title,
        id=result.model_id,
        setting=result.setting,
        made=_each(map(_shown_end, makers)),
        assumed=assumed_text,
        training_images=run.training_images(result),
        state=_state(spec),
        data=_NOT_RECORDED if source is None else source[1],
        versions=_each(map(_versions, makers)),
        machine=_each(f"{record.software.cpu}, {record.software.platform}" for record in makers),
        cpu_features=_each(" ".join(record.software.cpu_features) for record in makers),
        runs=", ".join(record.id for record in makers),
        key=result.key,
        command=_each(record.text for record in makers),
    )


def _shown_end(record: RunRecord) -> str:
    """When a run ended; of one that has not, when it began."""
    return shown_date(record.ended or record.started)


def _each(values: Iterable[str]) -> str:
    """One value, or those of all runs that computed a part."""
    return " and ".join(dict.fromkeys(values)) or _NOT_RECORDED


def _state(spec: ResultSpec) -> str:
    """How a stateful model, or one that mixes the images of a batch, saw the images; empty for others."""
    size = spec.classifier.batch_size
    if size is None:
        return spec.classifier.batch
    return f"reset before the setting; images shuffled by seed {spec.shift.seed}, in batches of {size}"


def history_table(run: StoredResults, *, level: float = 0.95) -> Table:
    """One row per version in order of its first run: accuracy, means under shift, and the change since the last one."""
    first_runs = run.history.first_runs
    versions = {result.title: result.spec.classifier.version for result in run.results}
    if not versions:
        raise StoreError("no results yet")
    titles = sorted(versions, key=lambda title: first_runs.get(versions[title], ""))
    history = _score_history(run, titles, level)
    columns = history.columns
    rows: list[Row] = []
    cells_by_title: dict[str, dict[str, Number | None]] = {}
    data = []
    for previous, title in zip([None, *titles], titles, strict=False):
        comparison = None
        if previous is not None:
            comparison = _change(run, title, previous, columns[0], level)
        first_run = first_runs.get(versions[title])
        date = shown_date(first_run) if first_run else ""
        cells_by_title[title] = _history_cells(title, history)
        rows.append(_history_row(title, date, cells_by_title[title], comparison))
        data.append(_history_data(title, date, history.scores[title], comparison))
    diagrams = []
    if len(rows) > 1:
        for key in columns[:_MAX_HISTORY_COLUMNS]:
            values = [(title, cells[key]) for title, cells in cells_by_title.items()]
            diagrams.append(Diagram(key, partial(interval_chart, values)))
    shown_columns = [
        Column("date", "first run (UTC)", "word"),
        Column("model", "model", "model"),
        *(Column(key, key, "number", times=100) for key in columns[:_MAX_HISTORY_COLUMNS]),
        Column("change", f"change in {columns[0]}", "points", times=100),
        Column("p", "p", "p", optional=True),
    ]
    table = Table(
        shown_columns, rows, notes=_history_notes(history), data={"versions": ModelRecords(data)}, diagrams=diagrams
    )
    return with_models(table, run)


@dataclass(frozen=True)
class _ScoreHistory:
    """The scores of the versions of a model."""

    #: By title, in order of the first run: accuracy of each setting that is not of a family, and each family's mean.
    scores: dict[str, dict[str, Score]]
    #: (title, family) of means over other corruptions or severities than those of the last version.
    incomparable: set[tuple[str, str | None]]

    @property
    def columns(self) -> list[str]:
        """Settings and families in the order in which they first occur."""
        keys: dict[str, None] = {}
        for scores in self.scores.values():
            keys |= dict.fromkeys(scores)
        return list(keys)


def _score_history(run: StoredResults, titles: Sequence[str], level: float) -> _ScoreHistory:
    from shiftbench.reports.frames import score_rows

    scores: dict[str, dict[str, Score]] = {title: {} for title in titles}
    # The corruptions and severities that the mean of a model over a family is over.
    averaged: dict[tuple[str, str | None], set[tuple[str, float]]] = {}
    for row in score_rows(run, level=level):
        if row.corruption is None and row.score.metric == "top1":
            scores[row.model][row.setting] = row.score
        elif row.corruption is not None and row.severity is not None:
            averaged.setdefault((row.model, row.family), set()).add((row.corruption, row.severity))
    last_averaged: dict[str | None, set[tuple[str, float]]] = {}
    for title in titles:
        for (model, family), cells in averaged.items():
            if model == title:
                last_averaged[family] = cells
    incomparable = {key for key, cells in averaged.items() if cells != last_averaged[key[1]]}
    return _ScoreHistory(scores, incomparable)


def _change(run: StoredResults, title: str, previous: str, setting: str, level: float) -> Comparison | None:
    """A version against the one before; None if they are on other images, or not both evaluated in this setting."""
    try:
        return compare(run.predictions(title, setting), run.predictions(previous, setting), level=level)
    except ShiftbenchError:
        return None


def _history_cells(title: str, history: _ScoreHistory) -> dict[str, Number | None]:
    """The scores of a version, by the setting or family."""
    cells: dict[str, Number | None] = dict.fromkeys(history.columns)
    for key, score in history.scores[title].items():
        mark = "*" if (title, key) in history.incomparable else ""
        cells[key] = Number(score.value, score.low, score.high, formatting.digits(score.n), mark=mark)
    return cells


def _history_row(title: str, date: str, cells: Mapping[str, Number | None], comparison: Comparison | None) -> Row:
    change = None
    if comparison is not None:
        places = formatting.digits(comparison.n)
        change = Number(comparison.difference, comparison.low, comparison.high, places)
    return {"date": date, "model": title, **cells, "change": change, "p": comparison and comparison.p}


def _history_data(title: str, date: str, scores: Mapping[str, Score], comparison: Comparison | None) -> Row:
    change = None
    if comparison is not None:
        change = {"value": comparison.difference, "low": comparison.low, "high": comparison.high}
    return {
        "model": title,
        "date": date,
        "scores": {key: score.as_dict() for key, score in scores.items()},
        "change": change,
        "p": comparison and comparison.p,
    }


def _history_notes(history: _ScoreHistory) -> list[str]:
    notes = ["top-1 accuracy in percent; change: against the version before, in points, paired by image"]
    hidden_columns = history.columns[_MAX_HISTORY_COLUMNS:]
    if hidden_columns:
        notes.append(f"{len(hidden_columns)} more in --json: {', '.join(hidden_columns)}")
    marked = []
    for title in history.scores:
        marked += [f"{title} in {key}" for key in history.columns if (title, key) in history.incomparable]
    if marked:
        notes.append(f"* over other corruptions or severities than the last version: {listed(marked, 3)}")
    return notes
