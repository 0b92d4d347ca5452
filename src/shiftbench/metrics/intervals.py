"""Intervals for proportions and mean shares, and the number of images for an interval of a given width.

Clopper and Pearson (1934) invert the binomial test: the interval of k hits among n images holds every
accuracy p that neither tail of Binomial(n, p) rejects at (1 - level) / 2. It never covers less than its level,
at any n, also for k = 0 and k = n; that is why it is the default everywhere.
"""

from __future__ import annotations

import math
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike

from shiftbench.arrays import FloatArray
from shiftbench.errors import ShiftbenchError

#: No search goes beyond this many images.
_MOST_IMAGES = 10**12
#: Steps of a search by halving: the ends are then exact to the digits that are shown.
_HALVINGS = 40
#: A variance that one image decides has not fewer degrees of freedom than this.
_FEWEST_FREEDOM = 2.0
#: By this factor a number of images grows that has not enough power yet.
_NEXT_SIZE = 1.01


class Interval(NamedTuple):
    low: float
    high: float

    @property
    def width(self) -> float:
        return self.high - self.low


class Intervals(NamedTuple):
    """Many intervals at once, as arrays."""

    low: FloatArray
    high: FloatArray


@overload
def clopper_pearson(k: float, n: float, level: float = ...) -> Interval: ...
@overload
def clopper_pearson(k: ArrayLike, n: ArrayLike, level: float = ...) -> Intervals: ...
def clopper_pearson(k: ArrayLike, n: ArrayLike, level: float = 0.95) -> Interval | Intervals:
    """The exact interval of k hits among n images, for numbers or arrays.

    With a = (1 - level) / 2: low is the a-quantile of Beta(k, n - k + 1), 0 for k = 0; high is the
    (1 - a)-quantile of Beta(k + 1, n - k), 1 for k = n. Nothing is known at n = 0: [0, 1].
    k need not be whole, because published accuracies are rounded: the ImageNet testbed takes
    k = accuracy * n as it comes (and level 0.995).

    Args:
        k: Number of hits; need not be whole.
        n: Number of images.
        level: Confidence level of the intervals.

    Example:
        >>> low, high = clopper_pearson(87, 100)
        >>> f"[{low:.4f}, {high:.4f}]"
        '[0.7880, 0.9289]'
    """
    from scipy.special import betaincinv  # here, so that importing the metrics stays light

    _check_level(level)
    tail = (1.0 - level) / 2.0
    hits, total = np.broadcast_arrays(np.asarray(k, dtype=np.float64), np.asarray(n, dtype=np.float64))
    bad = ~((hits >= 0) & (hits <= total) & np.isfinite(total))
    if bad.any():
        where = np.flatnonzero(bad.ravel())[0]
        raise ShiftbenchError(
            "invalid counts for an interval",
            found=f"k = {hits.ravel()[where]:g}, n = {total.ravel()[where]:g}",
            expected="0 <= k <= n",
        )
    misses = total - hits
    # The quantiles are not defined at the ends; any harmless number stands in and is replaced after.
    low = np.where(hits > 0, betaincinv(np.where(hits > 0, hits, 1.0), misses + 1.0, tail), 0.0)
    high = np.where(misses > 0, betaincinv(hits + 1.0, np.where(misses > 0, misses, 1.0), 1.0 - tail), 1.0)
    if np.ndim(low) == 0:
        return Interval(float(low), float(high))
    return Intervals(low, high)


def mean_interval(values: ArrayLike, lows: ArrayLike, highs: ArrayLike, correlation: ArrayLike) -> Interval:
    """The interval of the mean of estimates, from their intervals and correlations (MOVER; Zou and Donner 2008).

    Each distance from a value to its limit stands for its standard error. Uncorrelated estimates add up by their
    squares; where all correlations are 1, the limits are the means of the limits.
    """
    centre = np.asarray(values, np.float64)
    mean = float(centre.mean())
    correlations = np.asarray(correlation)

    def mean_distance(distances: FloatArray) -> float:
        return math.sqrt(distances @ correlations @ distances) / len(centre)

    below = mean_distance(centre - np.asarray(lows))
    above = mean_distance(np.asarray(highs) - centre)
    return Interval(mean - below, mean + above)


