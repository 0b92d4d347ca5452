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

import itertools
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
from shiftbench.metrics.intervals import clopper_pearson, freedom_of
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
        readable = ~np.isnan(values)
        count = int(readable.sum())
        if weights is None:
            weights = readable / max(count, 1)
        value = math.nan
        if count:
            value = float(weights[readable] @ values[readable])
        # Bessel's correction, so that the squares add up to an unbiased variance.
        correction = math.sqrt(count / max(count - 1, 1))
        influence = np.where(readable, weights * (values - value), 0.0) * correction
        return cls(value, influence, 1 - 1 / max(count, 1))

    @classmethod
    def average(cls, estimates: Sequence[Estimate]) -> Estimate:
        """The mean of several estimates, each with the same weight."""
        value = float(np.mean([estimate.value for estimate in estimates]))
        influence = np.mean([estimate.influence for estimate in estimates], axis=0)
        kept = float(np.mean([estimate.kept for estimate in estimates]))
        return cls(value, influence, kept)

    @property
    def error(self) -> float:
        """The standard error, over images and over assignments."""
        return float(np.sqrt(np.square(self.influence).sum()))

    def __sub__(self, other: Estimate) -> Estimate:
        return Estimate(self.value - other.value, self.influence - other.influence, min(self.kept, other.kept))

    def over(self, base: float | Estimate) -> Estimate:
        """Divided by a known number, or by another estimate (linearised); nan where that is not positive."""
        if isinstance(base, Estimate):
            divisor = base
        else:
            divisor = Estimate(base, np.zeros_like(self.influence))
        if not divisor.value > 0:
            return Estimate(math.nan, self.influence, self.kept)
        ratio = self.value / divisor.value
        influence = (self.influence - ratio * divisor.influence) / divisor.value
        return Estimate(ratio, influence, min(self.kept, divisor.kept))

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the variance, from the spread of the squares that it is the sum of.

        There are as many as normal influences with this kurtosis would have, at most one for each that is not 0.
        """
        squares = np.square(self.influence)
        total = float(squares.sum())
        if not total > 0:
            return 1.0
        by_kurtosis = 3 * total**2 / float(np.square(squares).sum())
        count = min(by_kurtosis, float(np.count_nonzero(squares)))
        return max(1.0, self.kept * count)

    def interval(self, level: float) -> tuple[float, float]:
        """Student's interval, which is symmetric about the value."""
        half_width = self.half_width(level)
        return self.value - half_width, self.value + half_width

    def half_width(self, level: float) -> float:
        from scipy.special import stdtrit  # here, so that importing the metrics stays light

        return float(stdtrit(self.freedom, (1 + level) / 2)) * self.error

    @property
    def p(self) -> float:
        """The two-sided p-value of Student's test that the number is 0."""
        from scipy.special import stdtr

        if not self.error:
            return 1.0
        return float(2 * stdtr(self.freedom, -abs(self.value) / self.error))


