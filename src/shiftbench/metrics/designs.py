"""Estimates of the full grid from a design that evaluates each image under few of the shifts.

The images that met shift j are a random part of all, so that their mean error estimates the mean error E_j of all
images without bias. Means over shifts, corruption errors and their relatives are linear in the E_j and in the clean
error, which the clean pass gives for all images. Each estimate carries how much every image moved it (its influence):
the variance of any such number is a sum of squares over images, and what the clean and the shifted side share, or two
models, cancels in their difference.

The clean pass is known for all images. Where the images of a shift are cleanly harder than all, its error is lowered by
the slope of shifted on clean errors within the shifts (combined regression estimator, Cochran 1977, 7.9). Equal weights
of all shifts cancel that; unequal ones, as those of relative mCE, do not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from shiftbench.arrays import FloatArray, IntArray
from shiftbench.errors import SettingError
from shiftbench.metrics.base import Score
from shiftbench.metrics.corruption import Baseline
from shiftbench.metrics.corruption_scores import CorruptionScores, Grid, GridShape, ScoreKey
from shiftbench.metrics.paired import Comparison, difference_interval, mcnemar
from shiftbench.store.predictions import Predictions


@dataclass(frozen=True)
class Estimate:
    """A number and the influence of each image on it; the influences add up to zero."""

    value: float
    influence: FloatArray
    #: The share of the degrees of freedom that the means which were subtracted leave.
    kept: float = 1.0

    @classmethod
    def mean(cls, values: FloatArray, weights: FloatArray | None = None) -> Estimate:
        """Of the values of all images; nan counts as an image that could not be read. The weights add up to 1."""
        known = ~np.isnan(values)
        count = int(known.sum())
        shares = known / max(count, 1) if weights is None else weights
        value = float(shares[known] @ values[known]) if count else math.nan
        # Bessel's correction, so that the squares add up to an unbiased variance.
        influence = np.where(known, shares * (values - value), 0.0) * math.sqrt(count / max(count - 1, 1))
        return cls(value, influence, 1 - 1 / max(count, 1))

    @classmethod
    def average(cls, estimates: Sequence[Estimate]) -> Estimate:
        value, kept = (float(np.mean(own)) for own in zip(*((one.value, one.kept) for one in estimates), strict=True))
        return cls(value, np.mean([one.influence for one in estimates], axis=0), kept)

    @property
    def error(self) -> float:
        """The standard error, over images and over assignments."""
        return float(np.sqrt(np.square(self.influence).sum()))

    def __sub__(self, other: Estimate) -> Estimate:
        return Estimate(self.value - other.value, self.influence - other.influence, min(self.kept, other.kept))

    def over(self, base: float | Estimate) -> Estimate:
        """Divided by a known number, or by another estimate (linearised); nan where that is not positive."""
        below = base if isinstance(base, Estimate) else Estimate(base, np.zeros_like(self.influence))
        if not below.value > 0:
            return Estimate(math.nan, self.influence, self.kept)
        ratio = self.value / below.value
        return Estimate(ratio, (self.influence - ratio * below.influence) / below.value, min(self.kept, below.kept))

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the variance, from the spread of the squares that it is the sum of: as many as normal
        influences with this kurtosis would be, at most those that are not 0."""
        squares = np.square(self.influence)
        total = float(squares.sum())
        if not total > 0:
            return 1.0
        alike = min(3 * total**2 / float(np.square(squares).sum()), float(np.count_nonzero(squares)))
        return max(1.0, self.kept * alike)

    def interval(self, level: float) -> tuple[float, float]:
        """Student's, symmetric about the value."""
        return self.value - self.half_width(level), self.value + self.half_width(level)

    def half_width(self, level: float) -> float:
        from scipy.special import stdtrit  # here, so that importing the metrics stays light

        return float(stdtrit(self.freedom, (1 + level) / 2)) * self.error

    @property
    def p(self) -> float:
        """Two-sided, of Student's test that the number is 0."""
        from scipy.special import stdtr

        return float(2 * stdtr(self.freedom, -abs(self.value) / self.error)) if self.error else 1.0


#: From this number of images on, their own variance is used.
_ENOUGH_PER_SHIFT = 10
#: Iterations; the shares of eight classes from 1 to 58 images are then right to 1e-8.
_RAKINGS = 20


