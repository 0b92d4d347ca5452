"""Results that others published, for ``--data``: a table of models by settings, and what is known about its models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from shiftbench.arrays import FloatArray
from shiftbench.published.baselines import PublishedLine
from shiftbench.reports.page.payload import Estimate, SettingEntry, estimate, setting_entry
from shiftbench.reports.placement import Placements
from shiftbench.studies.base import FRACTION, whole
from shiftbench.studies.models import ModelInfo, Models
from shiftbench.studies.results import Results
from shiftbench.studies.robustness import accuracy_interval
from shiftbench.studies.study import Study
from shiftbench.studies.testbed import SHIFTS, has_testbed_settings, known_settings


@dataclass(frozen=True)
class GridColumn:
    """A setting of the page's grid, with the estimate of every model that was evaluated in it."""

    setting: SettingEntry
    estimates: Mapping[str, Estimate]
    #: The workspace's name of the setting; "" for published settings and for means over settings.
    stored_setting: str = ""
    #: Why own results are not the testbed's measurement in the setting of the same name; "" if they are.
    apart: str = ""

    @property
    def name(self) -> str:
        return self.setting["name"]

    @property
    def reference(self) -> str | None:
        return self.setting["reference"]

    def entry(self, shown_settings: set[str]) -> SettingEntry:
        """The setting for the payload; a reference that the page does not show is left out."""
        if self.reference in shown_settings:
            return self.setting
        return {**self.setting, "reference": None}

    def renamed(self, settings: Mapping[str, str], models: Mapping[str, str]) -> GridColumn:
        """The same column, with settings and models called by other names."""
        setting: SettingEntry = {**self.setting, "name": settings.get(self.name, self.name)}
        if self.reference is not None:
            setting["reference"] = settings.get(self.reference, self.reference)
        estimates = {models.get(model, model): value for model, value in self.estimates.items()}
        return replace(self, setting=setting, estimates=estimates)

    @property
    def sizes(self) -> set[float]:
        """The numbers of images behind its estimates, as far as they are known."""
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
    lines = {placement.setting: placement.baseline for placement in placements if placement.effective is not None}
    if not lines:
        return None
    values: dict[str, dict[str, float]] = {}
    sizes: dict[str, FloatArray] = {}
    models: dict[str, ModelInfo] = {}
    for setting, line in lines.items():
        table = line.results(setting)
        sizes.update(table.sizes)
        models.update(line.models)
        for model, row in zip(table.models, table.values.tolist(), strict=True):
            values.setdefault(model, {}).update(zip(table.settings, row, strict=True))
    settings: dict[str, None] = {}
    for row in values.values():
        settings.update(dict.fromkeys(row))
    accuracies = np.full((len(values), len(settings)), np.nan)
    for i, row in enumerate(values.values()):
        accuracies[i] = [row.get(name, np.nan) for name in settings]
    results = Results(tuple(values), tuple(settings), accuracies, FRACTION, sizes)
    return Published("published models", Study(results, Models(models)), lines)


def published_columns(published: Published, level: float) -> list[GridColumn]:
    return [_published_column(published, name, level) for name in published.study.results.settings]


def _published_column(published: Published, name: str, level: float) -> GridColumn:
    results = published.study.results
    line = published.baselines.get(name)
    reference = _reference(published, name)
    note = ""
    if published.is_testbed and name in known_settings():
        note = known_settings()[name].note
    if reference not in results.settings:
        reference = None
    origin = published.name if line is None else line.source
    setting = setting_entry(
        name,
        source=published.name,
        reference=reference,
        note=note,
        provenance=f"as published in {origin}",
    )
    return GridColumn(setting, _published_estimates(results, name, level))


def _reference(published: Published, name: str) -> str | None:
    """The setting that is drawn on the x axis below this one."""
    if published.is_testbed:
        # Means over corruptions and attacks are no settings of the testbed; it draws them against val.
        drawn_against = {shift.y: shift.x for shift in SHIFTS.values()}
        if name in drawn_against:
            return drawn_against[name]
        setting = known_settings().get(name)
        return "val" if setting is None else setting.reference
    line = published.baselines.get(name)
    if line is None or line.x is None:
        return None
    return line.x.setting


def _published_estimates(results: Results, name: str, level: float) -> dict[str, Estimate]:
    full = whole(results.unit)
    values = results.column(name)
    size = results.size(name)
    sizes = np.broadcast_to(np.nan if size is None else size, values.shape)
    lows, highs = accuracy_interval(values, sizes, results.unit, level)
    estimates: dict[str, Estimate] = {}
    for model, value, low, high, n in zip(results.models, values, lows, highs, sizes, strict=True):
        cell = estimate(value / full, low / full, high / full, n)
        if cell is not None:
            estimates[model] = cell
    return estimates