def mean_share_intervals(means: ArrayLike, squares: ArrayLike, n: int, level: float = 0.95) -> Intervals:
    """The intervals of means of n numbers between 0 and 1, such as each image's share of settings with a wrong answer.

    Student's t on the logit scale, after one more image was added that is half right and half wrong. Few wrong images
    say little about how many there are, and least about the upper end: percentiles of a bootstrap, which can only
    repeat the images that were seen, then cover far less than they promise (docs/statistics.md).

    Args:
        means: The means.
        squares: For each mean, the sum of the squared deviations of the numbers from it.
        n: Number of images.
        level: Confidence level of the intervals.

    Example:
        >>> low, high = mean_share_intervals([0.02], [0.1], 200)
        >>> f"[{low[0]:.4f}, {high[0]:.4f}]"
        '[0.0160, 0.0312]'
    """
    from scipy.special import expit, logit, stdtrit

    _check_level(level)
    values = np.asarray(means, dtype=np.float64)
    if n < 2:
        return Intervals(np.zeros_like(values), np.ones_like(values))
    shrunk = (n * values + 0.5) / (n + 1)
    added = (np.square(1 - shrunk) + np.square(shrunk)) / 2
    error = np.sqrt(np.asarray(squares) + added) / n
    # A mean of shares is between 0 and 1; with settings that miss some images it may leave this by rounding only.
    inside = np.clip(shrunk, 1e-12, 1 - 1e-12)
    half_width = float(stdtrit(n - 1, (1 + level) / 2)) * error / (inside * (1 - inside))
    low = expit(logit(inside) - half_width)
    high = expit(logit(inside) + half_width)
    return Intervals(np.minimum(low, values), np.maximum(high, values))


def share_interval(value: float, influence: FloatArray, level: float = 0.95) -> Interval:
    """Student's interval, on the logit scale, of a number between 0 and 1 that each image moves by its influence.

    As ``mean_share_intervals``, with degrees of freedom by the kurtosis of the influences: the few wrong images
    may decide nearly all of the variance.

    Args:
        value: The number.
        influence: By how much each image moves it, times the number of images.
        level: Confidence level of the interval.

    Example:
        >>> low, high = share_interval(0.9, np.repeat([-0.9, 0.1], [10, 90]))
        >>> f"[{low:.3f}, {high:.3f}]"
        '[0.816, 0.944]'
    """
    from scipy.special import expit, logit, stdtrit

    _check_level(level)
    n = len(influence)
    shrunk = (n * value + 0.5) / (n + 1)
    squares = np.square(influence)
    total = float(squares.sum())
    added = ((1 - shrunk) ** 2 + shrunk**2) / 2
    error = math.sqrt(total + added) / n
    half_width = float(stdtrit(freedom_of(squares), (1 + level) / 2)) * error / (shrunk * (1 - shrunk))
    low = float(expit(logit(shrunk) - half_width))
    high = float(expit(logit(shrunk) + half_width))
    return Interval(min(low, value), max(high, value))


def freedom_of(squares: FloatArray) -> float:
    """Degrees of freedom of a sum of squares, as many as normal numbers of this kurtosis have (Satterthwaite)."""
    total = float(squares.sum())
    if total <= 0:
        return _FEWEST_FREEDOM
    by_kurtosis = 3 * total**2 / float(np.square(squares).sum())
    return max(_FEWEST_FREEDOM, min(by_kurtosis, float(np.count_nonzero(squares))))


