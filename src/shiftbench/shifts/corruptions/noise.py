"""Noise: every value of the image is replaced independently (Hendrycks and Dietterich 2019).

All four are memoryless channels from grey level to grey level. With a RandomState the published formulas are
evaluated on its numbers; with the keyed stream the very law of these formulas, a 256 x 256 table, is sampled.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.native.loops import fill_alias_table, sample
from shiftbench.shifts.corruptions.catalogue import corruption
from shiftbench.shifts.corruptions.severities import Row
from shiftbench.shifts.seeds import Draws, KeyedDraws, PublishedDraws

Law = NDArray[np.float64]


@corruption("gaussian_noise", group="noise", tabled=True, any_channels=True)
def gaussian_noise(image: Pixels, parameters: Row, draws: Draws) -> Pixels:
    """x + N(0, c), clipped: sensor noise in low light."""
    (scale,) = parameters
    if draws.published:
        return _levels(image / 255.0 + draws.normals(image.shape) * scale)
    return _sample(image, _table("gaussian", scale), draws)


@corruption("shot_noise", group="noise", tabled=True, any_channels=True)
def shot_noise(image: Pixels, parameters: Row, draws: Draws) -> Pixels:
    """Poisson(x * c) / c, clipped: the discreteness of light."""
    (photons,) = parameters
    if isinstance(draws, PublishedDraws):
        return _levels(draws.rng.poisson(image / 255.0 * photons) / photons)
    return _sample(image, _table("shot", photons), draws)


@corruption("impulse_noise", group="noise", tabled=True, any_channels=True)
def impulse_noise(image: Pixels, parameters: Row, draws: Draws) -> Pixels:
    """Salt and pepper: with probability c a value becomes 0 or 255, both equally likely.

    The published code draws these numbers from a generator that nobody can seed, so equality with it is one
    of distribution.
    """
    (amount,) = parameters
    if not draws.published:
        return _sample(image, _table("impulse", amount), draws)
    hit = draws.uniforms(image.shape) <= amount
    salt = draws.uniforms(image.shape) <= 0.5
    return np.where(hit, np.where(salt, np.uint8(255), np.uint8(0)), image)


@corruption("speckle_noise", group="noise", tabled=True, any_channels=True)
def speckle_noise(image: Pixels, parameters: Row, draws: Draws) -> Pixels:
    """x + x * N(0, c), clipped: noise in proportion to brightness."""
    (scale,) = parameters
    if not draws.published:
        return _sample(image, _table("speckle", scale), draws)
    x = image / 255.0
    return _levels(x + x * (draws.normals(image.shape) * scale))


def _levels(x: NDArray[np.float64]) -> Pixels:
    """Clip to [0, 1] and truncate to grey levels, as the published code does."""
    return (np.clip(x, 0, 1) * 255).astype(np.uint8)


def _sample(image: Pixels, table: NDArray[np.uint32], draws: Draws) -> Pixels:
    assert isinstance(draws, KeyedDraws)
    out = np.empty_like(image)
    sample(image.reshape(-1), table, out.reshape(-1), *draws.stretch())
    return out


@lru_cache(maxsize=64)
def _table(kind: str, parameter: float) -> NDArray[np.uint32]:
    table = np.empty((256, 256), np.uint32)
    fill_alias_table(noise_law(kind, parameter), table)
    return table


def noise_law(kind: str, parameter: float) -> Law:
    """law[x, y]: the probability that grey level x becomes y under the published formula."""
    if kind == "gaussian":
        return _rounded_normal(np.full(256, 255.0 * parameter))
    if kind == "speckle":
        law = _rounded_normal(np.maximum(np.arange(256) * parameter, 1e-12))
        law[0] = 0
        law[0, 0] = 1
    elif kind == "impulse":
        law = np.eye(256) * (1 - parameter)
        law[:, [0, 255]] += parameter / 2
    else:
        from scipy.special import gammaln, xlogy

        counts = np.arange(int(parameter + 12 * parameter**0.5 + 40))
        rate = (np.arange(256) / 255.0 * parameter)[:, None]
        mass = np.exp(xlogy(counts, rate) - rate - gammaln(counts + 1))
        law = np.zeros((256, 256))
        for k, y in enumerate(_levels(counts / parameter)):
            law[:, y] += mass[:, k]
    return law


def _rounded_normal(deviation: NDArray[np.float64]) -> Law:
    """Level x plus N(0, deviation[x]), clipped and truncated: y holds [y, y + 1), 0 and 255 the tails."""
    from scipy.special import ndtr

    x = np.arange(256)[:, None]
    below = ndtr((np.arange(1, 256)[None, :] - x) / deviation[:, None])  # P(result < 1 .. 255)
    ends = np.concatenate([np.zeros((256, 1)), below, np.ones((256, 1))], axis=1)
    return np.diff(ends, axis=1)
