"""The line that models of one kind fall on: accuracy under shift as a function of accuracy without.

001 calls it the baseline beta: with s the logit (or probit, or nothing),

    s(y) = slope * s(x) + intercept,    beta(x) = s^-1(slope * s(x) + intercept),

by least squares over the baseline models (standard training). 004 fits the same line on the linear scale.
Its uncertainty comes from resampling the models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shiftbench.arrays import BoolArray, FloatArray
from shiftbench.errors import listed
from shiftbench.metrics.intervals import Interval, Intervals
from shiftbench.studies.base import (
    Accuracies,
    Scale,
    StudyError,
    count_of,
    finite_or_none,
    get_scale,
    named_values,
    pair_or_none,
    recognise_unit,
    whole,
)
from shiftbench.studies.resampling import (
    Procedure,
    as_interval,
    check_level,
    get_procedure,
    least_squares,
    line_band,
    resampled_lines,
)

RESAMPLES = 1000

#: With fewer models than this an interval from resampling them is rough; a note is added.
FEW_MODELS = 8


@dataclass(frozen=True)
class Fit:
    """A fitted line. ``intercept`` is on the scale; on the linear scale it has the unit of the accuracies.

    Attributes:
        scale: ``"logit"``, ``"probit"`` or ``"linear"``.
        unit: Unit of the accuracies.
        slope: Slope on the scale.
        intercept: Intercept on the scale.
        r2: Coefficient of determination.
        n: Number of models that were fitted.
        slope_interval: None where two models leave nothing to resample.
        intercept_interval: Likewise.
        models: The models that were fitted.
        x_range: Lowest and highest x of the models that were fitted; outside the line is extrapolated.
        level: Confidence level of the intervals.
        resamples: Number of bootstrap resamples.
        seed: Seed of all random numbers.
        procedure: Name of the resampling procedure.
        notes: What a reader must know about the numbers.
        lines: (B, 2) slopes and intercepts of the resamples.
    """

    scale: str
    unit: str
    slope: float
    intercept: float
    r2: float
    n: int
    slope_interval: Interval | None
    intercept_interval: Interval | None
    models: tuple[str, ...]
    x_range: tuple[float, float]
    level: float
    resamples: int
    seed: int
    procedure: str
    notes: tuple[str, ...] = ()
    lines: FloatArray = field(repr=False, compare=False, default_factory=lambda: np.empty((0, 2)))

    def predict(self, x: ArrayLike) -> FloatArray:
        """beta(x), in the unit of the accuracies; nan stays nan."""
        return self._from_scale(self.slope * self._to_scale(x) + self.intercept)

    def band(self, x: ArrayLike, *, level: float | None = None) -> Intervals | None:
        """Interval of beta(x) at each x, from the resamples; None where there are none."""
        if not len(self.lines):
            return None
        at = np.atleast_1d(self._to_scale(x))
        low, high = line_band(self.lines, at, self._procedure, self.level if level is None else level)
        return Intervals(self._from_scale(low), self._from_scale(high))

    def grid(self, points: int = 200, limits: tuple[float, float] | None = None) -> FloatArray:
        """x values evenly spaced on the scale, for drawing line and band."""
        ends = self._to_scale(self.x_range if limits is None else limits)
        return self._from_scale(np.linspace(ends[0], ends[1], points))

    def extrapolates(self, x: ArrayLike) -> BoolArray:
        """Where x lies outside the models that were fitted."""
        values = np.asarray(x, dtype=np.float64)
        return np.asarray((values < self.x_range[0]) | (values > self.x_range[1]))

    def as_dict(self) -> dict[str, Any]:
        """JSON-able; None where a number does not exist."""
        return {
            "scale": self.scale,
            "unit": self.unit,
            "slope": self.slope,
            "slope_interval": list(self.slope_interval) if self.slope_interval else None,
            "intercept": self.intercept,
            "intercept_interval": list(self.intercept_interval) if self.intercept_interval else None,
            "r2": finite_or_none(self.r2),
            "n": self.n,
            "level": self.level,
            "resamples": self.resamples,
            "seed": self.seed,
            "procedure": self.procedure,
            "x_range": pair_or_none(*self.x_range),
            "baseline_models": list(self.models),
            "notes": list(self.notes),
        }

    @property
    def _procedure(self) -> Procedure:
        return get_procedure(self.procedure, self.seed)

    def _to_scale(self, x: ArrayLike) -> FloatArray:
        values = np.asarray(x, dtype=np.float64)
        if self.scale == "linear":
            return values
        return get_scale(self.scale).forward(values / whole(self.unit))

    def _from_scale(self, value: FloatArray) -> FloatArray:
        if self.scale == "linear":
            return value
        return get_scale(self.scale).inverse(value) * whole(self.unit)


def fit(
    x: Accuracies,
    y: Accuracies,
    *,
    scale: str = "logit",
    models: Sequence[str] | None = None,
    baseline: Sequence[bool] | BoolArray | Sequence[str] | None = None,
    unit: str | None = None,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int | None = None,
    procedure: str = "testbed",
) -> Fit:
    """Least squares of scaled y on scaled x over the baseline models (all, when not given).

    ``x`` and ``y`` are arrays, or mappings from model to accuracy; percent or fraction is recognised from both
    together (``recognise_unit``) and kept: percent in, percentage points out. ``baseline`` is a mask or a list
    of names. Models without x or y, and on the logit and probit scales models with accuracy exactly 0 or 1,
    can't be placed: they are left out and ``notes`` names them. The resamples are the ImageNet testbed's own, so
    that its published intervals come out to the digit; ``procedure="shiftbench"`` draws with numpy's present
    generator and interpolates the percentiles (see ``resampling.get_procedure``).

    Args:
        x: Accuracies without shift: an array, or a mapping from model to accuracy.
        y: Accuracies under shift, likewise.
        scale: ``"logit"``, ``"probit"`` or ``"linear"``.
        models: Names of the models, if the accuracies are not given by name.
        baseline: The models that the line is fitted to, by name or as one boolean per model; default: all.
        unit: ``"percent"`` or ``"fraction"``; default: recognised from the values.
        level: Confidence level of the intervals.
        resamples: Number of bootstrap resamples.
        seed: Seed of the resamples; default: the procedure's own.
        procedure: ``"testbed"`` repeats the published intervals; ``"shiftbench"`` draws with numpy's present
            generator.

    Example:
        >>> line = fit([56.5, 69.8, 76.1, 78.3, 82.7], [44.0, 57.2, 63.3, 67.0, 72.1], scale="logit")
        >>> round(line.slope, 3), round(line.r2, 3), line.n, line.unit
        (0.912, 0.998, 5, 'percent')
        >>> round(float(line.predict(80.0)), 2)
        68.65
    """
    names, (xs, ys) = named_values([x, y], models)
    unit = recognise_unit({"x": xs, "y": ys}, unit)
    chosen = baseline_mask(names, baseline)
    used, notes = usable_points(names, xs, ys, get_scale(scale), unit, chosen)
    return fit_points(
        [name for name, keep in zip(names, used, strict=True) if keep], xs[used], ys[used], scale=scale, unit=unit,
        level=level, resamples=resamples, procedure=get_procedure(procedure, seed), notes=notes,
    )  # fmt: skip


def fit_points(
    names: Sequence[str],
    x: FloatArray,
    y: FloatArray,
    *,
    scale: str,
    unit: str,
    level: float,
    resamples: int,
    procedure: Procedure,
    notes: Sequence[str] = (),
) -> Fit:
    """The fit proper, on points that all have a finite place on the scale."""
    check_level(level)
    _check_enough(names, x, scale, notes)
    size = 1.0 if scale == "linear" else whole(unit)
    axis = get_scale(scale)
    u, v = axis.forward(x / size), axis.forward(y / size)
    slope, intercept, r2 = least_squares(u, v)
    notes = [*notes, *([] if np.isfinite(r2) else ["all models have the same y: r2 is not defined"])]
    lines, more = _resampled(u, v, procedure, resamples)
    slope_interval = intercept_interval = None
    if len(lines):
        slope_interval = as_interval(procedure.interval(lines[:, 0], level))
        intercept_interval = as_interval(procedure.interval(lines[:, 1], level))
    return Fit(
        scale, unit, slope, intercept, r2, len(x), slope_interval, intercept_interval, tuple(names),
        (float(x.min()), float(x.max())), level, resamples, procedure.seed, procedure.name, (*notes, *more), lines,
    )  # fmt: skip


def baseline_mask(names: Sequence[str], baseline: Sequence[bool] | BoolArray | Sequence[str] | None) -> BoolArray:
    """Which models the line goes through, from a mask, a list of names, or nothing (all)."""
    if baseline is None:
        return np.ones(len(names), dtype=bool)
    given = np.asarray(baseline)
    if given.dtype == np.bool_:
        if given.shape != (len(names),):
            raise StudyError(
                "the mask and the models differ in length", found=f"{given.size} values for {len(names)} models"
            )
        return given
    wanted = {str(name) for name in given.tolist()}
    unknown = sorted(wanted - set(names))
    if unknown:
        raise StudyError("baseline models without accuracies", found=listed(unknown), expected=f"of {listed(names)}")
    return np.array([name in wanted for name in names])


def usable_points(
    names: Sequence[str], x: FloatArray, y: FloatArray, scale: Scale, unit: str, chosen: BoolArray
) -> tuple[BoolArray, list[str]]:
    """The chosen models that have a place on the scale, and a note on those that have none."""
    known = ~(np.isnan(x) | np.isnan(y))
    placed = scale.usable(x / whole(unit)) & scale.usable(y / whole(unit))
    notes = []
    missing = [name for name, out in zip(names, chosen & ~known, strict=True) if out]
    if missing:
        notes.append(f"not fitted, a value is missing: {count_of(len(missing), 'model')} ({listed(missing)})")
    at_end = [name for name, out in zip(names, chosen & known & ~placed, strict=True) if out]
    if at_end:
        notes.append(
            f"not fitted, an accuracy of exactly 0 or {whole(unit):g} has no {scale.name}: "
            f"{count_of(len(at_end), 'model')} ({listed(at_end)})"
        )
    return chosen & placed, notes


def _check_enough(names: Sequence[str], x: FloatArray, scale: str, notes: Sequence[str]) -> None:
    if len(x) < 2:
        raise StudyError(
            "a line needs at least two models",
            found="; ".join([count_of(len(x), "model"), *notes]),
            expected="two or more with both accuracies" + ("" if scale == "linear" else ", neither 0 nor 1"),
        )
    if np.ptp(x) == 0:
        raise StudyError(
            "all models have the same accuracy on the x axis: no line is determined",
            found=f"{x[0]:g} for {listed(names)}",
            expected="models that differ",
        )


def _resampled(u: FloatArray, v: FloatArray, procedure: Procedure, resamples: int) -> tuple[FloatArray, list[str]]:
    """The resampled lines that exist, and notes on them."""
    if resamples < 1 or len(u) < 3:
        why = ["two models determine the line exactly: no interval"] if len(u) == 2 else []
        return np.empty((0, 2)), why
    lines = resampled_lines(u, v, procedure, resamples)
    defined = np.isfinite(lines[:, 0])
    notes = []
    if not defined.all():
        notes.append(f"{int((~defined).sum())} of {resamples} resamples drew one x only and were left out")
    if len(u) < FEW_MODELS:
        notes.append(f"only {len(u)} models: the interval from resampling them is rough")
    return lines[defined], notes


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
    models: Sequence[str] | None = None,
    baseline: Sequence[bool] | BoolArray | Sequence[str] | None = None,
    unit: str | None = None,
    **options: Any,
) -> PiecewiseFit:
    """Two separate fits, of the baseline models with x < pivot and of those with x > pivot.

    Without ``pivot`` it is the x of the baseline model whose y is exactly 0 (the highest, if there are several),
    as in the testbed's tables; models with x equal to the pivot belong to neither side.

    Args:
        x: Accuracies without shift: an array, or a mapping from model to accuracy.
        y: Accuracies under shift, likewise.
        pivot: x between the two sides; default: that of the baseline model whose y is 0.
        models: Names of the models, if the accuracies are not given by name.
        baseline: The models that the line is fitted to, by name or as one boolean per model; default: all.
        unit: ``"percent"`` or ``"fraction"``; default: recognised from the values.
        options: Others of ``fit``: scale, level, resamples, seed, procedure.

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
    sides = []
    for side, name in ((xs < pivot, "below"), (xs > pivot, "above")):
        try:
            sides.append(fit(xs, ys, models=names, baseline=chosen & side, unit=unit, **options))
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