#: From so many passes on, the variance within images is known.
_SEVERAL = 2
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
        if self.clean_wrong is None:
            return len(self.wrong)
        return len(self.wrong) + int((~np.isnan(self.clean_wrong)).sum())

    @cached_property
    def clean(self) -> Estimate | None:
        """The clean error; None without a clean pass."""
        if self.clean_wrong is None:
            return None
        return Estimate.mean(self.clean_wrong)

    @cached_property
    def _adjusted(self) -> tuple[FloatArray, FloatArray]:
        """What was observed less what the clean outcome explains, and how each image moves what is explained."""
        if self.clean is None or self.clean_wrong is None:
            return self.wrong, np.zeros(self.size)
        clean_deviations = np.nan_to_num(self.clean_wrong - self.clean.value)[self.images]
        x = self._centred_by_shift(clean_deviations)
        y = self._centred_by_shift(self.wrong)
        slope = 0.0
        if x.any():
            slope = float(x @ y) / float(x @ x)
        return self.wrong - slope * clean_deviations, slope * self.clean.influence

    def _centred_by_shift(self, values: FloatArray) -> FloatArray:
        """Each observation's value less the mean over the observations of its shift."""
        counts = np.bincount(self.places, minlength=self.shifts)
        means = np.bincount(self.places, values, self.shifts) / counts
        return np.asarray(values - means[self.places])

    @cached_property
    def _weights(self) -> FloatArray:
        """The weight of each observation in the mean of its shift, so that over all shifts every class has its share.

        Two or three images meet each shift. If those of a rare class are mostly among three, equal weights would count
        them too little (by 15 % for 11 images of 114 under 45 shifts). The weights are raked: by shift they add up to
        1, by class to its share of the images. Classes of one size are alike to the assignment, and taken together.
        """
        classes = self.classes
        if classes is None:
            classes = np.zeros(self.size, np.int64)
        class_sizes = np.bincount(classes)[classes]
        strata = np.unique(class_sizes, return_inverse=True)[1]
        stratum_shares = np.bincount(strata) / self.size
        observed_strata = strata[self.images]
        counts = np.zeros((len(stratum_shares), self.shifts))
        np.add.at(counts, (observed_strata, self.places), 1.0)
        factors = np.ones(len(stratum_shares))
        if len(stratum_shares) > 1:
            for _ in range(_RAKINGS):
                weighted = factors[:, None] * counts
                observed_shares = (weighted / weighted.sum(axis=0)).mean(axis=1)
                unchanged = np.ones_like(observed_shares)
                factors *= np.divide(stratum_shares, observed_shares, out=unchanged, where=observed_shares > 0)
        return np.asarray(factors[observed_strata] / (factors @ counts)[self.places])

    def errors(self, places: Sequence[int] | None = None) -> list[Estimate]:
        """The mean error under each shift, had all images met it; default: under every shift."""
        if places is None:
            places = range(self.shifts)
        adjusted, explained = self._adjusted
        errors = []
        for place in places:
            met = self.places == place
            values = np.full(self.size, np.nan)
            values[self.images[met]] = adjusted[met]
            weights = np.zeros(self.size)
            weights[self.images[met]] = self._weights[met]
            estimate = Estimate.mean(values, weights)
            errors.append(replace(estimate, influence=estimate.influence + explained))
        return errors

    def mean_error(self, places: Sequence[int]) -> Estimate:
        """The mean over a few shifts, such as the severities of one corruption.

        Two or three images under each shift may all have one outcome, and show no variance. These shifts are then
        taken together for the variance (collapsed strata, Cochran 1977, 5A.12), which makes it too large rather than
        too small. The clean outcomes are not used then: with so few images, or if all have one outcome, they would
        move the error beyond what is possible.
        """
        average = Estimate.average(self.errors(places))
        met = np.isin(self.places, places)
        counts = np.bincount(self.places[met], minlength=self.shifts)
        if counts[list(places)].min() >= _ENOUGH_PER_SHIFT and self.same_outcome(places) is None:
            return average
        n = int(met.sum())
        wrong = self.wrong[met]
        weights = self._weights[met] / len(places)
        influence = np.zeros(self.size)
        np.add.at(influence, self.images[met], (wrong - wrong.mean()) * weights * math.sqrt(n / (n - 1)))
        return Estimate(float(wrong @ weights), influence, 1 - 1 / n)

    def full_grid_half_width(self, level: float) -> float:
        """Half the width of the interval of the mean over all shifts, as all shifts on these images would give it.

        Which shifts an image met is then the only chance. With several passes its variance is that of the outcomes
        within images. With one pass that variance is unknown, but at most that of the outcomes less what the clean
        outcome explains of them.
        """
        from scipy.special import stdtrit

        counts = np.bincount(self.images, minlength=self.size)
        passes = len(self.wrong) / max(int(np.count_nonzero(counts)), 1)
        if passes >= _SEVERAL:
            residuals = self._centred_by_shift(self.wrong)
            sums = np.bincount(self.images, residuals, self.size)
            squares = np.bincount(self.images, np.square(residuals), self.size)
            several = counts >= _SEVERAL
            by_image = (squares[several] - np.square(sums[several]) / counts[several]) / (counts[several] - 1)
            factor = 1 / passes - 1 / self.shifts
        else:
            adjusted, _ = self._adjusted
            residuals = self._centred_by_shift(adjusted)
            by_image = np.square(residuals) * len(residuals) / max(len(residuals) - self.shifts, 1)
            factor = 1.0
        # One more image whose outcomes differ half of the time: few wrong images say little about how many there are.
        variance = factor * (float(by_image.sum()) + 0.5) / (len(by_image) + 1)
        freedom = freedom_of(np.append(by_image, 0.5))
        return float(stdtrit(freedom, (1 + level) / 2)) * math.sqrt(variance / self.size)

    def same_outcome(self, places: Sequence[int]) -> SameOutcome | None:
        """The outcome that all images have under these shifts; None if they differ."""
        met = np.isin(self.places, places)
        outcomes = self.wrong[met]
        if outcomes.min() != outcomes.max():
            return None
        return SameOutcome(float(outcomes[0]), len(np.unique(self.images[met])))


