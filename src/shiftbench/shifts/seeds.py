"""Random numbers that depend on what is shifted, and on nothing else.

A stream of numbers belongs to one (seed, image id, shift, ...) and is named by the BLAKE2b hash of those, so
that the order of the images, the batch size, the process and the machine do not matter. No global random
state is read or changed.
"""

from __future__ import annotations

import hashlib
import math
from json.encoder import encode_basestring_ascii as _quoted

import numpy as np
from numpy.typing import NDArray

from shiftbench.native.loops import fill_normal, fill_symmetric, fill_uniform, ziggurat_edges

SEED_SCHEME = "1"
_MASK = (1 << 64) - 1


def derive_key(seed: int, *parts: str | int | float) -> tuple[int, int]:
    """Two 64-bit words for one stream of random numbers.

    The parts are written as JSON before hashing, so ("a", "bc") and ("ab", "c") give different streams and
    1 and 1.0 the same.
    """
    # Written by hand: the general encoder takes ten times as long, and this runs for every image and shift.
    words = [_quoted(SEED_SCHEME), repr(int(seed))]
    for part in parts:
        words.append(repr(float(part)) if isinstance(part, (int, float)) else _quoted(str(part)))
    text = f"[{','.join(words)}]"
    digest = hashlib.blake2b(text.encode("ascii"), digest_size=16, person=b"shiftbench").digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


def derive_seed(seed: int, *parts: str | int | float) -> int:
    """One 32-bit seed for a library that wants a plain integer."""
    return derive_key(seed, *parts)[0] & 0xFFFFFFFF


def random_word(key: tuple[int, int], counter: int) -> int:
    """The counter-th 64-bit word of a stream: SplitMix64's mixing with a second key half added midway.

    Counter-based, hence any word can be computed without those before it. The compiled kernels compute the
    same words.
    """
    z = (key[0] + counter * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 + key[1]) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


Values = NDArray[np.float64]
Size = tuple[int, ...]


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
    """A counter-based stream; each request takes its own stretch of the counter."""

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
        _, _, start = self.stretch()
        return low + (high - low) * ((random_word(self.key, int(start)) >> 11) * 2.0**-53)

    def integer(self, low: int, high: int) -> int:
        return min(math.floor(self.uniform(low, high)), high - 1)

    def uniforms(self, size: Size) -> Values:
        out = np.empty(size)
        fill_uniform(out.reshape(-1), *self.stretch())
        return out

    def symmetric(self, size: Size, reach: float) -> NDArray[np.float32]:
        """Uniform on [-reach, reach)."""
        out = np.empty(size, np.float32)
        fill_symmetric(out.reshape(-1), reach, *self.stretch())
        return out

    def normals(self, size: Size) -> Values:
        out = np.empty(size)
        fill_normal(out.reshape(-1), ziggurat_edges(), *self.stretch())
        return out


#: What a corruption function may ask for; of ``published`` draws the order is binding.
Draws = PublishedDraws | KeyedDraws
