"""Where a corruption's random numbers come from.

A corruption function asks its ``draws`` for numbers and never touches a global generator. There are two
sources: :class:`PublishedDraws` hands out the numbers of a NumPy RandomState in the order in which the
published ImageNet-C code draws them (for parity), :class:`KeyedDraws` a fast counter-based stream that is
named by (seed, corruption, severity, image id).
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shiftbench.shifts.seeds import random_word

Values = NDArray[np.float64]
Size = tuple[int, ...]


class Draws(Protocol):
    """What a corruption function may ask for; ``published`` tells whether the order of draws is binding."""

    @property
    def published(self) -> bool: ...

    def uniform(self, low: float, high: float) -> float: ...

    def integer(self, low: int, high: int) -> int:
        """A whole number from ``low`` up to, not including, ``high``."""

    def uniforms(self, size: Size) -> Values:
        """Numbers on [0, 1)."""

    def normals(self, size: Size) -> Values:
        """Standard normal numbers."""


class PublishedDraws:
    """The numbers of a RandomState, one call for each call of the published code."""

    published = True

    def __init__(self, rng: np.random.RandomState) -> None:
        self.rng = rng

    def uniform(self, low: float, high: float) -> float:
        return float(self.rng.uniform(low, high))

    def integer(self, low: int, high: int) -> int:
        return int(self.rng.randint(low, high))

    def uniforms(self, size: Size) -> Values:
        return self.rng.random_sample(size)

    def normals(self, size: Size) -> Values:
        return self.rng.standard_normal(size)


class KeyedDraws:
    """A counter-based stream; each request takes its own stretch of the counter.

    >>> draws = KeyedDraws((1, 2))
    >>> 0 <= draws.uniform(0, 1) < 1, draws.normals((2, 3)).shape
    (True, (2, 3))
    """

    published = False

    def __init__(self, key: tuple[int, int]) -> None:
        self.key = key
        self._requests = 0

    @property
    def used(self) -> bool:
        """Whether any number was drawn."""
        return self._requests > 0

    def stretch(self) -> tuple[np.uint64, np.uint64, np.uint64]:
        """Both key halves and the first counter of a stretch that nobody else uses."""
        start = self._requests << 40
        self._requests += 1
        return np.uint64(self.key[0]), np.uint64(self.key[1]), np.uint64(start)

    def uniform(self, low: float, high: float) -> float:
        start = self._requests << 40
        self._requests += 1
        return low + (high - low) * ((random_word(self.key, start) >> 11) * 2.0**-53)

    def integer(self, low: int, high: int) -> int:
        return min(math.floor(self.uniform(low, high)), high - 1)

    def uniforms(self, size: Size) -> Values:
        from shiftbench.shifts.corruptions.kernels import fill_uniform

        out = np.empty(size)
        fill_uniform(out.reshape(-1), *self.stretch())
        return out

    def normals(self, size: Size) -> Values:
        from shiftbench.shifts.corruptions.kernels import fill_normal, ziggurat_edges

        out = np.empty(size)
        fill_normal(out.reshape(-1), ziggurat_edges(), *self.stretch())
        return out