@dataclass(frozen=True)
class SameOutcome:
    """One outcome of all images: Student's interval then has no width."""

    #: 1 if the model was always wrong, 0 if it was always right.
    error: float
    #: Number of images.
    n: int


def design_outcomes(grid: Sequence[Predictions], clean: Predictions | None) -> DesignOutcomes:
    """From the predictions under each shift, on the images that met it, and those of the clean pass on all."""
    sources = grid
    if clean is not None:
        sources = [clean]
    label_of_image: dict[str, int] = {}
    for predictions in sources:
        label_of_image |= zip(predictions.ids, predictions.labels.tolist(), strict=True)
    row_of_image = {name: row for row, name in enumerate(label_of_image)}
    classes = np.unique(list(label_of_image.values()), return_inverse=True)[1]
    images = [_valid_rows(predictions, row_of_image) for predictions in grid]
    places = np.repeat(np.arange(len(grid)), [len(rows) for rows in images])
    wrong = np.concatenate([(~predictions.correct).astype(np.float64) for predictions in grid])
    clean_wrong = None
    if clean is not None:
        clean_wrong = np.where(clean.valid, clean.top[:, 0] != clean.labels, np.nan)
    return DesignOutcomes(len(row_of_image), np.concatenate(images), places, wrong, len(grid), clean_wrong, classes)


def _valid_rows(predictions: Predictions, row_of_image: Mapping[str, int]) -> IntArray:
    """The rows of the images that count."""
    rows = np.array([row_of_image[name] for name in predictions.ids], np.int64)
    return rows[predictions.valid]


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
        base = design_outcomes([baseline[setting] for setting in grid], baseline_clean)
        against = next(iter(baseline.values())).classifier
        source = against
    elif baseline is not None:
        base = baseline
        against = baseline.name
        source = baseline.source or against
    else:
        base = None
        against = ""
        source = ""
    images = len(np.unique(outcomes.images))
    method = f"Student's over images, {len(outcomes.wrong):,} of {outcomes.shifts * images:,} shifted forward passes"
    shifts = [predictions.spec.shift for predictions in grid.values()]
    designs = dict.fromkeys(shift.design for shift in shifts if shift.designed)
    scores = {}
    for (kind, corruption), (value, low, high) in design_numbers(outcomes, list(grid), shape, base, level).items():
        facts = [provenance, *designs]
        if source and kind != "error":
            facts.append(f"divided by {source}")
        scores[kind, corruption] = Score(
            shape.score_name(kind, corruption, against),
            value,
            low,
            high,
            images,
            level,
            method,
            "; ".join(facts),
            higher_is_better=False,
            passes=outcomes.passes,
        )
    all_scores = CorruptionScores.of(next(iter(grid.values())).classifier, shape, scores)
    if set(shape.averaged) != set(shape.corruptions):
        return replace(all_scores, by_severity=_by_severity(outcomes, list(grid), all_scores.mean_error))
    return replace(
        all_scores,
        by_severity=_by_severity(outcomes, list(grid), all_scores.mean_error),
        on_these_images=_on_these_images(outcomes, all_scores.mean_error),
    )


