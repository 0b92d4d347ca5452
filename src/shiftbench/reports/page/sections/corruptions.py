"""Families of corrupted settings (``imagenet-c.fog.3``): accuracies by severity, corruption errors, mCE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from shiftbench.errors import SettingError
from shiftbench.metrics.base import Score
from shiftbench.metrics.corruption import ALEXNET, Baseline
from shiftbench.metrics.corruption_scores import CorruptionScores
from shiftbench.reports import corruption as families
from shiftbench.reports.accuracy_grids import SeverityGrid, error_map, families_of_table, severity_grid
from shiftbench.reports.corruption import Place, all_corruption_scores, comparability, over_imagenet
from shiftbench.reports.models import design_notes
from shiftbench.reports.page.payload import Estimate, estimate, score_estimate
from shiftbench.reports.page.published import Published
from shiftbench.reports.page.sections import Section
from shiftbench.runs.results import StoredResults
from shiftbench.shifts.corruptions import CORRUPTIONS, corruptions
from shiftbench.store.workspace import Result
from shiftbench.studies.base import StudyError

if TYPE_CHECKING:
    from shiftbench.reports.page.report_data import ReportData

#: Scores by (model's title, setting).
ScoresByPlace = Mapping[tuple[str, str], Score]


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
    rows: list[CorruptionRow]
    notes: list[str]
    #: settings[corruption][severity] of a published table, whose accuracies the results have; else empty.
    settings: list[list[str]]
    #: The setting without corruption; "" if unknown.
    clean: str


@dataclass(frozen=True)
class FamilyScores:
    """One family of a run, and what could be averaged of it."""

    prefix: str
    clean: str | None
    corruptions: tuple[str, ...]
    severities: tuple[int, ...]
    places: Mapping[Place, str]
    baseline: Baseline | None
    #: By title; a model that lacks a setting has none.
    scores: Mapping[str, CorruptionScores]
    classifiers: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def settings(self) -> list[str]:
        return list(self.places.values())

    def looked_at_closely(self) -> set[str]:
        """The settings of which the page shows more than a number: the middle and the worst severity."""
        chosen = {self.severities[(len(self.severities) - 1) // 2], self.severities[-1]}
        return {setting for (_, severity), setting in self.places.items() if severity in chosen}


def read_families(run: StoredResults, level: float) -> list[FamilyScores]:
    """All families of a run. One that is incomplete keeps its accuracies, and says why it has no mean."""
    found = families.corruption_families(run.workspace, run.results)
    return [_family(run, prefix, places, level) for prefix, places in found.items()]


def corruption_families(data: ReportData) -> list[CorruptionFamily]:
    scores = {(title, setting): score for title, setting, score in data.scores}
    found = [family_payload(family, scores) for family in data.families]
    for row in (row for family in found for row in family["rows"]):
        row["model"] = data.model_name(row["model"])
    if data.published is not None:
        found += published_families(data.published)
    return [family for family in found if family["rows"]]


def published_families(published: Published) -> list[CorruptionFamily]:
    """The families of a table of results: errors divided by those of its AlexNet, if it has one."""
    results = published.study.results
    places = families_of_table(results.settings)
    clean = "val" if "val" in results.settings else None
    baseline = next((name for name in results.models if name.lower() == "alexnet"), None)
    return [_published_family(severity_grid(results, family=name, clean=clean), places[name], baseline, published.name)
            for name in places]  # fmt: skip


def _published_family(
    grid: SeverityGrid, places: Mapping[Place, str], baseline: str | None, source: str
) -> CorruptionFamily:
    try:
        errors = error_map(grid, baseline)
    except StudyError:  # AlexNet lacks a corruption
        baseline, errors = None, error_map(grid)
    rows: list[CorruptionRow] = [
        {
            "model": model,
            "mce": estimate(mean),
            "relative_mce": None,
            "ce": [estimate(value) for value in values],
            "accuracy": [],
            "clean": None,
        }
        for model, (mean, *values) in zip(errors.models, errors.values.tolist(), strict=True)
        if np.isfinite(values).any()
    ]
    return {
        "prefix": f"{grid.family} ({source})",
        "corruptions": list(grid.corruptions),
        "groups": [_group(name) for name in grid.corruptions],
        "severities": list(grid.severities),
        "baseline": f"{baseline} in {source}" if baseline else "",
        "rows": rows,
        "notes": list(errors.notes),
        "settings": [[places.get((name, severity), "") for severity in grid.severities] for name in grid.corruptions],
        "clean": grid.clean_setting,
    }


def family_payload(family: FamilyScores, scores: ScoresByPlace) -> CorruptionFamily:
    return {
        "prefix": family.prefix,
        "corruptions": list(family.corruptions),
        "groups": [_group(name) for name in family.corruptions],
        "severities": list(family.severities),
        "baseline": f"{family.baseline.name} (published)" if family.baseline else "",
        "rows": [_row(family, title, scores) for title in family.classifiers],
        "notes": list(family.notes),
        "settings": [],
        "clean": family.clean or "",
    }


def _family(run: StoredResults, prefix: str, places: Mapping[Place, str], level: float) -> FamilyScores:
    settings = set(places.values())
    results = [result for result in run.results if result.setting in settings]
    names = {corruption for corruption, _ in places}
    ordered = [name for name in corruptions("all") if name in names]
    clean = results[0].spec.reference
    baseline = ALEXNET if _divisible_by_alexnet(run, results, names) else None
    by_title: dict[str, list[Result]] = {}
    for result in run.results:
        if result.setting in settings or result.setting == clean:
            by_title.setdefault(result.title, []).append(result)
    scores, notes = _scores(run, prefix, by_title, clean, baseline, level)
    return FamilyScores(
        prefix,
        clean,
        (*ordered, *sorted(names.difference(ordered))),
        tuple(sorted({severity for _, severity in places})),
        places,
        baseline,
        scores,
        tuple(title for title, own in by_title.items() if any(result.setting in settings for result in own)),
        (*notes, *design_notes(results), *_notes(results, prefix, baseline)),
    )


def _scores(
    run: StoredResults,
    prefix: str,
    by_title: Mapping[str, Sequence[Result]],
    clean: str | None,
    baseline: Baseline | None,
    level: float,
) -> tuple[dict[str, CorruptionScores], list[str]]:
    """One model at a time, so that one that is incomplete does not cost the others their mean."""
    scores, notes = {}, []
    for title, results in by_title.items():
        if all(result.setting == clean for result in results):
            continue
        try:
            [(_, found, _)] = all_corruption_scores(run.workspace, results, prefix, clean, baseline, level)
        except SettingError as error:
            notes.append(f"{title} has no mean over {prefix}: {error.message} ({error.found})")
        else:
            scores[title] = found
    return scores, notes


def _divisible_by_alexnet(run: StoredResults, results: Sequence[Result], names: set[str]) -> bool:
    """Its errors are over ImageNet's classes and known for the published corruptions only."""
    return names <= set(ALEXNET.errors) and over_imagenet(run.workspace, results)


def _notes(results: Sequence[Result], prefix: str, baseline: Baseline | None) -> list[str]:
    if baseline is None:
        return ["errors are not divided by AlexNet's: it was published for ImageNet's classes and corruptions only"]
    return comparability(results, prefix, baseline)


def _row(family: FamilyScores, title: str, scores: ScoresByPlace) -> CorruptionRow:
    found = family.scores.get(title)
    by_type = {} if found is None else (found.ce or found.error)
    mean = None if found is None else (found.mce or found.mean_error)
    return {
        "model": title,
        "mce": score_estimate(mean),
        "relative_mce": score_estimate(found.relative_mce if found else None),
        "ce": [score_estimate(by_type.get(name)) for name in family.corruptions],
        "accuracy": [
            [
                score_estimate(scores.get((title, family.places.get((name, severity), ""))))
                for severity in family.severities
            ]
            for name in family.corruptions
        ],
        "clean": score_estimate(scores.get((title, family.clean))) if family.clean else None,
    }


def _group(name: str) -> str:
    if name in corruptions("extra"):
        return "extra"
    return CORRUPTIONS.get(name).group if name in CORRUPTIONS else ""


SECTION = Section("corruptions", corruption_families)
