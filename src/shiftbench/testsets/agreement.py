"""How far annotators agree: Krippendorff's alpha of yes-or-no answers, with an interval over images."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftbench.errors import ShiftbenchError
from shiftbench.metrics.bootstrap import percentile_interval

RESAMPLES = 1000


@dataclass(frozen=True)
class Agreement:
    """``alpha`` is 1 for full agreement, 0 for chance; nan where all answers are alike or nobody can disagree."""

    alpha: float
    low: float
    high: float
    #: Images with at least two answers, and their answers.
    images: int
    answers: int


def krippendorff_alpha(
    selected: ArrayLike, annotations: ArrayLike, *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Agreement:
    """Nominal alpha (Krippendorff 2011) from how many of each image's annotators selected it.

    With n_u answers of which k_u are yes, over images with n_u >= 2, N the sum of the n_u, and N1 and N0 the yes
    and no answers: observed disagreement D_o = sum_u 2 k_u (n_u - k_u) / (n_u - 1) / N, expected disagreement
    D_e = 2 N1 N0 / (N (N - 1)), alpha = 1 - D_o / D_e. Who gave which answer does not matter, and annotators
    may have seen different images. The interval is the percentile bootstrap over images.

    >>> round(krippendorff_alpha([3, 0, 2], [3, 3, 3]).alpha, 3)
    0.6
    """
    yes, total = np.asarray(selected, dtype=np.float64), np.asarray(annotations, dtype=np.float64)
    if yes.shape != total.shape or np.any(yes < 0) or np.any(yes > total):
        raise ShiftbenchError("impossible answer counts", expected="0 <= selected <= annotations, image by image")
    paired = total >= 2
    images = int(paired.sum())
    # Images with the same counts are alike, and there are few kinds: a draw of images is a draw of kinds.
    kinds, sizes = np.unique(np.stack([yes[paired], total[paired]], axis=-1), axis=0, return_counts=True)
    yes, total = kinds[:, 0], kinds[:, 1]
    terms = np.stack([2 * yes * (total - yes) / np.maximum(total - 1, 1), yes, total], axis=-1)
    alpha = float(_alpha(sizes @ terms))
    low = high = math.nan
    if not math.isnan(alpha):
        draws = np.random.default_rng(seed).multinomial(images, sizes / images, resamples)
        ends = percentile_interval(_alpha(draws @ terms)[:, None], level)
        low, high = float(ends[0][0]), float(ends[1][0])
    return Agreement(alpha, low, high, images, int(sizes @ total))


def _alpha(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    disagreement, yes, total = sums[..., 0], sums[..., 1], sums[..., 2]
    with np.errstate(invalid="ignore", divide="ignore"):
        expected = 2 * yes * (total - yes) / (total - 1)
        return np.where(expected > 0, 1 - disagreement / expected, np.nan)
