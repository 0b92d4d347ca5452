"""Noise as a memoryless channel: one random word picks the output grey level of one input grey level.

Every noise corruption maps a grey level to a random grey level, independently for each value. Its law is
therefore a 256 x 256 table of probabilities, which is sampled exactly (to 2**-32) by Walker's alias method:
one table look-up and one comparison for a value, whatever the distribution.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shiftbench.shifts.corruptions.kernels.compiling import compiled
from shiftbench.shifts.corruptions.kernels.random import word

_BLOCK = 2048
_S8, _S24, _LOW8, _LOW24 = (np.uint32(v) for v in (8, 24, 0xFF, 0xFFFFFF))


@compiled
def alias_table(law: NDArray[np.float64]) -> NDArray[np.uint32]:
    """Vose's construction for every row; an entry packs (24-bit threshold << 8) | alias."""
    table = np.empty((256, 256), np.uint32)
    scaled = np.empty(256)
    small = np.empty(256, np.int64)
    large = np.empty(256, np.int64)
    for level in range(256):
        total = law[level].sum()
        n_small = n_large = 0
        for j in range(256):
            scaled[j] = law[level, j] * 256.0 / total
            table[level, j] = np.uint32((0xFFFFFF << 8) | j)
            if scaled[j] < 1.0:
                small[n_small] = j
                n_small += 1
            else:
                large[n_large] = j
                n_large += 1
        while n_small > 0 and n_large > 0:
            n_small -= 1
            s = small[n_small]
            g = large[n_large - 1]
            threshold = int(min(scaled[s] * 16777216.0 + 0.5, 16777215.0))
            table[level, s] = np.uint32((threshold << 8) | g)
            scaled[g] -= 1.0 - scaled[s]
            if scaled[g] < 1.0:
                n_large -= 1
                small[n_small] = g
                n_small += 1
    return table


@compiled
def sample(
    levels: NDArray[np.uint8],
    table: NDArray[np.uint32],
    out: NDArray[np.uint8],
    key0: np.uint64,
    key1: np.uint64,
    start: np.uint64,
) -> None:
    """Flat arrays; value i uses the lower or upper half of word i // 2.

    Words are made in blocks that stay in the cache, by a loop that vectorises.
    """
    words = np.empty(_BLOCK, np.uint64)
    halves = words.view(np.uint32)  # little-endian, like every machine that Numba runs on
    entries = table.reshape(65536)
    n = levels.size
    for base in range(0, n, 2 * _BLOCK):
        count = min(2 * _BLOCK, n - base)
        first = start + np.uint64(base >> 1)
        for i in range((count + 1) >> 1):
            words[i] = word(key0, key1, first + np.uint64(i))
        source, target = levels[base : base + count], out[base : base + count]
        for i in range(count):
            bits = halves[i]
            column = bits >> _S24
            entry = entries[(np.uint32(source[i]) << _S8) | column]
            target[i] = np.uint8(column if (bits & _LOW24) < (entry >> _S8) else entry & _LOW8)
