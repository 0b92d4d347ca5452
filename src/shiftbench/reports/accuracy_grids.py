"""Accuracies with intervals, and errors by corruption and severity, from a table of results or from a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import cast

import numpy as np

from shiftbench.arrays import BoolArray, FloatArray
from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS, EXTRA_CORRUPTIONS
from shiftbench.errors import argument, check_names, listed
from shiftbench.metrics.base import Score
from shiftbench.metrics.corruption import ALEXNET, Baseline, corruption_errors
from shiftbench.metrics.corruption_scores import averaged_types, mean_name, severities_text
from shiftbench.reports.corruption import FamilyResults, Place, corruption_families, on_one_axis
from shiftbench.reports.scores import Entries
from shiftbench.reports.table import Column, Table
from shiftbench.runs.results import StoredResults
from shiftbench.settings.base import Member, SuiteOptions, build_suite
from shiftbench.shifts.corruptions.catalogue import corruptions
from shiftbench.studies.base import FRACTION, StudyError, whole
from shiftbench.studies.results import Results, results_from_scores
from shiftbench.studies.robustness import accuracy_interval

#: Family to (corruption, severity) to setting.
Families = Mapping[str, Mapping[Place, str]]
_ORDER = {name: place for place, name in enumerate(BENCHMARK_CORRUPTIONS + EXTRA_CORRUPTIONS)}


@dataclass(frozen=True)
class AccuracyIntervals:
    """Accuracies of models in a setting as fractions, with intervals; nan if a model was not evaluated."""

    value: FloatArray
    low: FloatArray
    high: FloatArray

    def where(self, chosen: BoolArray) -> AccuracyIntervals:
        return AccuracyIntervals(self.value[chosen], self.low[chosen], self.high[chosen])

    @property
    def every(self) -> FloatArray:
        """Values and ends together, for the limits of an axis."""
        return np.concatenate([self.value, self.low, self.high])


def accuracy_intervals(results: Results, setting: str, level: float) -> AccuracyIntervals:
    """Clopper-Pearson intervals; if the number of images is unknown, both ends are the value itself."""
    values = results.column(setting) / whole(results.unit)
    known = results.size(setting)
    n = np.broadcast_to(np.asarray(np.nan if known is None else known, dtype=np.float64), values.shape)
    low, high = accuracy_interval(values, n, FRACTION, level)
    return AccuracyIntervals(values, np.where(np.isnan(low), values, low), np.where(np.isnan(high), values, high))


def table_scores(results: Results, settings: Sequence[str], models: Sequence[str], level: float) -> Entries:
    """(model, setting, accuracy) of a table of results, of all settings and models or of these."""
    check_names("model", models, results.models)
    entries: Entries = []
    for setting in settings or results.settings:
        found, n = accuracy_intervals(results, setting, level), results.size(setting)
        sizes = np.broadcast_to(np.nan_to_num(0 if n is None else n), found.value.shape).astype(int)
        columns = (part.tolist() for part in (found.value, found.low, found.high, sizes))
        for name, value, low, high, size in zip(results.models, *columns, strict=True):
            if name in (models or results.models) and np.isfinite(value):
                ends = (low, high) if size else (np.nan, np.nan)
                method = "clopper-pearson" if size else "none, the number of images is unknown"
                entries.append((name, setting, Score("accuracy", value, ends[0], ends[1], size, level, method)))
    return entries


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
    clean: AccuracyIntervals | None
    clean_setting: str = ""

    @property
    def averaged(self) -> list[int]:
        """The corruptions that a mean is over."""
        return [self.corruptions.index(name) for name in averaged_types(self.corruptions)]

    def mean_name(self, kind: str) -> str:
        return mean_name(kind, averaged_types(self.corruptions), self.severities)

    @property
    def missing(self) -> list[str]:
        return [name for name, row in zip(self.models, self.accuracy, strict=True) if np.isnan(row).any()]


def families_of_table(settings: Sequence[str]) -> dict[str, dict[Place, str]]:
    """The families of a table of results, a file format that has names alone: those of known suites.

    Corruptions of own data (suite ``corruptions``) are known by their clean setting, which the table must have.

    >>> list(families_of_table(["val", "imagenet-c.fog.3_on-disk", "imagenet-c.fog.3", "pgd.l2.eps0.5"]))
    ['imagenet-c_on-disk', 'imagenet-c']
    """
    members = _suite_members()
    own = SuiteOptions(corruptions=tuple(corruptions("registered")))
    for clean in [name for name in settings if name not in members]:
        of_own = build_suite("corruptions", replace(own, data_name=clean)).settings
        members = {**{one.name: one.member for one in of_own if one.member is not None}, **members}
    found: dict[str, dict[Place, str]] = {}
    for setting in settings:
        if setting in members:
            place = members[setting]
            found.setdefault(place.family, {})[place.name, int(place.level)] = setting
    return found


@lru_cache(maxsize=1)
def _suite_members() -> dict[str, Member]:
    """Corrupted settings of the suites that have any, by name."""
    names = ("imagenet-c", "imagenet-c-extra", "cifar-10-c", "demo", "testbed-213")
    settings = [setting for name in names for setting in build_suite(name).settings]
    return {setting.name: setting.member for setting in settings if setting.member is not None}


def severity_grid(
    results: Results,
    *,
    family: str | None = None,
    clean: str | None = None,
    models: Sequence[str] = (),
    level: float = 0.95,
    families: Families | None = None,
) -> SeverityGrid:
    """The accuracies of one family of settings, of all models or of these.

    Args:
        results: A table of results.
        family: The family; may be left out where there is only one.
        clean: The setting without corruption.
        models: Only these models.
        level: Confidence level of the intervals.
        families: Families of a workspace; default: found by the settings' names.
    """
    found = families_of_table(results.settings) if families is None else families
    family = only_family(family, found)
    check_names("model", models, results.models)
    chosen = results.keep(np.array([not models or name in models for name in results.models]))
    places = found[family]
    ordered = sorted(dict.fromkeys(c for c, _ in places), key=lambda c: (_ORDER.get(c, len(_ORDER)), c))
    severities = sorted({severity for _, severity in places})
    cells = np.full((3, len(chosen.models), len(ordered), len(severities)), np.nan)
    for (corruption, severity), setting in places.items():
        one = accuracy_intervals(chosen, setting, level)
        cells[:, :, ordered.index(corruption), severities.index(severity)] = one.value, one.low, one.high
    without = None if clean is None else accuracy_intervals(chosen, clean, level)
    return SeverityGrid(
        family, chosen.models, tuple(ordered), tuple(severities), cells[0], cells[1], cells[2], without, clean or ""
    )


def severity_grid_of_run(
    run: StoredResults,
    family: str | None = None,
    *,
    clean: str | None = None,
    level: float = 0.95,
    metric: str | None = None,
) -> SeverityGrid:
    """The accuracies of one family of a run's settings, with the setting they refer to as severity 0."""
    families = {name: one.places for name, one in corruption_families(run).items()}
    corrupted = {setting for name, places in families.items() if family in (None, name) for setting in places.values()}
    named = {result.spec.reference for result in run.results if result.setting in corrupted}
    if clean is None and len(named) == 1 and named <= set(run.settings):
        clean = next(iter(named))
    results = results_from_scores(run.scores(metric))
    return severity_grid(results, family=family, clean=clean, level=level, families=families)


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
    """The numbers of ``Run.corruption_table``: the mean over corruptions first, then every type.

    Args:
        run: The results.
        family: Family of corrupted settings, if there are several.
        baseline: A model to divide by; default: the published AlexNet for ImageNet's classes.
    """
    one = family_of_run(run, family)
    divisor = one.divisor(baseline)
    found, lost_models = on_one_axis(one.scores(divisor, level=0.95))
    # Corruption errors where there is something to divide by, else plain ones.
    means = {title: scores.mce or scores.mean_error for title, scores, _ in found}
    types = {title: scores.ce or scores.error for title, scores, _ in found}
    columns = tuple(dict.fromkeys(c for by_type in types.values() for c in by_type))
    rows = [
        [means[title].value, *(types[title][c].value if c in types[title] else np.nan for c in columns)]
        for title in means
    ]
    mean, by_type = next(iter(means.values())), next(iter(types.values()))
    notes = (*one.comparability(divisor), *lost_models)
    if lost := {corruption for corruption, _ in one.places}.difference(columns):
        notes = (*notes, f"not drawn, AlexNet has no error to divide by: {listed(sorted(lost))}")
    what = next(iter(by_type.values())).metric
    return ErrorMap(tuple(means), (mean.metric, *columns), np.array(rows), what, notes)


