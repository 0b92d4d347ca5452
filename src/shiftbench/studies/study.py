"""A table of results and what is known about its models, ready to be asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import compress
from typing import Any

import numpy as np

from shiftbench.arrays import BoolArray
from shiftbench.errors import UnknownNameError, argument, listed
from shiftbench.studies import testbed
from shiftbench.studies.base import StudyError, whole
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
        if models is None and testbed.is_testbed(results):
            models = testbed.known_models()
        self.results, self.models, self.category = results, models, baseline
        self.exclude = tuple(exclude or ())
        #: The user's own models: never part of the line, whatever their category.
        self.own: tuple[str, ...] = ()

    @property
    def baseline(self) -> BoolArray:
        """The models that the line may go through."""
        if self.models is None:
            return np.ones(len(self.results.models), dtype=bool)
        chosen = self.models.baseline(self.results.models, self.category, exclude=self.exclude)
        chosen &= ~np.isin(self.results.models, self.own)
        if not chosen.any():
            categories = sorted({self.models.category(name) or "(none)" for name in self.results.models})
            raise StudyError(
                f"no model of the baseline category {self.category!r} in the results",
                found=f"categories {', '.join(categories)}",
                expected="a category of the table of models, and the same model names in both tables",
            )
        return chosen

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
        results, chosen = self.results, self.baseline
        xs, ys = results.column(x), results.column(y)
        if min_x is not None:
            with np.errstate(invalid="ignore"):
                chosen = chosen & (xs >= self._in_unit(min_x))
        options = {"models": results.models, "baseline": chosen, "unit": results.unit, **options}
        if pivot is None or (pivot == "auto" and not (chosen & (ys == 0)).any()):
            return fit(xs, ys, **options)
        knee = None if pivot == "auto" else self._in_unit(float(pivot))
        return fit_piecewise(xs, ys, pivot=knee, **options)

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
            results.column(x), results.column(y), line, models=results.models, n_x=results.size(x),
            n_y=results.size(y), level=level, unit=results.unit,
        )  # fmt: skip

    def relative(self, y: str, *, level: float = 0.95) -> RelativeRobustness:
        """tau of every model whose base the table of models names."""
        if self.models is None or not self.models.bases:
            raise StudyError("no base models", hint="add a column base_model to the table of models")
        results = self.results
        return relative_robustness(
            results.column(y), self.models.bases, models=results.models, n_y=results.size(y), level=level,
            unit=results.unit,
        )  # fmt: skip

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
    ) -> list[tuple[str, str, Correlation]]:
        """Every synthetic measure against every natural one (001 appendix I), each by name as in ``shift``."""
        rho = {name: self._rho(self.shift(name, x), scale) for name in dict.fromkeys([*synthetic, *natural])}
        return [(a, b, self._correlate(rho[a], rho[b], level)) for a in synthetic for b in natural]

    def _rho(self, shift: ShiftAxes, scale: str) -> dict[str, float]:
        return self.effective(shift.x, shift.y, min_x=shift.min_x, pivot=shift.pivot, scale=scale, resamples=0).rho

    def _correlate(self, first: dict[str, float], second: dict[str, float], level: float) -> Correlation:
        over = [name for name in compress(self.results.models, self.others) if name in first or name in second]
        return correlate(first, second, models=over, level=level)

    def shift(self, name: str, x: str = "val") -> ShiftAxes:
        """A shift by name: one of the testbed's (``imagenetv2``), ``Y@X``, or a setting against ``x``."""
        if name in testbed.SHIFTS:
            return testbed.SHIFTS[name]
        y, _, reference = name.partition("@")
        for setting in (y, reference or x):
            if setting not in self.results.settings:
                raise UnknownNameError("shift", setting, dict.fromkeys([*testbed.SHIFTS, *self.results.settings]))
        return ShiftAxes(reference or x, y)

    def _in_unit(self, value: float) -> float:
        """A threshold that people give in percent or as a fraction, in the table's unit."""
        return testbed.as_fraction(value) * whole(self.results.unit)


