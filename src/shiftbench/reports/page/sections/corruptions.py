"""Families of corrupted settings (``imagenet-c.fog.3``): accuracies by severity, corruption errors, mCE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from shiftbench.errors import SettingError, listed
from shiftbench.grouping import by_key
from shiftbench.metrics.base import Score
from shiftbench.metrics.corruption import Baseline
from shiftbench.metrics.corruption_scores import CorruptionScores, averaged_types, mean_name
from shiftbench.reports.accuracy_grids import divided_name, error_map, families_of_table, severity_grid
from shiftbench.reports.corruption import FamilyResults, Place
from shiftbench.reports.models import design_notes
from shiftbench.reports.page.payload import Estimate, estimate, score_estimate
from shiftbench.reports.page.published import Published
from shiftbench.reports.page.sections import Section
from shiftbench.shifts.corruptions.catalogue import CORRUPTIONS, corruptions

if TYPE_CHECKING:
    from shiftbench.reports.page.report_data import ReportData


class CorruptionRow(TypedDict):
    model: str
    mce: Estimate | None
    relative_mce: Estimate | None
    #: Per corruption: the corruption error, as a fraction of the baseline's; the plain error without a baseline.
    ce: list[Estimate | None]
    #: accuracy[corruption][severity]; empty where the page takes it from the results, by the family's settings.
    accuracy: list[list[Estimate | None]]
    clean: Estimate | None


class CorruptionFamily(TypedDict):
    #: "imagenet-c", "demo-c", ...
    prefix: str
    corruptions: list[str]
    #: noise, blur, weather, digital or extra, per corruption.
    groups: list[str]
    severities: list[float]
    #: Whose errors divide: "AlexNet (published)", a model, or "" for plain mean errors.
    baseline: str
    #: Names of the means: "mCE" and "relative mCE" over the whole benchmark, "mean CE over 9 types", "mean error".
    mean: str
    relative_mean: str
    rows: list[CorruptionRow]
    notes: list[str]
    #: settings[corruption][severity], whose accuracies the results have; empty where the rows have them.
    settings: list[list[str]]
    #: The setting without corruption; "" if unknown.
    clean: str


@dataclass(frozen=True)
class FamilyScores(FamilyResults):
    """One family of a run, and what could be averaged of it."""

    #: By title, over the settings that the model has.
    by_model: Mapping[str, CorruptionScores]
    #: Models that have all corruptions and severities, so that their means may be compared.
    means: Mapping[str, CorruptionScores]
    baseline: Baseline | None
    notes: Sequence[str]

    @property
    def middle(self) -> int:
        """The severity that images are shown at."""
        return self.severities[(len(self.severities) - 1) // 2]

    def looked_at_closely(self) -> set[str]:
        """The settings that the page shows more of than a number: those of the middle and the worst severity."""
        severities = {self.middle, self.severities[-1]}
        return {setting for (_, severity), setting in self.places.items() if severity in severities}


def scored_family(family: FamilyResults, level: float) -> FamilyScores:
    """A family that is incomplete keeps its accuracies; a note explains why it has no mean."""
    divisor = family.divisor()
    baseline = divisor if isinstance(divisor, Baseline) else None
    complete = (set(averaged_types(family.corruptions)), family.severities)
    by_model: dict[str, CorruptionScores] = {}
    means: dict[str, CorruptionScores] = {}
    models_by_reason: dict[str, list[str]] = {}
    # The models are scored one at a time, so that one that is incomplete does not cost the others their mean.
    models = family.run.by_model()
    for title, results in by_key((result.title, result) for result in family.members).items():
        try:
            # The model's results alone are searched for its clean one.
            model_family = replace(family, run=models[title], members=results)
            [(_, scores, _)] = model_family.scores(baseline, level=level)
        except SettingError as error:
            models_by_reason.setdefault(f"{error.message} ({error.found})", []).append(title)
            continue
        by_model[title] = scores
        if (set(scores.corruptions), scores.severities) == complete:
            means[title] = scores
        else:
            evaluated = {result.setting for result in results}
            missing = sorted(set(family.places.values()) - evaluated)
            models_by_reason.setdefault(f"not evaluated in {listed(missing, 3)}", []).append(title)
    notes = [_no_mean(titles, family.name, reason) for reason, titles in models_by_reason.items()]
    notes += design_notes(family.members)
    if baseline is None:
        notes.append(
            "errors are not divided by AlexNet's: it was published for ImageNet's classes and corruptions only"
        )
    else:
        notes += family.comparability(baseline)
    return FamilyScores(**vars(family), by_model=by_model, means=means, baseline=baseline, notes=notes)


def _no_mean(titles: Sequence[str], family: str, reason: str) -> str:
    verb = "has" if len(titles) == 1 else "have"
    return f"{listed(titles, 3)} {verb} no mean over {family}: {reason}"


def corruption_families(data: ReportData) -> list[CorruptionFamily]:
    estimates = {(title, setting): score_estimate(score) for title, setting, score in data.scores}
    families = [_own_family(data, family, estimates) for family in data.families]
    if data.published is not None:
        families += _published_families(data.published)
    return [family for family in families if family["rows"]]


def _own_family(
    data: ReportData, family: FamilyScores, estimates: Mapping[tuple[str, str], Estimate | None]
) -> CorruptionFamily:
    titles = dict.fromkeys(result.title for result in family.members)
    averaged = averaged_types(family.corruptions)
    settings = _grid_settings(data, family)
    if settings:
        estimates = {}  # The page takes the accuracies from the results.
    return {
        "prefix": family.name,
        "corruptions": list(family.corruptions),
        "groups": _groups(family.corruptions),
        "severities": list(family.severities),
        "baseline": f"{family.baseline.name} (published)" if family.baseline else "",
        "mean": divided_name(_mean_of_family(family, averaged), family.baseline),
        "relative_mean": divided_name(mean_name("relative CE", averaged, family.severities), family.baseline),
        "rows": [_row(data, family, title, estimates) for title in titles],
        "notes": list(family.notes),
        "settings": settings,
        "clean": data.setting_name(family.clean) if family.clean else "",
    }


def _mean_of_family(family: FamilyScores, averaged: Sequence[str]) -> str:
    kind = "CE" if family.baseline else "error"
    return mean_name(kind, averaged, family.severities)


def _grid_settings(data: ReportData, family: FamilyScores) -> list[list[str]]:
    """By corruption and severity: the name of the setting among the results of the page; empty if one is not there.

    A setting of several provenances has several columns with names of their own.
    """
    if data.grid is None:
        return []
    columns = {setting["name"] for setting in data.grid["settings"]}
    names: list[list[str]] = []
    for corruption in family.corruptions:
        row: list[str] = []
        for severity in family.severities:
            setting = family.places.get((corruption, severity))
            row.append(data.setting_name(setting) if setting else "")
        names.append(row)
    for row in names:
        if not columns.issuperset(filter(None, row)):
            return []
    return names


def _row(
    data: ReportData, family: FamilyScores, title: str, estimates: Mapping[tuple[str, str], Estimate | None]
) -> CorruptionRow:
    def accuracies(corruption: str) -> list[Estimate | None]:
        settings = [family.places.get((corruption, severity), "") for severity in family.severities]
        return [estimates.get((title, setting)) for setting in settings]

    scores = family.by_model.get(title)
    errors: Mapping[str, Score] = {}
    # A mean over other severities than the rest of the table is not comparable with it.
    if scores is not None and scores.severities == family.severities:
        errors = scores.ce or scores.error
    row: CorruptionRow = {
        "model": data.model_name(title),
        "mce": None,
        "relative_mce": None,
        "ce": [score_estimate(errors.get(corruption)) for corruption in family.corruptions],
        "accuracy": [accuracies(corruption) for corruption in family.corruptions] if estimates else [],
        "clean": estimates.get((title, family.clean)) if family.clean else None,
    }
    mean = family.means.get(title)
    if mean is not None:
        row["mce"] = score_estimate(mean.mce or mean.mean_error)
        row["relative_mce"] = score_estimate(mean.relative_mce)
    return row


def _published_families(published: Published) -> list[CorruptionFamily]:
    """The families of a table of results: errors divided by those of the family's AlexNet, if it has one."""
    settings = published.study.results.settings
    families = families_of_table(settings)
    return [_published_family(published, prefix, places) for prefix, places in families.items()]


