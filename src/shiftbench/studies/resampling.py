"""Bootstrap of a line over its points, without a loop over resamples.

Least squares needs of a resample only its sums of u, v, u² and uv. They are taken for many resamples at once,
on centred values so that nothing cancels: 100,000 resamples of 78 models take a fraction of a second.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import FloatArray
from shiftbench.metrics.intervals import Interval
from shiftbench.studies.base import StudyError

#: The seed that the ImageNet testbed draws its resamples of models with.
TESTBED_SEED = 720257663

#: Drawn indices held at once.
_BLOCK_CELLS = 2_000_000
#: Heights of resampled lines held at once.
_BAND_CELLS = 32_000


@dataclass(frozen=True)
class Procedure:
    """How resamples are drawn and how percentiles are read off them."""

    name: str
    seed: int
    #: How the lower and the upper percentile are read: numpy's "lower", "higher" or "linear".
    lower: str
    upper: str
    legacy: bool

    def indices(self, n: int, resamples: int) -> Iterator[NDArray[np.intp]]:
        """Blocks of (resamples, n) drawn rows; the stream does not depend on the blocks."""
        block = max(1, _BLOCK_CELLS // n)
        # The testbed draws with numpy's old generator; one call for many rows gives the same stream.
        legacy = np.random.RandomState(self.seed) if self.legacy else None
        modern = np.random.default_rng(self.seed)
        for start in range(0, resamples, block):
            shape = (min(block, resamples - start), n)
            yield legacy.randint(0, n, shape) if legacy is not None else modern.integers(0, n, shape)

    def interval(self, samples: FloatArray, level: float) -> tuple[FloatArray, FloatArray]:
        """The central interval along the last axis.

        The same numbers as numpy's percentiles with these methods, from one partition for both ends.
        """
        check_level(level)
        last = samples.shape[-1] - 1
        # Rounded, so that 95 % leaves 2.5 % and not 2.5000000000000022 %.
        tail = round((1.0 - level) / 2.0, 12)
        places = [tail * last, (1.0 - tail) * last]
        around = sorted({math.floor(places[0]), math.ceil(places[0]), math.floor(places[1]), math.ceil(places[1])})
        parted = np.partition(samples, around, axis=-1)
        return _at(parted, places[0], self.lower), _at(parted, places[1], self.upper)


def check_level(level: float) -> None:
    if not 0.0 < level < 1.0:
        raise StudyError("invalid confidence level", found=level, expected="between 0 and 1, such as 0.95")


def _at(parted: FloatArray, place: float, method: str) -> FloatArray:
    """The order statistic at a place between two whole ones."""
    below, above = parted[..., math.floor(place)], parted[..., math.ceil(place)]
    if method == "linear":
        return np.asarray(below + (above - below) * (place - math.floor(place)))
    return np.asarray(below if method == "lower" else above)


def get_procedure(name: str, seed: int | None) -> Procedure:
    """``"shiftbench"``: numpy's default generator, seed 0, interpolated percentiles. ``"testbed"``: the ImageNet
    testbed's own, RandomState(720257663), percentiles 'lower' and 'higher' (001's bands)."""
    if name == "testbed":
        return Procedure(name, TESTBED_SEED if seed is None else seed, "lower", "higher", legacy=True)
    if name == "shiftbench":
        return Procedure(name, 0 if seed is None else seed, "linear", "linear", legacy=False)
    raise StudyError("unknown bootstrap procedure", found=name, expected="shiftbench or testbed")


def least_squares(u: FloatArray, v: FloatArray) -> tuple[float, float, float]:
    """Slope, intercept and r² of v on u.

    slope = S_uv / S_uu, intercept = mean v - slope mean u, r² = S_uv² / (S_uu S_vv); r² is nan where all v are
    equal, for then there is nothing to explain.
    """
    du, dv = u - u.mean(), v - v.mean()
    suu, suv, svv = float(du @ du), float(du @ dv), float(dv @ dv)
    slope = suv / suu
    r2 = min(1.0, suv * suv / (suu * svv)) if svv > 0 else float("nan")
    return slope, float(v.mean() - slope * u.mean()), r2


def resampled_lines(u: FloatArray, v: FloatArray, procedure: Procedure, resamples: int) -> FloatArray:
    """(B, 2): slope and intercept of every resample; nan where all its points have one u.

    >>> u = np.arange(10.0)
    >>> lines = resampled_lines(u, 2 * u + 1, get_procedure("shiftbench", 0), 1000)
    >>> [float(x) for x in lines.mean(axis=0).round(6)]
    [2.0, 1.0]
    """
    n, centre_u, centre_v = len(u), u.mean(), v.mean()
    du, dv = u - centre_u, v - centre_v
    flat = 1e-12 * float(du @ du)
    lines = np.empty((resamples, 2))
    start = 0
    for index in procedure.indices(n, resamples):
        pu, pv = du[index], dv[index]
        mean_u, mean_v = pu.mean(axis=1), pv.mean(axis=1)
        suu = np.einsum("bn,bn->b", pu, pu) - n * mean_u**2
        suv = np.einsum("bn,bn->b", pu, pv) - n * mean_u * mean_v
        slope = np.divide(suv, suu, out=np.full(len(index), np.nan), where=suu > flat)
        stop = start + len(index)
        lines[start:stop, 0] = slope
        lines[start:stop, 1] = (centre_v + mean_v) - slope * (centre_u + mean_u)
        start = stop
    return lines


def line_band(lines: FloatArray, at: FloatArray, procedure: Procedure, level: float) -> tuple[FloatArray, FloatArray]:
    """Lower and upper end of slope * at + intercept over the resampled lines, for each point."""
    low, high = np.empty(len(at)), np.empty(len(at))
    slopes, intercepts = np.ascontiguousarray(lines.T)
    # A few points at a time: what fits the processor's cache is several times faster, and memory stays bounded.
    step = max(1, _BAND_CELLS // max(1, len(lines)))
    for start in range(0, len(at), step):
        part = slice(start, start + step)
        low[part], high[part] = procedure.interval(at[part, None] * slopes + intercepts, level)
    return low, high


def as_interval(ends: tuple[FloatArray, FloatArray]) -> Interval:
    return Interval(float(ends[0]), float(ends[1]))
