"""The results section: models by settings, from a workspace, a published table, or both on the same axes.

Own and published numbers share a setting when they are the same measurement: the same name and number of images, and,
for the settings of the ImageNet testbed, the same classes, transform and list of images (``placement.why_apart``).
Otherwise the own setting is shown as ``NAME (own)``, with a note that gives the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from shiftbench.errors import listed
from shiftbench.reports import formatting
from shiftbench.reports.corruption import accuracy_of, flip_entries, perturbation_families
from shiftbench.reports.models import design_notes, version_notes
from shiftbench.reports.page import payload
from shiftbench.reports.page.payload import Estimate, ModelEntry, ResultGrid, ShiftEntry, score_estimate
from shiftbench.reports.page.published import OWN, GridColumn, Published, published_columns
from shiftbench.reports.page.sections import Section
from shiftbench.reports.placement import published_name, why_apart
from shiftbench.reports.scores import ScoreColumn, ScoreGrid
from shiftbench.runs.results import StoredResults
from shiftbench.studies.base import FRACTION, PERCENT, StudyError, whole
from shiftbench.studies.fits import PiecewiseFit
from shiftbench.studies.models import Models
from shiftbench.studies.results import own_name, same_images
from shiftbench.studies.study import Study, unlisted
from shiftbench.studies.testbed import SHIFTS

if TYPE_CHECKING:
    from shiftbench.reports.page.report_data import ReportData

#: Metrics that are what published tables call accuracy.
_ACCURACIES = {"accuracy", "top1", "pm0", "pm10"}
_UNITS = {PERCENT: "percent", FRACTION: "fractions"}
_SO_FAR = "the run is not complete: scores are over the images evaluated so far; n is their number"


@dataclass(frozen=True)
class OwnNames:
    """Names of own models and settings on a page whose published table has some of them already."""

    models: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)


def results_payload(data: ReportData) -> tuple[ResultGrid | None, OwnNames]:
    """The grid (None if empty), and the names of own models and settings on the page."""
    published, baseline = data.others, data.options.baseline
    theirs = published_columns(published, data.level) if published else []
    own = _own_columns(data)
    classifiers = list(dict.fromkeys(result.title for result in data.results))
    settings, notes = _own_settings(own, published, theirs)
    taken = published.study.results.models if published else ()
    names = OwnNames({name: own_name(name) for name in classifiers if name in taken}, settings)
    # Own settings first; one that both have is one column with the models of both.
    others = {column.name: column for column in theirs}
    columns = []
    for mine in (column.renamed(names.settings, names.models) for column in own):
        other = others.pop(mine.name, None)
        if other is not None:
            mine = replace(
                mine,
                estimates={**other.estimates, **mine.estimates},
                source=other.source,
                metric=other.metric,
                reference=other.reference or mine.reference,
                note=other.note or mine.note,
                provenance="; ".join(part for part in (mine.provenance, other.provenance) if part),
            )
        columns.append(mine)
    columns += others.values()
    if any(column.estimates for column in columns):
        if empty := [column.name for column in columns if not column.estimates]:
            notes.append(f"no labelled images, and so no accuracy: {listed(empty)}")
        columns = [column for column in columns if column.estimates]
    if not columns:
        return None, names
    models, more = _models(data, classifiers, names.models)
    # Settings of a corruption family are not offered as axes one by one.
    members = {name for family in data.families if family.means for name in family.places.values()}
    # The page opens on the first: one that own models have, published ones too if possible, where there is one.
    shown = {names.models.get(one, one) for one in classifiers}
    found = {column.name: set(column.estimates) for column in columns}

    def rank(shift: ShiftEntry) -> tuple[bool, bool]:
        both = found[shift["x"]] & found[shift["y"]]
        return not both & shown, not both - shown

    shifts = sorted(_shifts(columns, members, published, shown), key=rank)
    notes = [*_run_notes(data), *notes, *more, *_gaps(columns, models)]
    grid: ResultGrid = {
        "settings": [column.entry({column.name for column in columns}) for column in columns],
        "models": models,
        "estimates": [[column.estimates.get(model["name"]) for column in columns] for model in models],
        "shifts": shifts,
        "notes": [
            *notes,
            *(["no setting has a reference: choose the two axes yourself"] if len(columns) > 1 and not shifts else []),
        ],
        "baseline": baseline if any(model["category"] for model in models) else "",
        "level": data.level,
    }
    return grid, names


def _run_notes(data: ReportData) -> list[str]:
    if data.run is None or not data.results:
        return []
    made = [*version_notes(data.run, data.results), *design_notes(data.results)]
    notes = [*([_SO_FAR] if data.progress else []), *made]
    if data.placements is not None:
        placed = [f"published models: {note}" for one in data.placements for note in one.notes]
        why = [f"{one.model} on {one.setting} is not placed among published models: {one.why}"
               for one in data.placements.unplaced]  # fmt: skip
        notes += dict.fromkeys([*placed, *why])
    return notes


def _own_columns(data: ReportData) -> list[GridColumn]:
    """Every setting with its scores; the mean of every family; flips in place of the frames of sequences."""
    run = data.run
    if run is None or not data.results:
        return []
    frames = {one.setting for one in run.results if one.spec.shift.frame is not None}
    table = ScoreGrid([entry for entry in data.scores if entry[1] not in frames])
    columns = [_own_column(table, column, run) for column in table.columns]
    for family in data.families:
        if family.means:
            errors = {title: scores.mean_error for title, scores in family.means.items()}
            numbers = {title: score_estimate(accuracy_of(error)) for title, error in errors.items()}
            first, kinds = next(iter(errors.values())), len(family.corruptions)
            severities = ", ".join(map(str, family.severities))
            note = f"the mean over {kinds} corruptions at severity {severities}; interval: {first.method}"
            metric = first.metric.replace("error", "accuracy")
            columns.append(GridColumn(family.name, _known(numbers), metric=metric, reference=family.clean, note=note,
                                      provenance=first.provenance))  # fmt: skip
    for prefix in perturbation_families(run):
        flips = ScoreGrid(flip_entries(run, prefix, data.level))
        for column in flips.columns:
            name = prefix if column.setting == prefix else f"{prefix}.{column.heading}"
            columns.append(replace(_plain_column(flips, column), name=f"{name}: {column.metric}"))
    return columns


def _known(numbers: Mapping[str, Estimate | None]) -> dict[str, Estimate]:
    return {name: value for name, value in numbers.items() if value is not None}


def _plain_column(table: ScoreGrid, column: ScoreColumn) -> GridColumn:
    numbers = _known({name: score_estimate(column.scores.get(name)) for name in table.classifiers})
    line = formatting.provenance(column.provenance)
    return GridColumn(
        column.heading, numbers, OWN, column.metric, column.unit, column.higher_is_better, provenance=line
    )


def _own_column(table: ScoreGrid, column: ScoreColumn, run: StoredResults) -> GridColumn:
    # A metric may say more about its provenance than the run did.
    same = [one for one in run.results if one.setting == column.setting]
    if not same:  # a mean over settings
        return _plain_column(table, column)
    own = next((one for one in same if one.spec.provenance == column.provenance), same[0])
    # The heading of the reference; where it comes in several provenances, that of the same images.
    name, images = own.spec.reference, own.spec.dataset.fingerprint
    same_images = {
        one.spec.provenance for one in run.results if one.setting == name and one.spec.dataset.fingerprint == images
    }
    headings = [one for one in table.columns if one.setting == name]
    headings.sort(key=lambda one: one.provenance not in same_images)
    these = [one for one in same if one.spec.provenance == own.spec.provenance]
    apart = next(filter(None, (why_apart(run.workspace, one) for one in these)), "")
    found = replace(_plain_column(table, column), setting=column.setting, apart=apart)
    note, reference = run.workspace.setting_record(own).note, headings[0].heading if headings else None
    return replace(found, reference=reference, note=note)


def _own_settings(
    own: Sequence[GridColumn], published: Published | None, theirs: Sequence[GridColumn]
) -> tuple[dict[str, str], list[str]]:
    """Own settings take the published name where both mean the same, and one of their own elsewhere."""
    by_name = {column.name: column for column in theirs}
    names: dict[str, str] = {}
    notes = []
    for column in own if published else ():
        assert published is not None
        setting = column.setting or column.name
        name = published_name(setting) if published.is_testbed else setting
        other = by_name.get(name)
        if other is None:
            continue
        why = _why_apart(column, other, published.is_testbed)
        if not why and name in names.values():
            why = "other results of the workspace are there"
        names[column.name] = own_name(name if column.name == setting else column.name) if why else name
        if why:
            notes.append(f"{name}: the workspace's results are kept apart from those of {published.name}: {why}")
    return names, notes


def _why_apart(mine: GridColumn, other: GridColumn, is_testbed: bool) -> str:
    if mine.metric not in _ACCURACIES:
        return f"they are {mine.metric}"
    if is_testbed and mine.apart:
        return mine.apart
    sizes = [n for n in mine.sizes if other.sizes and not same_images(n, other.sizes)]
    expected = " or ".join(formatting.count(int(n)) for n in sorted(other.sizes))
    return f"on {formatting.count(int(sizes[0]))} images, not {expected}" if sizes else ""


def _models(
    data: ReportData, classifiers: Sequence[str], names: Mapping[str, str]
) -> tuple[list[ModelEntry], list[str]]:
    """Published models first, so that the page draws the own ones on top."""
    published, own_known, baseline = data.others, data.options.models, data.options.baseline
    known = published.study.models if published else own_known
    entries: list[ModelEntry] = []
    notes: list[str] = []
    if published:
        results, fitted = published.study.results, set[str]()
        try:
            chosen = published.study.baseline
            fitted = {name for name, here in zip(results.models, chosen, strict=True) if here}
        except StudyError as error:
            notes.append(f"{error.message}: no line is drawn ({error.found})")
        entries = [_entry(name, known, own=False, fitted=name in fitted) for name in results.models]
        read = [] if published.baselines else [f"{published.name}: read as {_UNITS[results.unit]}"]
        notes += [*read, *results.notes, *unlisted(published.study)]
    # The line of others never goes through one's own models; among themselves, those of the category make it. The
    # package's tables have lines for some settings only: the page fits own models where there is none.
    on_line = set() if published is not None and not published.baselines else set(classifiers)
    if own_known is not None:
        here = own_known.baseline(classifiers, baseline)
        on_line &= {name for name, standard in zip(classifiers, here, strict=True) if standard}
    if not published and known is not None and not on_line:
        notes.append(f"no model of the workspace has the category {baseline!r}: no line is drawn")
    all_facts = data.run.model_facts() if data.run is not None and classifiers else {}
    for name in classifiers:
        entry, facts = _entry(name, known, own=True, fitted=name in on_line), all_facts.get(name, {})
        entry["id"], entry["assumed"] = facts.get("id", ""), facts.get("assumed") or []
        entry["training_images"] = facts.get("training_images", [])
        entries.append({**entry, "name": names.get(name, name)})
    if names:
        notes.append(f"also in the published table, so marked (own): {listed(names)}")
    return entries, notes


def _entry(name: str, known: Models | None, *, own: bool, fitted: bool) -> ModelEntry:
    info = known.get(name) if known else None
    category, base = (info.category, info.base_model) if info else ("", "")
    return {"name": name, "id": "", "assumed": [], "training_images": [], "category": category, "base_model": base,
            "own": own, "fitted": fitted}  # fmt: skip


def _gaps(columns: Sequence[GridColumn], models: Sequence[ModelEntry]) -> list[str]:
    """Number of missing results, by source: own models are not expected in every published setting."""
    notes = []
    for own, whose in ((False, "published models"), (True, "models of the workspace")):
        names = {model["name"] for model in models if model["own"] is own}
        touched = [n for column in columns if (n := len(names.intersection(column.estimates)))]
        total = len(names) * len(touched)
        if total > sum(touched):
            missing = f"{formatting.count(total - sum(touched))} of {formatting.count(total)} results are missing"
            notes.append(f"{missing}: not all {whose} were evaluated in every setting")
    return notes


def _shifts(
    columns: Sequence[GridColumn], members: set[str], published: Published | None, own: set[str]
) -> list[ShiftEntry]:
    """The testbed's named shifts if the grid has them, then every setting against its reference."""
    names = {column.name for column in columns}
    found: list[ShiftEntry] = []
    if published and published.is_testbed:
        found = [_named_shift(name, published.study) for name in SHIFTS if {SHIFTS[name].x, SHIFTS[name].y} <= names]
    shown = {(shift["x"], shift["y"]) for shift in found}
    for column in columns:
        x, y, plain = column.reference, column.name, not own.isdisjoint(column.estimates) or not found
        if x is not None and x in names and (x, y) not in shown and y not in members and plain:
            line = published.baselines.get(y) if published else None
            scale = line.scale if line else None
            found.append({"name": y, "x": x, "y": y, "min_x": None, "pivot": None, "scale": scale})
    return found


def _named_shift(name: str, study: Study) -> ShiftEntry:
    shift, pivot = study.shift(name), None
    if shift.pivot is not None:
        try:
            line = study.fit(shift.x, shift.y, min_x=shift.min_x, pivot=shift.pivot, resamples=0)
        except StudyError:  # too few models for two lines: the page draws one
            line = None
        pivot = payload.rounded(line.pivot / whole(study.results.unit)) if isinstance(line, PiecewiseFit) else None
    assert shift.min_x is not None
    least = payload.rounded(shift.min_x / 100)
    return {"name": name, "x": shift.x, "y": shift.y, "min_x": least, "pivot": pivot, "scale": None}


def results(data: ReportData) -> ResultGrid | None:
    return data.grid[0]


SECTION = Section("results", results)
