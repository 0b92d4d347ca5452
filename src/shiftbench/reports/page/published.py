"""Results that others published, for ``--data``: a table of models by settings, and what is known about its models.

``published.importers.open_table`` describes which files and folders are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from shiftbench.arrays import FloatArray
from shiftbench.published.baselines import PublishedLine
from shiftbench.published.importers import open_table
from shiftbench.reports.page.columns import GridColumn
from shiftbench.reports.page.payload import Estimate, estimate
from shiftbench.reports.placement import Placements
from shiftbench.studies.base import FRACTION, whole
from shiftbench.studies.models import STANDARD, ModelInfo, Models
from shiftbench.studies.results import Results
from shiftbench.studies.robustness import accuracy_interval
from shiftbench.studies.study import Study
from shiftbench.studies.testbed import SHIFTS, has_testbed_settings, known_settings


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


def read_published(
    data: Path,
    models: Path | None = None,
    *,
    baseline: str = STANDARD,
    unit: str | None = None,
    all_models: bool = False,
) -> Published:
    """The table at ``data``; ``models`` names the table of models where the folder does not hold it."""
    return Published(data.name, open_table(data, models, baseline=baseline, unit=unit, all_models=all_models))


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
    settings = tuple(dict.fromkeys(name for row in values.values() for name in row))
    cells = np.array([[row.get(name, np.nan) for name in settings] for row in values.values()])
    if not placed:
        return None
    study = Study(Results(tuple(values), settings, cells, FRACTION, sizes), Models(models))
    return Published("published models", study, placed)


def published_columns(published: Published, level: float) -> list[GridColumn]:
    results = published.study.results
    known = known_settings() if published.is_testbed else {}
    columns = []
    for name in results.settings:
        setting, baseline = known.get(name), published.baselines.get(name)
        reference = _reference(name, results) if published.is_testbed else None
        if baseline is not None and baseline.x is not None:
            reference = baseline.x.setting
        source = baseline.source if baseline is not None else published.name
        columns.append(
            GridColumn(
                name,
                _numbers(results, name, level),
                published.name,
                reference=reference,
                note=setting.note if setting else "",
                provenance=f"as published in {source}",
            )
        )
    return columns


def _reference(name: str, results: Results) -> str | None:
    """What the testbed draws on the x axis; its means over corruptions and attacks are drawn against val."""
    named = {shift.y: shift.x for shift in SHIFTS.values()}
    setting = known_settings().get(name)
    mean = name not in known_settings() and "val" in results.settings
    reference = named.get(name) or (setting.reference if setting else "val" if mean else None)
    return reference if reference in results.settings else None


def _numbers(results: Results, setting: str, level: float) -> Mapping[str, Estimate]:
    values = results.column(setting)
    size = results.size(setting)
    sizes = np.broadcast_to(np.nan if size is None else size, values.shape)
    lows, highs = accuracy_interval(values, sizes, results.unit, level)
    one = whole(results.unit)
    found = {
        model: estimate(value / one, low / one, high / one, n)
        for model, value, low, high, n in zip(results.models, values, lows, highs, sizes, strict=True)
    }
    return {model: number for model, number in found.items() if number is not None}
