"""The number of images of a design, from a budget of time or forward passes or from a target interval width.

In two stages (Stein 1945; Cox 1952): a pilot measures speed and variance, then the number of images is fixed once, and
the interval is computed from all of them. The estimate does not decide when to stop, so intervals keep
their coverage; ``tests/runs/test_budget.py`` shows it by simulation.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from shiftbench.datasets.base import Dataset
from shiftbench.datasets.subset import balanced
from shiftbench.errors import ResultWarning, SettingError, argument
from shiftbench.grouping import by_key
from shiftbench.metrics.designs import Estimate, design_outcomes
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.runs.execute import Outcome
from shiftbench.runs.results import StoredResults
from shiftbench.settings.base import Suite
from shiftbench.settings.designs import OnePass, apply_design
from shiftbench.store.maintenance import removable, remove_results
from shiftbench.store.workspace import PartResult

R = TypeVar("R", bound=StoredResults)
Compute = Callable[[Mapping[str, Dataset], Suite], tuple[Outcome, R]]

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
#: Images of the pilot, under each shift and in all. After fewer, a pilot that happens to see few errors would both
#: stop too early and be most of the estimate: 24 images at an error of 10 % gave 86 % coverage.
_PILOT_PER_SHIFT, _PILOT = 4, 200
#: Share of the remaining time that is planned for: the last blocks of several workers do not end together.
_SPENT = 0.9


def duration(text: str | float, expected: str = 'a duration such as "20s", "2min" or 20') -> float:
    """Seconds of a duration; a number without a unit is itself."""
    found = re.fullmatch(r"\s*(\d*\.?\d+)\s*(s|sec|m|min|h)?\s*", str(text))
    if found is None or float(found[1]) <= 0:
        raise SettingError("invalid budget", found=repr(text), expected=expected)
    return float(found[1]) * _UNITS[(found[2] or "s")[0]]


@dataclass(frozen=True)
class Budget:
    """Limits on a design: seconds or forward passes per model, and the half-width of mean accuracy, as a fraction."""

    seconds: float | None = None
    forward_passes: int | None = None
    half_width: float | None = None
    level: float = 0.95

    @classmethod
    def parse(cls, budget: str | float | None, width: float | None) -> Budget | None:
        """From ``"60s"``, ``"5m"`` or a number of forward passes, and a half-width in points."""
        if budget is None and width is None:
            return None
        if width is not None and not (isinstance(width, int | float) and 0 < width < 100):
            raise SettingError("invalid width", found=width, expected="percentage points above 0, such as 0.5")
        half = None if width is None else width / 100
        if budget is None:
            return cls(half_width=half)
        amount = duration(budget, "a time such as 60s or 5m, or a number of forward passes")
        if str(budget).strip()[-1:].isalpha():
            return cls(seconds=amount, half_width=half)
        return cls(forward_passes=int(amount), half_width=half)

    @property
    def fixed(self) -> bool:
        """Whether the number of images is known in advance, so that no pilot is needed."""
        return self.forward_passes is not None and self.half_width is None

    def pilot(self, images: int, shifts: int, passes: int) -> int:
        """Images of the first stage; all of them if they are few, or if their number is fixed."""
        fewest = max(_PILOT, math.ceil(_PILOT_PER_SHIFT * shifts / passes))
        if self.forward_passes is not None:
            affordable = self.forward_passes // (1 + passes)
            fewest = affordable if self.fixed else min(fewest, affordable)
            if fewest * passes < 2 * shifts:
                raise SettingError(
                    "the budget is too small for this design",
                    found=f"{self.forward_passes:,} forward passes for {shifts} shifts",
                    expected=f"{math.ceil(2 * shifts / passes) * (1 + passes):,} or more: 2 images under each shift",
                    hint=f"a larger {argument('budget')}, or fewer shifts",
                )
        return min(images, fewest)

    def images(self, pilot: int, passes: int, elapsed: float, new: float, means: Iterable[Estimate]) -> int:
        """Images of both stages together, from what the pilot took and found, on so many images that were new to it."""
        wanted: list[float] = []
        if self.seconds is not None:
            wanted.append(pilot + max(0.0, _SPENT * (self.seconds - elapsed)) * new / max(elapsed, 1e-9))
        if self.forward_passes is not None:
            wanted.append(self.forward_passes // (1 + passes))
        if self.half_width is not None:
            halves = [max(mean.half_width(self.level), _cautious(mean.value, pilot)) for mean in means]
            wanted.append(math.ceil(pilot * (max(halves) / self.half_width) ** 2))
        return max(pilot, int(min(wanted, default=pilot)))


def _cautious(error: float, images: int) -> float:
    """The half-width of an error that is two errors and two hits nearer to a half (Agresti and Coull 1998)."""
    shrunk = (error * images + 2) / (images + 4)
    return 1.96 * math.sqrt(shrunk * (1 - shrunk) / images)


def mean_estimates(run: StoredResults) -> list[Estimate]:
    """The mean error over the shifts of each design and model."""
    found = by_key((id(one.passes), one) for one in run.results if isinstance(one, PartResult))
    read = run.workspace.read
    grids = [[read(one, top_k=1, confidence=False, scores=False) for one in own] for own in found.values()]
    return [Estimate.average(design_outcomes(grid, None).errors()) for grid in grids]


def compute_design(
    suite: Suite, datasets: Mapping[str, Dataset], design: OnePass, budget: Budget | None, compute: Compute[R]
) -> tuple[Outcome, R, list[ResultWarning]]:
    """Evaluate a suite by a design, on all images or as many as the budget allows; and a note on what was reached."""
    whole = apply_design(suite, datasets, design)
    if budget is None:
        return *compute(datasets, whole), []

    def part(images: int) -> tuple[Outcome, R]:
        some = {name: one if images >= len(one) else balanced(one, images, seed=design.seed)
                for name, one in datasets.items()}  # fmt: skip
        return compute(some, apply_design(suite, some, design))

    begin, most = time.perf_counter(), max(map(len, datasets.values()))
    images = budget.pilot(most, max(len(one.parts) for one in whole.settings), design.passes)
    outcome, run = part(images)
    pilot, wanted = outcome.complete, images
    if budget.seconds is not None and images < most and not outcome.made:
        # All predictions are of earlier runs, which says nothing about speed: as many images more than they had.
        models, settings = ({getattr(one, key) for one in pilot} for key in ("classifier", "setting"))
        known = max(one.spec.images for one in run.workspace.results(models, settings))
        images = wanted = min(most, known + images)
        outcome, run = part(images)
        pilot = [*pilot, *outcome.complete]
    if images < most and not budget.fixed:
        elapsed, all_made = time.perf_counter() - begin, sum(one.spec.images for one in outcome.complete)
        new = images * outcome.made / all_made
        wanted = min(most, budget.images(images, design.passes, elapsed, new, mean_estimates(run)))
    if wanted > images:
        outcome, run = part(wanted)
    # The last stage has made all predictions its own.
    final = {result.relative for result in outcome.complete}
    if old := [result for result in pilot if result.relative not in final]:
        remove_results(run.workspace, [removable(run.workspace, result) for result in old])
    return outcome, run, [_reached(run, wanted, most, design, budget, time.perf_counter() - begin)]


def _reached(
    run: StoredResults, images: int, most: int, design: OnePass, budget: Budget, elapsed: float
) -> ResultWarning:
    # Without a spread, as where all images are right, what the images can't exclude.
    exact = clopper_pearson(0, images, budget.level).high
    half = max(one.half_width(budget.level) or exact for one in mean_estimates(run))
    passes = images * (1 + design.passes)
    text = f"{images:,} of {most:,} images, {passes:,} forward passes per model, {elapsed:.0f} s; "
    text += f"mean accuracy is known to \N{PLUS-MINUS SIGN}{100 * half:.2g} points"
    missed = []
    if budget.half_width is not None and half > 1.05 * budget.half_width:
        why = "all images are used" if images == most else "the budget is used up"
        missed.append(f"not to {100 * budget.half_width:g}: {why}")
    if budget.seconds is not None and elapsed > 1.1 * budget.seconds:
        missed.append(f"over the budget of {budget.seconds:g} s")
    return ResultWarning("; ".join([text, *missed]), "budget")
