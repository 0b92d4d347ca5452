"""Accuracies and errors by corruption and severity, from a table of results or from a run's corruption errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shiftbench.arrays import FloatArray
from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS, EXTRA_CORRUPTIONS
from shiftbench.errors import UnknownNameError, listed
from shiftbench.reports.corruption import results_corruption_table
from shiftbench.reports.figures.accuracies import Accuracies, accuracies
from shiftbench.runs.results import StoredResults
from shiftbench.studies.base import StudyError
from shiftbench.studies.results import Results

#: ``imagenet-c.fog.3``, and the testbed's ``imagenet-c.fog.3_on-disk``, whose suffix makes another family.
_SETTING = re.compile(r"(?P<prefix>.+)\.(?P<corruption>[\w-]+)\.(?P<severity>\d+)(?P<source>_on-disk|_in-memory)?")
_ORDER = {name: place for place, name in enumerate(BENCHMARK_CORRUPTIONS + EXTRA_CORRUPTIONS)}


@dataclass(frozen=True)
class SeverityGrid:
    """(models, corruptions, severities) accuracies as fractions with interval ends; nan where one is missing."""

    family: str
    models: tuple[str, ...]
    corruptions: tuple[str, ...]
    severities: tuple[int, ...]
    accuracy: FloatArray
    low: FloatArray
    high: FloatArray
    #: Without corruption.
    clean: Accuracies | None
    clean_setting: str = ""

    @property
    def missing(self) -> list[str]:
        """The models that lack an accuracy."""
        return [name for name, row in zip(self.models, self.accuracy, strict=True) if np.isnan(row).any()]


def corruption_families(settings: Sequence[str]) -> dict[str, dict[tuple[str, int], str]]:
    """Family to (corruption, severity) to setting.

    >>> list(corruption_families(["val", "imagenet-c.fog.3_on-disk", "imagenet-c.fog.3"]))
    ['imagenet-c_on-disk', 'imagenet-c']
    """
    found: dict[str, dict[tuple[str, int], str]] = {}
    for setting in settings:
        match = _SETTING.fullmatch(setting)
        if match:
            family = match["prefix"] + (match["source"] or "")
            found.setdefault(family, {})[match["corruption"], int(match["severity"])] = setting
    return found


def severity_grid(
    results: Results,
    *,
    family: str | None = None,
    clean: str | None = None,
    models: Sequence[str] = (),
    level: float = 0.95,
) -> SeverityGrid:
    """The accuracies of one family of settings, of all models or of these.

    ``family`` is the part of the names before the corruption, with the testbed's suffix where there is one; it may
    be left out where there is only one. ``clean`` is the setting without corruption.
    """
    found = corruption_families(results.settings)
    if family is None and len(found) == 1:
        family = next(iter(found))
    if family is None or family not in found:
        raise StudyError(
            "which corruptions to draw is not clear" if family is None else f"no settings of the family {family!r}",
            found=f"families {', '.join(found) or 'none'}",
            expected="settings named FAMILY.corruption.severity, of one family",
            hint="name it: --family" if found else None,
        )
    for name in models:
        if name not in results.models:
            raise UnknownNameError("model", name, results.models)
    chosen = results.keep(np.array([not models or name in models for name in results.models]))
    places = found[family]
    corruptions = sorted(dict.fromkeys(c for c, _ in places), key=lambda c: (_ORDER.get(c, len(_ORDER)), c))
    severities = sorted({severity for _, severity in places})
    cells = np.full((3, len(chosen.models), len(corruptions), len(severities)), np.nan)
    for (corruption, severity), setting in places.items():
        one = accuracies(chosen, setting, level)
        at = corruptions.index(corruption), severities.index(severity)
        cells[:, :, at[0], at[1]] = one.value, one.low, one.high
    return SeverityGrid(
        family, chosen.models, tuple(corruptions), tuple(severities), cells[0], cells[1], cells[2],
        accuracies(chosen, clean, level) if clean is not None else None, clean or "",
    )  # fmt: skip


@dataclass(frozen=True)
class ErrorMap:
    """(models, columns) errors as fractions of one, or of a baseline's; nan where one is missing."""

    models: tuple[str, ...]
    columns: tuple[str, ...]
    values: FloatArray
    #: What the numbers are: "CE", "mean error at 1,3,5", ...
    what: str
    notes: tuple[str, ...] = ()


def error_map_of_run(run: StoredResults, family: str | None = None, *, baseline: str | None = None) -> ErrorMap:
    """The numbers of ``Run.corruption_table``: the mean over corruptions first, then every type."""
    table = results_corruption_table(run, family, baseline=baseline)
    kinds = list(dict.fromkeys(row["metric"] for row in table.rows))
    # Corruption errors where there is something to divide by, else plain ones.
    mean = next((kind for kind in kinds if kind.startswith("mCE")), None)
    mean = mean or next(kind for kind in kinds if kind.startswith("mean error"))
    types = [row for row in table.rows if row["setting"] not in (*run.settings, *corruption_families(run.settings))]
    cells = {(row["classifier"], mean): row["value"] for row in table.rows if row["metric"] == mean}
    cells |= {(row["classifier"], row["setting"]): row["value"] for row in types}
    columns = tuple(dict.fromkeys(column for _, column in cells))
    models = tuple(dict.fromkeys(model for model, _ in cells))
    values = np.array([[cells.get((model, column), np.nan) for column in columns] for model in models])
    return ErrorMap(models, columns, values, types[0]["metric"], tuple(table.remarks))


def error_map(grid: SeverityGrid, baseline: str | None = None) -> ErrorMap:
    """Mean errors over the severities, or corruption errors divided by those of ``baseline``, one of the models.

    A corruption of which a model lacks a severity has no mean, and with it no mean over corruptions.
    """
    errors = 1.0 - grid.accuracy.mean(axis=2)
    at = "" if grid.severities == (1, 2, 3, 4, 5) else f" at {','.join(map(str, grid.severities))}"
    notes: tuple[str, ...] = (f"{grid.family}: not comparable with mCE as published",) if baseline else ()
    if baseline is None:
        what = (f"mean error{at}", f"error{at}")
    else:
        if baseline not in grid.models:
            raise UnknownNameError("model", baseline, grid.models)
        below = errors[grid.models.index(baseline)]
        if np.isnan(below).any() or (below <= 0).any():
            raise StudyError(
                f"{baseline!r} can't divide the others' errors",
                found="a corruption without a value, or without an error",
                expected="an error above 0 on every corruption",
            )
        errors, what = errors / below, (f"mCE{at}", f"CE{at}, {baseline} = 100")
    if np.isnan(errors).any():
        lost = [name for name, row in zip(grid.models, errors, strict=True) if np.isnan(row).any()]
        notes = (*notes, f"empty, a severity is missing: {listed(lost)}")
    values = np.column_stack([errors.mean(axis=1), errors])
    return ErrorMap(grid.models, (what[0], *grid.corruptions), values, what[1], notes)
