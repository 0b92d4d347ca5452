"""A table of results and what is known about its models, ready to be asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import compress, product
from typing import Any, NamedTuple

import numpy as np

from shiftbench.arrays import BoolArray, FloatArray
from shiftbench.errors import UnknownNameError, argument, listed
from shiftbench.studies import testbed
from shiftbench.studies.base import PERCENT, StudyError, whole
from shiftbench.studies.fits import Correlation, Line, correlate, fit, fit_piecewise
from shiftbench.studies.models import STANDARD, Models
from shiftbench.studies.results import Results, own_name
from shiftbench.studies.robustness import (
    EffectiveRobustness,
    RelativeRobustness,
    effective_robustness,
    relative_robustness,
)
from shiftbench.studies.testbed import ShiftAxes as ShiftAxes


class ShiftCorrelation(NamedTuple):
    """The correlation of effective robustness to two shifts.

    Attributes:
        first: Name of one shift; of ``Study.correlations``, the synthetic one.
        second: Name of the other.
        correlation: Their correlation over the models.
    """

    first: str
    second: str
    correlation: Correlation


class Study:
    """Models, settings, and the line through the baseline models.

    Args:
        results: Accuracies of models in settings.
        models: What is known about the models.
        baseline: Category of the models that the line is fitted to.
        exclude: Leave models whose name contains one of these out of the fit and of correlations.

    Example:
        >>> from shiftbench.studies.models import ModelInfo
        >>> values = np.array([[56.5, 44.0], [69.8, 57.2], [76.1, 63.3], [82.7, 72.1], [79.0, 71.0]])
        >>> results = Results(tuple("abcde"), ("val", "v2"), values, "percent")
        >>> models = Models({m: ModelInfo(m, "standard" if m != "e" else "more_data") for m in "abcde"})
        >>> study = Study(results, models)
        >>> line = study.fit("val", "v2")
        >>> line.n, round(study.effective("val", "v2").rho["e"], 2)
        (4, 3.73)
    """

    def __init__(
        self,
        results: Results,
        models: Models | None = None,
        *,
        baseline: str = STANDARD,
        exclude: Sequence[str] | None = None,
    ) -> None:
        """Without ``models`` the line goes through all of them; those of the ImageNet testbed are known."""
        if models is None:
            models = testbed.models_of(results.models, results.settings)
        self.results = results
        self.models = models
        self.category = baseline
        self.exclude = tuple(exclude or ())
        #: The user's own models: never part of the line, whatever their category.
        self.own: tuple[str, ...] = ()

    @property
    def baseline(self) -> BoolArray:
        """The models that the line may go through."""
        if self.models is None:
            return np.ones(len(self.results.models), dtype=bool)
        baseline = self.models.baseline(self.results.models, self.category, exclude=self.exclude)
        baseline &= ~np.isin(self.results.models, self.own)
        if not baseline.any():
            categories = sorted({self.models.category(name) or "(none)" for name in self.results.models})
            raise StudyError(
                f"no model of the baseline category {self.category!r} in the results",
                found=f"categories {', '.join(categories)}",
                expected="a category of the table of models, and the same model names in both tables",
            )
        return baseline

    @property
    def others(self) -> BoolArray:
        """The models whose robustness is in question: every other category, controls of low accuracy left out."""
        if self.models is None:
            raise StudyError("the models' categories are unknown", hint=f"give a table of models: {argument('models')}")
        return self.models.others(self.results.models, self.category, exclude=self.exclude)

    def category_of(self, model: str) -> str:
        """The category of a model; empty if it is not known."""
        return "" if self.models is None else self.models.category(model)

    def fit(
        self, x: str, y: str, *, min_x: float | None = None, pivot: float | str | None = None, **options: Any
    ) -> Line:
        """The line of the baseline models with x of at least ``min_x`` (above 1 it is percent)."""
        line = self._fit(x, y, min_x, pivot, options)
        notes = [*self._unit_notes("min_x", min_x), *self._unit_notes("pivot", pivot)]
        return replace(line, notes=(*line.notes, *notes)) if notes else line

    def _fit(self, x: str, y: str, min_x: float | None, pivot: float | str | None, options: Mapping[str, Any]) -> Line:
        results = self.results
        baseline = self.baseline
        xs = results.column(x)
        ys = results.column(y)
        if min_x is not None:
            with np.errstate(invalid="ignore"):
                baseline = baseline & (xs >= self._in_unit(min_x))
        options = {"models": results.models, "baseline": baseline, "unit": results.unit, **options}
        if pivot is None:
            return fit(xs, ys, **options)
        if pivot != "auto":
            return fit_piecewise(xs, ys, pivot=self._in_unit(float(pivot)), **options)
        if (baseline & (ys == 0)).any():
            return fit_piecewise(xs, ys, pivot=None, **options)
        return fit(xs, ys, **options)

    def effective(
        self,
        x: str,
        y: str,
        line: Line | None = None,
        *,
        min_x: float | None = None,
        pivot: float | str | None = None,
        level: float = 0.95,
        **options: object,
    ) -> EffectiveRobustness:
        """rho of every model, with intervals from the numbers of images that the table knows."""
        if line is None:
            line = self.fit(x, y, min_x=min_x, pivot=pivot, level=level, **options)
        results = self.results
        return effective_robustness(
            results.column(x),
            results.column(y),
            line,
            models=results.models,
            n_x=results.size(x),
            n_y=results.size(y),
            level=level,
            unit=results.unit,
        )

    def relative(self, y: str, *, level: float = 0.95) -> RelativeRobustness:
        """tau of every model whose base the table of models names."""
        if self.models is None or not self.models.bases:
            raise StudyError("no base models", hint="add a column base_model to the table of models")
        results = self.results
        return relative_robustness(
            results.column(y),
            self.models.bases,
            models=results.models,
            n_y=results.size(y),
            level=level,
            unit=results.unit,
        )

    def correlate(
        self, first: ShiftAxes, second: ShiftAxes, *, level: float = 0.95, scale: str = "logit"
    ) -> Correlation:
        """Effective robustness to one shift against that to another, over the non-baseline models."""
        return self._correlate(self._rho(first, scale), self._rho(second, scale), level)

    def correlations(
        self,
        synthetic: Sequence[str],
        natural: Sequence[str],
        *,
        x: str = "val",
        level: float = 0.95,
        scale: str = "logit",
    ) -> list[ShiftCorrelation]:
        """Every synthetic measure against every natural one (001 appendix I), each by name as in ``shift``."""
        rho = {name: self._rho(self.shift(name, x), scale) for name in dict.fromkeys([*synthetic, *natural])}
        pairs: list[ShiftCorrelation] = []
        for first, second in product(synthetic, natural):
            pairs.append(ShiftCorrelation(first, second, self._correlate(rho[first], rho[second], level)))
        return pairs

    def _rho(self, shift: ShiftAxes, scale: str) -> dict[str, float]:
        """rho of every model; without intervals, so without resamples."""
        return self.effective(shift.x, shift.y, min_x=shift.min_x, pivot=shift.pivot, scale=scale, resamples=0).rho

    def _correlate(self, first: dict[str, float], second: dict[str, float], level: float) -> Correlation:
        """The correlation over the models outside the baseline that have a value in either."""
        other_models = compress(self.results.models, self.others)
        evaluated = [name for name in other_models if name in first or name in second]
        return correlate(first, second, models=evaluated, level=level)

    def shift(self, name: str, x: str = "val") -> ShiftAxes:
        """A shift by name: one of the testbed's (``imagenetv2``), ``Y@X``, or a setting against ``x``."""
        if name in testbed.SHIFTS:
            return testbed.SHIFTS[name]
        y, _, reference = name.partition("@")
        for setting in (y, reference or x):
            if setting not in self.results.settings:
                raise UnknownNameError("shift", setting, dict.fromkeys([*testbed.SHIFTS, *self.results.settings]))
        return ShiftAxes(reference or x, y)

    def _unit_notes(self, name: str, value: float | str | None) -> list[str]:
        """That a threshold of up to 1 is taken for a fraction, beside accuracies in percent, where it may be 0.5 %."""
        if self.results.unit != PERCENT or not isinstance(value, int | float) or not 0 < value <= 1:
            return []
        return [f"{name} {value:g} is read as a fraction, {100 * value:g} %; above 1 it would be percent"]

    def _in_unit(self, value: float) -> float:
        """A threshold that people give in percent or as a fraction, in the table's unit."""
        return testbed.as_fraction(value) * whole(self.results.unit)


