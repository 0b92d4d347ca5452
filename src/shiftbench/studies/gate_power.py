"""How many images a gate needs before a candidate that is no worse can pass it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shiftbench.arrays import FloatArray
from shiftbench.metrics.betting import Drop, probability_of_showing

#: Drops nearer to the margin than this share of it are not worth more images.
_NEAREST = 0.1
_HALVINGS = 12
#: No dataset is larger; the search for a number of images ends here.
_MOST_IMAGES = 10**12


@dataclass(frozen=True)
class PlannedNumber:
    """One number of a rule in a future gate with more images.

    Attributes:
        drop: What the present images show.
        margin: The largest drop that is accepted, as a fraction.
        share: Images of this number among all images: a class, or a corruption of a design, has only some of them.
        square: Mean square of an image's loss, as estimated from all numbers of the rule.
        true_drop: The drop that is assumed.
    """

    drop: Drop
    margin: float
    share: float
    square: float
    true_drop: float = 0.0

    def as_observed(self) -> PlannedNumber:
        """The same number, if its true drop is the observed one, or a little less than the margin."""
        largest = (1 - _NEAREST) * self.margin
        return replace(self, true_drop=min(max(self.drop.value, 0.0), largest))

    def power(self, images: int, alpha: float) -> float:
        """Probability that a dataset of this size shows on which side of the margin the true drop is."""
        return probability_of_showing(
            drop=self.true_drop,
            margin=self.margin,
            square=self.square,
            share_changed=self.drop.share_changed,
            bound=self.drop.bound,
            n=images * self.share,
            alpha=alpha,
            prior=self.drop.prior,
        )

    def beyond(self, true_drop: float) -> PlannedNumber:
        """The same number after a drop of this size: the images that are lost raise the mean square."""
        return replace(self, true_drop=true_drop, square=self.square + true_drop * self.drop.bound)


def planned_numbers(drops: Sequence[Drop], images: int) -> list[PlannedNumber]:
    """The numbers of one rule; those without any image are left out."""
    observed = [drop for drop in drops if drop.n]
    squares = shrunk_squares(observed)
    planned = []
    for drop, square in zip(observed, squares, strict=True):
        planned.append(PlannedNumber(drop, drop.margin, drop.n / images, float(square)))
    return planned


def _typical_loss(drop: Drop) -> float:
    """What an image that loses something loses: the root mean square, or the least possible loss if none does."""
    if drop.share_changed == 0:
        return drop.step
    return math.sqrt(drop.square / drop.share_changed)


def shrunk_squares(drops: Sequence[Drop]) -> FloatArray:
    """Mean square of each number's losses, drawn towards their common mean as far as it varies by chance alone.

    A class with thirty images may show three disagreements or none by chance; the largest of a hundred such estimates
    is much too large. The variance between numbers beyond chance is estimated by the method of moments. One
    disagreement is added to those that were seen, because none in a few images does not mean that there are none.
    """
    if not drops:
        return np.empty(0)
    n = np.array([drop.n for drop in drops], dtype=float)
    squares = np.array([drop.square for drop in drops])
    steps = np.array([_typical_loss(drop) for drop in drops])
    common = float((n * squares).sum() + steps.max() ** 2) / float(n.sum())
    by_chance = common * steps**2 / n
    beyond_chance = max(float(np.mean((squares - common) ** 2 - by_chance)), 0.0)
    trust = beyond_chance / (beyond_chance + by_chance)
    return np.asarray(trust * squares + (1 - trust) * common)


def images_to_pass(numbers: Sequence[PlannedNumber], alpha: float, power: float) -> int:
    """Size of the dataset with which all numbers are shown to be within their margins with this probability.

    The probabilities are multiplied, as if numbers were independent. Those of the same images are not, and are within
    their margins together more often.
    """

    def probability(images: int) -> float:
        return math.prod(number.power(images, alpha) for number in numbers)

    return _first(probability, power)


def smallest_margin(numbers: Sequence[PlannedNumber], alpha: float, power: float, images: int) -> float:
    """The smallest margin within which this many images show all numbers of an equal candidate, as a fraction."""
    low = 0.0
    high = 1.0
    for _ in range(_HALVINGS):
        margin = (low + high) / 2
        probability = math.prod(replace(number, margin=margin).power(images, alpha) for number in numbers)
        if probability < power:
            low = margin
        else:
            high = margin
    return high


def images_to_fail(numbers: Sequence[PlannedNumber], alpha: float, power: float) -> int:
    """Size of the dataset with which a drop of twice the margin in a single number, whichever, is shown."""

    def probability(images: int) -> float:
        return min(number.beyond(2 * number.margin).power(images, alpha) for number in numbers)

    return _first(probability, power)


def _first(probability: Callable[[int], float], power: float) -> int:
    """The smallest number of images with a probability of at least ``power``; the probability grows with them."""
    enough = 1
    while probability(enough) < power and enough < _MOST_IMAGES:
        enough *= 2
    too_few = enough // 2
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        if probability(middle) < power:
            too_few = middle
        else:
            enough = middle
    return enough
