"""The results section: models by settings, from a workspace, a published table, or both on the same axes.

Own and published numbers share a setting when they are the same measurement: the same name and number of images, and,
for the settings of the ImageNet testbed, the same classes, transform and list of images (``placement.why_apart``).
Otherwise the own setting is shown as ``NAME (own)``, with a note that gives the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from shiftbench.errors import listed
from shiftbench.grouping import by_key
from shiftbench.metrics.base import Score
from shiftbench.reports import formatting
from shiftbench.reports.corruption import accuracy_of, flip_entries, perturbation_families
from shiftbench.reports.models import design_notes, version_notes
from shiftbench.reports.page import payload
from shiftbench.reports.page.payload import (
    Estimate,
    ModelEntry,
    ResultGrid,
    SettingEntry,
    ShiftEntry,
    score_estimate,
    setting_entry,
)
from shiftbench.reports.page.published import GridColumn, Published, published_columns
from shiftbench.reports.page.sections import Section
from shiftbench.reports.page.sections.corruptions import FamilyScores
from shiftbench.reports.placement import published_name, why_apart
from shiftbench.reports.scores import ScoreColumn, ScoreGrid
from shiftbench.runs.results import StoredResults
from shiftbench.store.workspace import Result, Workspace
from shiftbench.studies.base import FRACTION, PERCENT, StudyError, whole
from shiftbench.studies.fits import FEW_MODELS, PiecewiseFit
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
_NO_REFERENCE = "no setting has a reference: choose the two axes yourself"


@dataclass(frozen=True)
class OwnNames:
    """Names of own models and settings on a page whose published table has some of them already."""

    models: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)


def results_payload(data: ReportData) -> tuple[ResultGrid | None, OwnNames]:
    """The grid (None if empty), and the names of own models and settings on the page."""
    published = data.others
    published_settings = published_columns(published, data.level) if published else []
    own_settings = _own_columns(data)
    titles = list(dict.fromkeys(result.title for result in data.results))
    setting_names, notes = _own_settings(own_settings, published, published_settings)
    taken = published.study.results.models if published else ()
    names = OwnNames({title: own_name(title) for title in titles if title in taken}, setting_names)
    columns = _merged([column.renamed(names.settings, names.models) for column in own_settings], published_settings)
    empty = [column.name for column in columns if not column.estimates]
    if empty and len(empty) < len(columns):
        notes.append(f"no labelled images, and so no accuracy: {listed(empty)}")
        columns = [column for column in columns if column.estimates]
    if not columns:
        return None, names
    models, model_notes = _models(data, titles, names.models)
    shifts = _ordered_shifts(data, columns, {names.models.get(title, title) for title in titles})
    notes = [*_run_notes(data), *notes, *model_notes, *_gaps(columns, models)]
    if len(columns) > 1 and not shifts:
        notes.append(_NO_REFERENCE)
    return _grid(data, columns, models, shifts, notes), names


def _grid(
    data: ReportData,
    columns: Sequence[GridColumn],
    models: list[ModelEntry],
    shifts: list[ShiftEntry],
    notes: list[str],
) -> ResultGrid:
    shown_settings = {column.name for column in columns}
    has_categories = any(model["category"] for model in models)
    return {
        "settings": [column.entry(shown_settings) for column in columns],
        "models": models,
        "estimates": [_row(model["name"], columns) for model in models],
        "shifts": shifts,
        "notes": notes,
        "baseline": data.options.baseline if has_categories else "",
        "least_line_models": FEW_MODELS,
        "level": data.level,
    }


def _row(model: str, columns: Sequence[GridColumn]) -> list[Estimate | None]:
    return [column.estimates.get(model) for column in columns]


def _merged(own: Iterable[GridColumn], published: Iterable[GridColumn]) -> list[GridColumn]:
    """Own settings first; a setting that both have is one column with the models of both."""
    only_published = {column.name: column for column in published}
    columns = []
    for column in own:
        published_column = only_published.pop(column.name, None)
        if published_column is not None:
            column = _joined(column, published_column)
        columns.append(column)
    return [*columns, *only_published.values()]


def _joined(own: GridColumn, published: GridColumn) -> GridColumn:
    provenances = (own.setting["provenance"], published.setting["provenance"])
    setting: SettingEntry = {
        **own.setting,
        "source": published.setting["source"],
        "metric": published.setting["metric"],
        "reference": published.reference or own.reference,
        "note": published.setting["note"] or own.setting["note"],
        "provenance": "; ".join(filter(None, provenances)),
    }
    return replace(own, setting=setting, estimates={**published.estimates, **own.estimates})


def _ordered_shifts(data: ReportData, columns: Sequence[GridColumn], own_models: set[str]) -> list[ShiftEntry]:
    """The shifts, those first that show most, because the page opens on the first one.

    Best is a shift in which own models can be placed among published ones, then one with own models alone.
    """
    models_in = {column.name: set(column.estimates) for column in columns}

    def rank(shift: ShiftEntry) -> tuple[bool, bool]:
        placed_models = models_in[shift["x"]] & models_in[shift["y"]]
        lacks_own_models = placed_models.isdisjoint(own_models)
        lacks_published_models = placed_models <= own_models
        return lacks_own_models, lacks_published_models

    return sorted(_shifts(data, columns, own_models), key=rank)


def _run_notes(data: ReportData) -> list[str]:
    if data.run is None or not data.results:
        return []
    notes = [_SO_FAR] if data.progress else []
    notes += version_notes(data.run, data.results)
    notes += design_notes(data.results)
    if data.placements is not None:
        notes += _placement_notes(data)
    return notes


def _placement_notes(data: ReportData) -> list[str]:
    """What a reader must know to compare with published models; models with the same reason share a note."""
    assert data.placements is not None
    notes: dict[str, None] = {}
    for placement in data.placements:
        notes.update(dict.fromkeys(f"published models: {note}" for note in placement.notes))
    reasons = by_key(((unplaced.setting, unplaced.why), unplaced.model) for unplaced in data.placements.unplaced)
    for (setting, reason), models in reasons.items():
        verb = "is" if len(models) == 1 else "are"
        notes[f"{listed(models, 3)} on {setting} {verb} not placed among published models: {reason}"] = None
    return list(notes)


# Columns of own results


def _own_columns(data: ReportData) -> list[GridColumn]:
    """Every setting with its scores; the means of every family; flips in place of the frames of sequences."""
    run = data.run
    if run is None or not data.results:
        return []
    details: set[str] = set()
    family_columns: list[GridColumn] = []
    for family in data.families:
        if family.means:
            family_columns += _family_columns(family)
            if len(family.severities) > 1:
                details |= set(family.places.values())
    frames = {result.setting for result in run.results if result.spec.shift.frame is not None}
    table = ScoreGrid([entry for entry in data.scores if entry.setting not in frames])
    by_setting = by_key((result.setting, result) for result in run.results)
    columns = [_own_column(table, column, run.workspace, by_setting, details) for column in table.columns]
    plain = [column for column in columns if not column.setting["detail"]]
    detailed = [column for column in columns if column.setting["detail"]]
    return [*plain, *family_columns, *detailed, *_flip_columns(run, data.level)]


def _family_columns(family: FamilyScores) -> list[GridColumn]:
    """The mean over a family; if it has several severities, also the mean over those of each corruption."""
    severities = ", ".join(map(str, family.severities))
    overall = {title: scores.mean_error for title, scores in family.means.items()}
    note = f"the mean over {len(family.corruptions)} corruptions at severity {severities}"
    columns = [_mean_column(family, family.name, overall, note)]
    if len(family.severities) > 1:
        for corruption in family.corruptions:
            errors = {}
            for title, scores in family.means.items():
                # Corruptions that do not enter the mean may be missing for some models.
                if corruption in scores.error:
                    errors[title] = scores.error[corruption]
            if errors:
                note = f"the mean over severities {severities}"
                columns.append(_mean_column(family, f"{family.name}.{corruption}", errors, note))
    return columns


def _mean_column(family: FamilyScores, name: str, errors: Mapping[str, Score], note: str) -> GridColumn:
    first = next(iter(errors.values()))
    setting = setting_entry(
        name,
        metric=first.metric.replace("error", "accuracy"),
        reference=family.clean,
        note=f"{note}; interval: {first.method}",
        provenance=first.provenance,
    )
    return GridColumn(setting, _estimates({title: accuracy_of(error) for title, error in errors.items()}))


def _flip_columns(run: StoredResults, level: float) -> list[GridColumn]:
    columns = []
    for prefix in perturbation_families(run):
        flips = ScoreGrid(flip_entries(run, prefix, level))
        for flip_column in flips.columns:
            name = prefix
            if flip_column.setting != prefix:
                name = f"{prefix}.{flip_column.heading}"
            column = _plain_column(flips, flip_column)
            setting: SettingEntry = {**column.setting, "name": f"{name}: {flip_column.metric}"}
            columns.append(replace(column, setting=setting))
    return columns


def _estimates(scores: Mapping[str, Score | None]) -> dict[str, Estimate]:
    """The scores that have a value, by model."""
    estimates: dict[str, Estimate] = {}
    for title, score in scores.items():
        value = score_estimate(score)
        if value is not None:
            estimates[title] = value
    return estimates


def _plain_column(table: ScoreGrid, column: ScoreColumn) -> GridColumn:
    setting = setting_entry(
        column.heading,
        metric=column.metric,
        unit=column.unit,
        higher_is_better=column.higher_is_better,
        provenance=formatting.provenance(column.provenance),
    )
    return GridColumn(setting, _estimates({title: column.scores.get(title) for title in table.classifiers}))


def _own_column(
    table: ScoreGrid,
    column: ScoreColumn,
    workspace: Workspace,
    by_setting: Mapping[str, Sequence[Result]],
    details: set[str],
) -> GridColumn:
    plain = _plain_column(table, column)
    results = by_setting.get(column.setting, [])
    if not results:  # a mean over settings
        return plain
    # A metric may say more about its provenance than the run did; then the first result stands for the column.
    result = next((result for result in results if result.spec.provenance == column.provenance), results[0])
    same_provenance = [candidate for candidate in results if candidate.spec.provenance == result.spec.provenance]
    reasons = (why_apart(workspace, candidate) for candidate in same_provenance)
    setting: SettingEntry = {
        **plain.setting,
        "reference": _reference_heading(table, by_setting, result),
        "note": workspace.setting_record(result).note,
        "detail": column.setting in details,
    }
    return replace(plain, setting=setting, stored_setting=column.setting, apart=next(filter(None, reasons), ""))


def _reference_heading(table: ScoreGrid, by_setting: Mapping[str, Sequence[Result]], result: Result) -> str | None:
    """The heading of the reference; where it comes in several provenances, the one over the same images."""
    reference = result.spec.reference
    images = result.spec.dataset.fingerprint
    references = by_setting.get(reference or "", [])
    same_images = [candidate for candidate in references if candidate.spec.dataset.fingerprint == images]
    provenances = {candidate.spec.provenance for candidate in same_images}
    columns = [column for column in table.columns if column.setting == reference]
    if not columns:
        return None
    # False sorts before True, and the order is kept otherwise.
    columns.sort(key=lambda column: column.provenance not in provenances)
    return columns[0].heading


# Own settings among published ones


def _own_settings(
    own: Sequence[GridColumn], published: Published | None, published_settings: Sequence[GridColumn]
) -> tuple[dict[str, str], list[str]]:
    """Own settings take the published name where both mean the same; otherwise they are marked as own."""
    names: dict[str, str] = {}
    notes: list[str] = []
    if published is None:
        return names, notes
    by_name = {column.name: column for column in published_settings}
    for column in own:
        setting = column.stored_setting or column.name
        name = published_name(setting) if published.is_testbed else setting
        published_column = by_name.get(name)
        if published_column is None:
            continue
        reason = _why_apart(column, published_column, published.is_testbed)
        if not reason and name in names.values():
            reason = "other results of the workspace are there"
        names[column.name] = name
        if reason:
            names[column.name] = own_name(name if column.name == setting else column.name)
            notes.append(f"{name}: the workspace's results are kept apart from those of {published.name}: {reason}")
    return names, notes


def _why_apart(own: GridColumn, published: GridColumn, is_testbed: bool) -> str:
    """Why an own column is not the same measurement as a published one; "" if it is."""
    if own.setting["metric"] not in _ACCURACIES:
        return f"they are {own.setting['metric']}"
    if is_testbed and own.apart:
        return own.apart
    if not published.sizes:
        return ""
    other_sizes = [n for n in own.sizes if not same_images(n, published.sizes)]
    if not other_sizes:
        return ""
    expected = " or ".join(formatting.count(int(n)) for n in sorted(published.sizes))
    return f"on {formatting.count(int(other_sizes[0]))} images, not {expected}"


# Models


def _models(data: ReportData, titles: Sequence[str], names: Mapping[str, str]) -> tuple[list[ModelEntry], list[str]]:
    """Published models first, so that the page draws the own ones on top; and notes for the reader."""
    entries: list[ModelEntry] = []
    notes: list[str] = []
    if data.others is not None:
        entries, notes = _published_models(data.others)
    infos = _facts_about_own_models(data)
    on_line = _own_models_on_line(data, titles)
    if data.others is None and infos is not None and not on_line:
        notes.append(f"no model of the workspace has the category {data.options.baseline!r}: no line is drawn")
    for title in titles:
        facts = data.model_facts[title]
        entry = _entry(title, infos, own=True, fitted=title in on_line)
        entry["name"] = names.get(title, title)
        entry["id"] = facts.id
        entry["assumed"] = list(facts.assumed or ())
        entry["training_images"] = list(facts.training_images)
        entries.append(entry)
    if names:
        notes.append(f"also in the published table, so marked (own): {listed(names)}")
    return entries, notes


def _facts_about_own_models(data: ReportData) -> Models | None:
    """What is known about own models: by the table of results they stand in, or else by the list of models."""
    if data.others is not None and (data.own_models is None or not data.others.baselines):
        return data.others.study.models
    return data.own_models


def _published_models(published: Published) -> tuple[list[ModelEntry], list[str]]:
    results = published.study.results
    notes: list[str] = []
    fitted: set[str] = set()
    try:
        on_line = published.study.baseline
        fitted = {name for name, is_fitted in zip(results.models, on_line, strict=True) if is_fitted}
    except StudyError as error:
        notes.append(f"{error.message}: no line is drawn ({error.found})")
    if not published.baselines:
        notes.append(f"{published.name}: read as {_UNITS[results.unit]}")
    notes += [*results.notes, *unlisted(published.study)]
    infos = published.study.models
    return [_entry(name, infos, own=False, fitted=name in fitted) for name in results.models], notes


def _own_models_on_line(data: ReportData, titles: Sequence[str]) -> set[str]:
    """Own models that a line may go through.

    The line of a published table never goes through own models. The package's tables have lines for some settings
    only: the page fits own models where there is none, and of those only the baseline category, where it is known.
    """
    if data.others is not None and not data.others.baselines:
        return set()
    if data.own_models is None:
        return set(titles)
    is_baseline = data.own_models.baseline(titles, data.options.baseline)
    return {title for title, fitted in zip(titles, is_baseline, strict=True) if fitted}


def _entry(name: str, infos: Models | None, *, own: bool, fitted: bool) -> ModelEntry:
    entry: ModelEntry = {
        "name": name,
        "id": "",
        "assumed": [],
        "training_images": [],
        "category": "",
        "base_model": "",
        "own": own,
        "fitted": fitted,
    }
    info = infos.get(name) if infos else None
    if info is not None:
        entry["category"] = info.category
        entry["base_model"] = info.base_model
    return entry


def _gaps(columns: Sequence[GridColumn], models: Sequence[ModelEntry]) -> list[str]:
    """Number of missing results, by source: own models are not expected in every published setting."""
    notes = []
    for is_own, whose in ((False, "published models"), (True, "models of the workspace")):
        names = {model["name"] for model in models if model["own"] is is_own}
        evaluated = [len(names.intersection(column.estimates)) for column in columns]
        evaluated = [n for n in evaluated if n]
        total = len(names) * len(evaluated)
        missing = total - sum(evaluated)
        if missing:
            share = f"{formatting.count(missing)} of {formatting.count(total)} results are missing"
            notes.append(f"{share}: not all {whose} were evaluated in every setting")
    return notes


# Shifts


def _shifts(data: ReportData, columns: Sequence[GridColumn], own_models: set[str]) -> list[ShiftEntry]:
    """The testbed's named shifts if the grid has them, then every setting against its reference."""
    published = data.others
    names = {column.name for column in columns}
    shifts: list[ShiftEntry] = []
    if published and published.is_testbed:
        for name, axes in SHIFTS.items():
            if {axes.x, axes.y} <= names:
                shifts.append(_named_shift(name, published.study))
    has_named_shifts = bool(shifts)
    pairs = {(shift["x"], shift["y"]) for shift in shifts}
    parts = _parts_of_families(data)
    for column in columns:
        if column.reference not in names or column.name in parts or (column.reference, column.name) in pairs:
            continue
        # Of a testbed's hundreds of settings, only those of own models are offered beside the named shifts.
        if has_named_shifts and own_models.isdisjoint(column.estimates):
            continue
        shifts.append(_plain_shift(column, published))
    return shifts


