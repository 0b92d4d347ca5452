"""Results that others published, for ``--data``: a table of models by settings, and what is known about its models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from shiftbench.arrays import FloatArray
from shiftbench.published.baselines import PublishedLine
from shiftbench.reports.page.payload import Estimate, SettingEntry, estimate
from shiftbench.reports.placement import Placements
from shiftbench.studies.base import FRACTION, whole
from shiftbench.studies.models import ModelInfo, Models
from shiftbench.studies.results import Results
from shiftbench.studies.robustness import accuracy_interval
from shiftbench.studies.study import Study
from shiftbench.studies.testbed import SHIFTS, has_testbed_settings, known_settings

#: The source of a setting that the workspace evaluated.
OWN = "own"


@dataclass(frozen=True)
class GridColumn:
    """A setting of the page's grid, and its number for every model; one that was not evaluated in it is missing."""

    name: str
    estimates: Mapping[str, Estimate]
    source: str = OWN
    metric: str = "accuracy"
    unit: str = "%"
    higher_is_better: bool = True
    reference: str | None = None
    note: str = ""
    provenance: str = ""
    #: Of own results: their setting, and why they are not the testbed's measurement in the setting of that name.
    setting: str = ""
    apart: str = ""

    def entry(self, known: set[str]) -> SettingEntry:
        return {
            "name": self.name, "reference": self.reference if self.reference in known else None, "metric": self.metric,
            "unit": self.unit, "higher_is_better": self.higher_is_better, "source": self.source, "note": self.note,
            "provenance": self.provenance,
        }  # fmt: skip

    def renamed(self, settings: Mapping[str, str], models: Mapping[str, str]) -> GridColumn:
        reference = self.reference and settings.get(self.reference, self.reference)
        estimates = {models.get(model, model): value for model, value in self.estimates.items()}
        return replace(self, name=settings.get(self.name, self.name), reference=reference, estimates=estimates)

    @property
    def sizes(self) -> set[float]:
        """The numbers of images behind its numbers, as far as they are known."""
        return {value[3] for value in self.estimates.values() if value[3] is not None}


@dataclass(frozen=True)
class Published:
    """A table of results under its file's name."""

    name: str
    study: Study
    #: The package's own tables of published models, by setting; empty for a table of the user's.
    baselines: Mapping[str, PublishedLine] = field(default_factory=dict)

    @property
    def is_testbed(self) -> bool:
        """Whether its settings are the ImageNet testbed's, so that references and classes are known."""
        return not self.baselines and has_testbed_settings(self.study.results.settings)


def published_baselines(placements: Placements) -> Published | None:
    """The published models of the settings in which own models were placed; None if there are none."""
    placed = {one.setting: one.baseline for one in placements if one.effective is not None}
    values: dict[str, dict[str, float]] = {}
    sizes: dict[str, FloatArray] = {}
    models: dict[str, ModelInfo] = {}
    for setting, baseline in placed.items():
        table = baseline.results(setting)
        sizes.update(table.sizes)
        models.update(baseline.models)
        for model, row in zip(table.models, table.values.tolist(), strict=True):
            values.setdefault(model, {}).update(zip(table.settings, row, strict=True))
    if not placed:
        return None
    settings = tuple(dict.fromkeys(name for row in values.values() for name in row))
    cells = np.array([[row.get(name, np.nan) for name in settings] for row in values.values()])
    study = Study(Results(tuple(values), settings, cells, FRACTION, sizes), Models(models))
    return Published("published models", study, placed)


def published_columns(published: Published, level: float) -> list[GridColumn]:
    results, one = published.study.results, whole(published.study.results.unit)
    known = known_settings() if published.is_testbed else {}
    # What the testbed draws on the x axis; its means over corruptions and attacks are drawn against val.
    drawn = {shift.y: shift.x for shift in SHIFTS.values()}
    columns = []
    for name in results.settings:
        setting, baseline = known.get(name), published.baselines.get(name)
        reference = None
        if published.is_testbed:
            reference = drawn.get(name) or (setting.reference if setting else "val")
        elif baseline is not None and baseline.x is not None:
            reference = baseline.x.setting
        values, size = results.column(name), results.size(name)
        sizes = np.broadcast_to(np.nan if size is None else size, values.shape)
        lows, highs = accuracy_interval(values, sizes, results.unit, level)
        found = {
            model: estimate(value / one, low / one, high / one, n)
            for model, value, low, high, n in zip(results.models, values, lows, highs, sizes, strict=True)
        }
        columns.append(
            GridColumn(
                name,
                {model: number for model, number in found.items() if number is not None},
                published.name,
                reference=reference if reference in results.settings else None,
                note=setting.note if setting else "",
                provenance=f"as published in {baseline.source if baseline is not None else published.name}",
            )
        )
    return columns