def _by_severity(
    outcomes: DesignOutcomes, settings: Sequence[tuple[str, float]], mean_error: Score
) -> dict[float, Score]:
    """The mean error over the corruptions at each severity; none if there is only one severity."""
    places: dict[float, list[int]] = {}
    for place, (_, severity) in enumerate(settings):
        places.setdefault(severity, []).append(place)
    if len(places) < _SEVERAL:
        return {}
    scores = {}
    for severity in sorted(places):
        estimate = outcomes.mean_error(places[severity])
        value = estimate.value
        low, high = estimate.interval(mean_error.level)
        same = outcomes.same_outcome(places[severity])
        if same is not None:
            value = same.error
            low, high = clopper_pearson(round(same.error * same.n), same.n, mean_error.level)
        ends = [_clipped(number, 1.0) for number in (value, low, high)]
        scores[severity] = replace(
            mean_error, metric=f"mean error at severity {severity:g}", value=ends[0], low=ends[1], high=ends[2]
        )
    return scores


def _on_these_images(outcomes: DesignOutcomes, mean_error: Score) -> Score:
    """The mean error with the interval for the full grid on these images."""
    half_width = outcomes.full_grid_half_width(mean_error.level)
    low = _clipped(mean_error.value - half_width, 1.0)
    high = _clipped(mean_error.value + half_width, 1.0)
    return replace(mean_error, low=low, high=high, method="design only: the full grid on these images")


@dataclass(frozen=True)
class _Errors:
    """The mean error of each corruption, and on the clean images."""

    outcomes: DesignOutcomes
    places: Mapping[str, Sequence[int]]
    #: With the variance of each shift on its own, for means over many shifts.
    each: Mapping[str, Estimate]
    #: With the variance over the severities together, for the numbers of one corruption.
    alone: Mapping[str, Estimate]
    clean: Estimate | None

    @classmethod
    def of(cls, outcomes: DesignOutcomes, grid: Sequence[tuple[str, float]], shape: GridShape) -> _Errors:
        places: dict[str, list[int]] = {corruption: [] for corruption in shape.corruptions}
        for place, (corruption, _) in enumerate(grid):
            places[corruption].append(place)
        errors = outcomes.errors()
        each = {}
        alone = {}
        for corruption, severity_places in places.items():
            each[corruption] = Estimate.average([errors[place] for place in severity_places])
            alone[corruption] = outcomes.mean_error(severity_places)
        return cls(outcomes, places, each, alone, outcomes.clean)

    def places_of(self, corruptions: Sequence[str]) -> list[int]:
        """The places of several corruptions, at all severities."""
        return list(itertools.chain.from_iterable(self.places[name] for name in corruptions))

    @property
    def clean_error(self) -> float | None:
        if self.clean is None:
            return None
        return self.clean.value

    def baseline(self, shape: GridShape) -> Baseline:
        """The errors that others are divided by."""
        errors = {name: dict.fromkeys(shape.severities, estimate.value) for name, estimate in self.each.items()}
        return Baseline("", errors, self.clean_error)


def design_numbers(
    outcomes: DesignOutcomes,
    settings: Sequence[tuple[str, float]],
    shape: GridShape,
    baseline: Baseline | DesignOutcomes | None,
    level: float,
) -> dict[ScoreKey, tuple[float, float, float]]:
    """(value, low, high) of error, CE and relative CE of every corruption, and of their means."""
    errors = _Errors.of(outcomes, settings, shape)
    base: Baseline | _Errors | None
    known_baseline: Baseline | None
    if isinstance(baseline, DesignOutcomes):
        base = _Errors.of(baseline, settings, shape)
        known_baseline = base.baseline(shape)
    else:
        base = baseline
        known_baseline = baseline
    numbers = {}
    for (kind, corruption), estimate in _all_estimates(errors, shape, base).items():
        value = estimate.value
        same = outcomes.same_outcome(errors.places_of(shape.members(corruption)))
        if same is not None:
            if kind == "error":
                value = same.error
            low, high = shape.exact_interval(
                kind, corruption, value, same.error, errors.clean_error, known_baseline, same.n, level
            )
        else:
            low, high = estimate.interval(level)
        if kind == "error":  # a share of images
            numbers[kind, corruption] = (_clipped(value, 1.0), _clipped(low, 1.0), _clipped(high, 1.0))
        elif kind == "CE":  # not negative
            numbers[kind, corruption] = (_clipped(value), _clipped(low), _clipped(high))
        else:
            numbers[kind, corruption] = (value, low, high)
    return numbers


def _clipped(number: float, most: float = math.inf) -> float:
    return min(max(number, 0.0), most)