# Does robustness to one shift go with robustness to another? (001 section 4.2 and appendix I)


@dataclass(frozen=True)
class Correlation:
    """Of two measures over n models; an interval is None where n is too small for one.

    Attributes:
        n: Number of models.
        pearson: Pearson's r.
        pearson_interval: Its interval.
        pearson_p: Its p-value.
        spearman: Spearman's rank correlation.
        spearman_interval: Its interval.
        spearman_p: Its p-value.
        level: Confidence level of the intervals.
        models: The models that have both values.
        notes: What a reader must know about the numbers.
    """

    n: int
    pearson: float
    pearson_interval: Interval | None
    pearson_p: float
    spearman: float
    spearman_interval: Interval | None
    spearman_p: float
    level: float
    models: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        data = asdict(self)
        for key in ("pearson_interval", "spearman_interval"):
            data[key] = list(data[key]) if data[key] else None
        return {**data, "models": list(self.models), "notes": list(self.notes)}


def correlate(
    x: Accuracies,
    y: Accuracies,
    *,
    models: Sequence[str] | None = None,
    over: Sequence[bool] | Sequence[str] | None = None,
    level: float = 0.95,
) -> Correlation:
    """Pearson and Spearman over the models that have both values.

    For effective robustness pass two ``.rho`` mappings and ``over``, the non-standard models (a mask or names):
    the standard ones lie on both lines by construction and would only blur the answer.

    Args:
        x: One measure: an array, or a mapping from model to value.
        y: The other measure, likewise.
        models: Names of the models, if the accuracies are not given by name.
        over: Only these models: one boolean per model, or names.
        level: Confidence level of the intervals.

    Example:
        >>> result = correlate([1.0, 2.0, 3.0, 4.0, 6.0], [1.1, 1.9, 3.2, 3.9, 4.1])
        >>> round(result.pearson, 3), round(result.spearman, 3), result.n
        (0.926, 1.0, 5)
    """
    from scipy.stats import pearsonr, spearmanr

    names, (xs, ys) = named_values([x, y], models)
    chosen = _over(names, over)
    known = chosen & np.isfinite(xs) & np.isfinite(ys)
    notes = []
    lost = [name for name, out in zip(names, chosen & ~known, strict=True) if out]
    if lost:
        notes.append(f"left out, a value is missing: {count_of(len(lost), 'model')} ({listed(lost)})")
    a, b = xs[known], ys[known]
    _check(a, b, notes)
    r, rank = pearsonr(a, b), spearmanr(a, b)
    rank_value = float(np.clip(rank.statistic, -1.0, 1.0))
    if len(a) < 4:
        notes.append("no interval: it needs four models or more")
    return Correlation(
        n=len(a), pearson=float(r.statistic), pearson_interval=fisher_interval(float(r.statistic), len(a), level),
        pearson_p=float(r.pvalue), spearman=rank_value,
        spearman_interval=fisher_interval(rank_value, len(a), level, spread=1.0 + rank_value**2 / 2.0),
        spearman_p=float(rank.pvalue) if len(a) > 2 else 1.0, level=level,
        models=tuple(name for name, here in zip(names, known, strict=True) if here), notes=tuple(notes),
    )  # fmt: skip