def unlisted(study: Study) -> list[str]:
    """Notes on models that only one of the two tables has."""
    if study.models is None:
        return ["no table of models: the line goes through all of them"]
    missing = [name for name in study.results.models if name not in study.models]
    if not missing:
        return []
    return [f"not in the table of models, so in no category: {listed(missing)}"]


def unplaced(study: Study, models: Sequence[str], shift: ShiftAxes, needs: str | None = None) -> None:
    """Raise an error if one of these models has no accuracy on one of a shift's axes.

    ``needs`` is a column of the table of models in which each must have an entry; a ``base_model`` needs results, too.
    """
    if needs:
        _check_entries(study, models, needs)
    results = study.results
    for setting in dict.fromkeys((shift.x, shift.y)):
        missing = [name for name in models if _lacks_result(results, name, setting)]
        if missing:
            raise _no_result(results, missing, setting, shift)


def _lacks_result(results: Results, model: str, setting: str) -> bool:
    return bool(np.isnan(results.column(setting)[results.models.index(model)]))


def _check_entries(study: Study, models: Sequence[str], column: str) -> None:
    """Raise an error if the table of models has no entry for one of these; a ``base_model`` needs results, too."""
    table = study.models or Models({})
    entries = {name: table.column(name, column) for name in models}
    if column == "base_model":
        needed = "base_model with results"
        missing = [name for name, entry in entries.items() if entry not in study.results.models]
    else:
        needed = column
        missing = [name for name, entry in entries.items() if not entry]
    if missing:
        raise StudyError(
            f"{listed(missing)} can't be placed: no {needed} is known",
            expected=f"a row with its {column} in the table of models",
            hint="name it in --models FILE, or leave such models out with --skip-unplaced",
        )


