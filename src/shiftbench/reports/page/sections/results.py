"""The results section: models by settings, from a workspace, a published table, or both on the same axes.

Own and published numbers share a setting when they mean the same: the same name, and, for the settings of the
ImageNet testbed, the same classes. Otherwise the own setting is shown as ``NAME (own)``, with a note that gives the
reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shiftbench.errors import listed
from shiftbench.reports.formatting import count
from shiftbench.reports.page.columns import OWN, GridColumn
from shiftbench.reports.page.payload import ModelEntry, ResultGrid, ShiftEntry, rounded
from shiftbench.reports.page.published import Published, published_columns
from shiftbench.reports.page.sections import Section
from shiftbench.studies.base import FRACTION, PERCENT, StudyError, whole
from shiftbench.studies.fits import PiecewiseFit
from shiftbench.studies.models import STANDARD, Models
from shiftbench.studies.study import Study, unlisted
from shiftbench.studies.testbed import SHIFTS

if TYPE_CHECKING:
    from shiftbench.reports.page.report_data import ReportData

#: What our suites and people call a setting that the testbed calls otherwise.
_TESTBED_NAMES = {"imagenet-val": "val"}
#: Metrics that are what published tables call accuracy.
_ACCURACIES = {"accuracy", "top1", "pm0", "pm10"}
_UNITS = {PERCENT: "percent", FRACTION: "fractions"}


@dataclass(frozen=True)
class OwnResults:
    """What a workspace brings to the grid."""

    columns: Sequence[GridColumn] = ()
    classifiers: Sequence[str] = ()
    #: Settings of a corruption family, which are not offered as axes one by one.
    members: frozenset[str] = frozenset()
    #: What is known about these models, if no published table brings its own.
    models: Models | None = None
    #: ``StoredResults.model_facts``.
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    notes: Sequence[str] = field(default_factory=tuple)


@dataclass(frozen=True)
class OwnNames:
    """Names of own models and settings on a page whose published table has some of them already."""

    models: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)


def results_payload(
    own: OwnResults, published: Published | None, *, baseline: str = STANDARD, level: float
) -> tuple[ResultGrid | None, OwnNames]:
    """The grid (None if empty), and the names of own models and settings on the page."""
    theirs = published_columns(published, level) if published else []
    settings, notes = _own_settings(own, published, theirs)
    taken = published.study.results.models if published else ()
    names = OwnNames({name: f"{name} (own)" for name in own.classifiers if name in taken}, settings)
    mine = [column.renamed(names.settings).models_renamed(names.models) for column in own.columns]
    columns = _merged(mine, theirs)
    if not columns:
        return None, names
    models, more = _models(own, names.models, published, baseline)
    shifts = _shifts(columns, own.members, published)
    # The page opens on the first: one that own models have, where there is one.
    mine_by_name = {column.name: set(column.estimates) & {names.models.get(one, one) for one in own.classifiers}
                    for column in columns}  # fmt: skip
    shifts.sort(key=lambda shift: not mine_by_name[shift["x"]] & mine_by_name[shift["y"]])
    entries = [column.entry() for column in columns]
    known = {entry["name"] for entry in entries}
    for entry in entries:
        entry["reference"] = entry["reference"] if entry["reference"] in known else None
    grid: ResultGrid = {
        "settings": entries,
        "models": models,
        "estimates": [[column.estimates.get(model["name"]) for column in columns] for model in models],
        "shifts": shifts,
        "notes": [*own.notes, *notes, *more, *_gaps(columns, models), *([] if shifts else [_NO_REFERENCE])],
        "baseline": baseline if any(model["category"] for model in models) else "",
        "level": level,
    }
    return grid, names


_NO_REFERENCE = "no setting has a reference: choose the two axes yourself"


def _own_settings(
    own: OwnResults, published: Published | None, theirs: Sequence[GridColumn]
) -> tuple[dict[str, str], list[str]]:
    """Own settings take the published name where both mean the same, and one of their own elsewhere."""
    if published is None:
        return {}, []
    by_name = {column.name: column for column in theirs}
    names: dict[str, str] = {}
    notes = []
    for column in own.columns:
        name = _TESTBED_NAMES.get(column.name, column.name) if published.is_testbed else column.name
        other = by_name.get(name)
        if other is None:
            continue
        why = _why_apart(column, published)
        names[column.name] = f"{name} (own)" if why else name
        if why:
            notes.append(f"{name}: the workspace's results are kept apart from those of {published.name}: {why}")
        elif column.sizes and other.sizes and column.sizes != other.sizes:
            shown = [" or ".join(count(int(n)) for n in sorted(one.sizes)) for one in (column, other)]
            notes.append(f"{name}: {shown[0]} images in the workspace, {shown[1]} in {published.name}")
    return names, notes


def _why_apart(column: GridColumn, published: Published) -> str:
    """Why an own setting and a published one of that name can't share an axis; "" where they can."""
    if column.metric not in _ACCURACIES:
        return f"they are {column.metric}"
    return column.apart if published.is_testbed else ""


def _merged(mine: Sequence[GridColumn], theirs: Sequence[GridColumn]) -> list[GridColumn]:
    """Own settings first; one that both have is one column with the models of both."""
    published = {column.name: column for column in theirs}
    merged = []
    for column in mine:
        other = published.pop(column.name, None)
        merged.append(column if other is None else _joined(column, other))
    return [*merged, *published.values()]