def fisher_interval(r: float, n: int, level: float, *, spread: float = 1.0) -> Interval | None:
    """tanh(artanh(r) ± z sqrt(spread / (n - 3))); [r, r] at r = ±1, None for n < 4.

    >>> [round(end, 3) for end in fisher_interval(0.5, 50, 0.95)]
    [0.257, 0.683]
    """
    from scipy.special import ndtri

    if n < 4:
        return None
    if abs(r) >= 1.0:
        return Interval(r, r)
    half = float(ndtri((1.0 + level) / 2.0)) * np.sqrt(spread / (n - 3))
    return Interval(float(np.tanh(np.arctanh(r) - half)), float(np.tanh(np.arctanh(r) + half)))


def _over(names: Sequence[str], over: Sequence[bool] | Sequence[str] | None) -> BoolArray:
    if over is not None and np.asarray(over).dtype != np.bool_:
        over = [name for name in names if name in over]
    return baseline_mask(names, over)


def _check(a: FloatArray, b: FloatArray, notes: Sequence[str]) -> None:
    if len(a) < 2:
        raise StudyError(
            "a correlation needs at least two models with both values",
            found="; ".join([count_of(len(a), "model"), *notes]),
        )
    for name, values in (("first", a), ("second", b)):
        if np.ptp(values) == 0:
            raise StudyError(
                f"the {name} measure is the same for all models: no correlation is defined",
                found=f"{values[0]:g} for {count_of(len(values), 'model')}",
            )
