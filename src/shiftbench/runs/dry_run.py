"""What a run would do: settings, images, forward passes, and how long it takes, from a small part that is run."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NoReturn

import numpy as np

from shiftbench.datasets.base import Dataset
from shiftbench.errors import ShiftbenchError
from shiftbench.grouping import by_key
from shiftbench.jobs.base import Block, Executor
from shiftbench.jobs.threads import worker_count
from shiftbench.runs.compute import Evaluation
from shiftbench.runs.known import known_rows
from shiftbench.runs.plan import PlannedResult, RunContext, all_items, block_states, is_complete
from shiftbench.settings.base import LeftOut
from shiftbench.store.workspace import Workspace

#: Number of settings per model that are timed, at most about.
_TIMED_SETTINGS = 6
#: Number of images per worker that are timed, at most.
_TIMED_IMAGES = 8


@dataclass(frozen=True)
class PlannedSetting:
    """A setting of a run that was only planned."""

    name: str
    images: int
    models: int  #: Number of models that are evaluated in it.
    done: int  #: Number of models whose predictions the workspace holds already.


@dataclass(frozen=True)
class DryRun:
    """What ``evaluate`` would do with the same arguments.

    Attributes:
        settings: The settings, with the number of images and models.
        forward_passes: Images that models have to be run on, without what the workspace holds already.
        done: Forward passes whose predictions the workspace holds already.
        seconds: Estimated time of the run; 0 if nothing is left to do.
        pilot: Whether this is only the first stage of a design, which decides how many images follow.
        left_out: Settings of the suite that would not be evaluated, and why.
    """

    settings: tuple[PlannedSetting, ...]
    forward_passes: int
    done: int
    seconds: float
    pilot: bool = False
    left_out: tuple[LeftOut, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """As JSON-able data."""
        return {
            **asdict(self),
            "settings": [asdict(setting) for setting in self.settings],
            "left_out": [omission.as_dict() for omission in self.left_out],
        }

    def __str__(self) -> str:
        models = max((setting.models for setting in self.settings), default=0)
        counts = sorted({setting.images for setting in self.settings})
        images = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
        done = f" ({self.done:,} are done)" if self.done else ""
        time_needed = duration(self.seconds) if self.forward_passes else "nothing to compute"
        lines = [
            f"models:          {models:,}",
            f"settings:        {len(self.settings):,}",
            f"images:          {images} per setting",
            f"forward passes:  {self.forward_passes:,}{done}",
            f"estimated time:  {time_needed}",
        ]
        if self.pilot:
            lines.append("This is the pilot. The number of further images depends on its speed and variance.")
        for reason, omissions in by_key((omission.reason, omission) for omission in self.left_out).items():
            names = ", ".join(omission.title for omission in omissions)
            lines.append(f"left out: {names}: {reason}")
        return "\n".join(lines)


def duration(seconds: float) -> str:
    """A duration for people, in its two largest units.

    >>> duration(0.4), duration(75), duration(4000), duration(200_000)
    ('1 s', '1 min 15 s', '1 h 6 min', '2 d 7 h')
    """
    rounded = max(1, round(seconds))
    units = (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1))
    for unit, unit_seconds, smaller_unit, smaller_seconds in units:
        if rounded >= unit_seconds:
            return f"{rounded // unit_seconds} {unit} {rounded % unit_seconds // smaller_seconds} {smaller_unit}"
    return f"{rounded} s"


class OnlyPlannedError(ShiftbenchError):
    """Ends a run that is only planned."""

    def __init__(self, plan: DryRun) -> None:
        super().__init__("the run was only planned")
        self.plan = plan


def rehearse(context: RunContext, executor: Executor, workspace: Workspace | None, workers: int | None) -> NoReturn:
    """Time a few blocks in place of the run, and end it; ``workspace`` is where results would be, if it exists."""
    results = context.results
    if workspace is None:
        unfinished = list(results)
        passes = sum(len(planned.rows) for planned in unfinished)
    else:
        unfinished = [planned for planned in results if not is_complete(workspace, planned)]
        passes = _count_passes(workspace, unfinished, context.datasets)
    paths_unfinished = {planned.result.relative for planned in unfinished}
    settings: list[PlannedSetting] = []
    for name, of_setting in by_key((planned.setting.name, planned) for planned in results).items():
        done = sum(planned.result.relative not in paths_unfinished for planned in of_setting)
        settings.append(PlannedSetting(name, len(of_setting[0].rows), len(of_setting), done))
    seconds = 0.0
    if unfinished:
        seconds = _seconds_per_pass(context, unfinished, executor, worker_count(workers)) * passes
    done_passes = sum(len(planned.rows) for planned in results) - passes
    raise OnlyPlannedError(DryRun(tuple(settings), passes, done_passes, seconds, left_out=context.left_out))


def _seconds_per_pass(
    context: RunContext, unfinished: Sequence[PlannedResult], executor: Executor, workers: int
) -> float:
    """The mean over some settings of each model, on few images, by as many workers as the run has."""
    sample: list[PlannedResult] = []
    for results in by_key((planned.result.classifier, planned) for planned in unfinished).values():
        step = math.ceil(len(results) / _TIMED_SETTINGS)
        sample += results[::step]
    # Shifts that run a model many times per image are timed in a shorter form, which takes ``factor`` times less.
    by_factor: dict[float, list[PlannedResult]] = {}
    for planned in sample:
        shift, factor = planned.setting.shift.shorter()
        shorter = replace(planned, setting=replace(planned.setting, shift=shift))
        by_factor.setdefault(factor, []).append(shorter)
    seconds = 0.0
    for factor, results in by_factor.items():
        seconds += factor * len(results) * _time_per_pass(context, results, executor, workers)
    return seconds / len(sample)


def _time_per_pass(context: RunContext, results: Sequence[PlannedResult], executor: Executor, workers: int) -> float:
    """Seconds per forward pass of these results, measured on a small block per worker and dataset."""
    job = Evaluation(replace(context, results=tuple(results)))
    first_turn: list[Block] = []
    second_turn: list[Block] = []
    for name in dict.fromkeys(planned.dataset for planned in results):
        images = len(context.datasets[name])
        size = min(_TIMED_IMAGES, max(1, images // (2 * workers)))
        for number in range(2 * workers):
            if (number + 1) * size <= images:
                turn = first_turn if number < workers else second_turn
                turn.append(Block(number * size, (number + 1) * size, name))
    # The first turn compiles kernels and loads libraries. The second is timed, on other images if there are enough.
    timed = second_turn or first_turn
    started = 0.0
    for items in (first_turn, timed):
        started = time.perf_counter()
        failures = executor.run(job, items, lambda count: None)
        if failures:
            raise ShiftbenchError("the model fails on the first images", found=failures[0])
    elapsed = time.perf_counter() - started
    passes = 0
    for planned in results:
        for block in timed:
            if block.whole == planned.dataset:
                passes += len(planned.rows_between(block.start, block.stop))
    return elapsed / max(passes, 1)


def _count_passes(workspace: Workspace, unfinished: Sequence[PlannedResult], datasets: Mapping[str, Dataset]) -> int:
    """Forward passes of unfinished results: without finished blocks, and without what a design has predicted."""
    known_by_key = known_rows(workspace, unfinished, datasets) if workspace.designs() else {}
    states = block_states(workspace, unfinished, all_items(unfinished, datasets), datasets)
    passes = 0
    for planned, blocks in zip(unfinished, states, strict=True):
        predicted = np.empty(0, np.int64)
        if planned.result.key in known_by_key:
            predicted = known_by_key[planned.result.key].rows
        for block, count, is_missing in blocks:
            if is_missing:
                passes += count - np.diff(np.searchsorted(predicted, [block.start, block.stop])).item()
    return passes
