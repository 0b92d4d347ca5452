"""Effective robustness with the images resampled, from stored predictions.

One draw resamples the images of x and of y, once for all models (an image that is hard for one model is hard for
others), and computes every accuracy, the line and every rho. Where x and y are the same images, clean and shifted, the
same draw serves both, so that the noise they share cancels. The intervals are percentiles over the draws.

A line can have a knee: both of its sides see the same draws of images, because the draws depend on the seed alone. The
pivot stays where the accuracies put it: a test set is filtered by a model once, not again with every draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any

import numpy as np

from shiftbench.arrays import BoolArray, FloatArray
from shiftbench.errors import listed
from shiftbench.metrics.bootstrap import percentile_interval, resampled_means
from shiftbench.metrics.intervals import Interval
from shiftbench.metrics.paired import aligned
from shiftbench.store.predictions import Predictions
from shiftbench.studies.base import FRACTION, Scale, StudyError, check_unique, get_scale, numbered
from shiftbench.studies.fits import BaselineModels, Fit, PiecewiseFit, fit
from shiftbench.studies.robustness import EffectiveRobustness, effective_rows
from shiftbench.studies.study import ShiftAxes, Study

#: ``Fit.procedure`` of a line whose intervals come from resampled images.
IMAGES = "images"


@dataclass(frozen=True)
class ImageBootstrap:
    """The line and rho with intervals from resampling images (and models, where asked)."""

    effective: EffectiveRobustness
    slope_interval: Interval
    intercept_interval: Interval
    resamples: int
    seed: int
    #: Whether x and y were drawn together because they are the same images.
    paired: bool

    @property
    def line(self) -> Fit:
        assert isinstance(self.effective.line, Fit)
        return self.effective.line

    @property
    def drawn_line(self) -> Fit:
        """The line, its coefficients with the intervals of the draws."""
        return replace(
            self.line,
            slope_interval=self.slope_interval,
            intercept_interval=self.intercept_interval,
            resamples=self.resamples,
            seed=self.seed,
            procedure=IMAGES,
        )


def image_bootstrap(
    hits_x: BoolArray,
    hits_y: BoolArray,
    *,
    models: Sequence[str] | None = None,
    baseline: BaselineModels | None = None,
    scale: str = "logit",
    paired: bool = False,
    over_models: bool = False,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> ImageBootstrap:
    """rho and the line from hits, (models, images) of either setting.

    ``paired`` says that image i of x and image i of y are the same image. ``over_models`` also resamples the
    baseline models, as the fit's own interval does; without it the models are fixed.
    """
    names = numbered(hits_x) if models is None else list(models)
    _check_shapes(hits_x, hits_y, names, paired)
    x = hits_x.mean(axis=1)
    y = hits_y.mean(axis=1)
    line = fit(x, y, scale=scale, models=names, baseline=baseline, unit=FRACTION, level=level, resamples=0)
    fitted = np.isin(names, line.models)
    drawn_x = resampled_means(hits_x.T, resamples=resamples, seed=seed)
    drawn_y = resampled_means(hits_y.T, resamples=resamples, seed=seed if paired else seed + 1)
    axis = get_scale(scale)
    rng = np.random.default_rng(seed + 2) if over_models else None
    lines = _lines(axis, drawn_x[:, fitted], drawn_y[:, fitted], rng)
    rho = drawn_y - axis.inverse(lines[:, :1] * axis.forward(drawn_x) + lines[:, 1:])
    notes = list(line.notes)
    lost = int((~np.isfinite(lines[:, 0])).sum())
    if lost:
        notes.append(f"{lost} of {resamples} draws gave no line (an accuracy of 0 or 1) and were left out")
    if lost > resamples // 2:
        raise StudyError("more than half of the draws give no line", found=notes[-1], hint="use the linear scale")
    rows = effective_rows(names, x, y, *percentile_interval(rho, level), line)
    return ImageBootstrap(
        effective=EffectiveRobustness(line, rows, level, _sources(paired, over_models), tuple(notes)),
        slope_interval=_interval(lines[:, 0], level),
        intercept_interval=_interval(lines[:, 1], level),
        resamples=resamples,
        seed=seed,
        paired=paired,
    )


def _check_shapes(hits_x: BoolArray, hits_y: BoolArray, names: Sequence[str], paired: bool) -> None:
    for hits in (hits_x, hits_y):
        if hits.ndim != 2 or len(hits) != len(names):
            shapes = f"shapes {hits_x.shape} and {hits_y.shape} for {len(names)} models"
            raise StudyError("hits must be (models, images) for the same models", found=shapes)
    if paired and hits_x.shape != hits_y.shape:
        counts = f"{hits_x.shape[1]} and {hits_y.shape[1]} images"
        raise StudyError("paired settings have the same images", found=counts)


def _sources(paired: bool, over_models: bool) -> str:
    """What the intervals of rho contain, for readers."""
    sources = "images"
    if paired:
        sources += " (the same for x and y)"
    if over_models:
        sources += ", models"
    return sources


def _interval(samples: FloatArray, level: float) -> Interval:
    low, high = percentile_interval(samples, level)
    return Interval(float(low), float(high))


def image_bootstrap_of(x: Sequence[Predictions], y: Sequence[Predictions], **options: Any) -> ImageBootstrap:
    """``image_bootstrap`` of stored predictions in two settings.

    It is over the classifiers that have both settings, on the images that count for all of them. The image ids show
    whether the settings have the same images.
    """
    x_by_model = _by_model(x)
    y_by_model = _by_model(y)
    names = [name for name in x_by_model if name in y_by_model]
    if len(names) < 2:
        raise StudyError("fewer than two models have both settings", found=listed(names) or "none")
    hits_x, ids_x = common_hits([x_by_model[name] for name in names])
    hits_y, ids_y = common_hits([y_by_model[name] for name in names])
    ids_of_y = set(ids_y)
    shared = [image_id for image_id in ids_x if image_id in ids_of_y]
    notes: tuple[str, ...] = ()
    if shared and ids_x != ids_y:
        notes = (f"x and y share {len(shared):,} images; both accuracies are on those",)
        hits_x = _columns(hits_x, ids_x, shared)
        hits_y = _columns(hits_y, ids_y, shared)
    result = image_bootstrap(hits_x, hits_y, models=names, paired=bool(shared), **options)
    return replace(result, effective=replace(result.effective, notes=(*result.effective.notes, *notes)))


def _by_model(predictions: Sequence[Predictions]) -> dict[str, Predictions]:
    check_unique([entry.classifier for entry in predictions])
    return {entry.classifier: entry for entry in predictions}


def _columns(hits: BoolArray, ids: Sequence[str], selected: Sequence[str]) -> BoolArray:
    """The hits on the selected images, in their order."""
    positions = {image_id: i for i, image_id in enumerate(ids)}
    return hits[:, [positions[image_id] for image_id in selected]]


def image_bootstrap_of_shift(
    study: Study, shift: ShiftAxes, x: Sequence[Predictions], y: Sequence[Predictions], *, scale: str, **options: object
) -> EffectiveRobustness:
    """rho of every classifier, and the line or two lines of the shift, with intervals from resampled images.

    ``x`` and ``y`` are the predictions in the shift's two settings. Which models are fitted, and where the knee
    is, follows from the study's accuracies; ``options`` are those of ``image_bootstrap``.
    """
    line = study.fit(shift.x, shift.y, min_x=shift.min_x, pivot=shift.pivot, scale=scale, resamples=0)
    if isinstance(line, Fit):
        drawn = image_bootstrap_of(x, y, baseline=line.models, scale=scale, **options)
        return replace(drawn.effective, line=drawn.drawn_line)
    below = image_bootstrap_of(x, y, baseline=line.below.models, scale=scale, **options)
    above = image_bootstrap_of(x, y, baseline=line.above.models, scale=scale, **options)
    knee = PiecewiseFit(line.pivot, below.drawn_line, above.drawn_line, line.notes)
    rows = []
    for low, high in zip(below.effective.rows, above.effective.rows, strict=True):
        row = low if low.x <= line.pivot else high
        in_a_fit = low.baseline or high.baseline
        rows.append(replace(row, baseline=in_a_fit, extrapolated=bool(knee.extrapolates(low.x))))
    notes = dict.fromkeys([*below.effective.notes, *above.effective.notes])
    return replace(below.effective, line=knee, rows=tuple(rows), notes=tuple(notes))


def common_hits(predictions: Sequence[Predictions]) -> tuple[BoolArray, list[str]]:
    """(classifiers, images) top-1 hits on the images that count for every classifier, and their ids."""
    first = predictions[0]
    hits = []
    valid = np.ones(len(first), dtype=bool)
    for entry in predictions:
        order = aligned(first, entry)
        hits.append(entry.top[order, 0] == entry.labels[order])
        valid &= entry.valid[order]
    if not valid.any():
        raise StudyError(f"no image of {first.setting!r} counts for all models")
    return np.array(hits)[:, valid], list(compress(first.ids, valid))


def _lines(axis: Scale, x: FloatArray, y: FloatArray, rng: np.random.Generator | None) -> FloatArray:
    """(B, 2) least-squares lines, one for each row of accuracies; nan where a point has no place on the scale.

    With a generator, every row draws its models again.
    """
    if rng is not None:
        index = rng.integers(0, x.shape[1], x.shape)
        x = np.take_along_axis(x, index, axis=1)
        y = np.take_along_axis(y, index, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        u = axis.forward(x)
        v = axis.forward(y)
        du = u - u.mean(axis=1, keepdims=True)
        dv = v - v.mean(axis=1, keepdims=True)
        slope = (du * dv).sum(axis=1) / (du * du).sum(axis=1)
        lines = np.column_stack([slope, v.mean(axis=1) - slope * u.mean(axis=1)])
    lines[~np.isfinite(lines).all(axis=1)] = np.nan
    return lines