def unlisted(study: Study) -> list[str]:
    """Notes on models that only one of the two tables has."""
    if study.models is None:
        return ["no table of models: the line goes through all of them"]
    lost = [name for name in study.results.models if name not in study.models]
    return [f"not in the table of models, so in no category: {listed(lost)}"] if lost else []


def unplaced(study: Study, models: Sequence[str], shift: ShiftAxes, needs: str | None = None) -> None:
    """Raise an error if one of these models has no accuracy on one of a shift's axes.

    ``needs`` is a column of the table of models in which each must have an entry; a ``base_model`` needs results, too.
    """
    results, known = study.results, study.models or Models({})
    entries = {name: known.column(name, needs) if needs else "" for name in models}
    usable = results.models if needs == "base_model" else [entry for entry in entries.values() if entry]
    if needs and (lost := [name for name, entry in entries.items() if entry not in usable]):
        raise StudyError(
            f"{listed(lost)} can't be placed: no {needs}{' with results' * (needs == 'base_model')} is known",
            expected=f"a row with its {needs} in the table of models",
            hint="name it in --models FILE, or leave such models out with --skip-unplaced",
        )
    settings = dict.fromkeys((shift.x, shift.y))
    for setting in settings:
        lost = [name for name in models if np.isnan(results.column(setting)[results.models.index(name)])]
        if not lost:
            continue
        row = results.values[results.models.index(lost[0])]
        there = list(compress(results.settings, ~np.isnan(row)))
        lacking = [part for part in testbed.parts_of(setting) if part not in there]
        why = next((f": results {results.apart[part]}" for part in lacking if part in results.apart), "")
        nearest = get_close_matches(setting, there, n=2, cutoff=0.5)
        found = f"the nearest that {lost[0]} has: {', '.join(nearest)}" if nearest else f"results on {listed(there)}"
        if own_name(setting) in there:
            raise StudyError(
                f"{listed(lost)} can't be placed: not comparable on {setting}",
                found=f"results {results.apart[setting]}",
                expected="the same images, classes and transforms as the published models",
                hint="evaluate the whole test set, or leave such models out with --skip-unplaced",
            )
        raise StudyError(
            f"{listed(lost)} can't be placed: no result on {setting}",
            found=f"of its parts {lost[0]} lacks {listed(lacking)}{why}" if lacking else found,
            expected=f"results on {' and '.join(settings)}",
            hint="evaluate or import that setting, or leave such models out with --skip-unplaced",
        )


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
    from scipy.stats import t

    if study.models is None:
        raise StudyError("the models' categories are unknown", hint=f"give a table of models: {argument('models')}")
    study.models.check_column(by)
    groups: dict[str, list[str]] = {}
    for name in study.results.models:
        groups.setdefault(study.models.column(name, by), []).append(name)
    groups.pop("", None)
    groups = dict(sorted(groups.items(), key=lambda group: (group[0] != study.category, group[0])))
    found, points = [], 100.0 / whole(study.results.unit)
    for shift, one in shifts.items():
        rho = study.effective(one.x, one.y, min_x=one.min_x, pivot=one.pivot, scale=scale, resamples=0).rho
        tau = study.relative(one.y).tau if study.models.bases else {}
        for group, names in groups.items():
            for measure, values in (("rho", rho), ("tau", tau)):
                known = points * np.array([values[name] for name in names if name in values])
                if not len(known):
                    continue
                mean, half = float(known.mean()), float("nan")
                if len(known) > 1:
                    width = t.ppf((1 + level) / 2, len(known) - 1) * known.std(ddof=1)
                    half = float(width / np.sqrt(len(known)))
                found.append(GroupMean(shift, group, measure, len(known), mean, mean - half, mean + half))
    return found
