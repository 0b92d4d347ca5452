"""The image bootstrap, shared across settings.

An image that is hard when clean is hard when corrupted: scores of one classifier in many settings move
together. So one resample draws the images once and applies the same draw to every setting. A draw of N
images with replacement is a vector of counts, multinomial(N; 1/N, ..., 1/N), and the means of all settings
under B draws are one matrix product, weights (B, N) times values (N, S) (Efron and Tibshirani 1993, ch. 6).

A percentile interval can't see what the sample lacks: where every image has the same outcome it has no
width. For a single proportion use Clopper-Pearson.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import FloatArray, IntArray
from shiftbench.errors import ShiftbenchError
from shiftbench.metrics.base import Score
from shiftbench.metrics.intervals import clopper_pearson

RESAMPLES = 2000
#: The method of an interval where all resamples are the same.
EXACT_BOUND = "exact bound on images not seen; the bootstrap has no width"
#: The method of an interval where all images have the same outcome, so that Student's has no width.
SAME_OUTCOME = "exact bound, as all images have the same outcome"

#: Weights held at once; bounds the memory whatever the number of resamples.
_BLOCK_CELLS = 4_000_000
#: Tables of draws that are kept for the next model: at most this many, of at most ``_BLOCK_CELLS`` bytes each.
_KEPT_TABLES = 8


def resampled_means(
    values: NDArray[Any],
    *,
    valid: NDArray[np.bool_] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
    block: int | None = None,
) -> FloatArray:
    """(B, S): the mean of every column under B draws of the rows, the same draws for all columns.

    ``values`` is (N, S), ``valid`` (N, S) marks the entries that count (default: all); a column's mean is
    over its drawn entries that count, nan if a draw has none. The result depends on ``seed`` only, not on
    ``block``, the number of draws held in memory at once.
    """
    if values.ndim != 2 or not len(values):
        raise ShiftbenchError(
            "the image bootstrap needs at least one image",
            found=f"values of shape {values.shape}",
            expected="(images, settings)",
        )
    # Counts and 0/1 values add up exactly in float32 up to 2^24 images, at twice the speed.
    exact_in_float32 = values.dtype == np.bool_ and len(values) < 2**24
    columns = values.astype(np.float32 if exact_in_float32 else np.float64)
    mask = None
    if valid is not None and not valid.all():
        mask = valid.astype(columns.dtype)
        columns = np.where(valid, columns, 0).astype(columns.dtype)
    rows = len(values)
    block = block or max(1, _BLOCK_CELLS // rows)
    means = np.empty((resamples, values.shape[1]))
    start = 0
    for counts in _draws(rows, resamples, seed, block):
        weights = counts.astype(columns.dtype)
        sums = (weights @ columns).astype(np.float64)
        totals: float | FloatArray = float(rows)
        if mask is not None:
            totals = (weights @ mask).astype(np.float64)
        with np.errstate(invalid="ignore"):
            means[start : start + len(weights)] = sums / totals
        start += len(weights)
    return means


def _draws(rows: int, resamples: int, seed: int, block: int) -> Iterator[NDArray[np.integer[Any]]]:
    """The first draws of a seed, some at a time: (at most ``block``, rows) of counts.

    They depend on the number of images and the seed alone, so that all models and settings of a workspace share them.
    Drawing takes most of the time of a bootstrap: tables that are small enough are kept.
    """
    if rows * resamples <= _BLOCK_CELLS:
        table = _kept_draws(rows, resamples, seed)
        for start in range(0, resamples, block):
            yield table[start : start + block]
        return
    rng = np.random.default_rng(seed)
    for start in range(0, resamples, block):
        yield np.stack([draw_counts(rng, rows) for _ in range(min(block, resamples - start))])


@lru_cache(maxsize=_KEPT_TABLES)
def _kept_draws(rows: int, resamples: int, seed: int) -> NDArray[np.integer[Any]]:
    rng = np.random.default_rng(seed)
    table = np.stack([draw_counts(rng, rows) for _ in range(resamples)])
    if table.max(initial=0) <= np.iinfo(np.uint8).max:
        table = table.astype(np.uint8)
    table.setflags(write=False)
    return table


def percentile_interval(samples: FloatArray, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
    """The central interval of the draws along the first axis; draws that are nan are left out."""
    tail = (1.0 - level) / 2.0
    if not np.isnan(samples).any():
        # The same numbers, many times faster.
        low, high = np.quantile(samples, [tail, 1.0 - tail], axis=0)
        return low, high
    with warnings.catch_warnings():
        # A column without a single defined draw has no interval: nan, as it should be.
        warnings.filterwarnings("ignore", "All-NaN slice encountered", RuntimeWarning)
        low, high = np.nanquantile(samples, [tail, 1.0 - tail], axis=0)
    return low, high


# Statistics of sorted images (calibration error, AURRA, precision and recall) are not means, so they are functions of
# counts: how often each image was drawn. Sorting is done once, before.

#: Half as many as for accuracies: the ends of a 95 % interval then wander by some 5 % of its width.
STATISTIC_RESAMPLES = 1000


def resampled_blocks(
    statistics: Callable[[IntArray], Iterable[float]], rows: int, *, resamples: int = STATISTIC_RESAMPLES, seed: int = 0
) -> FloatArray:
    """B values of a statistic of counted images.

    ``statistics`` takes many draws at once, (draws, rows) of counts: how often each image was drawn. The counts of a
    draw add up to ``rows``.
    """
    block_size = max(1, _BLOCK_CELLS // 64 // max(rows, 1))
    values: list[float] = []
    for counts in _draws(rows, resamples, seed, block_size):
        values.extend(statistics(counts.astype(np.int64)))
    return np.array(values)


def draw_counts(rng: np.random.Generator, rows: int) -> IntArray:
    """How often each of ``rows`` images is drawn when as many are drawn with replacement.

    Multinomial counts by counting uniform draws: the same law, many times faster than the sampler.
    """
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
    at_least: float = 0.0,
    method: str = "image bootstrap",
) -> Score:
    """A value and its draws as a score in [0, ``most``]; ``only_raised`` for errors that noise can only raise.

    ``at_least`` is the lower limit of a number that the true value is never below.

    Where all draws are the same, resampling can't show what never occurred. The interval is then as wide as
    the largest share of images that n may have missed, or ``reach``.
    """
    method_text = f"{method}, {len(draws):,} resamples"
    if np.isnan(value) or not len(draws):
        low = 0.0
        high = most
    elif np.nanmax(draws) - np.nanmin(draws) <= 1e-9:
        if reach is None:
            reach = unseen_share(n, level)
        low = max(0.0, value - reach)
        high = min(most, value + reach)
        method_text = EXACT_BOUND
    elif only_raised:
        low, high = corrected_interval(value, draws, level)
        low = min(max(low, at_least), value)
        high = min(high, most)
        method_text = f"{method}, bias-corrected, {len(draws):,} resamples"
    else:
        low, high = (float(end) for end in percentile_interval(draws, level))
    return Score(name, value, low, high, n, level, method_text, provenance, unit, higher_is_better)
