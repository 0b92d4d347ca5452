"""Families of corrupted settings (``imagenet-c.fog.3``): accuracies by severity, corruption errors, mCE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from shiftbench.errors import SettingError
from shiftbench.metrics.base import Score
from shiftbench.metrics.corruption import ALEXNET, Baseline
from shiftbench.metrics.corruption_scores import CorruptionScores
from shiftbench.reports.corruption import all_corruption_scores, comparability, corruption_prefixes
from shiftbench.reports.page.payload import Estimate, score_estimate
from shiftbench.reports.page.sections import Section
from shiftbench.runs.results import StoredResults
from shiftbench.shifts.corruptions import CORRUPTIONS, corruptions
from shiftbench.store.display_names import classifier_titles
from shiftbench.store.workspace import Result

if TYPE_CHECKING:
    from shiftbench.reports.page.report_data import ReportData

#: Scores by (classifier's title, setting).
ScoresByPlace = Mapping[tuple[str, str], Score]


class CorruptionRow(TypedDict):
    model: str
    mce: Estimate | None
    relative_mce: Estimate | None
    #: Per corruption: the corruption error, as a fraction of the baseline's; the plain error without a baseline.
    ce: list[Estimate | None]
    #: accuracy[corruption][severity]
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


@dataclass(frozen=True)
class FamilyScores:
    """One family of a run, and what could be averaged of it."""

    prefix: str
    clean: str | None
    corruptions: tuple[str, ...]
    severities: tuple[int, ...]
    baseline: Baseline | None
    #: By title; a classifier that lacks a setting has none.
    scores: Mapping[str, CorruptionScores]
    classifiers: tuple[str, ...]
    notes: tuple[str, ...]

    def setting(self, corruption: str, severity: int) -> str:
        return f"{self.prefix}.{corruption}.{severity}"

    @property
    def settings(self) -> list[str]:
        return [self.setting(corruption, severity) for corruption in self.corruptions for severity in self.severities]

    def looked_at_closely(self) -> set[str]:
        """The settings of which the page shows more than a number: the middle and the worst severity."""
        chosen = {self.severities[(len(self.severities) - 1) // 2], self.severities[-1]}
        return {self.setting(corruption, severity) for corruption in self.corruptions for severity in chosen}


def read_families(run: StoredResults, level: float) -> list[FamilyScores]:
    """All families of a run. One that is incomplete keeps its accuracies, and says why it has no mean."""
    return [_family(run, prefix, places, level) for prefix, places in _places(run.settings).items()]


def corruption_families(data: ReportData) -> list[CorruptionFamily]:
    scores = {(title, setting): score for title, setting, score in data.scores}
    found = [family_payload(family, scores) for family in data.families]
    for row in (row for family in found for row in family["rows"]):
        row["model"] = data.model_name(row["model"])
    return [family for family in found if family["rows"]]


def family_payload(family: FamilyScores, scores: ScoresByPlace) -> CorruptionFamily:
    return {
        "prefix": family.prefix,
        "corruptions": list(family.corruptions),
        "groups": [_group(name) for name in family.corruptions],
        "severities": list(family.severities),
        "baseline": f"{family.baseline.name} (published)" if family.baseline else "",
        "rows": [_row(family, title, scores) for title in family.classifiers],
        "notes": list(family.notes),
    }


def _places(settings: Sequence[str]) -> dict[str, dict[str, tuple[str, int]]]:
    """Prefix to the (corruption, severity) of each of its settings."""
    found: dict[str, dict[str, tuple[str, int]]] = {}
    for prefix in corruption_prefixes(settings):
        members = [name for name in settings if name.startswith(f"{prefix}.")]
        parts = {name: name.removeprefix(f"{prefix}.").split(".") for name in members}
        # ``fog.2.5`` is no corruption called 2: fractional severities have no published errors and no family.
        whole = {
            name: (part[0], int(part[1]))
            for name, part in parts.items()
            if len(part) == 2 and part[1].isdigit() and not part[0].isdigit()
        }
        if whole:
            found[prefix] = whole
    return found


def _family(run: StoredResults, prefix: str, places: Mapping[str, tuple[str, int]], level: float) -> FamilyScores:
    results = [result for result in run.results if result.setting in places]
    names = {corruption for corruption, _ in places.values()}
    ordered = [name for name in corruptions("all") if name in names]
    clean = results[0].spec.reference
    baseline = ALEXNET if _divisible_by_alexnet(results, names) else None
    titles = classifier_titles(run.results)
    by_title: dict[str, list[Result]] = {}
    for result in run.results:
        if result.setting in places or result.setting == clean:
            by_title.setdefault(titles[result.key], []).append(result)
    scores, notes = _scores(run, prefix, by_title, clean, baseline, level)
    return FamilyScores(
        prefix,
        clean,
        (*ordered, *sorted(names.difference(ordered))),
        tuple(sorted({severity for _, severity in places.values()})),
        baseline,
        scores,
        tuple(title for title, own in by_title.items() if any(result.setting in places for result in own)),
        (*notes, *_notes(results, prefix, baseline)),
    )


def _scores(
    run: StoredResults,
    prefix: str,
    by_title: Mapping[str, Sequence[Result]],
    clean: str | None,
    baseline: Baseline | None,
    level: float,
) -> tuple[dict[str, CorruptionScores], list[str]]:
    """One classifier at a time, so that one that is incomplete does not cost the others their mean."""
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


def _divisible_by_alexnet(results: Sequence[Result], names: set[str]) -> bool:
    """Its errors are over ImageNet's classes and known for the published corruptions only."""
    return names <= set(ALEXNET.errors) and all(result.spec.space.startswith("imagenet-") for result in results)


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
            [score_estimate(scores.get((title, family.setting(name, severity)))) for severity in family.severities]
            for name in family.corruptions
        ],
        "clean": score_estimate(scores.get((title, family.clean))) if family.clean else None,
    }


def _group(name: str) -> str:
    if name in corruptions("extra"):
        return "extra"
    return CORRUPTIONS.get(name).group if name in CORRUPTIONS else ""


SECTION = Section("corruptions", corruption_families)
