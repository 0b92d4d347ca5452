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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import FloatArray
from shiftbench.errors import ShiftbenchError

RESAMPLES = 2000

#: Weights held at once; bounds the memory whatever the number of resamples.
_BLOCK_CELLS = 4_000_000


def resampled_means(
    values: NDArray[Any],
    *,
    valid: NDArray[np.bool_] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
    block: int | None = None,
) -> FloatArray:
    """(B, S): the mean of every column under B draws of the rows, the same draws for all columns.

    ``values`` is (N, S), ``valid`` (N, S) says which entries count (all, when not given); a column's mean is
    over its drawn entries that count, nan if a draw has none. The result depends on ``seed`` only, not on
    ``block``, the number of draws held in memory at once.

    >>> means = resampled_means(np.array([[True], [False], [True], [True]]), resamples=1000)
    >>> means.shape, bool(abs(means.mean() - 0.75) < 0.05)
    ((1000, 1), True)
    """
    if values.ndim != 2 or not len(values):
        raise ShiftbenchError(
            "the image bootstrap needs at least one image",
            found=f"values of shape {values.shape}",
            expected="(images, settings)",
        )
    # Counts and 0/1 values add up exactly in float32 up to 2^24 images, at twice the speed.
    exact = values.dtype == np.bool_ and len(values) < 2**24
    columns = values.astype(np.float32 if exact else np.float64)
    mask = None
    if valid is not None and not valid.all():
        mask = valid.astype(columns.dtype)
        columns = np.where(valid, columns, 0).astype(columns.dtype)
    rows = len(values)
    block = block or max(1, _BLOCK_CELLS // rows)
    rng = np.random.default_rng(seed)
    means = np.empty((resamples, values.shape[1]))
    for start in range(0, resamples, block):
        weights = _counts(rng, rows, min(block, resamples - start), columns.dtype)
        sums = (weights @ columns).astype(np.float64)
        totals = float(rows) if mask is None else (weights @ mask).astype(np.float64)
        with np.errstate(invalid="ignore"):
            means[start : start + len(weights)] = sums / totals
    return means


def percentile_interval(samples: FloatArray, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
    """The central interval of the draws along the first axis; draws that are nan are left out."""
    tail = (1.0 - level) / 2.0
    with warnings.catch_warnings():
        # A column without a single defined draw has no interval: nan, as it should be.
        warnings.filterwarnings("ignore", "All-NaN slice encountered", RuntimeWarning)
        low, high = np.nanquantile(samples, [tail, 1.0 - tail], axis=0)
    return low, high


def _counts(rng: np.random.Generator, rows: int, draws: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Multinomial counts by counting uniform draws: the same law, many times faster than the sampler."""
    weights = np.empty((draws, rows), dtype=dtype)
    for i in range(draws):
        weights[i] = np.bincount(rng.integers(0, rows, rows), minlength=rows)
    return weights
