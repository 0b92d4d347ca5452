"""Effective robustness with the images resampled, from stored predictions.

One draw takes the images of x and of y anew, once for all models (an image that is hard for one is hard for others),
computes every accuracy, the line and every rho. Where x and y are the same images, clean and shifted, the same draw
serves both, so that what they share cancels. The intervals are percentiles over the draws.

A line can have a knee: both of its sides see the same draws of images, because the draws depend on the seed alone. The
pivot stays where the accuracies put it: a test set is filtered by a model once, not anew with every draw.
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
            self.line, slope_interval=self.slope_interval, intercept_interval=self.intercept_interval,
            resamples=self.resamples, seed=self.seed, procedure=IMAGES,
        )  # fmt: skip


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

    ``paired``: image i of x and image i of y are the same image. ``over_models`` also draws the
    baseline models anew, as the fit's own interval does; without it the models are taken as given.
    """
    names = list(models) if models is not None else numbered(hits_x)
    if any(hits.ndim != 2 or len(hits) != len(names) for hits in (hits_x, hits_y)):
        found = f"shapes {hits_x.shape} and {hits_y.shape} for {len(names)} models"
        raise StudyError("hits must be (models, images) for the same models", found=found)
    if paired and hits_x.shape != hits_y.shape:
        found = f"{hits_x.shape[1]} and {hits_y.shape[1]} images"
        raise StudyError("paired settings have the same images", found=found)
    x, y = hits_x.mean(axis=1), hits_y.mean(axis=1)
    line = fit(x, y, scale=scale, models=names, baseline=baseline, unit=FRACTION, level=level, resamples=0)
    fitted = np.array([name in set(line.models) for name in names])
    xs = resampled_means(hits_x.T, resamples=resamples, seed=seed)
    ys = resampled_means(hits_y.T, resamples=resamples, seed=seed if paired else seed + 1)
    axis, rng = get_scale(scale), np.random.default_rng(seed + 2) if over_models else None
    lines = _lines(axis, xs[:, fitted], ys[:, fitted], rng)
    rho = ys - axis.inverse(lines[:, :1] * axis.forward(xs) + lines[:, 1:])
    notes = list(line.notes)
    if lost := int((~np.isfinite(lines[:, 0])).sum()):
        notes.append(f"{lost} of {resamples} draws gave no line (an accuracy of 0 or 1) and were left out")
    if lost > resamples // 2:
        raise StudyError("more than half of the draws give no line", found=notes[-1], hint="use the linear scale")
    rows = effective_rows(names, x, y, *percentile_interval(rho, level), line)
    sources = "images" + (" (the same for x and y)" if paired else "") + (", models" if over_models else "")
    ends = [Interval(*(float(end) for end in percentile_interval(lines[:, i], level))) for i in (0, 1)]
    effective = EffectiveRobustness(line, rows, level, sources, tuple(notes))
    return ImageBootstrap(effective, ends[0], ends[1], resamples, seed, paired)


def image_bootstrap_of(x: Sequence[Predictions], y: Sequence[Predictions], **options: Any) -> ImageBootstrap:
    """The same from stored predictions of two settings: the classifiers that have both, on images that count
    for all of them. Whether the settings show the same images is seen from the image ids."""
    for side in (x, y):
        check_unique([one.classifier for one in side])
    by_name = [{one.classifier: one for one in side} for side in (x, y)]
    names = [name for name in by_name[0] if name in by_name[1]]
    if len(names) < 2:
        raise StudyError("fewer than two models have both settings", found=listed(names) or "none")
    (hits_x, ids_x), (hits_y, ids_y) = (common_hits([side[name] for name in names]) for side in by_name)
    notes: tuple[str, ...] = ()
    places = [{name: i for i, name in enumerate(ids)} for ids in (ids_x, ids_y)]
    shared = [name for name in ids_x if name in places[1]]
    if shared and ids_x != ids_y:
        notes = (f"x and y share {len(shared):,} images; both accuracies are on those",)
        hits_x, hits_y = (
            hits[:, [place[name] for name in shared]] for hits, place in zip((hits_x, hits_y), places, strict=True)
        )
    result = image_bootstrap(hits_x, hits_y, models=names, paired=bool(shared), **options)
    return replace(result, effective=replace(result.effective, notes=(*result.effective.notes, *notes)))


def image_bootstrap_of_shift(
    study: Study, shift: ShiftAxes, x: Sequence[Predictions], y: Sequence[Predictions], *, scale: str, **options: object
) -> EffectiveRobustness:
    """rho of every classifier, and the line or two lines of the shift, with intervals from resampled images.

    ``x`` and ``y`` are the predictions in the shift's two settings. Which models are fitted, and where the knee
    is, follows from the study's accuracies; ``options`` are those of ``image_bootstrap``.
    """
    line = study.fit(shift.x, shift.y, min_x=shift.min_x, pivot=shift.pivot, scale=scale, resamples=0)
    sides = (line,) if isinstance(line, Fit) else (line.below, line.above)
    found = [image_bootstrap_of(x, y, baseline=side.models, scale=scale, **options) for side in sides]
    first = found[0].effective
    if isinstance(line, Fit):
        return replace(first, line=found[0].drawn_line)
    knee = PiecewiseFit(line.pivot, found[0].drawn_line, found[1].drawn_line, line.notes)
    rows = [
        replace(
            low if low.x <= line.pivot else high,
            baseline=low.baseline or high.baseline,
            extrapolated=bool(knee.extrapolates(low.x)),
        )
        for low, high in zip(first.rows, found[1].effective.rows, strict=True)
    ]
    notes = dict.fromkeys([*first.notes, *found[1].effective.notes])
    return replace(first, line=knee, rows=tuple(rows), notes=tuple(notes))


def common_hits(predictions: Sequence[Predictions]) -> tuple[BoolArray, list[str]]:
    """(classifiers, images) top-1 hits on the images that count for every classifier, and their ids."""
    first = predictions[0]
    hits, valid = [], np.ones(len(first), dtype=bool)
    for one in predictions:
        order = aligned(first, one)
        hits.append(one.top[order, 0] == one.labels[order])
        valid &= one.valid[order]
    if not valid.any():
        raise StudyError(f"no image of {first.setting!r} counts for all models")
    return np.array(hits)[:, valid], list(compress(first.ids, valid))


def _lines(axis: Scale, x: FloatArray, y: FloatArray, rng: np.random.Generator | None) -> FloatArray:
    """(B, 2) least-squares lines, one for each row of accuracies; nan where a point has no place on the scale."""
    if rng is not None:
        index = rng.integers(0, x.shape[1], x.shape)
        x, y = np.take_along_axis(x, index, axis=1), np.take_along_axis(y, index, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        u, v = axis.forward(x), axis.forward(y)
        du, dv = u - u.mean(axis=1, keepdims=True), v - v.mean(axis=1, keepdims=True)
        slope = (du * dv).sum(axis=1) / (du * du).sum(axis=1)
        lines = np.column_stack([slope, v.mean(axis=1) - slope * u.mean(axis=1)])
    lines[~np.isfinite(lines).all(axis=1)] = np.nan
    return lines