def _joined(mine: GridColumn, theirs: GridColumn) -> GridColumn:
    provenance = "; ".join(part for part in (mine.provenance, theirs.provenance) if part)
    return GridColumn(
        mine.name,
        {**theirs.estimates, **mine.estimates},
        theirs.source,
        theirs.metric,
        mine.unit,
        mine.higher_is_better,
        theirs.reference or mine.reference,
        theirs.note or mine.note,
        provenance,
    )


def _models(
    own: OwnResults, names: Mapping[str, str], published: Published | None, baseline: str
) -> tuple[list[ModelEntry], list[str]]:
    """Published models first, so that the page draws the own ones on top."""
    known = published.study.models if published else own.models
    entries: list[ModelEntry] = []
    notes: list[str] = []
    if published:
        fitted, notes = _fitted(published.study)
        entries = [_entry(name, known, own=False, fitted=name in fitted) for name in published.study.results.models]
        results = published.study.results
        read = [] if published.baselines else [f"{published.name}: read as {_UNITS[results.unit]}"]
        notes += [*read, *results.notes, *unlisted(published.study)]
    # The line of others never goes through one's own models; among themselves, those of the category make it. The
    # package's tables have lines for some settings only: the page fits own models where there is none.
    table = published is not None and not published.baselines
    on_line = set() if table else _own_baseline(own, own.models, baseline)
    if not published and known is not None and not on_line:
        notes.append(f"no model of the workspace has the category {baseline!r}: no line is drawn")
    own_entries = [_entry(name, known, own=True, fitted=name in on_line) for name in own.classifiers]
    for entry in own_entries:
        facts = own.facts.get(entry["name"], {})
        entry["id"], entry["assumed"] = facts.get("id", ""), facts.get("assumed") or []
        entry["name"] = names.get(entry["name"], entry["name"])
    if names:
        notes.append(f"also in the published table, so marked (own): {listed(names)}")
    return [*entries, *own_entries], notes


def _own_baseline(own: OwnResults, known: Models | None, baseline: str) -> set[str]:
    if known is None:
        return set(own.classifiers)
    chosen = known.baseline(own.classifiers, baseline)
    return {name for name, here in zip(own.classifiers, chosen, strict=True) if here}


def _entry(name: str, known: Models | None, *, own: bool, fitted: bool) -> ModelEntry:
    info = known.get(name) if known else None
    return {
        "name": name,
        "id": "",
        "assumed": [],
        "category": info.category if info else "",
        "base_model": info.base_model if info else "",
        "own": own,
        "fitted": fitted,
    }


def _fitted(study: Study) -> tuple[set[str], list[str]]:
    try:
        chosen = study.baseline
    except StudyError as error:
        return set(), [f"{error.message}: no line is drawn ({error.found})"]
    return {name for name, here in zip(study.results.models, chosen, strict=True) if here}, []


def _gaps(columns: Sequence[GridColumn], models: Sequence[ModelEntry]) -> list[str]:
    """Number of missing results, by source: own models are not expected in every published setting."""
    notes = []
    for own, whose in ((False, "published models"), (True, "models of the workspace")):
        names = {model["name"] for model in models if model["own"] is own}
        present = [len(names.intersection(column.estimates)) for column in columns]
        touched = [n for n in present if n]
        missing = len(names) * len(touched) - sum(touched)
        if missing:
            total = count(len(names) * len(touched))
            notes.append(
                f"{count(missing)} of {total} results are missing: not all {whose} were evaluated in every setting"
            )
    return notes


def _shifts(columns: Sequence[GridColumn], members: frozenset[str], published: Published | None) -> list[ShiftEntry]:
    """The testbed's named shifts if the grid has them, then every setting against its reference."""
    names = {column.name for column in columns}
    found: list[ShiftEntry] = []
    if published and published.is_testbed:
        found = [_named_shift(name, published.study) for name in SHIFTS if {SHIFTS[name].x, SHIFTS[name].y} <= names]
    shown = {(shift["x"], shift["y"]) for shift in found}
    for column in columns:
        pair = (column.reference, column.name)
        plain = column.source == OWN or not found
        if column.reference in names and pair not in shown and column.name not in members and plain:
            assert column.reference is not None
            found.append(
                {
                    "name": column.name,
                    "x": column.reference,
                    "y": column.name,
                    "min_x": None,
                    "pivot": None,
                    "scale": _scale(column.name, published),
                }
            )
    return found


def _named_shift(name: str, study: Study) -> ShiftEntry:
    shift = study.shift(name)
    pivot = None
    if shift.pivot is not None:
        try:
            line = study.fit(shift.x, shift.y, min_x=shift.min_x, pivot=shift.pivot, resamples=0)
        except StudyError:  # too few models for two lines: the page draws one
            line = None
        pivot = rounded(line.pivot / whole(study.results.unit)) if isinstance(line, PiecewiseFit) else None
    assert shift.min_x is not None
    return {
        "name": name,
        "x": shift.x,
        "y": shift.y,
        "min_x": rounded(shift.min_x / 100),
        "pivot": pivot,
        "scale": None,
    }


def _scale(setting: str, published: Published | None) -> str | None:
    baseline = published.baselines.get(setting) if published else None
    return baseline.scale if baseline else None


def results(data: ReportData) -> ResultGrid | None:
    return data.grid[0]


SECTION = Section("results", results)
