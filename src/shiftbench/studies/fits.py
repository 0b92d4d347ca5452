"""The line that models of one kind fall on: accuracy under shift as a function of accuracy without.

001 calls it the baseline beta: with s the logit (or probit, or nothing),

    s(y) = slope * s(x) + intercept,    beta(x) = s^-1(slope * s(x) + intercept),

by least squares over the baseline models (standard training). 004 fits the same line on the linear scale.
Its uncertainty is that of Student's t, which holds for few models as well, or comes from resampling the models as the
papers did.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftbench.arrays import BoolArray, FloatArray
from shiftbench.errors import listed
from shiftbench.metrics.intervals import Interval, Intervals
from shiftbench.studies.base import (
    Accuracies,
    Scale,
    StudyError,
    as_json,
    count_of,
    finite_or_none,
    get_scale,
    left_out,
    named_values,
    recognise_unit,
    whole,
)

RESAMPLES = 1000
#: Student's intervals of slope, intercept and line, which need no resamples.
STUDENT = "student"
#: Places of the scale farther out than this are 0 or 1.
_FARTHEST = 1e6
#: With fewer models than this an interval from resampling them is rough; a note is added.
FEW_MODELS = 8
#: The seed that the ImageNet testbed draws its resamples of models with.
TESTBED_SEED = 720257663
#: Drawn indices held at once.
_BLOCK_CELLS = 2_000_000
#: Heights of resampled lines held at once.
_BAND_CELLS = 32_000

#: Models by name, or one boolean per model.
BaselineModels = Sequence[bool] | BoolArray | Sequence[str]


@dataclass(frozen=True)
class Procedure:
    """How intervals are computed: by Student's t, or from resamples of the models and their percentiles.

    ``"student"``: no resamples. Percentiles of few models cover too little: with 4 to 12 models, bands that promise
    95 % hold 78 to 92 %. ``"shiftbench"``: numpy's default generator, seed 0, interpolated percentiles. ``"testbed"``:
    the ImageNet testbed's own, RandomState(720257663), percentiles 'lower' and 'higher' (001's bands).
    """

    name: str
    seed: int

    @classmethod
    def get(cls, name: str, seed: int | None) -> Procedure:
        seeds = {STUDENT: 0, "shiftbench": 0, "testbed": TESTBED_SEED}
        if name not in seeds:
            raise StudyError("unknown procedure", found=name, expected="student, shiftbench or testbed")
        if seed is None:
            seed = seeds[name]
        return cls(name, seed)

    def indices(self, n: int, resamples: int) -> Iterator[NDArray[np.intp]]:
        """Blocks of (resamples, n) drawn rows; the stream does not depend on the blocks."""
        block = max(1, _BLOCK_CELLS // n)
        # The testbed draws with numpy's old generator; one call for many rows gives the same stream.
        draw: Callable[[int, int, tuple[int, int]], NDArray[np.intp]]
        if self.name == "testbed":
            draw = np.random.RandomState(self.seed).randint
        else:
            draw = np.random.default_rng(self.seed).integers
        for start in range(0, resamples, block):
            yield draw(0, n, (min(block, resamples - start), n))

    def interval(self, samples: FloatArray, level: float) -> tuple[FloatArray, FloatArray]:
        """The central interval along the last axis: numpy's percentiles, from one partition for both ends."""
        _check_level(level)
        last = samples.shape[-1] - 1
        # Rounded, so that 95 % leaves 2.5 % and not 2.5000000000000022 %.
        tail = round((1.0 - level) / 2.0, 12)
        low_rank = tail * last
        high_rank = (1.0 - tail) * last
        neighbours = {math.floor(low_rank), math.ceil(low_rank), math.floor(high_rank), math.ceil(high_rank)}
        parted = np.partition(samples, sorted(neighbours), axis=-1)
        if self.name == "testbed":
            return np.asarray(parted[..., math.floor(low_rank)]), np.asarray(parted[..., math.ceil(high_rank)])
        return _interpolated(parted, low_rank), _interpolated(parted, high_rank)


def _interpolated(parted: FloatArray, rank: float) -> FloatArray:
    """The value at a rank between two entries of the last axis, which a partition has put in their places."""
    below = parted[..., math.floor(rank)]
    above = parted[..., math.ceil(rank)]
    return np.asarray(below + (above - below) * (rank - math.floor(rank)))


def _check_level(level: float) -> None:
    if not 0.0 < level < 1.0:
        raise StudyError("invalid confidence level", found=level, expected="between 0 and 1, such as 0.95")


