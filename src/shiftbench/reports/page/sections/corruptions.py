"""Families of corrupted settings (``imagenet-c.fog.3``): accuracies by severity, corruption errors, mCE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from shiftbench.errors import SettingError, listed
from shiftbench.grouping import by_key
from shiftbench.metrics.corruption import ALEXNET, Baseline
from shiftbench.metrics.corruption_scores import CorruptionScores, averaged_types, mean_name
from shiftbench.reports.accuracy_grids import error_map, families_of_table, severity_grid
from shiftbench.reports.corruption import FamilyResults
from shiftbench.reports.models import design_notes
from shiftbench.reports.page.payload import Estimate, estimate, score_estimate
from shiftbench.reports.page.published import Published
from shiftbench.reports.page.sections import Section
from shiftbench.shifts.corruptions.catalogue import CORRUPTIONS, corruptions
from shiftbench.studies.base import StudyError

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
    #: settings[corruption][severity] of a published table, whose accuracies the results have; else empty.
    settings: list[list[str]]
    #: The setting without corruption; "" if unknown.
    clean: str


@dataclass(frozen=True)
class FamilyScores(FamilyResults):
    """One family of a run, and what could be averaged of it."""

    #: By title, over the settings that the model has.
    by_model: Mapping[str, CorruptionScores]
    #: Of the models that have all corruptions and severities, so that their means may be compared.
    means: Mapping[str, CorruptionScores]
    baseline: Baseline | None
    notes: Sequence[str]

    @property
    def middle(self) -> int:
        return self.severities[(len(self.severities) - 1) // 2]

    def looked_at_closely(self) -> set[str]:
        """The settings of which the page shows more than a number: the middle and the worst severity."""
        chosen = {self.middle, self.severities[-1]}
        return {setting for (_, severity), setting in self.places.items() if severity in chosen}


def scored_family(family: FamilyResults, level: float) -> FamilyScores:
    """A family that is incomplete keeps its accuracies; a note explains why it has no mean."""
    baseline = ALEXNET if family.divisor() is ALEXNET else None
    whole = set(averaged_types(family.corruptions)), family.severities
    scores, means, notes = dict[str, CorruptionScores](), dict[str, CorruptionScores](), list[str]()
    # One model at a time, so that one that is incomplete does not cost the others their mean.
    for title, results in by_key((one.title, one) for one in family.members).items():
        try:
            [(_, found, _)] = replace(family, members=results).scores(baseline, level=level)
            scores[title] = found
            if (set(found.corruptions), found.severities) == whole:
                means[title] = found
            else:
                lacking = set(family.places.values()).difference(result.setting for result in results)
                notes.append(f"{title} has no mean over {family.name}: not evaluated in {listed(sorted(lacking), 3)}")
        except SettingError as error:
            notes.append(f"{title} has no mean over {family.name}: {error.message} ({error.found})")
    why = family.comparability(baseline)
    if baseline is None:
        why = ["errors are not divided by AlexNet's: it was published for ImageNet's classes and corruptions only"]
    return FamilyScores(
        **vars(family), by_model=scores, means=means, baseline=baseline,
        notes=[*notes, *design_notes(family.members), *why],
    )  # fmt: skip


def corruption_families(data: ReportData) -> list[CorruptionFamily]:
    scores = {(title, setting): score_estimate(score) for title, setting, score in data.scores}
    found: list[CorruptionFamily] = []
    for family in data.families:
        rows: list[CorruptionRow] = []
        for title in dict.fromkeys(result.title for result in family.members):
            known, mean = family.by_model.get(title), family.means.get(title)
            comparable = known is not None and known.severities == family.severities
            by_type = known.ce or known.error if known is not None and comparable else {}
            accuracy = [
                [scores.get((title, family.places.get((name, severity), ""))) for severity in family.severities]
                for name in family.corruptions
            ]
            rows.append(
                {
                    "model": data.model_name(title),
                    "mce": score_estimate(None if mean is None else mean.mce or mean.mean_error),
                    "relative_mce": score_estimate(None if mean is None else mean.relative_mce),
                    "ce": [score_estimate(by_type.get(name)) for name in family.corruptions],
                    "accuracy": accuracy,
                    "clean": scores.get((title, family.clean)) if family.clean else None,
                }
            )
        baseline = f"{family.baseline.name} (published)" if family.baseline else ""
        averaged = averaged_types(family.corruptions)
        found.append(
            {"prefix": family.name, "corruptions": list(family.corruptions), "groups": _groups(family.corruptions),
             "severities": list(family.severities), "baseline": baseline, "rows": rows,
             "mean": mean_name("CE" if baseline else "error", averaged, family.severities),
             "relative_mean": mean_name("relative CE", averaged, family.severities), "notes": list(family.notes),
             "settings": [], "clean": family.clean or ""}
        )  # fmt: skip
    if data.published is not None:
        found += _published_families(data.published)
    return [family for family in found if family["rows"]]


def _published_families(published: Published) -> list[CorruptionFamily]:
    """The families of a table of results: errors divided by those of its AlexNet, if it has one."""
    results, source = published.study.results, published.name
    clean = "val" if "val" in results.settings else None
    alexnet = next((name for name in results.models if name.lower() == "alexnet"), None)
    found: list[CorruptionFamily] = []
    for prefix, places in families_of_table(results.settings).items():
        grid, baseline = severity_grid(results, family=prefix, clean=clean), alexnet
        try:
            errors = error_map(grid, baseline)
        except StudyError:  # AlexNet lacks a corruption
            baseline, errors = None, error_map(grid)
        rows: list[CorruptionRow] = [
            {"model": model, "mce": estimate(mean), "relative_mce": None, "ce": [estimate(value) for value in values],
             "accuracy": [], "clean": None}
            for model, (mean, *values) in zip(errors.models, errors.values.tolist(), strict=True)
            if np.isfinite(values).any()
        ]  # fmt: skip
        settings = [[places.get((name, severity), "") for severity in grid.severities] for name in grid.corruptions]
        found.append(
            {"prefix": f"{prefix} ({source})", "corruptions": list(grid.corruptions),
             "groups": _groups(grid.corruptions), "severities": list(grid.severities),
             "baseline": f"{baseline} in {source}" if baseline else "", "rows": rows,
             "mean": errors.columns[0], "relative_mean": "", "notes": list(errors.notes), "settings": settings,
             "clean": grid.clean_setting}
        )  # fmt: skip
    return found


def _groups(names: tuple[str, ...]) -> list[str]:
    groups = [CORRUPTIONS.get(name).group if name in CORRUPTIONS else "" for name in names]
    return ["extra" if name in corruptions("extra") else group for name, group in zip(names, groups, strict=True)]


SECTION = Section("corruptions", corruption_families)