def ratio_interval(numerators: FloatArray, denominators: FloatArray, added: float, level: float = 0.95) -> Interval:
    """The interval of a ratio of two sums over images, between 0 and 1, as ``share_interval``.

    Args:
        numerators: What each image adds above.
        denominators: What each image adds below.
        added: What one more image would add above if it counted, and below beside 1; it is added half.
        level: Confidence level of the interval.
    """
    from scipy.special import expit, logit, stdtrit

    above = float(numerators.sum()) + added
    below = float(denominators.sum()) + added + 0.5
    ratio = above / below
    counted = 2 * added - ratio * (added + 1)
    not_counted = -ratio * added
    half = math.sqrt((counted**2 + not_counted**2) / 2)
    squares = np.square(np.append(numerators - ratio * denominators, half))
    error = math.sqrt(float(squares.sum())) / below
    half_width = float(stdtrit(freedom_of(squares), (1 + level) / 2)) * error / (ratio * (1 - ratio))
    value = float(numerators.sum() / denominators.sum())
    low = float(expit(logit(ratio) - half_width))
    high = float(expit(logit(ratio) + half_width))
    return Interval(min(low, value), max(high, value))


def difference_of_shares(
    first: float, first_ends: Interval, second: float, second_ends: Interval, correlation: float
) -> Interval:
    """The interval of a difference of two shares of the same images, from theirs (MOVER; Zou and Donner 2008).

    >>> low, high = difference_of_shares(0.5, Interval(0.4, 0.6), 0.2, Interval(0.15, 0.28), 0.0)
    >>> round(low, 3), round(high, 3)
    (0.172, 0.412)
    """
    difference = first - second

    def distance(of_first: float, of_second: float) -> float:
        return math.sqrt(max(0.0, of_first**2 + of_second**2 - 2 * correlation * of_first * of_second))

    below = distance(first - first_ends.low, second_ends.high - second)
    above = distance(first_ends.high - first, second - second_ends.low)
    return Interval(difference - below, difference + above)


def paired_difference_interval(only_first: int, only_second: int, n: int, level: float = 0.95) -> Interval:
    """The score interval of a difference of two shares of the same n images (Tango 1998).

    It holds every difference that the score test does not reject. Resampling would be too narrow if few images differ.

    Args:
        only_first: Number of images that only the first share counts.
        only_second: Number of images that only the second one counts.
        n: Number of images.
        level: Confidence level of the interval.

    Example:
        >>> low, high = paired_difference_interval(30, 20, 500)
        >>> f"[{low:.4f}, {high:.4f}]"
        '[-0.0080, 0.0490]'
    """
    from scipy.special import ndtri

    _check_level(level)
    z = float(ndtri((1 + level) / 2))
    observed = (only_first - only_second) / n

    def score(difference: float) -> float:
        """The distance from the observed difference, in standard errors if this is the true one."""
        b = -only_first - only_second + (2 * n - only_first + only_second) * difference
        c = -only_second * difference * (1 - difference)
        lost = (math.sqrt(max(b * b - 8 * n * c, 0.0)) - b) / (4 * n)
        variance = n * (2 * lost + difference * (1 - difference))
        if variance <= 0:
            return 0.0 if difference == observed else math.inf
        return n * abs(observed - difference) / math.sqrt(variance)

    def edge(outside: float) -> float:
        inside = observed
        for _ in range(_HALVINGS):
            middle = (inside + outside) / 2
            if score(middle) > z:
                outside = middle
            else:
                inside = middle
        return outside

    return Interval(edge(-1.0), edge(1.0))


