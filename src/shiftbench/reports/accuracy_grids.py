"""Accuracies with intervals, and errors by corruption and severity, from a table of results or from a run."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import cast

import numpy as np

from shiftbench.arrays import BoolArray, FloatArray
from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS, EXTRA_CORRUPTIONS
from shiftbench.errors import argument, check_names, listed
from shiftbench.metrics.base import Score, SettingScore
from shiftbench.metrics.corruption import ALEXNET, Baseline, corruption_errors, published_baseline
from shiftbench.metrics.corruption_scores import averaged_types, mean_name, severities_text
from shiftbench.reports.corruption import FamilyResults, Place, corruption_families, on_one_axis
from shiftbench.reports.table import Column, Table
from shiftbench.runs.results import StoredResults
from shiftbench.settings.base import Member, SuiteOptions, build_suite
from shiftbench.shifts.corruptions.catalogue import corruptions
from shiftbench.studies.base import FRACTION, StudyError, whole
from shiftbench.studies.results import Results, results_from_scores
from shiftbench.studies.robustness import accuracy_interval

#: Family to (corruption, severity) to setting.
Families = Mapping[str, Mapping[Place, str]]
_ORDER = {name: position for position, name in enumerate(BENCHMARK_CORRUPTIONS + EXTRA_CORRUPTIONS)}


@dataclass(frozen=True)
class AccuracyIntervals:
    """Accuracies of models in a setting as fractions, with intervals; nan if a model was not evaluated."""

    value: FloatArray
    low: FloatArray
    high: FloatArray

    def where(self, models: BoolArray) -> AccuracyIntervals:
        return AccuracyIntervals(self.value[models], self.low[models], self.high[models])

    @property
    def every(self) -> FloatArray:
        """Values and ends together, for the limits of an axis."""
        return np.concatenate([self.value, self.low, self.high])


def accuracy_intervals(results: Results, setting: str, level: float) -> AccuracyIntervals:
    """Clopper-Pearson intervals; if the number of images is unknown, both ends are the value itself."""
    values = results.column(setting) / whole(results.unit)
    size = results.size(setting)
    n = np.broadcast_to(np.asarray(np.nan if size is None else size, dtype=np.float64), values.shape)
    low, high = accuracy_interval(values, n, FRACTION, level)
    return AccuracyIntervals(values, np.where(np.isnan(low), values, low), np.where(np.isnan(high), values, high))


def table_scores(results: Results, settings: Sequence[str], models: Sequence[str], level: float) -> list[SettingScore]:
    """The accuracies of a table of results, in all settings and of all models, or of these."""
    check_names("model", models, results.models)
    entries: list[SettingScore] = []
    for setting in settings or results.settings:
        accuracies = accuracy_intervals(results, setting, level)
        n = results.size(setting)
        sizes = np.broadcast_to(np.nan_to_num(0 if n is None else n), accuracies.value.shape).astype(int)
        columns = (accuracies.value.tolist(), accuracies.low.tolist(), accuracies.high.tolist(), sizes.tolist())
        for model, value, low, high, size in zip(results.models, *columns, strict=True):
            if model not in (models or results.models) or not np.isfinite(value):
                continue
            if size:
                score = Score("accuracy", value, low, high, size, level, "clopper-pearson")
            else:
                method = "none, the number of images is unknown"
                score = Score("accuracy", value, np.nan, np.nan, size, level, method)
            entries.append(SettingScore(model, setting, score))
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
    members = dict(_suite_members())
    options = SuiteOptions(corruptions=tuple(corruptions("registered")))
    # A setting that no suite knows may be the clean setting of own data. The names of known suites come first.
    for clean in [name for name in settings if name not in members]:
        for setting in build_suite("corruptions", replace(options, data_name=clean)).settings:
            if setting.member is not None:
                members.setdefault(setting.name, setting.member)
    families: dict[str, dict[Place, str]] = {}
    for name in settings:
        if name in members:
            member = members[name]
            families.setdefault(member.family, {})[member.name, int(member.level)] = name
    return families


@lru_cache(maxsize=1)
def _suite_members() -> dict[str, Member]:
    """Corrupted settings of the suites that have any, by name."""
    members = {}
    for suite in ("imagenet-c", "imagenet-c-extra", "cifar-10-c", "demo", "testbed-213"):
        for setting in build_suite(suite).settings:
            if setting.member is not None:
                members[setting.name] = setting.member
    return members


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
    if families is None:
        families = families_of_table(results.settings)
    family = only_family(family, families)
    check_names("model", models, results.models)
    kept = results
    if models:
        kept = results.keep(np.isin(results.models, list(models)))
    places = families[family]

    def position(corruption: str) -> tuple[int, str]:
        """Corruptions of the benchmark come in its order; others follow by name."""
        return _ORDER.get(corruption, len(_ORDER)), corruption

    types = sorted({corruption for corruption, _ in places}, key=position)
    severities = sorted({severity for _, severity in places})
    shape = (len(kept.models), len(types), len(severities))
    accuracy = np.full(shape, np.nan)
    low = np.full(shape, np.nan)
    high = np.full(shape, np.nan)
    for (corruption, severity), setting in places.items():
        intervals = accuracy_intervals(kept, setting, level)
        row = types.index(corruption)
        column = severities.index(severity)
        accuracy[:, row, column] = intervals.value
        low[:, row, column] = intervals.low
        high[:, row, column] = intervals.high
    return SeverityGrid(
        family=family,
        models=kept.models,
        corruptions=tuple(types),
        severities=tuple(severities),
        accuracy=accuracy,
        low=low,
        high=high,
        clean=None if clean is None else accuracy_intervals(kept, clean, level),
        clean_setting=clean or "",
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
    families = {name: members.places for name, members in corruption_families(run).items()}
    corrupted: set[str] = set()
    for name, places in families.items():
        if family in (None, name):
            corrupted.update(places.values())
    references = {result.spec.reference for result in run.results if result.setting in corrupted}
    if clean is None and len(references) == 1 and references <= set(run.settings):
        clean = next(iter(references))
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
    #: What the errors of a table are divided by; None: by nothing.
    divisor: Baseline | None = None


def error_map_of_run(run: StoredResults, family: str | None = None, *, baseline: str | None = None) -> ErrorMap:
    """The numbers of ``Run.corruption_table``: the mean over corruptions first, then every type.

    Args:
        run: The results.
        family: Family of corrupted settings, if there are several.
        baseline: A model to divide by; default: the published AlexNet for ImageNet's classes.
    """
    results = family_of_run(run, family)
    divisor = results.divisor(baseline)
    models, dropped_notes = on_one_axis(results.scores(divisor, level=0.95))
    # Corruption errors where there is something to divide by, else plain ones.
    means = [model.scores.mce or model.scores.mean_error for model in models]
    types = [model.scores.ce or model.scores.error for model in models]
    columns = tuple(dict.fromkeys(itertools.chain.from_iterable(types)))
    rows = []
    for mean, by_type in zip(means, types, strict=True):
        errors = [by_type[column].value if column in by_type else np.nan for column in columns]
        rows.append([mean.value, *errors])
    notes = (*results.comparability(divisor), *dropped_notes)
    undivided = {corruption for corruption, _ in results.places}.difference(columns)
    if undivided:
        notes = (*notes, f"not drawn, AlexNet has no error to divide by: {listed(sorted(undivided))}")
    return ErrorMap(
        models=tuple(model.title for model in models),
        columns=(means[0].metric, *columns),
        values=np.array(rows),
        what=next(iter(types[0].values())).metric,
        notes=notes,
    )


def family_of_run(run: StoredResults, family: str | None) -> FamilyResults:
    """The family that is named, or the only one there is."""
    families = corruption_families(run)
    return families[only_family(family, families)]


def only_family(family: str | None, families: Collection[str]) -> str:
    if family is None and len(families) == 1:
        return next(iter(families))
    if family is not None and family in families:
        return family
    message = f"no settings of the family {family!r}"
    if family is None:
        message = "which corruptions to draw is not clear"
    hint = f"evaluate with {argument('suite', 'corruptions')}"
    if families:
        hint = f"name it: {argument('family')}"
    raise StudyError(
        message,
        found=f"families {', '.join(families) or 'none'}",
        expected="one family of corrupted settings",
        hint=hint,
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

    divisor = published_baseline(grid.family)
    if baseline is not None:
        check_names("model", [baseline], grid.models)
        errors, clean = _errors_of(grid, baseline, relative)
        divisor = Baseline.from_errors(baseline, errors, clean, severities=grid.severities)
    shown_models = models or grid.models
    rows = _ce_rows(grid, divisor, relative, [model for model in grid.models if model in shown_models])
    kind = "relative CE" if relative else "CE"
    table_notes = [
        f"{kind} in percent, divided by the errors of {divisor.name}; no intervals, for a table has no images",
    ]
    if divisor is ALEXNET:
        table_notes.append(
            "comparable with published values only if the accuracies are on the released files as they are"
        )
    else:
        table_notes.append("not comparable with mCE as published")
    incomplete = [name for name in grid.missing if name in shown_models]
    if incomplete:
        table_notes.append(f"not shown, a severity is missing: {listed(incomplete)}")
    table_notes += notes
    columns = [
        Column("model", "model", "model"),
        Column("mean", divided_name(grid.mean_name(kind), divisor), "number", places=1, times=100.0),
    ]
    columns += [Column(name, name, "number", places=1, times=100.0) for name in grid.corruptions]
    data = {
        "family": grid.family,
        "kind": kind,
        "divided_by": divisor.name,
        "rows": rows,
        "notes": table_notes,
    }
    return Table(columns, rows, title=f"{kind} on {grid.family}", notes=table_notes, data=data)


def _errors_of(grid: SeverityGrid, model: str, relative: bool) -> tuple[dict[str, list[float]], float | None]:
    """The errors of a model by type and severity, and, if they are to be relative, without corruption."""
    index = grid.models.index(model)
    errors = dict(zip(grid.corruptions, (1.0 - grid.accuracy[index]).tolist(), strict=True))
    if relative and grid.clean is not None:
        return errors, 1.0 - float(grid.clean.value[index])
    return errors, None


def _ce_rows(grid: SeverityGrid, divisor: Baseline, relative: bool, models: Sequence[str]) -> list[dict[str, object]]:
    """The corruption errors of the models that have all severities, lowest mean first."""
    averaged = [grid.corruptions[i] for i in grid.averaged]
    rows: list[dict[str, object]] = []
    for model in models:
        if model not in grid.missing:
            errors, clean = _errors_of(grid, model, relative)
            divided = corruption_errors(errors, clean, baseline=divisor, severities=grid.severities)
            mean = float(np.mean([divided[name] for name in averaged]))
            rows.append({"model": model, "mean": mean, **divided})
    rows.sort(key=lambda row: cast(float, row["mean"]))
    return rows


def divided_name(mean: str, divisor: Baseline | None) -> str:
    """The name of a mean corruption error, as ``CorruptionScores`` calls it: it says what divides unless it is AlexNet.

    >>> divided_name("mCE", ALEXNET), divided_name("mCE", published_baseline("imagenet-c_on-disk"))
    ('mCE', "mCE vs the testbed's AlexNet")
    """
    if divisor is None or divisor is ALEXNET:
        return mean
    return f"{mean} vs {divisor.name}"


#: Families of tables that are divided by published AlexNet errors unless a model is named.
_IMAGENET_C = ("imagenet-c", "imagenet-c_on-disk", "imagenet-c_in-memory")


def _table_divisor(grid: SeverityGrid, baseline: str | None) -> Baseline | None:
    """The errors of the model that is named, or those of the family's AlexNet; None if a family has neither.

    Raises:
        StudyError: The named model lacks a corruption, or makes no error under one.
    """
    if baseline is None:
        alexnet = published_baseline(grid.family)
        covered = set(grid.corruptions) <= set(alexnet.errors)
        return alexnet if covered and grid.family in _IMAGENET_C else None
    check_names("model", [baseline], grid.models)
    errors = 1.0 - grid.accuracy[grid.models.index(baseline)]
    if np.isnan(errors).any() or (errors.mean(axis=1) <= 0).any():
        raise StudyError(
            f"{baseline!r} can't divide the others' errors",
            found="a corruption without a value, or without an error",
            expected="an error above 0 on every corruption",
        )
    by_type = dict(zip(grid.corruptions, errors.tolist(), strict=True))
    return Baseline.from_errors(baseline, by_type, severities=grid.severities)


def error_map(grid: SeverityGrid, baseline: str | None = None) -> ErrorMap:
    """Corruption errors divided by those of ``baseline``, one of the models, or by the family's AlexNet.

    Errors of families other than ImageNet-C are not divided unless a model is named.

    A corruption of which a model lacks a severity has no mean, and with it no mean over corruptions.

    Args:
        grid: The accuracies, from ``severity_grid``.
        baseline: A model to divide by; default: the AlexNet of the family, as for ``table --mce``.
    """
    errors = 1.0 - grid.accuracy.mean(axis=2)
    severities = severities_text(grid.severities)
    notes: tuple[str, ...] = ()
    divisor = _table_divisor(grid, baseline)
    if divisor is None:
        mean = grid.mean_name("error")
        meaning = f"error{severities}"
    else:
        if divisor is not ALEXNET:
            notes = (f"{grid.family}: not comparable with mCE as published",)
        mean = divided_name(grid.mean_name("CE"), divisor)
        meaning = f"CE{severities}, {divisor.name} = 100"
        errors = errors / [divisor.mean(name, grid.severities) for name in grid.corruptions]
    incomplete = [name for name, row in zip(grid.models, errors, strict=True) if np.isnan(row).any()]
    if incomplete:
        notes = (*notes, f"empty, a severity is missing: {listed(incomplete)}")
    values = np.column_stack([errors[:, grid.averaged].mean(axis=1), errors])
    return ErrorMap(grid.models, (mean, *grid.corruptions), values, meaning, notes, divisor)
