"""The number of images of a design, from a budget of time or forward passes or from a target interval width.

In two stages (Stein 1945; Cox 1952): a pilot measures speed and variance, then the number of images is fixed once, and
the interval is computed from all of them. The estimate does not decide when to stop, so intervals keep
their coverage; ``tests/runs/test_budget.py`` shows it by simulation.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shiftbench.datasets.base import Dataset
from shiftbench.datasets.subset import proportional
from shiftbench.errors import ResultWarning, SettingError, argument
from shiftbench.grouping import by_key
from shiftbench.metrics.designs import Estimate, design_outcomes
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.runs.execute import Outcome, RunRequest, plan_and_execute
from shiftbench.runs.results import StoredResults
from shiftbench.settings.base import Suite
from shiftbench.settings.designs import Design, OnePass, apply_design
from shiftbench.store.maintenance import removable, remove_results
from shiftbench.store.workspace import PartResult, Result, Workspace

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
#: Images of the pilot, under each shift and in all. After fewer, a pilot that happens to see few errors would both
#: stop too early and be most of the estimate: 24 images at an error of 10 % gave 86 % coverage.
_PILOT_IMAGES_PER_SHIFT = 4
_PILOT_IMAGES = 200
#: Share of the remaining time that is planned for: the last blocks of several workers do not end together.
_SPENT = 0.9


def duration(text: str | float, expected: str = 'a duration such as "20s", "2min" or 20') -> float:
    """Seconds of a duration; a number without a unit is itself."""
    match = re.fullmatch(r"\s*(\d*\.?\d+)\s*(s|sec|m|min|h)?\s*", str(text))
    if match is None or float(match[1]) <= 0:
        raise SettingError("invalid budget", found=repr(text), expected=expected)
    unit = match[2] or "s"
    return float(match[1]) * _UNITS[unit[0]]


@dataclass(frozen=True)
class Budget:
    """Limits on a design: seconds or forward passes per model, and the half-width of mean accuracy, as a fraction."""

    seconds: float | None = None
    forward_passes: int | None = None
    half_width: float | None = None
    level: float = 0.95

    @classmethod
    def of(cls, design: Design) -> Budget | None:
        """The limits of a design; None if it has none."""
        if design.budget is None and design.width is None:
            return None
        width = design.width
        if width is not None and not (isinstance(width, int | float) and 0 < width < 100):
            raise SettingError("invalid width", found=width, expected="percentage points above 0, such as 0.5")
        half = None if width is None else width / 100
        if design.budget is None:
            return cls(half_width=half)
        amount = duration(design.budget, "a time such as 60s or 5m, or a number of forward passes")
        if str(design.budget).strip()[-1:].isalpha():
            return cls(seconds=amount, half_width=half)
        return cls(forward_passes=int(amount), half_width=half)

    @property
    def fixed(self) -> bool:
        """Whether the number of images is known in advance, so that no pilot is needed."""
        return self.forward_passes is not None and self.half_width is None

    def pilot(self, images: int, shifts: int, passes: int) -> int:
        """Images of the first stage; all of them if they are few, or if their number is fixed."""
        fewest = max(_PILOT_IMAGES, math.ceil(_PILOT_IMAGES_PER_SHIFT * shifts / passes))
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
        """Images of both stages together, based on the pilot's time and estimates.

        Args:
            pilot: Number of images of the pilot.
            passes: Number of shifts per image.
            elapsed: Seconds that the pilot took.
            new: How many of the pilot's images were computed by it, not by an earlier run.
            means: The pilot's estimates of the mean error.
        """
        limits: list[float] = []
        if self.seconds is not None:
            limits.append(pilot + max(0.0, _SPENT * (self.seconds - elapsed)) * new / max(elapsed, 1e-9))
        if self.forward_passes is not None:
            limits.append(self.forward_passes // (1 + passes))
        if self.half_width is not None:
            halves = [max(mean.half_width(self.level), _cautious(mean.value, pilot)) for mean in means]
            limits.append(math.ceil(pilot * (max(halves) / self.half_width) ** 2))
        return max(pilot, int(min(limits, default=pilot)))


def _cautious(error: float, images: int) -> float:
    """The half-width of an error that is two errors and two hits nearer to a half (Agresti and Coull 1998)."""
    shrunk = (error * images + 2) / (images + 4)
    return 1.96 * math.sqrt(shrunk * (1 - shrunk) / images)


def mean_estimates(run: StoredResults) -> list[Estimate]:
    """The mean error over the shifts of each design and model."""
    designs = by_key((id(result.passes), result) for result in run.results if isinstance(result, PartResult))
    estimates: list[Estimate] = []
    for results in designs.values():
        grid = [run.workspace.read(result, top_k=1, confidence=False, scores=False) for result in results]
        estimates.append(Estimate.average(design_outcomes(grid, None).errors()))
    return estimates


def compute_design(
    request: RunRequest, suite: Suite, datasets: Mapping[str, Dataset], design: OnePass, budget: Budget | None
) -> tuple[Outcome, list[ResultWarning]]:
    """Evaluate a suite by a design, on all images or as many as the budget allows; and a note on what was reached.

    The outcome is that of the last stage. A stage with failures is the last one.
    """
    full_suite = apply_design(suite, datasets, design)
    if budget is None:
        return plan_and_execute(request, full_suite, datasets), []
    workspace = request.workspace
    begin = time.perf_counter()
    most = max(map(len, datasets.values()))
    shifts = max(len(setting.parts) for setting in full_suite.settings)
    images = budget.pilot(most, shifts, design.passes)
    outcome = _compute_stage(request, suite, datasets, design, images)
    if outcome.failures:
        return outcome, []
    pilot_results = list(outcome.complete)
    if budget.seconds is not None and images < most and not outcome.new_predictions:
        # All predictions were made by earlier runs, which says nothing about speed. The pilot is repeated with as many
        # images more than the earlier runs had.
        images = min(most, _most_stored_images(workspace, pilot_results) + images)
        outcome = _compute_stage(request, suite, datasets, design, images)
        if outcome.failures:
            return outcome, []
        pilot_results += outcome.complete
    planned_images = images
    if images < most and not budget.fixed:
        elapsed = time.perf_counter() - begin
        predictions = sum(result.spec.images for result in outcome.complete)
        new = images * outcome.new_predictions / predictions
        means = mean_estimates(StoredResults(workspace, outcome.complete))
        planned_images = min(most, budget.images(images, design.passes, elapsed, new, means))
    if planned_images > images:
        outcome = _compute_stage(request, suite, datasets, design, planned_images)
        if outcome.failures:
            return outcome, []
    # The results of the last stage include all predictions of the pilot.
    final = {result.relative for result in outcome.complete}
    outdated = [result for result in pilot_results if result.relative not in final]
    if outdated:
        remove_results(workspace, [removable(workspace, result) for result in outdated])
    run = StoredResults(workspace, outcome.complete)
    return outcome, [_reached(run, planned_images, most, design, budget, time.perf_counter() - begin)]


def _compute_stage(
    request: RunRequest, suite: Suite, datasets: Mapping[str, Dataset], design: OnePass, images: int
) -> Outcome:
    """Evaluate the design on this many images of each dataset, or on all if it has no more."""
    reduced: dict[str, Dataset] = {}
    for name, dataset in datasets.items():
        if images < len(dataset):
            dataset = proportional(dataset, images, seed=design.seed)
        reduced[name] = dataset
    return plan_and_execute(request, apply_design(suite, reduced, design), reduced)


def _most_stored_images(workspace: Workspace, results: Sequence[Result]) -> int:
    """The largest number of images on which the workspace has results of these models in these settings."""
    models = {result.classifier for result in results}
    settings = {result.setting for result in results}
    return max(stored.spec.images for stored in workspace.results(models, settings))


def _reached(
    run: StoredResults, images: int, most: int, design: OnePass, budget: Budget, elapsed: float
) -> ResultWarning:
    """A note on the images, time and interval width of a design within a budget."""
    # An estimate without a spread, as where all images are right, is as wide as what the images can't exclude.
    exact = clopper_pearson(0, images, budget.level).high
    half_widths = [estimate.half_width(budget.level) or exact for estimate in mean_estimates(run)]
    half = max(half_widths)
    passes = images * (1 + design.passes)
    text = f"{images:,} of {most:,} images, {passes:,} forward passes per model, {elapsed:.0f} s; "
    text += f"mean accuracy is known to \N{PLUS-MINUS SIGN}{100 * half:.2g} points"
    missed = []
    if budget.half_width is not None and half > 1.05 * budget.half_width:
        if images == most:
            reason = "all images are used"
        elif budget.seconds is None and budget.forward_passes is None:
            reason = f"the first images varied less than the others; a smaller {argument('width')} takes more images"
        else:
            reason = "the budget is used up"
        missed.append(f"not to {100 * budget.half_width:g}: {reason}")
    if budget.seconds is not None and elapsed > 1.1 * budget.seconds:
        missed.append(f"over the budget of {budget.seconds:g} s")
    return ResultWarning("; ".join([text, *missed]), "budget")
