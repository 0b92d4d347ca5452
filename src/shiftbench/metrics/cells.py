"""Which cells of a grid tell most about a candidate: images under shifts, chosen by the baseline's confidence.

A baseline that was evaluated on the full grid says in advance where another model may answer differently: where it was
unsure itself. Cells are drawn with replacement, with a density between a floor and what the rates of disagreement of
earlier candidates suggest. A loss is divided by the density of its cell, so that its expectation is the drop over all
cells, whatever the rates are: wrong rates cost cells, not truth. The floor bounds what a single cell can weigh.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shiftbench.arrays import BoolArray, FloatArray, IntArray
from shiftbench.metrics.betting import Drop, PriorLosses, draws_to_show

#: Every cell is drawn with at least one of these shares of the density of an even draw.
FLOORS = (0.5, 0.65, 0.8)
#: The floor is chosen for a drop of this size, in place of the margins of a policy, which may be changed later.
_TYPICAL_MARGIN = 0.01
#: Bins of the baseline's confidence, for cells that it got right and for those that it got wrong.
_CONFIDENCE_BINS = 15
BINS = 2 * _CONFIDENCE_BINS
#: The weight, in draws of each bin, of the rates that are assumed before a candidate was seen.
_ASSUMED_DRAWS = 20.0
#: The weight, in draws, of the mean square that the rates suggest for the losses.
_SUGGESTED_DRAWS = 50.0


def _assumed_rates() -> FloatArray:
    """The rates of disagreement before any candidate was seen: high where the baseline was least confident."""
    confidence_rank = (np.arange(_CONFIDENCE_BINS) + 0.5) / _CONFIDENCE_BINS
    by_rank = 0.01 + 0.15 * np.square(1 - confidence_rank)
    return np.concatenate([by_rank, by_rank])


@dataclass(frozen=True, eq=False)
class DisagreementRates:
    """How often earlier candidates disagreed with the baseline about being right, by bin.

    Attributes:
        seen: Number of draws of each bin.
        changed: Of these, where candidate and baseline were not both right or both wrong.
    """

    seen: FloatArray
    changed: FloatArray

    @classmethod
    def unknown(cls) -> DisagreementRates:
        return cls(np.zeros(BINS), np.zeros(BINS))

    def __add__(self, other: DisagreementRates) -> DisagreementRates:
        return DisagreementRates(self.seen + other.seen, self.changed + other.changed)

    @cached_property
    def values(self) -> FloatArray:
        """The rate of each bin: as seen, drawn towards what is assumed, which is scaled to the overall rate."""
        assumed = _assumed_rates()
        scale = (self.changed.sum() + 1) / (float(self.seen @ assumed) + 1)
        return np.asarray((self.changed + _ASSUMED_DRAWS * scale * assumed) / (self.seen + _ASSUMED_DRAWS))


@dataclass(frozen=True, eq=False)
class CellPool:
    """The cells of a grid in which a baseline's answers are known.

    Attributes:
        settings: Number of the setting of each cell.
        images: Number of its image.
        was_right: Whether the baseline was right.
        confidence: The baseline's confidence.
    """

    settings: IntArray
    images: IntArray
    was_right: BoolArray
    confidence: FloatArray

    def __len__(self) -> int:
        return len(self.settings)

    @cached_property
    def bins(self) -> IntArray:
        """The bin of each cell: right or wrong, and of these the rank of the baseline's confidence."""
        bins = np.zeros(len(self), np.int64)
        for number, members in enumerate((self.was_right, ~self.was_right)):
            count = int(members.sum())
            ranks = np.empty(count, np.int64)
            ranks[np.argsort(self.confidence[members], kind="stable")] = np.arange(count)
            bins[members] = number * _CONFIDENCE_BINS + ranks * _CONFIDENCE_BINS // max(count, 1)
        return bins

    @cached_property
    def _by_bin(self) -> IntArray:
        """The numbers of the cells, bin after bin."""
        return np.argsort(self.bins, kind="stable")

    @cached_property
    def _shares(self) -> FloatArray:
        """The share of each bin among the cells."""
        return np.asarray(np.bincount(self.bins, minlength=BINS) / max(len(self), 1))

    def densities(self, rates: DisagreementRates) -> FloatArray:
        """The density of each bin, relative to an even draw of all cells.

        A low floor suits candidates that disagree often, because it lowers the variance of the losses. A high one
        suits those that hardly ever disagree: it bounds what a single cell can weigh, and with it the stakes. The
        floor is the one with which an equal candidate that disagrees like earlier ones needs the fewest draws. Floors
        below a half would save a tenth where models disagree often, but cost a third if a candidate disagrees less
        than earlier ones.
        """
        candidates = [self._densities_above(floor, rates) for floor in FLOORS]
        draws = [
            draws_to_show(self._shares * densities, rates.values, 1 / densities, _TYPICAL_MARGIN)
            for densities in candidates
        ]
        return candidates[int(np.argmin(draws))]

    def _densities_above(self, floor: float, rates: DisagreementRates) -> FloatArray:
        roots = np.sqrt(rates.values)
        return np.asarray(floor + (1 - floor) * roots / float(self._shares @ roots))

    def drawn(self, rates: DisagreementRates, count: int, seed: int) -> IntArray:
        """The first draws of a seed: numbers of cells. More draws of a seed begin with the fewer ones."""
        sizes = np.bincount(self.bins, minlength=BINS)
        first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        chances = np.cumsum(sizes * self.densities(rates))
        uniform = np.random.default_rng(seed).random((count, 2))
        bins = np.searchsorted(chances, uniform[:, 0] * chances[-1], side="right")
        within = np.floor(uniform[:, 1] * sizes[bins]).astype(np.int64)
        return np.asarray(self._by_bin[first[bins] + within])

    def drop(
        self,
        members: BoolArray,
        draws: IntArray,
        is_right: BoolArray,
        rates: DisagreementRates,
        margin: float,
        was_right: BoolArray | None = None,
    ) -> Drop:
        """The drop over some cells, each setting with the same weight, from the draws that are among them.

        Args:
            members: Which cells of the pool the drop is about.
            draws: Numbers of the cells that were drawn, in the order of the draws.
            is_right: For each draw, whether the candidate was right.
            rates: The rates that the cells were drawn with.
            margin: The drop that is accepted.
            was_right: For each cell, whether another model was right that the candidate is compared with; default: the
                baseline.
        """
        density = self.densities(rates)[self.bins]
        sizes = np.bincount(self.settings[members], minlength=int(self.settings.max(initial=0)) + 1)
        target = 1 / (np.count_nonzero(sizes) * np.maximum(sizes, 1)[self.settings])
        weights = target * float(density[members].sum()) / density
        among = members[draws]
        cells = draws[among]
        before = self.was_right if was_right is None else was_right
        losses = weights[cells] * (before[cells].astype(float) - is_right[among])
        bound = float(weights[members].max())
        return Drop(losses, margin, bound, float(weights[members].min()), self._prior(members, weights, density, rates))

    def _prior(
        self, members: BoolArray, weights: FloatArray, density: FloatArray, rates: DisagreementRates
    ) -> PriorLosses:
        """The squares of losses that the rates suggest, and the size of those that matter most."""
        chances = density[members] / float(density[members].sum())
        changed = chances * rates.values[self.bins[members]]
        square = float(changed @ weights[members] ** 2)
        fourth = float(changed @ weights[members] ** 4)
        return PriorLosses(square, _SUGGESTED_DRAWS, math.sqrt(fourth / square))

    def seen(self, draws: IntArray, is_right: BoolArray) -> DisagreementRates:
        """What these draws add to the rates."""
        bins = self.bins[draws]
        changed = (self.was_right[draws] != is_right).astype(float)
        changed_by_bin = np.bincount(bins, changed, minlength=BINS).astype(np.float64)
        return DisagreementRates(np.bincount(bins, minlength=BINS).astype(np.float64), changed_by_bin)
