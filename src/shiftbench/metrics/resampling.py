"""From resampled values to a score with an interval: percentile, bias-corrected, or exact where nothing varies.

Statistics of sorted images (calibration error, AURRA, precision and recall) are not means, so each resample
is one call with a vector of counts: how often each image was drawn. Sorting is done once, before.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shiftbench.arrays import FloatArray, IntArray
from shiftbench.metrics.base import Score
from shiftbench.metrics.bootstrap import percentile_interval
from shiftbench.metrics.intervals import clopper_pearson

#: Half as many as for accuracies: the ends of a 95 % interval then wander by some 5 % of its width.
RESAMPLES = 1000


def resampled(
    statistic: Callable[[IntArray], float], rows: int, *, resamples: int = RESAMPLES, seed: int = 0
) -> FloatArray:
    """B values of ``statistic(counts)``, ``counts[i]`` saying how often image i was drawn; they add up to ``rows``.

    >>> draws = resampled(lambda counts: float(counts[0]), 50, resamples=2000)
    >>> bool(abs(draws.mean() - 1) < 0.1)
    True
    """
    rng = np.random.default_rng(seed)
    return np.array([statistic(draw_counts(rng, rows)) for _ in range(resamples)])


def draw_counts(rng: np.random.Generator, rows: int) -> IntArray:
    """How often each of ``rows`` images is drawn when as many are drawn with replacement."""
    return np.bincount(rng.integers(0, rows, rows), minlength=rows)


def corrected_interval(value: float, draws: FloatArray, level: float = 0.95) -> tuple[float, float]:
    """The interval of an error that noise can only raise, such as a calibration error.

    A calibration error is raised by the sample's noise, and a resample's by about as much again: percentiles
    of the draws lie above the truth, and for a well calibrated classifier never hold it. How much noise raised
    the sample's own value v is not known; between nothing (every gap has one sign) and as much as resampling
    raises it (no true gap). The interval allows for both. With q the quantiles and m the median of the draws:

        low   the smaller of sqrt(max(0, 2 v² - q_high²)), the basic bootstrap (Efron and Tibshirani 1993, ch. 13)
              on squares, where noise adds; and v - (m - q_low)
        high  v + (q_high - m)

    >>> low, high = corrected_interval(0.2, np.linspace(0.2, 0.3, 101))
    >>> round(low, 3), round(high, 3)
    (0.0, 0.247)
    """
    bottom, top = (float(end) for end in percentile_interval(draws, level))
    middle = float(np.nanmedian(draws))
    mirrored = max(0.0, 2 * value**2 - top**2) ** 0.5
    return min(mirrored, max(0.0, value - (middle - bottom))), value + (top - middle)


def unseen_share(n: int, level: float = 0.95) -> float:
    """The largest share of images of a kind that n images may show none of (Clopper-Pearson).

    >>> round(unseen_share(100), 4)
    0.0362
    """
    return clopper_pearson(0, n, level).high


def resampled_score(
    name: str,
    value: float,
    draws: FloatArray,
    n: int,
    *,
    level: float = 0.95,
    provenance: str = "",
    unit: str = "%",
    higher_is_better: bool = True,
    only_raised: bool = False,
    most: float = 1.0,
    reach: float | None = None,
    method: str = "image bootstrap",
) -> Score:
    """A value and its draws as a score in [0, ``most``]; ``only_raised`` for errors that noise can only raise.

    Where all draws are the same, resampling can't show what never occurred. The interval is then as wide as
    the largest share of images that n may have missed, or ``reach``.
    """
    said = f"{method}, {len(draws):,} resamples"
    if np.isnan(value) or not len(draws):
        low, high = 0.0, most
    elif np.nanmax(draws) - np.nanmin(draws) <= 1e-9:
        far = unseen_share(n, level) if reach is None else reach
        low, high = max(0.0, value - far), min(most, value + far)
        said = "exact bound on images not seen; the bootstrap has no width"
    elif only_raised:
        low, high = corrected_interval(value, draws, level)
        high = min(high, most)
        said = f"{method}, bias-corrected, {len(draws):,} resamples"
    else:
        low, high = (float(end) for end in percentile_interval(draws, level))
    return Score(name, value, low, high, n, level, said, provenance, unit, higher_is_better)
