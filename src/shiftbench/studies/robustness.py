"""Effective and relative robustness (001 section 2), each with an interval.

Effective robustness is what a model has beyond its accuracy: rho = y - beta(x), with beta the line of the
baseline models. Relative robustness is what an intervention gains under shift: tau = y(model) - y(base).
Only both together make an intervention useful.

The interval of rho has up to three independent sources: the images behind y, the images behind x, and the
models behind the line. Each gives an interval of its own (Clopper-Pearson for images, bootstrap for the line),
and they are put together by Zou and Donner's (2008) rule for a difference a - b,

    low = a - b - sqrt((a - low_a)² + (high_b - b)²),   high = a - b + sqrt((high_a - a)² + (b - low_b)²),

which keeps their asymmetry. It says how well rho is known, not whether it is unusual: ordinary models scatter about the
line. A model is beyond ordinary ones only outside the prediction interval of the line (``Fit.prediction``), widened by
its own images. Where x and y come from the same images (clean and corrupted) their errors are
positively tied and the interval is wider than needed, never narrower; with stored predictions the image
bootstrap (``shiftbench.studies.image_bootstrap``) takes the tie into account.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shiftbench.arrays import BoolArray, FloatArray
from shiftbench.errors import listed
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.studies.base import (
    Accuracies,
    StudyError,
    finite_or_none,
    left_out,
    named_values,
    recognise_unit,
    whole,
)
from shiftbench.studies.fits import BaselineModels, Line, fit


@dataclass(frozen=True)
class Effective:
    """One model's place relative to the line."""

    model: str
    x: float
    y: float
    #: beta(x): what a baseline model of that x would have.
    expected: float
    rho: float
    low: float
    high: float
    #: Whether the line was fitted through this model.
    baseline: bool
    #: Whether x lies outside the models that were fitted.
    extrapolated: bool
    #: Where the rho of an ordinary model of this x lies, measured on as many images; nan if that is not known.
    ordinary_low: float = math.nan
    ordinary_high: float = math.nan

    @property
    def is_above_ordinary(self) -> bool:
        """Whether the model is farther above the line than ordinary models are; never for one that was fitted."""
        return not self.baseline and self.rho > self.ordinary_high

    @property
    def is_below_ordinary(self) -> bool:
        return not self.baseline and self.rho < self.ordinary_low

    @property
    def is_ordinary(self) -> bool:
        """Whether the scatter of ordinary models about the line is known, and includes this model."""
        known = not math.isnan(self.ordinary_low)
        return known and not self.is_above_ordinary and not self.is_below_ordinary


@dataclass(frozen=True)
class EffectiveRobustness:
    """rho of every model with both accuracies, the line, and what was left out.

    Attributes:
        line: The line that rho is the distance from.
        rows: One entry per model.
        level: Confidence level of the intervals.
        sources: What the intervals of rho contain, such as "images of y, images of x, fit".
        notes: What a reader must know about the numbers.
    """

    line: Line
    rows: tuple[Effective, ...]
    level: float
    sources: str
    notes: tuple[str, ...] = ()

    @property
    def rho(self) -> dict[str, float]:
        """By model."""
        return {row.model: row.rho for row in self.rows}

    def __getitem__(self, model: str) -> Effective:
        for row in self.rows:
            if row.model == model:
                return row
        raise StudyError(f"no effective robustness of {model!r}", found=f"{len(self.rows)} other models")

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "fit": self.line.as_dict(),
            "level": self.level,
            "sources": self.sources,
            "models": [row_data(row) for row in self.rows],
            "notes": list(self.notes),
        }


def row_data(row: Effective | Relative) -> dict[str, object]:
    """A row for JSON; None where a number does not exist."""
    fields: dict[str, object] = {}
    for name, value in asdict(row).items():
        fields[name] = finite_or_none(value) if isinstance(value, float) else value
    return fields


