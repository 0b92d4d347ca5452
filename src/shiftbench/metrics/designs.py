"""Estimates of the full grid from a design that evaluates each image under few of the shifts.

The images that met shift j are a random part of all, so that their mean error estimates the mean error E_j of all
images without bias. Means over shifts, corruption errors and their relatives are linear in the E_j and in the clean
error, which the clean pass gives for all images. Each estimate carries how much every image moved it (its influence):
the variance of any such number is a sum of squares over images, and what the clean and the shifted side share, or two
models, cancels in their difference.

The clean pass as an auxiliary variable (regression estimator, Cochran 1977, ch. 7) does not narrow these intervals: it
is known for the same images only, and what it tells of an image is the same under all shifts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shiftbench.arrays import FloatArray, IntArray
from shiftbench.errors import ShiftbenchError
from shiftbench.metrics.base import Score
from shiftbench.metrics.corruption import ALEXNET, Baseline
from shiftbench.metrics.corruption_scores import CorruptionScores, GridShape, ScoreKey
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.metrics.paired import aligned
from shiftbench.settings.base import Member
from shiftbench.store.predictions import Predictions


@dataclass(frozen=True)
class Estimate:
    """A number and the influence of each image on it; the influences add up to zero.

    >>> mean = Estimate.mean(np.array([0.0, 1.0, 1.0, 0.0]))
    >>> mean.over(0.5).value, (mean - mean).error
    (1.0, 0.0)
    """

    value: float
    influence: FloatArray
    #: Variance and degrees of freedom of the samples that it is made of.
    samples: tuple[tuple[float, float], ...] = ()

    @classmethod
    def mean(cls, values: FloatArray) -> Estimate:
        """Of the values of all images; nan counts as an image that could not be read."""
        known = ~np.isnan(values)
        count = int(known.sum())
        value = float(values[known].mean()) if count else math.nan
        # Bessel's correction, so that the squares add up to an unbiased variance.
        influence = np.where(known, values - value, 0.0) / math.sqrt(max(count * (count - 1), 1))
        return cls(value, influence, ((float(np.square(influence).sum()), max(count - 1, 1)),))

    @classmethod
    def average(cls, estimates: Sequence[Estimate]) -> Estimate:
        value = float(np.mean([one.value for one in estimates]))
        samples = tuple((v / len(estimates) ** 2, freedom) for one in estimates for v, freedom in one.samples)
        return cls(value, np.mean([one.influence for one in estimates], axis=0), samples)

    @property
    def error(self) -> float:
        """The standard error, over images and over assignments."""
        return float(np.sqrt(np.square(self.influence).sum()))

    def __sub__(self, other: Estimate) -> Estimate:
        return Estimate(self.value - other.value, self.influence - other.influence, self.samples + other.samples)

    def over(self, base: float) -> Estimate:
        """Divided by a known number; nan where that is not positive."""
        if not base > 0:
            return Estimate(math.nan, self.influence, self.samples)
        samples = tuple((variance / base**2, freedom) for variance, freedom in self.samples)
        return Estimate(self.value / base, self.influence / base, samples)

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the variance (Satterthwaite 1946)."""
        total = sum(variance for variance, _ in self.samples)
        return total**2 / sum(v**2 / freedom for v, freedom in self.samples) if total > 0 else 1.0

    def interval(self, level: float) -> tuple[float, float]:
        """Student's, symmetric about the value."""
        from scipy.special import stdtrit

        half = float(stdtrit(self.freedom, (1 + level) / 2)) * self.error
        return self.value - half, self.value + half


#: From so many images on, their own variance is used.
_ENOUGH_PER_SHIFT = 10


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

    def __post_init__(self) -> None:
        fewest = int(np.bincount(self.places, minlength=self.shifts).min())
        if fewest < 2:
            raise ShiftbenchError(
                "too few images for this design",
                found=f"{self.size} images for {self.shifts} shifts, one of which met {fewest}",
                expected="at least 2 images under each shift",
                hint="evaluate more images, more passes or fewer shifts, or use the full design",
            )

    def errors(self) -> list[Estimate]:
        """The mean error under each shift, had all images met it."""
        return [self._error(place) for place in range(self.shifts)]

    def _error(self, place: int) -> Estimate:
        here = self.places == place
        values = np.full(self.size, np.nan)
        values[self.images[here]] = self.wrong[here]
        return Estimate.mean(values)

    def mean_error(self, places: Sequence[int]) -> Estimate:
        """The mean over a few shifts, such as the severities of one corruption.

        Two or three images under each shift may all have one outcome, and show no variance. These shifts are then
        taken together for the variance (collapsed strata, Cochran 1977, 5A.12), which makes it too large rather than
        too small.
        """
        errors = [self._error(place) for place in places]
        here = np.isin(self.places, places)
        counts = np.bincount(self.places[here], minlength=self.shifts)
        if counts[list(places)].min() >= _ENOUGH_PER_SHIFT:
            return Estimate.average(errors)
        value, n = float(np.mean([one.value for one in errors])), int(here.sum())
        influence = np.zeros(self.size)
        moved = (self.wrong[here] - self.wrong[here].mean()) / (len(places) * counts[self.places[here]])
        np.add.at(influence, self.images[here], moved * math.sqrt(n / (n - 1)))
        return Estimate(value, influence, ((float(np.square(influence).sum()), n - 1),))


