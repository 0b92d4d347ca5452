"""Two lines with a knee between them, for test sets that were filtered by a model.

ImageNet-A holds what a ResNet-50 got wrong, so that its accuracy there is 0 by construction and the models
below and above it follow two different lines (001 section 3.3). The pivot's own model is part of neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shiftbench.arrays import BoolArray, FloatArray
from shiftbench.metrics.intervals import Intervals
from shiftbench.studies.base import Accuracies, StudyError, named_values, recognise_unit
from shiftbench.studies.fits import RESAMPLES, Fit, baseline_mask, fit


@dataclass(frozen=True)
class PiecewiseFit:
    """``below`` holds for x up to the pivot, ``above`` beyond it.

    Attributes:
        pivot: x at which the lines meet.
        below: The line up to the pivot.
        above: The line beyond it.
        notes: What a reader must know about the numbers.
    """

    pivot: float
    below: Fit
    above: Fit
    notes: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        return self.below.n + self.above.n

    @property
    def unit(self) -> str:
        return self.below.unit

    @property
    def scale(self) -> str:
        return self.below.scale

    @property
    def models(self) -> tuple[str, ...]:
        return self.below.models + self.above.models

    def predict(self, x: ArrayLike) -> FloatArray:
        """beta(x), by the line of its side."""
        values = np.asarray(x, dtype=np.float64)
        return np.where(values > self.pivot, self.above.predict(values), self.below.predict(values))

    def band(self, x: ArrayLike, *, level: float | None = None) -> Intervals | None:
        """Interval of beta(x), by the line of its side; None without resamples."""
        low_side, high_side = self.below.band(x, level=level), self.above.band(x, level=level)
        if low_side is None or high_side is None:
            return None
        beyond = np.atleast_1d(np.asarray(x, dtype=np.float64)) > self.pivot
        return Intervals(np.where(beyond, high_side.low, low_side.low), np.where(beyond, high_side.high, low_side.high))

    def extrapolates(self, x: ArrayLike) -> BoolArray:
        """Where x lies outside the models that were fitted."""
        values = np.asarray(x, dtype=np.float64)
        return np.asarray((values < self.below.x_range[0]) | (values > self.above.x_range[1]))

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "scale": self.scale,
            "unit": self.unit,
            "pivot": self.pivot,
            "n": self.n,
            "below": self.below.as_dict(),
            "above": self.above.as_dict(),
            "baseline_models": list(self.models),
            "notes": list(self.notes),
        }


#: Either kind of baseline.
Line = Fit | PiecewiseFit


def fit_piecewise(
    x: Accuracies,
    y: Accuracies,
    *,
    pivot: float | None = None,
    scale: str = "logit",
    models: Sequence[str] | None = None,
    baseline: Sequence[bool] | BoolArray | Sequence[str] | None = None,
    unit: str | None = None,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int | None = None,
    procedure: str = "testbed",
) -> PiecewiseFit:
    """Two separate fits, of the baseline models with x < pivot and of those with x > pivot.

    Without ``pivot`` it is the x of the baseline model whose y is exactly 0 (the highest, if there are several),
    as in the testbed's tables; models with x equal to the pivot belong to neither side.

    Args:
        x: Accuracies without shift: an array, or a mapping from model to accuracy.
        y: Accuracies under shift, likewise.
        pivot: x between the two sides; default: that of the baseline model whose y is 0.
        scale: ``"logit"``, ``"probit"`` or ``"linear"``.
        models: Names of the models, if the accuracies are not given by name.
        baseline: The models that the line is fitted to, by name or as one boolean per model; default: all.
        unit: ``"percent"`` or ``"fraction"``; default: recognised from the values.
        level: Confidence level of the intervals.
        resamples: Number of bootstrap resamples.
        seed: Seed of the resamples; default: the procedure's own.
        procedure: As in ``fit``.

    Example:
        >>> x, y = [56.0, 66.0, 74.0, 76.0, 77.0, 80.0, 84.0], [1.2, 1.0, 0.8, 0.0, 3.0, 9.0, 25.0]
        >>> knee = fit_piecewise(x, y)
        >>> knee.pivot, knee.below.n, knee.above.n, knee.below.slope < 0 < knee.above.slope
        (76.0, 3, 3, True)
    """
    names, (xs, ys) = named_values([x, y], models)
    unit = recognise_unit({"x": xs, "y": ys}, unit)
    chosen = baseline_mask(names, baseline)
    pivot = _zero_model(xs, ys, chosen) if pivot is None else pivot
    options: dict[str, Any] = {"scale": scale, "level": level, "resamples": resamples, "seed": seed}
    sides = []
    for side, name in ((xs < pivot, "below"), (xs > pivot, "above")):
        try:
            mask = chosen & side
            sides.append(fit(xs, ys, models=names, baseline=mask, unit=unit, procedure=procedure, **options))
        except StudyError as error:
            raise StudyError(f"no line {name} the pivot {pivot:g}: {error}") from error
    at_pivot = [name for name, here in zip(names, chosen & (xs == pivot), strict=True) if here]
    notes = [f"on the pivot and in neither fit: {', '.join(at_pivot)}"] if at_pivot else []
    notes += [f"{side}: {note}" for side, one in zip(("below", "above"), sides, strict=True) for note in one.notes]
    return PiecewiseFit(float(pivot), sides[0], sides[1], tuple(notes))


def _zero_model(x: FloatArray, y: FloatArray, chosen: BoolArray) -> float:
    zeros = x[chosen & (y == 0) & ~np.isnan(x)]
    if not len(zeros):
        raise StudyError(
            "no pivot: no baseline model has y = 0", hint="give the pivot, such as ResNet-50's accuracy on the x axis"
        )
    return float(zeros.max())