def effective_robustness(
    x: Accuracies,
    y: Accuracies,
    line: Line | None = None,
    *,
    models: Sequence[str] | None = None,
    baseline: BaselineModels | None = None,
    n_x: ArrayLike | None = None,
    n_y: ArrayLike | None = None,
    level: float = 0.95,
    unit: str | None = None,
    **fit_options: Any,
) -> EffectiveRobustness:
    """rho = y - beta(x) for every model, in the unit of the accuracies (percent in, points out).

    ``line`` is a fit made before; without it one is made through ``baseline`` with ``fit_options`` (``scale``,
    ``resamples``, ...). ``n_x`` and ``n_y`` are the numbers of images behind the accuracies, one for all models
    or one each; what is not given does not enter the interval; ``sources`` lists what did.

    Args:
        x: Accuracies without shift: an array, or a mapping from model to accuracy.
        y: Accuracies under shift, likewise.
        line: A fit made before; default: one through ``baseline``.
        models: Names of the models, if the accuracies are not given by name.
        baseline: The models that the line is fitted to, by name or as one boolean per model; default: all.
        n_x: Images behind the accuracies without shift, one number or one per model.
        n_y: Images behind the accuracies under shift.
        level: Confidence level of the intervals.
        unit: ``"percent"`` or ``"fraction"``; default: recognised from the values.
        fit_options: Options of ``fit``, if no line is given.

    Example:
        >>> x, y = [56.5, 69.8, 76.1, 82.7, 79.0], [44.0, 57.2, 63.3, 72.1, 71.0]
        >>> result = effective_robustness(x, y, models=list("abcde"), baseline=list("abcd"), n_y=10_000)
        >>> round(result["e"].rho, 2), result.sources
        (3.73, 'images of y, fit')
    """
    names, (xs, ys) = named_values([x, y], models)
    if line is None:
        line = fit(xs, ys, models=names, baseline=baseline, unit=unit, level=level, **fit_options)
    elif fit_options or baseline is not None:
        raise StudyError("a line and options for making one", found=", ".join(["baseline", *fit_options][:3]))
    unit = recognise_unit({"x": xs, "y": ys}, unit)
    if unit != line.unit:
        raise StudyError(
            "percent against fraction",
            found=f"accuracies in {unit}, a line in {line.unit}",
            hint=f"if the accuracies are in that unit, pass unit={line.unit!r}",
        )
    complete = ~(np.isnan(xs) | np.isnan(ys))
    notes = left_out("no rho, a value is missing", list(compress(names, ~complete)))
    names = list(compress(names, complete))
    xs = xs[complete]
    ys = ys[complete]
    sizes_x = _image_counts(n_x, complete)
    sizes_y = _image_counts(n_y, complete)
    unsized = np.zeros(len(names), dtype=bool)
    for sizes in (sizes_x, sizes_y):
        if sizes is not None:
            unsized |= np.isnan(sizes)
    if unsized.any():
        unsized_names = listed(list(compress(names, unsized)))
        notes.append(f"no interval of rho, the number of images is not known: {unsized_names}")
    low, high, sources = _rho_interval(xs, ys, line, sizes_x, sizes_y, level)
    rows = []
    by_images = _image_distances(xs, ys, line, sizes_x, sizes_y, level)
    for row, below, above in zip(effective_rows(names, xs, ys, low, high, line), *by_images, strict=True):
        rows.append(_widened(row, below, above))
    return EffectiveRobustness(line, tuple(rows), level, sources, tuple(notes))


def _widened(row: Effective, below: float, above: float) -> Effective:
    """The row, with the range of ordinary models widened by what the images leave open."""
    return replace(
        row, ordinary_low=-math.hypot(row.ordinary_low, above), ordinary_high=math.hypot(row.ordinary_high, below)
    )


def _image_counts(n: ArrayLike | None, complete: BoolArray) -> FloatArray | None:
    """The number of images of every complete model, from one number or one per model."""
    if n is None:
        return None
    return np.broadcast_to(np.asarray(n, float), complete.shape)[complete]