def resampled_lines(u: FloatArray, v: FloatArray, procedure: Procedure, resamples: int) -> FloatArray:
    """(B, 2): slope and intercept of every resample; nan where all its points have one u.

    Least squares needs of a resample only its sums of u, v, u² and uv. They are taken for many resamples at once, on
    centred values so that nothing cancels: 100,000 resamples of 78 models take a fraction of a second.
    """
    n = len(u)
    centre_u = u.mean()
    centre_v = v.mean()
    du = u - centre_u
    dv = v - centre_v
    flat = 1e-12 * float(du @ du)
    blocks = []
    for index in procedure.indices(n, resamples):
        drawn_u = du[index]
        drawn_v = dv[index]
        mean_u = drawn_u.mean(axis=1)
        mean_v = drawn_v.mean(axis=1)
        suu = np.einsum("bn,bn->b", drawn_u, drawn_u) - n * mean_u**2
        suv = np.einsum("bn,bn->b", drawn_u, drawn_v) - n * mean_u * mean_v
        slope = np.divide(suv, suu, out=np.full(len(index), np.nan), where=suu > flat)
        blocks.append(np.column_stack([slope, (centre_v + mean_v) - slope * (centre_u + mean_u)]))
    return np.concatenate(blocks)


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
        resamples: Number of bootstrap resamples; 0 if there are none.
        seed: Seed of all random numbers.
        procedure: How the intervals were computed; see ``Procedure``.
        notes: What a reader must know about the numbers.
        scatter: Standard deviation of the models about the line, on the scale; nan for two models.
        centre: Mean x of the models, on the scale.
        spread: Sum of the squared distances of the models' x from it.
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
    scatter: float = math.nan
    centre: float = 0.0
    spread: float = math.nan
    lines: FloatArray = field(repr=False, compare=False, default_factory=lambda: np.empty((0, 2)))

    def predict(self, x: ArrayLike) -> FloatArray:
        """beta(x), in the unit of the accuracies; nan stays nan."""
        return self._from_scale(self.slope * self._to_scale(x) + self.intercept)

    def band(self, x: ArrayLike, *, level: float | None = None) -> Intervals | None:
        """Interval of beta(x) at each x; None for a line without intervals."""
        if self.slope_interval is None:
            return None
        if level is None:
            level = self.level
        if self.procedure == STUDENT:
            # An accuracy of 0 or 1 has no place on a logit scale, but the line ends there all the same.
            places = np.clip(np.atleast_1d(self._to_scale(x)), -_FARTHEST, _FARTHEST)
            return self._student_interval(places, level, of_models=0.0)
        points = np.atleast_1d(self._to_scale(x))
        procedure = Procedure(self.procedure, self.seed)
        low = np.empty(len(points))
        high = np.empty(len(points))
        slopes, intercepts = np.ascontiguousarray(self.lines.T)
        # A few points at a time: what fits the processor's cache is several times faster, and memory stays bounded.
        step = max(1, _BAND_CELLS // len(self.lines))
        for start in range(0, len(points), step):
            block = slice(start, start + step)
            heights = points[block, None] * slopes + intercepts
            low[block], high[block] = procedure.interval(heights, level)
        return Intervals(self._from_scale(low), self._from_scale(high))

    def prediction(self, x: ArrayLike, *, level: float | None = None) -> Intervals | None:
        """Where an ordinary model of each x lies: Student's interval for one more model of the same kind.

        The band holds the line, this interval the models: they scatter about the line, however well it is known. None
        where two models determine the line exactly.
        """
        if math.isnan(self.scatter):
            return None
        if level is None:
            level = self.level
        return self._student_interval(np.atleast_1d(self._to_scale(x)), level, of_models=1.0)

    def _student_interval(self, points: FloatArray, level: float, *, of_models: float) -> Intervals:
        """Student's interval of the line at places of the scale, or, with 1 for ``of_models``, of one more model."""
        from scipy.special import stdtrit  # here, so that importing fits stays light

        _check_level(level)
        leverage = of_models + 1 / self.n + np.square(points - self.centre) / self.spread
        half_width = float(stdtrit(self.n - 2, (1 + level) / 2)) * self.scatter * np.sqrt(leverage)
        middle = self.slope * points + self.intercept
        with np.errstate(invalid="ignore"):  # an accuracy of 0 or 1 has no place on a logit scale
            low = self._from_scale(middle - half_width)
            high = self._from_scale(middle + half_width)
        return Intervals(low, high)

    def grid(self, points: int = 200, limits: tuple[float, float] | None = None) -> FloatArray:
        """x values evenly spaced on the scale, for drawing line and band."""
        first, last = self._to_scale(self.x_range if limits is None else limits)
        return self._from_scale(np.linspace(first, last, points))

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
            "slope_interval": _as_list(self.slope_interval),
            "intercept": self.intercept,
            "intercept_interval": _as_list(self.intercept_interval),
            "r2": finite_or_none(self.r2),
            "scatter": finite_or_none(self.scatter),
            "n": self.n,
            "level": self.level,
            "resamples": self.resamples,
            "seed": self.seed,
            "procedure": self.procedure,
            "x_range": list(self.x_range),
            "baseline_models": list(self.models),
            "notes": list(self.notes),
        }

    @property
    def _size(self) -> float:
        """What accuracies are divided by on the scale's axis."""
        return 1.0 if self.scale == "linear" else whole(self.unit)

    def _to_scale(self, x: ArrayLike) -> FloatArray:
        return get_scale(self.scale).forward(np.asarray(x, dtype=np.float64) / self._size)

    def _from_scale(self, value: FloatArray) -> FloatArray:
        return get_scale(self.scale).inverse(value) * self._size


