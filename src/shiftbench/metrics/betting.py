"""Is a number at most a margin worse than before? Evidence by betting, which is valid at any time.

To show that the drop is less than a margin, one bets against the hypothesis that it is the margin or more. Before each
image a share of the wealth is staked on its loss being below the margin; if the hypothesis is true, no strategy is
expected to gain. The wealth is then a non-negative supermartingale, and the probability that it ever reaches 1/alpha is
at most alpha (Ville 1939; Waudby-Smith and Ramdas 2024). So the greatest wealth so far is evidence that stays true
however often one looks and whenever one stops, also if the decision to collect more images depends on the images seen.

The order of the images and the stakes must not depend on the losses that are still to come. Images come in the order in
which they were first looked at, and those of one look in a seeded order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shiftbench.arrays import FloatArray, IntArray

#: No stake risks more than this share of the wealth.
_LARGEST_RISK = 0.9
#: What stakes that are not yet the best ones cost, in units of the logarithm of the wealth: by simulation.
_COST_OF_LEARNING = 0.3
_HALVINGS = 30
#: The logarithm of the wealth that is evidence at 5 %, where no level is known yet.
_TYPICAL_HEIGHT = 3.0
#: Four of five values of a normal distribution are at most so many standard deviations above its mean.
_QUANTILE_OF_FOUR_FIFTHS = 0.84


@dataclass(frozen=True)
class PriorLosses:
    """What is assumed of losses before they are seen: it decides the first stakes, and never whether they are fair.

    Attributes:
        square: Their mean square.
        images: The weight of this assumption, in images.
        size: The size of a typical loss; None: the largest possible one.
    """

    square: float = 0.06
    images: float = 25.0
    size: float | None = None

    def mean_square(self, total: FloatArray | float, images: FloatArray | float) -> FloatArray:
        """The mean square of losses, from the assumption and from the sum of the squares of those that were seen."""
        return np.asarray((total + self.images * self.square) / (images + self.images))

    def stake(self, mean_square: FloatArray, margin: float, bound: float) -> FloatArray:
        return _best_stake(mean_square, margin, self.size or bound)


PRIOR = PriorLosses()


@dataclass(frozen=True, eq=False)
class Drop:
    """The losses of images, baseline minus candidate, in the order in which they are bet on.

    Attributes:
        losses: What each image lost.
        margin: The drop that is accepted. Stakes are those that grow fastest if there is no drop at all, and for the
            opposite question if the drop is twice the margin.
        bound: What an image can lose at most.
        step: The smallest loss of an image.
        prior: What is assumed of the losses before the first one.
    """

    losses: FloatArray
    margin: float
    bound: float = 1.0
    step: float = 1.0
    prior: PriorLosses = PRIOR

    @classmethod
    def of(cls, images: IntArray, parts: IntArray, values: FloatArray, margin: float, bound: float = 1.0) -> Drop:
        """The mean over parts of the mean over each part's observations; an image may be in several parts.

        Args:
            images: Image of each observation; images are bet on in the order of these numbers.
            parts: Setting of each observation.
            values: What was lost in it.
            margin: The drop that is accepted.
            bound: The largest possible loss of one observation.
        """
        if not len(values):
            return cls(np.empty(0), margin, bound)
        place = np.unique(images, return_inverse=True)[1]
        part = np.unique(parts, return_inverse=True)[1]
        counts = np.bincount(part)
        n = int(place.max()) + 1
        weights = n / (len(counts) * counts[part])
        losses = np.asarray(np.bincount(place, weights * values), np.float64)
        heaviest = float(np.bincount(place, weights).max())
        return cls(losses, margin, bound * heaviest, float(weights.min()))

    @property
    def n(self) -> int:
        return len(self.losses)

    @cached_property
    def value(self) -> float:
        """The drop: the mean loss."""
        return float(self.losses.mean()) if self.n else math.nan

    @cached_property
    def square(self) -> float:
        """The mean of the squared losses."""
        return float(np.square(self.losses).mean()) if self.n else math.nan

    @cached_property
    def share_changed(self) -> float:
        """The share of images with a loss or a gain."""
        return float(np.count_nonzero(self.losses)) / max(self.n, 1)

    @cached_property
    def _stakes(self) -> FloatArray:
        """The stake on each image per unit of gain, from the losses before it."""
        squares = np.concatenate([[0.0], np.cumsum(np.square(self.losses))[:-1]])
        mean_square = self.prior.mean_square(squares, np.arange(self.n, dtype=np.float64))
        return self.prior.stake(mean_square, self.margin, self.bound)

    def p_within(self, drop: float) -> float:
        """Of the hypothesis that the drop is this or more: small values show that it is less. Valid at any time."""
        return self._p(drop - self.losses, self.bound - drop)

    def p_beyond(self, drop: float) -> float:
        """Of the hypothesis that the drop is this or less: small values show that it is more. Valid at any time."""
        return self._p(self.losses - drop, self.bound + drop)

    def _p(self, gains: FloatArray, largest_loss: float) -> float:
        """One over the greatest wealth, from bets on gains that are expected to be 0 or less."""
        if not self.n or largest_loss <= 0:
            return 1.0
        stakes = np.minimum(self._stakes, _LARGEST_RISK / largest_loss)
        logarithm = float(np.cumsum(np.log1p(stakes * gains)).max())
        return math.exp(-max(logarithm, 0.0))

    def interval(self, alpha: float) -> tuple[float, float]:
        """The drops that neither test rejects at ``alpha``: at all times together they cover it with 1 - 2 alpha."""
        if not self.n:
            return math.nan, math.nan
        return self._edge(-self.bound, alpha), self._edge(self.bound, alpha)

    def _edge(self, outside: float, alpha: float) -> float:
        """One end of the interval by halving: between the observed drop, which lies inside, and ``outside``."""
        inside = self.value
        is_lower_end = outside < self.value
        for _ in range(_HALVINGS):
            middle = (inside + outside) / 2
            p = self.p_beyond(middle) if is_lower_end else self.p_within(middle)
            if p <= alpha:
                outside = middle
            else:
                inside = middle
        # Of the two, the rejected value errs towards the wider interval.
        return outside


def _best_stake(mean_square: FloatArray, margin: float, bound: float) -> FloatArray:
    """The stake s that makes the wealth grow fastest, if most images lose nothing and others the bound, to either side.

    The growth is margin * s + mean_square / (2 bound²) * log(1 - s² bound²); its derivative is 0 there.
    """
    return np.asarray(2 * margin / (mean_square + np.sqrt(np.square(mean_square) + (2 * margin * bound) ** 2)))


def draws_to_show(chances: FloatArray, rates: FloatArray, sizes: FloatArray, margin: float) -> float:
    """About how many losses show, in four of five cases, that the drop of an equal candidate is below the margin.

    Args:
        chances: The probability of each kind of loss.
        rates: For each kind, how often it is not 0: half of the time a loss, half of the time a gain.
        sizes: The size of each kind of loss.
        margin: The drop that is accepted.
    """
    square = float(chances @ (rates * sizes**2))
    fourth = float(chances @ (rates * sizes**4))
    largest = float(sizes.max())
    best = float(_best_stake(np.asarray(square), margin, math.sqrt(fourth / square)))
    stake = min(best, _LARGEST_RISK / (largest - margin))
    changed = rates / 2
    lost = np.log1p(stake * (margin - sizes))
    won = np.log1p(stake * (margin + sizes))
    same = math.log1p(stake * margin)
    drift = float(chances @ (changed * (lost + won) + (1 - rates) * same))
    square_of_growth = float(chances @ (changed * (lost**2 + won**2) + (1 - rates) * same**2))
    if drift <= 0:
        return math.inf
    mean = (_TYPICAL_HEIGHT + _COST_OF_LEARNING) / drift
    spread = math.sqrt(max(square_of_growth - drift**2, 0.0) * mean) / drift
    return mean + _QUANTILE_OF_FOUR_FIFTHS * spread


def probability_of_showing(
    *,
    drop: float,
    margin: float,
    square: float,
    share_changed: float,
    bound: float,
    n: float,
    alpha: float,
    prior: PriorLosses = PRIOR,
) -> float:
    """Probability that n images show on which side of the margin the true drop is.

    The logarithm of the wealth is nearly a Brownian motion with drift: the probability that it reaches a height by a
    time is known (inverse Gaussian distribution). Learning the stakes is taken to cost the first images' gains.

    Args:
        drop: The drop that is assumed.
        margin: The largest drop that is accepted.
        square: Mean square of the images' losses.
        share_changed: Share of images with a loss or a gain.
        bound: What an image can lose at most.
        n: Number of images.
        alpha: Level of the test.
        prior: What the stakes assume before the first image.
    """
    from scipy.special import log_ndtr, ndtr

    within = drop < margin
    largest_loss = bound - margin if within else bound + margin
    if largest_loss <= 0 or n < 1:
        return 0.0
    # While the stakes are learnt they are below the best ones: as if the prior's weight were spread over all images.
    learnt = n / 3
    learnt_square = prior.mean_square(learnt * square, learnt)
    stake = min(float(prior.stake(learnt_square, margin, bound)), _LARGEST_RISK / largest_loss)
    share = min(max(share_changed, square / bound**2, 1e-12), 1.0)
    size = math.sqrt(square / share)
    lost = min(max((share + drop / size) / 2, 0.0), 1.0) if size else 0.0
    sign = 1.0 if within else -1.0
    gains = sign * (margin - np.array([size, -size, 0.0]))
    chances = np.array([lost, share - lost, 1 - share])
    growth = np.log1p(np.maximum(stake * gains, -_LARGEST_RISK))
    drift = float(chances @ growth)
    variance = max(float(chances @ np.square(growth)) - drift**2, 1e-12)
    height = -math.log(alpha) + _COST_OF_LEARNING
    spread = math.sqrt(variance * n)
    mirrored = 2 * drift * height / variance + float(log_ndtr((-height - n * drift) / spread))
    return min(1.0, float(ndtr((n * drift - height) / spread)) + math.exp(min(mirrored, 0.0)))
