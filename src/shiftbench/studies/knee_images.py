"""Resampled images for a shift as a study names it: with a threshold on x, and with a knee.

Both sides of a knee see the same draws of images, because the draws depend on the seed alone. The pivot stays
where the accuracies put it: a test set is filtered by a model once, not anew with every draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from shiftbench.store.predictions import Predictions
from shiftbench.studies.fits import Fit
from shiftbench.studies.image_bootstrap import ImageBootstrap, image_bootstrap_of
from shiftbench.studies.piecewise import PiecewiseFit
from shiftbench.studies.robustness import EffectiveRobustness
from shiftbench.studies.study import ShiftAxes, Study

#: What ``Fit.procedure`` says of a line whose intervals come from resampled images.
IMAGES = "images"


def image_bootstrap_of_shift(
    study: Study, shift: ShiftAxes, x: Sequence[Predictions], y: Sequence[Predictions], *, scale: str, **options: Any
) -> EffectiveRobustness:
    """rho of every classifier, and the line or two lines of the shift, with intervals from resampled images.

    ``x`` and ``y`` are the predictions in the shift's two settings. Which models are fitted, and where the knee
    is, follows from the study's accuracies; ``options`` are those of ``image_bootstrap``.
    """
    line = study.fit(shift.x, shift.y, min_x=shift.min_x, pivot=shift.pivot, scale=scale, resamples=0)
    if isinstance(line, Fit):
        found = image_bootstrap_of(x, y, baseline=line.models, scale=scale, **options)
        return replace(found.effective, line=with_image_intervals(found))
    below, above = (
        image_bootstrap_of(x, y, baseline=side.models, scale=scale, **options) for side in (line.below, line.above)
    )
    knee = PiecewiseFit(line.pivot, with_image_intervals(below), with_image_intervals(above), line.notes)
    rows = [
        replace(
            low if low.x <= line.pivot else high,
            baseline=low.baseline or high.baseline,
            extrapolated=bool(knee.extrapolates(low.x)),
        )
        for low, high in zip(below.effective.rows, above.effective.rows, strict=True)
    ]
    notes = dict.fromkeys([*below.effective.notes, *above.effective.notes])
    return replace(below.effective, line=knee, rows=tuple(rows), notes=tuple(notes))


def with_image_intervals(found: ImageBootstrap) -> Fit:
    """The line, its coefficients with the intervals of the draws."""
    return replace(
        found.line, slope_interval=found.slope_interval, intercept_interval=found.intercept_interval,
        resamples=found.resamples, seed=found.seed, procedure=IMAGES,
    )  # fmt: skip
