"""The Gaussian difficulty model: why accuracies on two test sets fall on a line (004 section 5.3).

Image i has difficulty t_i ~ Normal(mean, spread²), model j has skill s_j and is right with probability
Phi(s_j - t_i). Then its accuracy is Phi((s_j - mean) / sqrt(spread² + 1)), and on the probit scale the
accuracies on two test sets lie on a line with

    u = sqrt(spread_1² + 1) / sqrt(spread_2² + 1),    v = (mean_1 - mean_2) / sqrt(spread_2² + 1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftbench.arrays import FloatArray
from shiftbench.metrics.intervals import Interval
from shiftbench.studies.base import FRACTION, StudyError
from shiftbench.studies.fits import Fit, fit
from shiftbench.studies.scales import inverse_probit


@dataclass(frozen=True)
class Difficulty:
    """The difficulties of a test set's images: Normal(mean, spread²)."""

    mean: float
    spread: float

    def __post_init__(self) -> None:
        if not self.spread >= 0 or not np.isfinite(self.mean):
            raise StudyError("impossible difficulties", found=self, expected="a finite mean and a spread >= 0")

    def accuracy(self, skill: ArrayLike) -> FloatArray:
        """Phi((s - mean) / sqrt(spread² + 1)).

        >>> float(Difficulty(0.0, 1.0).accuracy(0.0))
        0.5
        """
        return inverse_probit((np.asarray(skill, dtype=np.float64) - self.mean) / np.sqrt(self.spread**2 + 1.0))


def line_of(first: Difficulty, second: Difficulty) -> tuple[float, float]:
    """u and v of the line on the probit scale.

    >>> u, v = line_of(Difficulty(0.0, 1.0), Difficulty(0.5, 1.0))
    >>> u, round(v, 4)
    (1.0, -0.3536)
    """
    width = float(np.sqrt(second.spread**2 + 1.0))
    return float(np.sqrt(first.spread**2 + 1.0)) / width, (first.mean - second.mean) / width


def simulate(skills: ArrayLike, difficulty: Difficulty, n: int, *, seed: int = 0) -> NDArray[np.bool_]:
    """(models, images) hits on n images of the model; every model sees the same images."""
    rng = np.random.default_rng(seed)
    ease = np.asarray(skills, dtype=np.float64)[:, None] - rng.normal(difficulty.mean, difficulty.spread, n)[None, :]
    return np.asarray(rng.random(ease.shape) < inverse_probit(ease))


@dataclass(frozen=True)
class Recovered:
    """A simulated pair of test sets: what the model says of the line and what a fit finds."""

    u: float
    v: float
    line: Fit

    @property
    def agrees(self) -> bool:
        """Whether both lie in the fit's intervals."""
        return _inside(self.u, self.line.slope_interval) and _inside(self.v, self.line.intercept_interval)


def recover(
    skills: ArrayLike,
    first: Difficulty,
    second: Difficulty,
    *,
    n_first: int = 50_000,
    n_second: int = 10_000,
    seed: int = 0,
    resamples: int = 1000,
) -> Recovered:
    """Simulate both test sets, fit the line on the probit scale, and put u and v beside it.

    >>> result = recover(np.linspace(-0.5, 2.5, 40), Difficulty(0, 1), Difficulty(0.5, 0.8), n_second=20_000)
    >>> abs(result.line.slope - result.u) < 0.03, abs(result.line.intercept - result.v) < 0.03
    (True, True)
    """
    u, v = line_of(first, second)
    x = simulate(skills, first, n_first, seed=seed).mean(axis=1)
    y = simulate(skills, second, n_second, seed=seed + 1).mean(axis=1)
    return Recovered(u, v, fit(x, y, scale="probit", unit=FRACTION, resamples=resamples))


def implied_difficulty(line: Fit, first: Difficulty | None = None) -> Difficulty:
    """The second test set's difficulties that a fitted probit line implies, given the first's.

    spread_2² = (spread_1² + 1) / u² - 1 and mean_2 = mean_1 - v sqrt(spread_2² + 1); without ``first`` that is
    Normal(0, 1). A line too steep for any spread is refused.

    >>> line = fit([0.3, 0.5, 0.8], [0.2, 0.4, 0.72], scale="probit", resamples=0)
    >>> implied = implied_difficulty(line)
    >>> [round(x, 6) for x in line_of(Difficulty(0, 1), implied)] == [round(line.slope, 6), round(line.intercept, 6)]
    True
    """
    if line.scale != "probit":
        raise StudyError(
            "difficulties follow from a probit line", found=f"a {line.scale} line", expected="scale='probit'"
        )
    first = first or Difficulty(0.0, 1.0)
    square = (first.spread**2 + 1.0) / line.slope**2 - 1.0
    if square < 0:
        raise StudyError(
            "no spread of difficulties gives so steep a line",
            found=f"slope {line.slope:.4f}",
            expected=f"at most {np.sqrt(first.spread**2 + 1.0):.4f} with spread {first.spread:g} on the first test set",
        )
    return Difficulty(first.mean - line.intercept * float(np.sqrt(square + 1.0)), float(np.sqrt(square)))


def _inside(value: float, ends: Interval | None) -> bool:
    return ends is not None and ends.low <= value <= ends.high