def _as_list(interval: Interval | None) -> list[float] | None:
    return None if interval is None else list(interval)


def fit(
    x: Accuracies,
    y: Accuracies,
    *,
    scale: str = "logit",
    models: Sequence[str] | None = None,
    baseline: BaselineModels | None = None,
    unit: str | None = None,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int | None = None,
    procedure: str = STUDENT,
) -> Fit:
    """Least squares of scaled y on scaled x over the baseline models (all, when not given).

    ``x`` and ``y`` are arrays, or mappings from model to accuracy; percent or fraction is recognised from both
    together (``recognise_unit``) and kept: percent in, percentage points out. ``baseline`` is a mask or a list
    of names. Models without x or y, and on the logit and probit scales models with accuracy exactly 0 or 1,
    can't be placed: they are left out and ``notes`` names them. Intervals are Student's. With ``procedure="testbed"``
    they are percentiles of the ImageNet testbed's own resamples, so that its published intervals come out to the
    digit; ``procedure="shiftbench"`` draws with numpy's present generator and interpolates the percentiles.

    Args:
        x: Accuracies without shift: an array, or a mapping from model to accuracy.
        y: Accuracies under shift, likewise.
        scale: ``"logit"``, ``"probit"`` or ``"linear"``.
        models: Names of the models, if the accuracies are not given by name.
        baseline: The models that the line is fitted to, by name or as one boolean per model; default: all.
        unit: ``"percent"`` or ``"fraction"``; default: recognised from the values.
        level: Confidence level of the intervals.
        resamples: Number of bootstrap resamples; with 0 there are no intervals, of Student's t either.
        seed: Seed of the resamples; default: the procedure's own.
        procedure: ``"student"``: Student's t; ``"testbed"`` repeats the published intervals; ``"shiftbench"`` draws
            with numpy's present generator.

    Example:
        >>> line = fit([56.5, 69.8, 76.1, 78.3, 82.7], [44.0, 57.2, 63.3, 67.0, 72.1], scale="logit")
        >>> round(line.slope, 3), round(line.r2, 3), line.n, line.unit
        (0.912, 0.998, 5, 'percent')
        >>> round(float(line.predict(80.0)), 2)
        68.65
    """
    _check_level(level)
    names, (xs, ys) = named_values([x, y], models)
    unit = recognise_unit({"x": xs, "y": ys}, unit)
    axis = get_scale(scale)
    drawn_by = Procedure.get(procedure, seed)
    size = whole(unit)
    in_baseline = baseline_mask(names, baseline)
    complete = ~(np.isnan(xs) | np.isnan(ys))
    placed = axis.usable(xs / size) & axis.usable(ys / size)
    notes = left_out("not fitted, a value is missing", list(compress(names, in_baseline & ~complete)))
    no_place = f"not fitted, an accuracy of exactly 0 or {size:g} has no {scale}"
    notes += left_out(no_place, list(compress(names, in_baseline & complete & ~placed)))
    used = in_baseline & placed
    fitted = list(compress(names, used))
    xs = xs[used]
    ys = ys[used]
    _check_determined(fitted, xs, axis, notes)
    if scale == "linear":
        size = 1.0  # the intercept then has the unit of the accuracies
    u = axis.forward(xs / size)
    v = axis.forward(ys / size)
    du = u - u.mean()
    dv = v - v.mean()
    suu = float(du @ du)
    suv = float(du @ dv)
    svv = float(dv @ dv)
    slope = suv / suu
    r2 = float("nan")
    if svv > 0:
        r2 = min(1.0, suv * suv / (suu * svv))
    if not np.isfinite(r2):
        notes.append("all models have the same y: r2 is not defined")
    scatter = math.nan
    if len(u) > 2:
        scatter = math.sqrt(max(svv - slope * suv, 0.0) / (len(u) - 2))
    lines = np.empty((0, 2))
    slope_interval = intercept_interval = None
    line_notes = _determined_exactly(u, v)
    if not line_notes and procedure == STUDENT and resamples:
        slope_interval, intercept_interval = _student_intervals(u, v, slope, scatter, level)
        resamples = 0
    elif not line_notes:
        lines, line_notes = _drawn_lines(u, v, drawn_by, resamples)
    if len(lines):
        slope_interval = Interval(*map(float, drawn_by.interval(lines[:, 0], level)))
        intercept_interval = Interval(*map(float, drawn_by.interval(lines[:, 1], level)))
    return Fit(
        scale=scale,
        unit=unit,
        slope=slope,
        intercept=float(v.mean() - slope * u.mean()),
        r2=r2,
        n=len(u),
        slope_interval=slope_interval,
        intercept_interval=intercept_interval,
        models=tuple(fitted),
        x_range=(float(xs.min()), float(xs.max())),
        level=level,
        resamples=resamples,
        seed=drawn_by.seed,
        procedure=procedure,
        notes=(*notes, *line_notes),
        scatter=scatter,
        centre=float(u.mean()),
        spread=suu,
        lines=lines,
    )