def effective_rows(
    names: Sequence[str], x: FloatArray, y: FloatArray, low: FloatArray, high: FloatArray, line: Line
) -> tuple[Effective, ...]:
    """One entry per model."""
    fitted = set(line.models)
    outside = line.extrapolates(x)
    expected = line.predict(x)
    ordinary_low = np.full(len(names), np.nan)
    ordinary_high = np.full(len(names), np.nan)
    ordinary = line.prediction(x)
    if ordinary is not None:
        ordinary_low = ordinary.low - expected
        ordinary_high = ordinary.high - expected
    rows = []
    for i, name in enumerate(names):
        row = Effective(
            model=name,
            x=float(x[i]),
            y=float(y[i]),
            expected=float(expected[i]),
            rho=float(y[i] - expected[i]),
            low=float(low[i]),
            high=float(high[i]),
            baseline=name in fitted,
            extrapolated=bool(outside[i]),
            ordinary_low=float(ordinary_low[i]),
            ordinary_high=float(ordinary_high[i]),
        )
        rows.append(row)
    return tuple(rows)


def _rho_interval(
    x: FloatArray, y: FloatArray, line: Line, n_x: FloatArray | None, n_y: FloatArray | None, level: float
) -> tuple[FloatArray, FloatArray, str]:
    """Low and high end by Zou and Donner's rule over the sources that are known, and their names; nan if none is."""
    down, up = _image_distances(x, y, line, n_x, n_y, level)
    sources = []
    if n_y is not None:
        sources.append("images of y")
    if n_x is not None:
        sources.append("images of x")
    expected = line.predict(x)
    band = line.band(x, level=level)
    if band is not None:
        down = np.hypot(down, band.high - expected)
        up = np.hypot(up, expected - band.low)
        sources.append("fit")
    if not sources:
        unknown = np.full(len(x), np.nan)
        return unknown, unknown, "none: no image counts, and no resamples of the fit"
    rho = y - expected
    return rho - down, rho + up, ", ".join(sources)


def _image_distances(
    x: FloatArray, y: FloatArray, line: Line, n_x: FloatArray | None, n_y: FloatArray | None, level: float
) -> tuple[FloatArray, FloatArray]:
    """How far below and above rho the images of both accuracies leave the truth; 0 where their number is not given."""
    size = whole(line.unit)
    expected = line.predict(x)
    down = np.zeros(len(x))
    up = np.zeros(len(x))
    if n_y is not None:
        low, high = accuracy_interval(y, n_y, line.unit, level)
        down = np.hypot(down, y - low)
        up = np.hypot(up, high - y)
    if n_x is not None:
        low, high = accuracy_interval(x, n_x, line.unit, level)
        # The ends of the axis have no logit; as far as the line is concerned just inside is the same.
        heights = [line.predict(np.clip(end, 1e-12 * size, (1 - 1e-12) * size)) for end in (low, high)]
        # A falling line is lowest at the high end of x.
        down = np.hypot(down, np.maximum(*heights) - expected)
        up = np.hypot(up, expected - np.minimum(*heights))
    return down, up


def accuracy_interval(value: FloatArray, n: FloatArray, unit: str, level: float) -> tuple[FloatArray, FloatArray]:
    """Clopper-Pearson with k = accuracy * n as it comes, because published accuracies are rounded.

    Both ends are nan where the accuracy or the number of images is nan.
    """
    size = whole(unit)
    unknown = np.isnan(value) | np.isnan(n)
    share = np.where(unknown, 0.0, value / size)
    total = np.where(unknown, 1.0, n)
    low, high = clopper_pearson(share * total, total, level)
    return np.where(unknown, np.nan, low * size), np.where(unknown, np.nan, high * size)


@dataclass(frozen=True)
class Relative:
    """One model against the model it was made from."""

    model: str
    base: str
    y: float
    y_base: float
    tau: float
    low: float
    high: float


