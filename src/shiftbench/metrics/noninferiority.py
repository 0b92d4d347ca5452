"""Is a number at most a margin worse than before? Paired tests of a drop, image by image.

The drop of a score is a mean over images of numbers between -bound and bound: what each image lost. The test of a drop
against a margin is a score test: the variance is the one that the images would have if the drop were exactly the
margin, with the missing part of it in images that lost everything. So two models that never disagree do not have a
variance of zero, and few disagreements can't make a gate too sure. For one setting without any disagreement it is the
test of Tango (1998), with a continuity correction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shiftbench.arrays import FloatArray, IntArray

_HALVINGS = 40
#: Drops nearer to the margin than this share of it are not worth more images.
_NEAREST = 0.1


@dataclass(frozen=True)
class Drop:
    """The mean loss of n images, baseline minus candidate, with what the tests need.

    >>> same = Drop(n=1000, value=0.0, square=0.0)
    >>> same.p_within(0.01) < 0.05, same.p_beyond(0.01)
    (True, 1.0)
    """

    n: int
    value: float
    #: Mean of the squares.
    square: float
    #: What an image can lose at most.
    bound: float = 1.0
    #: The smallest loss of an image: sums of losses are multiples of it.
    step: float = 1.0

    @classmethod
    def of(cls, images: IntArray, parts: IntArray, values: FloatArray, bound: float = 1.0) -> Drop:
        """The mean over parts of the mean over each part's observations; an image may be in several parts.

        Args:
            images: Image of each observation.
            parts: Setting of each observation.
            values: What was lost in it.
            bound: The largest possible loss.
        """
        if not len(values):
            return cls(0, math.nan, math.nan)
        place, part = (np.unique(each, return_inverse=True)[1] for each in (images, parts))
        counts, n = np.bincount(part), int(place.max()) + 1
        weights = n / (len(counts) * counts[part])
        each = np.bincount(place, weights * values)
        heaviest = float(np.bincount(place, weights).max())
        return cls(n, float(each.mean()), float(np.square(each).mean()), bound * heaviest, float(weights.min()))

    def p_within(self, margin: float) -> float:
        """Of the hypothesis that the drop is the margin or more: small values show that it is less."""
        return self._p(margin - self.value, margin, (margin - self.value) / (self.bound - self.value + 1e-12))

    def p_beyond(self, margin: float) -> float:
        """Of the hypothesis that the drop is the margin or less: small values show that it is more."""
        return self._p(self.value - margin, margin, (self.value - margin) / (self.bound + self.value + 1e-12))

    def _p(self, distance: float, margin: float, missing: float) -> float:
        from scipy.special import stdtr

        distance -= self.step / (2 * self.n) if self.n else 0.0
        if self.n < 2 or distance <= 0:
            return 1.0
        missing = min(missing, 1.0)
        variance = (1 - missing) * self.square + missing * self.bound**2 - margin**2
        return float(stdtr(self.n - 1, -distance / math.sqrt(max(variance, 1e-12) / self.n)))

    def interval(self, alpha: float) -> tuple[float, float]:
        """The drops that neither one-sided test rejects at ``alpha``: coverage is 1 - 2 alpha."""
        if not self.n:
            return math.nan, math.nan
        return self._edge(-self.bound, alpha), self._edge(self.bound, alpha)

    def _edge(self, outside: float, alpha: float) -> float:
        inside = self.value
        for _ in range(_HALVINGS):
            middle = (inside + outside) / 2
            rejected = (self.p_beyond(middle) if outside < self.value else self.p_within(middle)) <= alpha
            inside, outside = (inside, middle) if rejected else (middle, outside)
        return outside

    def images_needed(self, margin: float, alpha: float, alpha_beyond: float, power: float) -> int:
        """Images for a decision with this power: of an unchanged model, and of one that lost twice the margin.

        Args:
            margin: The largest drop that is accepted.
            alpha: Level of the test that the drop is less.
            alpha_beyond: Level of the test that it is more, corrected for the number of tests.
            power: Probability of a decision.
        """
        if not self.n:
            return 0
        # One disagreement more than was seen: none in a few images does not mean that there are none.
        square = self.square + self.step**2 / self.n
        within = self._needed(0.0, margin, alpha, power, square, margin / self.bound)
        lost = square + 2 * margin * self.bound
        beyond = self._needed(2 * margin, margin, alpha_beyond, power, lost, margin / (self.bound + 2 * margin))
        found = max(within, beyond)
        if self.n >= found:  # the drop itself is close to the margin
            distance = max(abs(margin - self.value), _NEAREST * margin)
            found = max(found, math.ceil(found * (margin / distance) ** 2))
        return found

    def _needed(self, drop: float, margin: float, alpha: float, power: float, square: float, missing: float) -> int:
        from scipy.special import ndtri

        null = (1 - missing) * square + missing * self.bound**2 - margin**2
        actual = square - drop**2
        spread = -ndtri(alpha) * math.sqrt(max(null, 0.0)) + ndtri(power) * math.sqrt(max(actual, 0.0))
        distance = abs(drop - margin)
        return math.ceil(float(spread / distance) ** 2 + self.step / distance)