def images_needed(half_width: float, *, accuracy: float = 0.5, level: float = 0.95) -> int:
    """How many images make the Clopper-Pearson interval as narrow as plus-minus ``half_width``.

    That is, high - low <= 2 * half_width; one point is 0.01. ``accuracy`` is the one expected. The default
    0.5 is the worst case: with that many images no outcome whatever gives a wider interval.

    Args:
        half_width: Half the width of the interval; one point is 0.01.
        accuracy: The expected accuracy; 0.5 is the worst case.
        level: Confidence level of the intervals.

    Example:
        >>> images_needed(0.01)
        9701
        >>> images_needed(0.01, accuracy=0.9)
        3557
    """
    _check_share("half-width", half_width)
    _check_share("accuracy", accuracy, closed=True)
    _check_level(level)

    # The width falls steadily with n when k = accuracy * n is not rounded, so halving finds the first n.
    high = 1
    while clopper_pearson(accuracy * high, high, level).width > 2 * half_width:
        high *= 2
        if high > _MOST_IMAGES:
            raise ShiftbenchError("no number of images gives so narrow an interval", expected="a larger width")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        if clopper_pearson(accuracy * middle, middle, level).width <= 2 * half_width:
            high = middle
        else:
            low = middle
    return high


def images_needed_to_tell_apart(
    difference: float, *, disagreement: float, level: float = 0.95, power: float = 0.8
) -> int:
    """How many images show that two classifiers differ, when both see the same ones (McNemar's test).

    ``difference`` is the gap in accuracy, ``disagreement`` the share of images on which exactly one of the
    two is right (at least the gap). Connor (1987):
    n = (z_level sqrt(disagreement) + z_power sqrt(disagreement - difference²))² / difference²,
    and a few more, until the exact test has the power.
    """
    from scipy.special import ndtri

    _check_share("difference", abs(difference))
    _check_share("disagreement", disagreement, closed=True)
    _check_share("power", power)
    _check_level(level)
    gap = abs(difference)
    if disagreement < gap:
        raise ShiftbenchError(
            "two models disagree on at least as many images as their accuracies differ by",
            found=f"disagreement {disagreement:g}, difference {gap:g}",
            expected="disagreement >= difference",
        )
    z_level = float(ndtri((1 + level) / 2))
    z_power = float(ndtri(power))
    root = z_level * math.sqrt(disagreement) + z_power * math.sqrt(disagreement - gap**2)
    n = max(1, math.ceil((root / gap) ** 2))
    while mcnemar_power(n, gap, disagreement, level) < power:
        n = math.ceil(n * _NEXT_SIZE)
    return n


def mcnemar_power(n: int, difference: float, disagreement: float, level: float = 0.95) -> float:
    """The probability that the exact test of McNemar rejects on n images; two models differ on a share of them.

    >>> round(mcnemar_power(200, 0.1, 0.2), 3)
    0.875
    """
    from scipy.special import bdtr, bdtrik, gammaln, xlog1py, xlogy

    spread = 8 * math.sqrt(n * disagreement * (1 - disagreement)) + 8
    centre = n * disagreement
    differing = np.arange(max(0, math.floor(centre - spread)), min(n, math.ceil(centre + spread)) + 1)
    logarithm = gammaln(n + 1) - gammaln(differing + 1) - gammaln(n - differing + 1)
    chances = np.exp(logarithm + xlogy(differing, disagreement) + xlog1py(n - differing, -disagreement))
    tail = (1 - level) / 2
    most = np.floor(np.nan_to_num(bdtrik(tail, differing, 0.5), nan=-1.0) + 1e-6)
    most = np.where((most >= 0) & (bdtr(np.maximum(most, 0), differing, 0.5) > tail), most - 1, most)
    against = (1 - abs(difference) / disagreement) / 2
    rejected = bdtr(np.maximum(most, 0), differing, against) + bdtr(np.maximum(most, 0), differing, 1 - against)
    return float(chances @ np.where(most >= 0, rejected, 0.0))


def _check_level(level: float) -> None:
    if not 0.0 < level < 1.0:
        raise ShiftbenchError("bad confidence level", found=level, expected="between 0 and 1, such as 0.95")


def _check_share(name: str, value: float, *, closed: bool = False) -> None:
    """Refuse what is not a fraction; a closed range includes 0 and 1."""
    if not (0.0 < value < 1.0 or (closed and value in (0.0, 1.0))):
        raise ShiftbenchError(
            f"bad {name}", found=value, expected="a fraction between 0 and 1", hint="one point is 0.01"
        )