@dataclass(frozen=True)
class DesignOutcomes:
    """What a model did under a design: one observation per image and pass."""

    #: Number of images.
    size: int
    #: Row of the image, and number of the shift, of each observation.
    images: IntArray
    places: IntArray
    #: 1 where the model was wrong.
    wrong: FloatArray
    shifts: int
    #: (size,): 1 where the model was wrong on the clean image, nan where that could not be read; None: no clean pass.
    clean_wrong: FloatArray | None = None
    #: (size,): the class of each image; None: unknown.
    classes: IntArray | None = None

    def __post_init__(self) -> None:
        fewest = int(np.bincount(self.places, minlength=self.shifts).min())
        if fewest < 2:
            raise SettingError(
                "too few images for this design",
                found=f"{self.size} images for {self.shifts} shifts, one of which met {fewest}",
                expected="at least 2 images under each shift",
                hint="evaluate more images, more passes or fewer shifts, or use the full design",
            )

    @property
    def passes(self) -> int:
        """Forward passes, shifted and clean."""
        clean = 0 if self.clean_wrong is None else int((~np.isnan(self.clean_wrong)).sum())
        return len(self.wrong) + clean

    @cached_property
    def clean(self) -> Estimate | None:
        """The clean error."""
        return None if self.clean_wrong is None else Estimate.mean(self.clean_wrong)

    @cached_property
    def _adjusted(self) -> tuple[FloatArray, FloatArray]:
        """What was observed less what the clean outcome explains, and how each image moves what is explained."""
        if self.clean is None or self.clean_wrong is None:
            return self.wrong, np.zeros(self.size)
        away = np.nan_to_num(self.clean_wrong - self.clean.value)
        counts = np.bincount(self.places, minlength=self.shifts)
        here = away[self.images]
        x, y = (v - (np.bincount(self.places, v, self.shifts) / counts)[self.places] for v in (here, self.wrong))
        slope = float(x @ y) / float(x @ x) if x.any() else 0.0
        return self.wrong - slope * here, slope * self.clean.influence

    @cached_property
    def _weights(self) -> FloatArray:
        """Of each observation in the mean of its shift, so that over all shifts every class has its share.

        Two or three images meet each shift. If those of a rare class are mostly among three, equal weights would count
        them too little (by 15 % for 11 images of 114 under 45 shifts). The weights are raked: by shift they add up to
        1, by class to its share of the images. Classes of one size are alike to the assignment, and taken together.
        """
        classes = np.zeros(self.size, np.int64) if self.classes is None else self.classes
        kinds = np.unique(np.bincount(classes)[classes], return_inverse=True)[1]
        wanted, own = np.bincount(kinds) / self.size, kinds[self.images]
        table = np.zeros((len(wanted), self.shifts))
        np.add.at(table, (own, self.places), 1.0)
        factors = np.ones(len(wanted))
        for _ in range(_RAKINGS if len(wanted) > 1 else 0):
            shares = factors[:, None] * table
            met = (shares / shares.sum(axis=0)).mean(axis=1)
            factors *= np.divide(wanted, met, out=np.ones_like(met), where=met > 0)
        return np.asarray(factors[own] / (factors @ table)[self.places])

    def errors(self, places: Sequence[int] | None = None) -> list[Estimate]:
        """The mean error under each shift, had all images met it."""
        adjusted, explained = self._adjusted
        errors = []
        for place in range(self.shifts) if places is None else places:
            here, values, weights = self.places == place, np.full(self.size, np.nan), np.zeros(self.size)
            values[self.images[here]], weights[self.images[here]] = adjusted[here], self._weights[here]
            found = Estimate.mean(values, weights)
            errors.append(replace(found, influence=found.influence + explained))
        return errors

    def mean_error(self, places: Sequence[int]) -> Estimate:
        """The mean over a few shifts, such as the severities of one corruption.

        Two or three images under each shift may all have one outcome, and show no variance. These shifts are then
        taken together for the variance (collapsed strata, Cochran 1977, 5A.12), which makes it too large rather than
        too small. The clean outcomes are not used then: with so few images, or if all have one outcome, they would
        move the error beyond what is possible.
        """
        average = Estimate.average(self.errors(places))
        here = np.isin(self.places, places)
        counts = np.bincount(self.places[here], minlength=self.shifts)
        if counts[list(places)].min() >= _ENOUGH_PER_SHIFT and self.same_outcome(places) is None:
            return average
        n, wrong, influence = int(here.sum()), self.wrong[here], np.zeros(self.size)
        weights = self._weights[here] / len(places)
        np.add.at(influence, self.images[here], (wrong - wrong.mean()) * weights * math.sqrt(n / (n - 1)))
        return Estimate(float(wrong @ weights), influence, 1 - 1 / n)

    def same_outcome(self, places: Sequence[int]) -> tuple[float, int] | None:
        """The outcome of all images under these shifts and their number, if it is one: Student's interval then has no
        width."""
        here = np.isin(self.places, places)
        outcome = self.wrong[here]
        one = outcome.min() == outcome.max()
        return (float(outcome[0]), len(np.unique(self.images[here]))) if one else None


