"""The Gaussian difficulty model: why accuracies on two test sets fall on a line (004 section 5.3).

Image i has difficulty t_i ~ Normal(mean, spread²), model j has skill s_j and is right with probability
Phi(s_j - t_i). Then its accuracy is Phi((s_j - mean) / sqrt(spread² + 1)), and on the probit scale the
accuracies on two test sets lie on a line with

    u = sqrt(spread_1² + 1) / sqrt(spread_2² + 1),    v = (mean_1 - mean_2) / sqrt(spread_2² + 1).

From accuracies on two test sets: the probit line, the difficulties of the second set that it implies (the first is
Normal(0, 1) by default), the skill of every model, and a simulation of these models on as many images.
If the model holds, the simulated line is the real one up to chance, and its points scatter about it as little.

All models see the same images, so a simulated test set that came out hard moves all of them: the simulated line's
intervals are from resampling images and models, not models alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shiftbench.arrays import BoolArray, FloatArray
from shiftbench.metrics.intervals import Interval
from shiftbench.studies.base import StudyError, inverse_probit, probit
from shiftbench.studies.fits import Fit
from shiftbench.studies.image_bootstrap import image_bootstrap


@dataclass(frozen=True)
class Difficulty:
    """The difficulties of a test set's images: Normal(mean, spread²)."""

    mean: float
    spread: float

    def __post_init__(self) -> None:
        if not self.spread >= 0 or not np.isfinite(self.mean):
            raise StudyError("invalid difficulties", found=self, expected="a finite mean and a spread >= 0")

    def accuracy(self, skill: ArrayLike) -> FloatArray:
        """Phi((s - mean) / sqrt(spread² + 1))."""
        return inverse_probit((np.asarray(skill, dtype=np.float64) - self.mean) / np.sqrt(self.spread**2 + 1.0))


def line_of(first: Difficulty, second: Difficulty) -> tuple[float, float]:
    """u and v of the line on the probit scale."""
    width = float(np.sqrt(second.spread**2 + 1.0))
    return float(np.sqrt(first.spread**2 + 1.0)) / width, (first.mean - second.mean) / width


def simulate(skills: ArrayLike, difficulty: Difficulty, n: int, *, seed: int = 0) -> BoolArray:
    """(models, images) hits on n images of the model; every model sees the same images."""
    rng = np.random.default_rng(seed)
    ease = np.asarray(skills, dtype=np.float64)[:, None] - rng.normal(difficulty.mean, difficulty.spread, n)[None, :]
    return np.asarray(rng.random(ease.shape) < inverse_probit(ease))


def implied_difficulty(line: Fit, first: Difficulty | None = None) -> Difficulty:
    """The second test set's difficulties that a fitted probit line implies, given the first's.

    spread_2² = (spread_1² + 1) / u² - 1 and mean_2 = mean_1 - v sqrt(spread_2² + 1); without ``first`` that is
    Normal(0, 1). A line too steep for any spread, and a falling one, are refused.
    """
    if line.scale != "probit":
        raise StudyError(
            "difficulties follow from a probit line", found=f"a {line.scale} line", expected="scale='probit'"
        )
    first = first or Difficulty(0.0, 1.0)
    if not line.slope > 0:
        raise StudyError(
            "no difficulties imply a falling line: a more skilled model is more accurate on every test set",
            found=f"slope {line.slope:.4f}",
            expected="a slope above 0",
        )
    square = (first.spread**2 + 1.0) / line.slope**2 - 1.0
    if square < 0:
        raise StudyError(
            "the line is too steep for any spread of difficulties",
            found=f"slope {line.slope:.4f}",
            expected=f"at most {np.sqrt(first.spread**2 + 1.0):.4f} with spread {first.spread:g} on the first test set",
        )
    return Difficulty(first.mean - line.intercept * float(np.sqrt(square + 1.0)), float(np.sqrt(square)))


@dataclass(frozen=True)
class DifficultyFit:
    """Assumed or implied difficulties of two test sets, and the line fitted to simulated models."""

    first: Difficulty
    second: Difficulty
    simulated: Fit
    skills: FloatArray
    n_first: int
    n_second: int
    seed: int
    #: The line of the real accuracies; None for a plain simulation.
    line: Fit | None = None

    @property
    def agrees(self) -> bool:
        """Whether slope and intercept by the formula lie in the intervals of the simulated line."""
        slope, intercept = line_of(self.first, self.second)
        simulated = self.simulated
        return _contains(simulated.slope_interval, slope) and _contains(simulated.intercept_interval, intercept)

    @property
    def same_line(self) -> bool | None:
        """Whether the real and the simulated line agree: the intervals of both coefficients overlap."""
        if self.line is None:
            return None
        slopes = _overlap(self.line.slope_interval, self.simulated.slope_interval)
        intercepts = _overlap(self.line.intercept_interval, self.simulated.intercept_interval)
        if slopes is None or intercepts is None:
            return None
        return slopes and intercepts

    def as_dict(self) -> dict[str, Any]:
        u, v = line_of(self.first, self.second)
        return {
            "first": {"mean": self.first.mean, "spread": self.first.spread, "images": self.n_first},
            "second": {"mean": self.second.mean, "spread": self.second.spread, "images": self.n_second},
            "models": len(self.skills),
            "skills": [float(self.skills.min()), float(self.skills.max())],
            "seed": self.seed,
            "u": u,
            "v": v,
            "simulated": self.simulated.as_dict(),
            "agrees": self.agrees,
            "fit": None if self.line is None else self.line.as_dict(),
            "same_line": self.same_line,
        }


def _contains(interval: Interval | None, value: float) -> bool:
    return interval is not None and interval.low <= value <= interval.high


def _overlap(a: Interval | None, b: Interval | None) -> bool | None:
    """Whether the intervals overlap; None if one of them does not exist."""
    if a is None or b is None:
        return None
    return a.low <= b.high and b.low <= a.high


def simulate_difficulty(
    skills: ArrayLike,
    first: Difficulty,
    second: Difficulty,
    *,
    n_first: int,
    n_second: int,
    seed: int = 0,
    resamples: int = 1000,
    line: Fit | None = None,
) -> DifficultyFit:
    """Models of the given skills on two simulated test sets, and the line recovered from them.

    ``line`` is the line of real models, which is kept for comparison.
    """
    array = np.asarray(skills, dtype=np.float64)
    hits_first = simulate(array, first, n_first, seed=seed)
    hits_second = simulate(array, second, n_second, seed=seed + 1)
    drawn = image_bootstrap(hits_first, hits_second, scale="probit", over_models=True, resamples=resamples, seed=seed)
    return DifficultyFit(first, second, drawn.drawn_line, array, n_first, n_second, seed, line)


def difficulty_of_line(
    line: Fit, x: ArrayLike, *, n_first: int, n_second: int, first: Difficulty | None = None, seed: int = 0
) -> DifficultyFit:
    """The difficulties that a probit line implies, and the same models simulated on them.

    ``x`` are the fitted models' accuracies on the first test set, as fractions: they give the skills,
    s = mean_1 + probit(x) sqrt(spread_1² + 1).
    """
    first = first or Difficulty(0.0, 1.0)
    second = implied_difficulty(line, first)
    fractions = np.asarray(x, dtype=np.float64)
    if not ((fractions > 0) & (fractions < 1)).all():
        raise StudyError("skills follow from accuracies between 0 and 1", found=f"{fractions.min():g}")
    skills = first.mean + probit(fractions) * np.sqrt(first.spread**2 + 1.0)
    return simulate_difficulty(skills, first, second, n_first=n_first, n_second=n_second, seed=seed, line=line)
