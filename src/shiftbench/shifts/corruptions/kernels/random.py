"""Counter-based random numbers: the same words as :func:`shiftbench.shifts.seeds.random_word`."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shiftbench.shifts.corruptions.kernels.compiling import compiled

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11, _S9 = (np.uint64(s) for s in (30, 27, 31, 11, 9))
_BYTE, _SIGN, _ONE = np.uint64(0xFF), np.uint64(0x100), np.uint64(1)
_UNIT53 = 2.0**-53

_ZIGGURAT_TAIL = 3.6541528853610088  # Doornik (2005), 256 layers
_ZIGGURAT_AREA = 0.00492867323399


@compiled
def word(key0: np.uint64, key1: np.uint64, counter: np.uint64) -> np.uint64:
    z = key0 + counter * _GOLDEN
    z = (z ^ (z >> _S30)) * _MIX1 + key1
    z = (z ^ (z >> _S27)) * _MIX2
    return z ^ (z >> _S31)


@compiled
def fill_uniform(out: NDArray[np.float64], key0: np.uint64, key1: np.uint64, start: np.uint64) -> None:
    """Uniform on [0, 1), 53 bits each."""
    for i in range(out.size):
        out[i] = np.float64(word(key0, key1, start + np.uint64(i)) >> _S11) * _UNIT53


@lru_cache(maxsize=1)
def ziggurat_edges() -> NDArray[np.float64]:
    """Right edges of the 256 layers of equal area under exp(-x^2/2); edge 0 is the virtual base strip."""
    edges = np.zeros(257)
    edges[1] = _ZIGGURAT_TAIL
    edges[0] = _ZIGGURAT_AREA / math.exp(-0.5 * _ZIGGURAT_TAIL**2)
    for i in range(2, 256):
        density = _ZIGGURAT_AREA / edges[i - 1] + math.exp(-0.5 * edges[i - 1] ** 2)
        edges[i] = math.sqrt(-2.0 * math.log(density))
    return edges


@compiled
def fill_normal(
    out: NDArray[np.float64],
    edges: NDArray[np.float64],
    key0: np.uint64,
    key1: np.uint64,
    start: np.uint64,
) -> None:
    """Standard normal numbers by the ziggurat method (Marsaglia and Tsang 2000)."""
    counter = start
    for i in range(out.size):
        while True:
            bits = word(key0, key1, counter)
            counter += _ONE
            layer = np.int64(bits & _BYTE)
            x = np.float64(bits >> _S11) * _UNIT53 * edges[layer]
            if x < edges[layer + 1]:
                break
            u = 1.0 - np.float64(word(key0, key1, counter) >> _S11) * _UNIT53
            counter += _ONE
            if layer == 0:  # beyond the last edge: Marsaglia's tail method
                v = 1.0 - np.float64(word(key0, key1, counter) >> _S11) * _UNIT53
                counter += _ONE
                x = -math.log(u) / edges[1]
                if -2.0 * math.log(v) > x * x:
                    x += edges[1]
                    break
            else:
                low = math.exp(-0.5 * edges[layer] ** 2)
                high = math.exp(-0.5 * edges[layer + 1] ** 2)
                if low + u * (high - low) < math.exp(-0.5 * x * x):
                    break
        out[i] = -x if bits & _SIGN else x