def _published_family(published: Published, prefix: str, places: Mapping[Place, str]) -> CorruptionFamily:
    results = published.study.results
    grid = severity_grid(results, family=prefix, clean="val" if "val" in results.settings else None)
    errors = error_map(grid)
    rows: list[CorruptionRow] = []
    for model, (mean, *values) in zip(errors.models, errors.values.tolist(), strict=True):
        if np.isfinite(values).any():
            rows.append(_published_row(model, mean, values))

    def settings_of(corruption: str) -> list[str]:
        return [places.get((corruption, severity), "") for severity in grid.severities]

    return {
        "prefix": f"{prefix} ({published.name})",
        "corruptions": list(grid.corruptions),
        "groups": _groups(grid.corruptions),
        "severities": list(grid.severities),
        "baseline": f"{errors.divisor.name} (published)" if errors.divisor else "",
        "mean": errors.columns[0],
        "relative_mean": "",
        "rows": rows,
        "notes": list(errors.notes),
        "settings": [settings_of(corruption) for corruption in grid.corruptions],
        "clean": grid.clean_setting,
    }


def _published_row(model: str, mean: float, errors: Sequence[float]) -> CorruptionRow:
    return {
        "model": model,
        "mce": estimate(mean),
        "relative_mce": None,
        "ce": [estimate(error) for error in errors],
        "accuracy": [],
        "clean": None,
    }


def _groups(names: Sequence[str]) -> list[str]:
    """noise, blur, weather, digital or extra, per corruption; "" for a corruption of another package."""
    extra = corruptions("extra")
    groups = []
    for name in names:
        if name in extra:
            groups.append("extra")
        elif name in CORRUPTIONS:
            groups.append(CORRUPTIONS.get(name).group)
        else:
            groups.append("")
    return groups


SECTION = Section("corruptions", corruption_families)