def _check_determined(fitted: Sequence[str], xs: FloatArray, axis: Scale, notes: Sequence[str]) -> None:
    """Raise an error if fewer than two models are left for a line, or if all have one x."""
    if len(fitted) < 2:
        expected = "two or more with both accuracies"
        if not axis.holds_ends:
            expected += ", neither 0 nor 1"
        raise StudyError(
            "a line needs at least two models",
            found="; ".join([count_of(len(fitted), "model"), *notes]),
            expected=expected,
        )
    if np.ptp(xs) == 0:
        raise StudyError(
            "all models have the same accuracy on the x axis: no line is determined",
            found=f"{xs[0]:g} for {listed(fitted)}",
            expected="models that differ",
        )


def _determined_exactly(u: FloatArray, v: FloatArray) -> list[str]:
    """A note if there are only two different points, which say nothing of how far models are from the line."""
    if len(set(zip(u.tolist(), v.tolist(), strict=True))) > 2:
        return []
    return ["two models, or copies of two, determine the line exactly: no interval"]


def _student_intervals(
    u: FloatArray, v: FloatArray, slope: float, scatter: float, level: float
) -> tuple[Interval, Interval]:
    """Student's intervals of slope and intercept."""
    from scipy.special import stdtrit

    spread = float(np.square(u - u.mean()).sum())
    quantile = float(stdtrit(len(u) - 2, (1 + level) / 2))
    of_slope = quantile * scatter / math.sqrt(spread)
    of_intercept = quantile * scatter * math.sqrt(1 / len(u) + float(u.mean()) ** 2 / spread)
    intercept = float(v.mean() - slope * u.mean())
    return Interval(slope - of_slope, slope + of_slope), Interval(intercept - of_intercept, intercept + of_intercept)


def _drawn_lines(u: FloatArray, v: FloatArray, procedure: Procedure, resamples: int) -> tuple[FloatArray, list[str]]:
    """(B, 2) lines of the resamples, and notes about them; no lines without resamples."""
    if resamples < 1:
        return np.empty((0, 2)), []
    notes = []
    drawn = resampled_lines(u, v, procedure, resamples)
    lines = drawn[np.isfinite(drawn[:, 0])]
    if lost := len(drawn) - len(lines):
        notes.append(f"{lost} of {resamples} resamples drew one x only and were left out")
    if len(u) < FEW_MODELS:
        notes.append(f"only {len(u)} models: the interval from resampling them is rough")
    return lines, notes


