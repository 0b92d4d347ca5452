"""The Gaussian difficulty model beside real accuracies: does it give the line that real models fall on?

From accuracies on two test sets: the probit line, the difficulties of the second set that it implies (the first is
Normal(0, 1) unless said otherwise), the skill of every model, and a simulation of these models on as many images.
If the model holds, the simulated line is the real one up to chance, and its points scatter about it as little.

All models see the same images, so a simulated test set that came out hard moves all of them: the simulated line's
intervals are from resampling images and models, not models alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shiftbench.arrays import FloatArray
from shiftbench.studies.base import StudyError
from shiftbench.studies.difficulty import Difficulty, Recovered, implied_difficulty, line_of, simulate
from shiftbench.studies.fits import Fit
from shiftbench.studies.image_bootstrap import image_bootstrap
from shiftbench.studies.knee_images import with_image_intervals
from shiftbench.studies.scales import probit


@dataclass(frozen=True)
class DifficultyFit:
    """What was assumed or implied, what the formula says, and what a fit to simulated models finds."""

    first: Difficulty
    second: Difficulty
    recovered: Recovered
    skills: FloatArray
    n_first: int
    n_second: int
    seed: int
    #: The line of the real accuracies; None for a plain simulation.
    line: Fit | None = None

    @property
    def same_line(self) -> bool | None:
        """Whether the real and the simulated line agree: the intervals of both coefficients overlap."""
        if self.line is None:
            return None
        mine = self.recovered.line
        pairs = (
            (self.line.slope_interval, mine.slope_interval),
            (self.line.intercept_interval, mine.intercept_interval),
        )
        if any(a is None or b is None for a, b in pairs):
            return None
        return all(a and b and a.low <= b.high and b.low <= a.high for a, b in pairs)

    def as_dict(self) -> dict[str, Any]:
        recovered = self.recovered
        return {
            "first": {"mean": self.first.mean, "spread": self.first.spread, "images": self.n_first},
            "second": {"mean": self.second.mean, "spread": self.second.spread, "images": self.n_second},
            "models": len(self.skills),
            "skills": [float(self.skills.min()), float(self.skills.max())],
            "seed": self.seed,
            "u": recovered.u,
            "v": recovered.v,
            "simulated": recovered.line.as_dict(),
            "agrees": recovered.agrees,
            "fit": None if self.line is None else self.line.as_dict(),
            "same_line": self.same_line,
        }


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

    ``line`` is that of real models, to be put beside it.
    """
    array = np.asarray(skills, dtype=np.float64)
    hits = [simulate(array, one, n, seed=seed + i) for i, (one, n) in enumerate(((first, n_first), (second, n_second)))]
    found = image_bootstrap(hits[0], hits[1], scale="probit", over_models=True, resamples=resamples, seed=seed)
    recovered = Recovered(*line_of(first, second), with_image_intervals(found))
    return DifficultyFit(first, second, recovered, array, n_first, n_second, seed, line)


def difficulty_of_line(
    line: Fit, x: ArrayLike, *, n_first: int, n_second: int, first: Difficulty | None = None, seed: int = 0
) -> DifficultyFit:
    """The difficulties that a probit line implies, and the same models simulated on them.

    ``x`` are the fitted models' accuracies on the first test set, as fractions: they give the skills,
    s = mean_1 + probit(x) sqrt(spread_1² + 1).

    >>> from shiftbench.studies.fits import fit
    >>> x = np.array([0.5, 0.6, 0.7, 0.8, 0.9])
    >>> line = fit(x, [0.41, 0.52, 0.62, 0.73, 0.86], scale="probit")
    >>> found = difficulty_of_line(line, x, n_first=20_000, n_second=20_000)
    >>> abs(found.recovered.line.slope - line.slope) < 0.05
    True
    """
    first = first or Difficulty(0.0, 1.0)
    second = implied_difficulty(line, first)
    fractions = np.asarray(x, dtype=np.float64)
    if not ((fractions > 0) & (fractions < 1)).all():
        raise StudyError("skills follow from accuracies between 0 and 1", found=f"{fractions.min():g}")
    skills = first.mean + probit(fractions) * np.sqrt(first.spread**2 + 1.0)
    return simulate_difficulty(skills, first, second, n_first=n_first, n_second=n_second, seed=seed, line=line)