def _no_result(results: Results, missing: Sequence[str], setting: str, shift: ShiftAxes) -> StudyError:
    """The error for models without an accuracy in a setting, which describes the results that the first has."""
    row = results.values[results.models.index(missing[0])]
    available = list(compress(results.settings, ~np.isnan(row)))
    if own_name(setting) in available:
        return StudyError(
            f"{listed(missing)} can't be placed: not comparable on {setting}",
            found=f"results {results.apart[setting]}",
            expected="the same images, classes and transforms as the published models",
            hint="evaluate the whole test set, or leave such models out with --skip-unplaced",
        )
    return StudyError(
        f"{listed(missing)} can't be placed: no result on {setting}",
        found=_available_instead(results, missing[0], setting, available),
        expected=f"results on {' and '.join(dict.fromkeys((shift.x, shift.y)))}",
        hint="evaluate or import that setting, or leave such models out with --skip-unplaced",
    )


def _available_instead(results: Results, model: str, setting: str, available: Sequence[str]) -> str:
    """What a model without a result in a setting has: the setting's parts but some, similar settings, or others."""
    missing_parts = [part for part in testbed.parts_of(setting) if part not in available]
    if missing_parts:
        text = f"of its parts {model} lacks {listed(missing_parts)}"
        for part in missing_parts:
            if part in results.apart:
                return f"{text}: results {results.apart[part]}"
        return text
    nearest = get_close_matches(setting, available, n=2, cutoff=0.5)
    if nearest:
        return f"the nearest that {model} has: {', '.join(nearest)}"
    return f"results on {listed(available)}"


@dataclass(frozen=True)
class GroupMean:
    """The mean of a measure over the models of a category on one shift, with a t interval over models."""

    shift: str
    group: str
    #: "rho" or "tau".
    measure: str
    n: int
    mean: float
    low: float
    high: float


def group_means(
    study: Study, shifts: Mapping[str, ShiftAxes], *, by: str = "category", scale: str = "logit", level: float = 0.95
) -> list[GroupMean]:
    """Mean rho and tau in percentage points over the models of each group, for every shift, the baseline included.

    ``by`` is the column of the table of models that makes the groups. Models whose rho or tau is unknown do not count.
    The interval is for the mean over models like these: mean +- t(n - 1) s / sqrt(n); of a single model there is none.
    """
    if study.models is None:
        raise StudyError("the models' categories are unknown", hint=f"give a table of models: {argument('models')}")
    study.models.check_column(by)
    groups = _groups(study, study.models, by)
    means = []
    for shift, axes in shifts.items():
        rho = study.effective(axes.x, axes.y, min_x=axes.min_x, pivot=axes.pivot, scale=scale, resamples=0).rho
        tau = study.relative(axes.y).tau if study.models.bases else {}
        for group, names in groups.items():
            for measure, by_model in (("rho", rho), ("tau", tau)):
                values = [by_model[name] for name in names if name in by_model]
                if values:
                    points = 100.0 / whole(study.results.unit) * np.array(values)
                    means.append(_group_mean(shift, group, measure, points, level))
    return means


def _groups(study: Study, models: Models, by: str) -> dict[str, list[str]]:
    """Names of models by their entry in a column, the baseline category first; models without an entry are left out."""
    groups: dict[str, list[str]] = {}
    for name in study.results.models:
        groups.setdefault(models.column(name, by), []).append(name)
    groups.pop("", None)
    return dict(sorted(groups.items(), key=lambda group: (group[0] != study.category, group[0])))


def _group_mean(shift: str, group: str, measure: str, values: FloatArray, level: float) -> GroupMean:
    from scipy.stats import t

    n = len(values)
    mean = float(values.mean())
    half = float("nan")
    if n > 1:
        width = t.ppf((1 + level) / 2, n - 1) * values.std(ddof=1)
        half = float(width / np.sqrt(n))
    return GroupMean(shift, group, measure, n, mean, mean - half, mean + half)