def _all_estimates(errors: _Errors, shape: GridShape, base: Baseline | _Errors | None) -> dict[ScoreKey, Estimate]:
    """Every number of single corruptions, of their groups, and of the means over corruptions."""
    estimates = _estimates_by_corruption(errors.alone, errors.clean, shape, base)
    for_means = _estimates_by_corruption(errors.each, errors.clean, shape, base)
    for kind in dict.fromkeys(kind for kind, _ in for_means):
        average = Estimate.average([for_means[kind, corruption] for corruption in shape.averaged])
        if not average.error:
            # Under each shift all images have one outcome, such as the two that met it. The variance over the
            # severities together is not 0, unless all images of all shifts have one outcome.
            average = Estimate.average([estimates[kind, corruption] for corruption in shape.averaged])
        estimates[kind, ""] = average
    for group, members in shape.groups.items():
        estimates["error", group] = errors.outcomes.mean_error(errors.places_of(members))
    return estimates


def _estimates_by_corruption(
    errors: Mapping[str, Estimate], clean: Estimate | None, shape: GridShape, base: Baseline | _Errors | None
) -> dict[ScoreKey, Estimate]:
    """Error, CE and relative CE of every corruption."""
    estimates: dict[ScoreKey, Estimate] = {}
    for corruption, error in errors.items():
        estimates["error", corruption] = error
        if base is None or (isinstance(base, Baseline) and shape.undivided(corruption, base)):
            continue
        divisor: Any  # a number or an estimate; the arithmetic is the same
        if isinstance(base, _Errors):
            divisor = base.each[corruption]
        else:
            divisor = base.mean(corruption, shape.severities)
        estimates["CE", corruption] = error.over(divisor)
        if clean is not None and base.clean is not None:
            estimates["relative CE", corruption] = (error - clean).over(divisor - base.clean)
    return estimates


def compare_grids(setting: str, first: Grid, second: Grid, *, level: float) -> Comparison:
    """Two models under the same shifts and the same assignment: the difference in mean accuracy over the shifts.

    Every image counts with its own difference, so that what both models share cancels.
    """
    pairs = [(first[setting], second[setting]) for setting in first if setting in second]
    same_images = all(list(a.ids) == list(b.ids) for a, b in pairs)
    if not pairs or len(pairs) < max(len(first), len(second)) or not same_images:
        raise SettingError(
            f"the models were not evaluated on the same images of {setting}",
            expected="the same dataset, design, passes and seed",
            hint="evaluate both with one command",
        )
    a = design_outcomes([_used_by_both(x, y) for x, y in pairs], None)
    b = design_outcomes([_used_by_both(y, x) for x, y in pairs], None)
    a_errors = a.errors()
    b_errors = b.errors()
    difference = Estimate.average([y - x for x, y in zip(a_errors, b_errors, strict=True)])
    observed = b.wrong - a.wrong
    if not difference.error and np.ptp(observed) > 0:
        # Models differ under some shifts, each time on all images that met the shift.
        every_place = range(a.shifts)
        difference = b.mean_error(every_place) - a.mean_error(every_place)
    low, high = difference.interval(level)
    p = difference.p
    if np.ptp(observed) == 0:
        # Every image shows the same difference, and there is no spread to estimate from.
        only_a = a.size if observed[0] > 0 else 0
        only_b = a.size if observed[0] < 0 else 0
        low, high = difference_interval(only_a, only_b, a.size, level)
        p = float(mcnemar(only_a, only_b))
    example_a, example_b = pairs[0]
    return Comparison(
        setting=setting,
        first=example_a.classifier,
        second=example_b.classifier,
        n=a.size,
        first_accuracy=1 - Estimate.average(a_errors).value,
        second_accuracy=1 - Estimate.average(b_errors).value,
        only_first=int((observed == 1).sum()),
        only_second=int((observed == -1).sum()),
        difference=difference.value,
        low=low,
        high=high,
        p=p,
        p_holm=p,
        level=level,
        provenance=example_a.spec.family or "",
    )


def _used_by_both(predictions: Predictions, others: Predictions) -> Predictions:
    """Without the images that only one of two models could use, such as those too small for the other."""
    return predictions.part(predictions.valid & others.valid, "")