def design_outcomes(
    passes: Sequence[tuple[Predictions, IntArray]], clean: Predictions | None, shifts: int
) -> DesignOutcomes:
    """From the predictions of each pass, with the shift of every image, and those of the clean pass."""
    first = passes[0][0]
    images, places, wrong = [], [], []
    for predictions, own in passes:
        order = aligned(first, predictions)
        rows = np.flatnonzero(predictions.valid[order])
        images.append(rows)
        places.append(own[order][rows])
        wrong.append((predictions.top[order, 0] != predictions.labels[order])[rows].astype(np.float64))
    clean_wrong = None
    if clean is not None:
        clean_wrong = np.where(clean.valid, clean.top[:, 0] != clean.labels, np.nan)[aligned(first, clean)]
    flat = (np.concatenate(images), np.concatenate(places), np.concatenate(wrong))
    return DesignOutcomes(len(first), *flat, shifts, clean_wrong)


def design_corruption_scores(
    outcomes: DesignOutcomes,
    members: Sequence[Member],
    *,
    classifier: str,
    provenance: str,
    baseline: Baseline | None = ALEXNET,
    level: float = 0.95,
) -> CorruptionScores:
    """Estimates of what ``corruption_scores`` gives for the full grid, with intervals for the design.

    Args:
        outcomes: What the model did under the design.
        members: The corruption and severity of each shift.
        classifier: The model's name.
        provenance: What the numbers are of, for their column.
        baseline: The errors to divide by; None for unnormalised errors only.
        level: Confidence level.
    """
    shape = GridShape.of([(one.name, one.level) for one in members])
    found = _estimates(outcomes, members, shape, baseline)
    source = "" if baseline is None else f"; divided by {baseline.source or baseline.name}"
    method = f"design with {len(outcomes.wrong):,} of {outcomes.shifts * outcomes.size:,} shifted forward passes"
    scores = {}
    for (kind, corruption), estimate in found.items():
        low, high = _interval(outcomes, members, corruption, estimate, level)
        name = shape.score_name(kind, corruption, "" if baseline is None else baseline.name)
        line = provenance + ("" if kind == "error" else source)
        ends = (max(low, 0.0), high if kind != "error" else min(high, 1.0)) if kind != "relative CE" else (low, high)
        scores[kind, corruption] = Score(
            name, estimate.value, *ends, outcomes.size, level, method, line, higher_is_better=False
        )
    return CorruptionScores.of(classifier, shape, scores)


def _interval(
    outcomes: DesignOutcomes, members: Sequence[Member], corruption: str, estimate: Estimate, level: float
) -> tuple[float, float]:
    """Where all images of a corruption have the same outcome, Student's interval has no width; the exact one has."""
    here = np.isin(outcomes.places, [place for place, one in enumerate(members) if one.name == corruption])
    outcome = outcomes.wrong[here]
    if not corruption or outcome.min() < outcome.max():
        return estimate.interval(level)
    bounds = clopper_pearson(float(outcome.sum()), len(outcome), level)
    scale = estimate.value / outcome[0] if outcome[0] else 1.0
    return bounds.low * scale, bounds.high * scale


def _estimates(
    outcomes: DesignOutcomes, members: Sequence[Member], shape: GridShape, baseline: Baseline | None
) -> dict[ScoreKey, Estimate]:
    places = {c: [place for place, one in enumerate(members) if one.name == c] for c in shape.corruptions}
    errors = outcomes.errors()
    floor = None if outcomes.clean_wrong is None else Estimate.mean(outcomes.clean_wrong)
    exact = {c: Estimate.average([errors[place] for place in own]) for c, own in places.items()}
    found = _kinds({c: outcomes.mean_error(own) for c, own in places.items()}, floor, shape, baseline)
    whole = _kinds(exact, floor, shape, baseline)
    for kind in dict.fromkeys(kind for kind, _ in whole):
        found[kind, ""] = Estimate.average([whole[kind, corruption] for corruption in shape.averaged])
    return found


def _kinds(
    errors: Mapping[str, Estimate], floor: Estimate | None, shape: GridShape, baseline: Baseline | None
) -> dict[ScoreKey, Estimate]:
    """Error, CE and relative CE of every corruption."""
    found: dict[ScoreKey, Estimate] = {}
    for corruption, error in errors.items():
        found["error", corruption] = error
        if baseline is not None:
            base = baseline.mean(corruption, shape.severities)
            found["CE", corruption] = error.over(base)
            if floor is not None and baseline.clean is not None:
                found["relative CE", corruption] = (error - floor).over(base - baseline.clean)
    return found