def design_outcomes(grid: Sequence[Predictions], clean: Predictions | None) -> DesignOutcomes:
    """From the predictions under each shift, on the images that met it, and those of the clean pass on all."""
    by_image = {name: label for one in (grid if clean is None else [clean])
                for name, label in zip(one.ids, one.labels.tolist(), strict=True)}  # fmt: skip
    row = {name: i for i, name in enumerate(by_image)}
    classes = np.unique(list(by_image.values()), return_inverse=True)[1]
    images = [np.array([row[name] for name in one.ids], np.int64)[one.valid] for one in grid]
    places = np.repeat(np.arange(len(grid)), [len(rows) for rows in images])
    wrong = np.concatenate([(~one.correct).astype(np.float64) for one in grid])
    clean_wrong = None if clean is None else np.where(clean.valid, clean.top[:, 0] != clean.labels, np.nan)
    return DesignOutcomes(len(row), np.concatenate(images), places, wrong, len(grid), clean_wrong, classes)


def design_scores(
    grid: Grid,
    clean: Predictions | None,
    *,
    shape: GridShape,
    provenance: str,
    baseline: Baseline | Grid | None,
    baseline_clean: Predictions | None,
    level: float,
) -> CorruptionScores:
    """Estimates of what ``corruption_scores`` gives for the full grid, with intervals for the design."""
    outcomes = design_outcomes(list(grid.values()), clean)
    base: Baseline | DesignOutcomes | None
    if isinstance(baseline, Mapping):
        base = design_outcomes([baseline[place] for place in grid], baseline_clean)
        against = source = next(iter(baseline.values())).classifier
    else:
        base, against = baseline, baseline.name if baseline else ""
        source = baseline.source or against if baseline else ""
    images = len(np.unique(outcomes.images))
    method = f"Student's over images, {len(outcomes.wrong):,} of {outcomes.shifts * images:,} shifted forward passes"
    designs = dict.fromkeys(one.spec.shift.design for one in grid.values() if one.spec.shift.designed)
    scores = {}
    for (kind, corruption), (value, low, high) in design_numbers(outcomes, list(grid), shape, base, level).items():
        divided = [f"divided by {source}"] if source and kind != "error" else []
        scores[kind, corruption] = Score(
            shape.score_name(kind, corruption, against), value, low, high, images, level, method,
            "; ".join([provenance, *designs, *divided]), higher_is_better=False, passes=outcomes.passes,
        )  # fmt: skip
    return CorruptionScores.of(next(iter(grid.values())).classifier, shape, scores)


@dataclass(frozen=True)
class _Errors:
    """The mean error of each corruption, and on the clean images."""

    outcomes: DesignOutcomes
    places: Mapping[str, Sequence[int]]
    #: With the variance of every shift apart, for means over many shifts; and for single corruptions.
    each: Mapping[str, Estimate]
    alone: Mapping[str, Estimate]
    clean: Estimate | None

    @classmethod
    def of(cls, outcomes: DesignOutcomes, grid: Sequence[tuple[str, float]], shape: GridShape) -> _Errors:
        places = {c: [place for place, one in enumerate(grid) if one[0] == c] for c in shape.corruptions}
        errors = outcomes.errors()
        each = {c: Estimate.average([errors[place] for place in own]) for c, own in places.items()}
        alone = {c: outcomes.mean_error(own) for c, own in places.items()}
        return cls(outcomes, places, each, alone, outcomes.clean)

    def baseline(self, shape: GridShape) -> Baseline:
        """The errors that others are divided by."""
        errors = {c: dict.fromkeys(shape.severities, one.value) for c, one in self.each.items()}
        return Baseline("", errors, None if self.clean is None else self.clean.value)


