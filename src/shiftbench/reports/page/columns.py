"""The settings of the page's grid as columns: what a setting is, and its number for every model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shiftbench.metrics.base import Score
from shiftbench.reports.models import design_notes
from shiftbench.reports.page.payload import Estimate, SettingEntry, estimate, score_estimate
from shiftbench.reports.perturbation import flip_entries, perturbation_families
from shiftbench.reports.placement import why_apart
from shiftbench.reports.scores import ScoreColumn, ScoreGrid
from shiftbench.runs.results import StoredResults
from shiftbench.store.workspace import Result

if TYPE_CHECKING:
    from shiftbench.reports.page.sections.corruptions import FamilyScores

#: The source of a setting that the workspace evaluated.
OWN = "own"


@dataclass(frozen=True)
class GridColumn:
    """``estimates`` by model; a model that was not evaluated in the setting is missing."""

    name: str
    estimates: Mapping[str, Estimate]
    source: str
    metric: str = "accuracy"
    unit: str = "%"
    higher_is_better: bool = True
    reference: str | None = None
    note: str = ""
    provenance: str = ""
    #: Why they are not the testbed's measurement, though they have the name of one of its settings.
    apart: str = ""

    def entry(self) -> SettingEntry:
        return {
            "name": self.name,
            "reference": self.reference,
            "metric": self.metric,
            "unit": self.unit,
            "higher_is_better": self.higher_is_better,
            "source": self.source,
            "note": self.note,
            "provenance": self.provenance,
        }

    def renamed(self, names: Mapping[str, str]) -> GridColumn:
        """Itself and its reference under new names."""
        reference = self.reference and names.get(self.reference, self.reference)
        return replace(self, name=names.get(self.name, self.name), reference=reference)

    def models_renamed(self, names: Mapping[str, str]) -> GridColumn:
        return replace(self, estimates={names.get(model, model): value for model, value in self.estimates.items()})

    @property
    def sizes(self) -> set[float]:
        """The numbers of images behind its numbers, as far as they are known."""
        return {value[3] for value in self.estimates.values() if value[3] is not None}


def own_columns(
    run: StoredResults, entries: Sequence[tuple[str, str, Score]], families: Iterable[FamilyScores], level: float
) -> list[GridColumn]:
    """Every setting with its scores; the mean of every family; flips in place of the frames of sequences."""
    frames = {one.setting for one in run.results if is_frame(one)}
    table = ScoreGrid([entry for entry in entries if entry[1] not in frames])
    columns = [_column(table, column, run) for column in table.columns]
    columns += [mean for mean in map(_mean_column, families) if mean is not None]
    for prefix in perturbation_families(run.workspace, run.results):
        columns += _flip_columns(ScoreGrid(flip_entries(run.workspace, run.results, prefix, level)), prefix)
    return columns


def is_frame(one: Result) -> bool:
    """A frame of a perturbation sequence, of which only flips between frames are shown."""
    return one.spec.shift.frame is not None


def _column(table: ScoreGrid, column: ScoreColumn, run: StoredResults) -> GridColumn:
    # A metric may say more about its provenance than the run did.
    same = [one for one in run.results if one.setting == column.setting]
    own = next((one for one in same if one.spec.provenance == column.provenance), same[0])
    return GridColumn(
        column.heading,
        _numbers(table, column),
        OWN,
        column.metric,
        column.unit,
        column.higher_is_better,
        _reference(table, own, run.results),
        "; ".join(filter(None, [run.workspace.setting_record(own).note, *design_notes([own])])),
        column.provenance,
        next(filter(None, map(why_apart, same)), ""),
    )


def _numbers(table: ScoreGrid, column: ScoreColumn) -> dict[str, Estimate]:
    found = {name: score_estimate(table.score(name, column)) for name in table.classifiers}
    return {name: value for name, value in found.items() if value is not None}


def _reference(table: ScoreGrid, own: Result, results: Sequence[Result]) -> str | None:
    """The heading of the reference; where it comes in several provenances, that of the same images."""
    name = own.spec.reference
    headings = [column for column in table.columns if column.setting == name]
    same_images = {
        one.spec.provenance
        for one in results
        if one.setting == name and one.spec.dataset.fingerprint == own.spec.dataset.fingerprint
    }
    ordered = sorted(headings, key=lambda column: column.provenance not in same_images)
    return ordered[0].heading if ordered else None


def _mean_column(family: FamilyScores) -> GridColumn | None:
    """The mean accuracy over a family: one place for each model on an axis."""
    if not family.scores:
        return None
    errors = {title: scores.mean_error for title, scores in family.scores.items()}
    numbers = {title: estimate(1 - e.value, 1 - e.high, 1 - e.low, e.n) for title, e in errors.items()}
    first = next(iter(errors.values()))
    return GridColumn(
        family.prefix,
        {title: value for title, value in numbers.items() if value is not None},
        OWN,
        metric=first.metric.replace("error", "accuracy"),
        reference=family.clean,
        note=f"the mean over {len(family.corruptions)} corruptions at {len(family.severities)} severities; "
        f"interval: {first.method}",
        provenance=first.provenance,
    )


def _flip_columns(table: ScoreGrid, prefix: str) -> list[GridColumn]:
    return [
        GridColumn(
            f"{prefix}: {column.metric}" if column.setting == prefix else f"{prefix}.{column.heading}: {column.metric}",
            _numbers(table, column),
            OWN,
            column.metric,
            column.unit,
            column.higher_is_better,
            provenance=column.provenance,
        )
        for column in table.columns
    ]