def family_of_run(run: StoredResults, family: str | None) -> FamilyResults:
    """The family that is named, or the only one there is."""
    families = corruption_families(run)
    return families[only_family(family, families)]


def only_family(family: str | None, families: Collection[str]) -> str:
    if family is None and len(families) == 1:
        return next(iter(families))
    if family is not None and family in families:
        return family
    raise StudyError(
        "which corruptions to draw is not clear" if family is None else f"no settings of the family {family!r}",
        found=f"families {', '.join(families) or 'none'}",
        expected="one family of corrupted settings",
        hint=f"name it: {argument('family')}" if families else f"evaluate with {argument('suite', 'corruptions')}",
    )


def ce_table(
    grid: SeverityGrid,
    *,
    baseline: str | None = None,
    relative: bool = False,
    models: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> Table:
    """CE or relative CE by type, and their mean, from a table of accuracies; divided by the published AlexNet's errors
    or those of ``baseline``, one of the models. Of all models, or of those named; what lacks a severity is a note."""
    check_names("model", models, grid.models)
    if relative and grid.clean is None:
        raise StudyError("relative corruption errors need accuracies without corruption", expected="a setting val")

    def errors_of(row: int) -> tuple[dict[str, list[float]], float | None]:
        clean = 1.0 - float(grid.clean.value[row]) if relative and grid.clean is not None else None
        return dict(zip(grid.corruptions, (1.0 - grid.accuracy[row]).tolist(), strict=True)), clean

    divisor, kind = ALEXNET, "relative CE" if relative else "CE"
    if baseline is not None:
        check_names("model", [baseline], grid.models)
        own, clean = errors_of(grid.models.index(baseline))
        divisor = Baseline.from_errors(baseline, own, clean, severities=grid.severities)
    averaged = [grid.corruptions[i] for i in grid.averaged]
    rows: list[dict[str, object]] = []
    for row, model in enumerate(grid.models):
        if model not in grid.missing and model in (models or grid.models):
            errors, clean = errors_of(row)
            found = corruption_errors(errors, clean, baseline=divisor, severities=grid.severities)
            rows.append({"model": model, "mean": float(np.mean([found[name] for name in averaged])), **found})
    lost = [name for name in grid.missing if name in (models or grid.models)]
    fields = [Column("model", "model"), Column("mean", grid.mean_name(kind), "number", places=1, times=100.0)]
    fields += [Column(name, name, "number", places=1, times=100.0) for name in grid.corruptions]
    notes = [
        f"{kind} in percent, divided by the errors of {divisor.name}; no intervals, for a table has no images",
        "comparable with published values only if the accuracies are on the released files as they are",
        *([f"not shown, a severity is missing: {listed(lost)}"] if lost else []),
        *notes,
    ]
    rows.sort(key=lambda one: cast(float, one["mean"]))
    data = {"family": grid.family, "kind": kind, "divided_by": divisor.name, "rows": rows, "notes": notes}
    return Table(fields, rows, title=f"{kind} on {grid.family}", notes=notes, data=data)


def error_map(grid: SeverityGrid, baseline: str | None = None) -> ErrorMap:
    """Mean errors over the severities, or corruption errors divided by those of ``baseline``, one of the models.

    A corruption of which a model lacks a severity has no mean, and with it no mean over corruptions.

    Args:
        grid: The accuracies, from ``severity_grid``.
        baseline: A model to divide by.
    """
    errors = 1.0 - grid.accuracy.mean(axis=2)
    at = severities_text(grid.severities)
    notes: tuple[str, ...] = (f"{grid.family}: not comparable with mCE as published",) if baseline else ()
    if baseline is None:
        mean, what = grid.mean_name("error"), f"error{at}"
    else:
        check_names("model", [baseline], grid.models)
        below = errors[grid.models.index(baseline)]
        if np.isnan(below).any() or (below <= 0).any():
            raise StudyError(
                f"{baseline!r} can't divide the others' errors",
                found="a corruption without a value, or without an error",
                expected="an error above 0 on every corruption",
            )
        errors, mean, what = errors / below, grid.mean_name("CE"), f"CE{at}, {baseline} = 100"
    if np.isnan(errors).any():
        lost = [name for name, row in zip(grid.models, errors, strict=True) if np.isnan(row).any()]
        notes = (*notes, f"empty, a severity is missing: {listed(lost)}")
    values = np.column_stack([errors[:, grid.averaged].mean(axis=1), errors])
    return ErrorMap(grid.models, (mean, *grid.corruptions), values, what, notes)