def baseline_mask(names: Sequence[str], baseline: BaselineModels | None) -> BoolArray:
    """Which models the line goes through, from a mask, a list of names, or nothing (all)."""
    if baseline is None:
        return np.ones(len(names), dtype=bool)
    mask = np.asarray(baseline)
    if mask.dtype == np.bool_:
        if mask.shape != (len(names),):
            raise StudyError(
                "the mask and the models differ in length", found=f"{mask.size} values for {len(names)} models"
            )
        return mask
    baseline_names = set(map(str, mask.tolist()))
    if unknown := sorted(baseline_names - set(names)):
        raise StudyError("baseline models without accuracies", found=listed(unknown), expected=f"of {listed(names)}")
    return np.array([name in baseline_names for name in names])


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
        """Interval of beta(x), by the line of its side; None for lines without intervals."""
        below = self.below.band(x, level=level)
        above = self.above.band(x, level=level)
        if below is None or above is None:
            return None
        return self._by_side(x, below, above)

    def prediction(self, x: ArrayLike, *, level: float | None = None) -> Intervals | None:
        """Where an ordinary model of each x lies, by the line of its side; None where a side has two models."""
        below = self.below.prediction(x, level=level)
        above = self.above.prediction(x, level=level)
        if below is None or above is None:
            return None
        return self._by_side(x, below, above)

    def _by_side(self, x: ArrayLike, below: Intervals, above: Intervals) -> Intervals:
        beyond = np.atleast_1d(np.asarray(x, dtype=np.float64)) > self.pivot
        return Intervals(np.where(beyond, above.low, below.low), np.where(beyond, above.high, below.high))

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
    baseline: BaselineModels | None = None,
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
    in_baseline = baseline_mask(names, baseline)
    if pivot is None:
        zeros = xs[in_baseline & (ys == 0) & ~np.isnan(xs)]
        if not len(zeros):
            hint = "give the pivot, such as ResNet-50's accuracy on the x axis"
            raise StudyError("no pivot: no baseline model has y = 0", hint=hint)
        pivot = float(zeros.max())
    notes = []
    at_pivot = list(compress(names, in_baseline & (xs == pivot)))
    if at_pivot:
        notes.append(f"on the pivot and in neither fit: {', '.join(at_pivot)}")
    sides = []
    for side, name in ((xs < pivot, "below"), (xs > pivot, "above")):
        try:
            sides.append(fit(xs, ys, models=names, baseline=in_baseline & side, unit=unit, **options))
        except StudyError as error:
            raise StudyError(f"no line {name} the pivot {pivot:g}: {error}") from error
        notes += [f"{name}: {note}" for note in sides[-1].notes]
    return PiecewiseFit(float(pivot), sides[0], sides[1], tuple(notes))


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
        return as_json(self)


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
    if over is not None and np.asarray(over).dtype != np.bool_:
        over = [name for name in names if name in over]
    selected = baseline_mask(names, over)
    used = selected & np.isfinite(xs) & np.isfinite(ys)
    notes = left_out("left out, a value is missing", list(compress(names, selected & ~used)))
    names = list(compress(names, used))
    xs = xs[used]
    ys = ys[used]
    n = len(names)
    if n < 2:
        remaining = "; ".join([count_of(n, "model"), *notes])
        raise StudyError("a correlation needs at least two models with both values", found=remaining)
    for name, values in (("first", xs), ("second", ys)):
        if np.ptp(values) == 0:
            raise StudyError(
                f"the {name} measure is the same for all models: no correlation is defined",
                found=f"{values[0]:g} for {count_of(n, 'model')}",
            )
    pearson = pearsonr(xs, ys)
    r = float(pearson.statistic)
    spearman = spearmanr(xs, ys)
    rank_r = float(np.clip(spearman.statistic, -1.0, 1.0))
    if n < 4:
        notes.append("no interval: it needs four models or more")
    return Correlation(
        n=n,
        pearson=r,
        pearson_interval=fisher_interval(r, n, level),
        pearson_p=float(pearson.pvalue),
        spearman=rank_r,
        spearman_interval=fisher_interval(rank_r, n, level, spread=1.0 + rank_r**2 / 2.0),
        spearman_p=float(spearman.pvalue) if n > 2 else 1.0,
        level=level,
        models=tuple(names),
        notes=tuple(notes),
    )


def fisher_interval(r: float, n: int, level: float, *, spread: float = 1.0) -> Interval | None:
    """tanh(artanh(r) ± z sqrt(spread / (n - 3))); [r, r] at r = ±1, None for n < 4."""
    from scipy.special import ndtri

    if n < 4:
        return None
    if abs(r) >= 1.0:
        return Interval(r, r)
    half = float(ndtri((1.0 + level) / 2.0)) * np.sqrt(spread / (n - 3))
    return Interval(float(np.tanh(np.arctanh(r) - half)), float(np.tanh(np.arctanh(r) + half)))