def _parts_of_families(data: ReportData) -> set[str]:
    """Settings and means below the mean of a corruption family: these are not offered as axes one by one."""
    parts: set[str] = set()
    for family in data.families:
        if family.means:
            parts |= set(family.places.values())
            parts |= {f"{family.name}.{corruption}" for corruption in family.corruptions}
    return parts


def _plain_shift(column: GridColumn, published: Published | None) -> ShiftEntry:
    assert column.reference is not None
    line = published.baselines.get(column.name) if published else None
    return {
        "name": column.name,
        "x": column.reference,
        "y": column.name,
        "min_x": None,
        "pivot": None,
        "scale": line.scale if line else None,
    }


def _named_shift(name: str, study: Study) -> ShiftEntry:
    shift = study.shift(name)
    assert shift.least_x is not None
    return {
        "name": name,
        "x": shift.x,
        "y": shift.y,
        "min_x": payload.rounded(shift.least_x),
        "pivot": _pivot(name, study),
        "scale": None,
    }


def _pivot(name: str, study: Study) -> float | None:
    """Where two lines meet, as a fraction; None where the page draws one line, as for too few models."""
    shift = study.shift(name)
    if shift.pivot is None:
        return None
    try:
        line = study.fit(shift.x, shift.y, min_x=shift.min_x, pivot=shift.pivot, resamples=0)
    except StudyError:
        return None
    if not isinstance(line, PiecewiseFit):
        return None
    return payload.rounded(line.pivot / whole(study.results.unit))


def results(data: ReportData) -> ResultGrid | None:
    return data.grid


SECTION = Section("results", results)