def design_numbers(
    outcomes: DesignOutcomes,
    places: Sequence[tuple[str, float]],
    shape: GridShape,
    baseline: Baseline | DesignOutcomes | None,
    level: float,
) -> dict[ScoreKey, tuple[float, float, float]]:
    """(value, low, high) of error, CE and relative CE of every corruption, and of their means."""
    own = _Errors.of(outcomes, places, shape)
    base = _Errors.of(baseline, places, shape) if isinstance(baseline, DesignOutcomes) else baseline
    found = _kinds(own.alone, own.clean, shape, base)
    whole = _kinds(own.each, own.clean, shape, base)
    for kind in dict.fromkeys(kind for kind, _ in whole):
        found[kind, ""] = Estimate.average([whole[kind, corruption] for corruption in shape.averaged])
    for group, members in shape.groups.items():
        found["error", group] = outcomes.mean_error([place for one in members for place in own.places[one]])
    known = base.baseline(shape) if isinstance(base, _Errors) else base
    clean = None if own.clean is None else own.clean.value
    numbers = {}
    for (kind, corruption), estimate in found.items():
        here = [place for c in shape.members(corruption) for place in own.places[c]]
        value = estimate.value
        if same := outcomes.same_outcome(here):
            value = same[0] if kind == "error" else value
            low, high = shape.exact(kind, corruption, value, same[0], clean, known, same[1], level)
        else:
            low, high = estimate.interval(level)
        if kind != "relative CE":  # no share of images is below 0 or above 1
            most = 1.0 if kind == "error" else math.inf
            value, low, high = (min(max(number, 0.0), most) for number in (value, low, high))
        numbers[kind, corruption] = (value, low, high)
    return numbers


def _kinds(
    errors: Mapping[str, Estimate], clean: Estimate | None, shape: GridShape, base: Baseline | _Errors | None
) -> dict[ScoreKey, Estimate]:
    """Error, CE and relative CE of every corruption."""
    found: dict[ScoreKey, Estimate] = {}
    for corruption, error in errors.items():
        found["error", corruption] = error
        if base is None or (isinstance(base, Baseline) and shape.undivided(corruption, base)):
            continue
        # Numbers or estimates, with the same arithmetic.
        below: Any = base.each[corruption] if isinstance(base, _Errors) else base.mean(corruption, shape.severities)
        found["CE", corruption] = error.over(below)
        if clean is not None and base.clean is not None:
            found["relative CE", corruption] = (error - clean).over(below - base.clean)
    return found


def compare_grids(setting: str, first: Grid, second: Grid, *, level: float) -> Comparison:
    """Two models under the same shifts and the same assignment: the difference in mean accuracy over the shifts.

    Every image counts with its own difference, so that what both models share cancels.
    """
    places = [place for place in first if place in second]
    pairs = [(first[place], second[place]) for place in places]
    if not pairs or len(places) < max(len(first), len(second)) or any(list(a.ids) != list(b.ids) for a, b in pairs):
        raise SettingError(
            f"the models were not evaluated on the same images of {setting}",
            expected="the same dataset, design, passes and seed",
            hint="evaluate both with one command",
        )
    # Images that only one of them could use, such as those that are too small for the other, do not count.
    used = [tuple(one.part(x.valid & y.valid, "") for one in (x, y)) for x, y in pairs]
    a, b = (design_outcomes(side, None) for side in zip(*used, strict=True))
    errors = [side.errors() for side in (a, b)]
    difference = Estimate.average([y - x for x, y in zip(*errors, strict=True)])
    (low, high), p = difference.interval(level), difference.p
    only_first, only_second = (int(((x == 0) & (y == 1)).sum()) for x, y in ((a.wrong, b.wrong), (b.wrong, a.wrong)))
    apart = b.wrong - a.wrong
    if np.ptp(apart) == 0:  # every image shows the same, and no spread
        one_sided = a.size * int(apart[0] > 0), a.size * int(apart[0] < 0)
        low, high = difference_interval(one_sided[0], one_sided[1], a.size, level)
        p = float(mcnemar(*one_sided))
    one, other = pairs[0]
    accuracies = [1 - Estimate.average(side).value for side in errors]
    return Comparison(
        setting, one.classifier, other.classifier, a.size, accuracies[0], accuracies[1], only_first, only_second,
        difference.value, low, high, p, p, level, one.spec.family or "",
    )  # fmt: skip