@dataclass(frozen=True)
class RelativeRobustness:
    """tau of every model whose base is known and has an accuracy.

    Attributes:
        unit: Unit of the accuracies.
        rows: One entry per model.
        level: Confidence level of the intervals.
        notes: What a reader must know about the numbers.
    """

    unit: str
    rows: tuple[Relative, ...]
    level: float
    notes: tuple[str, ...] = ()

    @property
    def tau(self) -> dict[str, float]:
        return {row.model: row.tau for row in self.rows}

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "unit": self.unit,
            "level": self.level,
            "models": [row_data(row) for row in self.rows],
            "notes": list(self.notes),
        }


def relative_robustness(
    y: Accuracies,
    base: Mapping[str, str],
    *,
    models: Sequence[str] | None = None,
    n_y: ArrayLike | None = None,
    level: float = 0.95,
    unit: str | None = None,
) -> RelativeRobustness:
    """tau = y(model) - y(base model), for the models that ``base`` names a base for.

    With ``n_y`` images the interval combines both Clopper-Pearson intervals as if the images were different
    ones; on the same images ``shiftbench.metrics.paired.compare`` is sharper.

    Args:
        y: Accuracies under shift: an array, or a mapping from model to accuracy.
        base: From a model to the model it was made from.
        models: Names of the models, if the accuracies are not given by name.
        n_y: Images behind the accuracies, one number or one per model.
        level: Confidence level of the intervals.
        unit: ``"percent"`` or ``"fraction"``; default: recognised from the values.

    Example:
        >>> result = relative_robustness({"resnet50": 63.3, "resnet50_swsl": 70.4}, {"resnet50_swsl": "resnet50"})
        >>> round(result.tau["resnet50_swsl"], 1)
        7.1
    """
    names, (ys,) = named_values([y], models)
    unit = recognise_unit({"y": ys}, unit)
    index = {name: i for i, name in enumerate(names)}
    sizes = np.broadcast_to(np.nan if n_y is None else np.asarray(n_y, dtype=np.float64), ys.shape)
    lows, highs = accuracy_interval(ys, sizes, unit, level)
    rows = []
    incomplete = []
    for i, name in enumerate(names):
        base_name = base.get(name)
        if not base_name:
            continue
        j = index.get(base_name)
        if j is None or np.isnan(ys[i]) or np.isnan(ys[j]):
            incomplete.append(f"{name} -> {base_name}")
            continue
        tau = float(ys[i] - ys[j])
        down = np.hypot(ys[i] - lows[i], highs[j] - ys[j])
        up = np.hypot(highs[i] - ys[i], ys[j] - lows[j])
        rows.append(Relative(name, base_name, float(ys[i]), float(ys[j]), tau, float(tau - down), float(tau + up)))
    notes = left_out("no tau, model or base has no value", incomplete, "pair")
    return RelativeRobustness(unit, tuple(rows), level, tuple(notes))


def sentence(result: EffectiveRobustness, model: str) -> str:
    """One sentence for people: where a model lies relative to the line."""
    row = result[model]
    points = 100.0 / whole(result.line.unit)
    above = row.rho >= 0
    side = "above" if above else "below"
    text = f"{model} lies {abs(row.rho) * points:.1f} points {side} the line"
    if not np.isnan(row.low):
        low, high = (row.low, row.high) if above else (-row.high, -row.low)
        text += f" [{low * points:.1f}, {high * points:.1f}]"
    return f"{text}{beside_ordinary_models(row, points)}"


def beside_ordinary_models(row: Effective, points: float) -> str:
    """How a distance from the line compares with those of ordinary models; ``points`` are those of one unit.

    >>> row = Effective("mine", 0.7, 0.6, 0.58, 0.02, 0.01, 0.03, False, False, ordinary_low=-0.03, ordinary_high=0.025)
    >>> beside_ordinary_models(row, 100)
    ', as ordinary models do (-3.0 to +2.5)'
    """
    if row.baseline or math.isnan(row.ordinary_low):
        return ""
    spread = f"{row.ordinary_low * points:+.1f} to {row.ordinary_high * points:+.1f}"
    if row.is_ordinary:
        return f", as ordinary models do ({spread})"
    return f", beyond ordinary models ({spread})"
