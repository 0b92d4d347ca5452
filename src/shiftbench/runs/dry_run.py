"""What a run would do: settings, images, forward passes, and how long it takes, from a small part that is run."""

from __future__ import annotations

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
from shiftbench.store.workspace import Workspace

#: Settings per model and images per worker that are timed.
_SETTINGS, _IMAGES = 6, 8


@dataclass(frozen=True)
class PlannedSetting:
    """A setting of a run that was only planned."""

    name: str
    images: int
    models: int  #: That are evaluated in it.
    done: int  #: Models whose predictions the workspace holds already.


@dataclass(frozen=True)
class DryRun:
    """What ``evaluate`` would do with the same arguments.

    Attributes:
        settings: The settings, with the number of images and models.
        forward_passes: Images that models have to be run on, without what the workspace holds already.
        done: Forward passes whose predictions the workspace holds already.
        seconds: Estimated time of the run; 0 if nothing is left to do.
        pilot: Whether this is only the first stage of a design, which decides how many images follow.
    """

    settings: tuple[PlannedSetting, ...]
    forward_passes: int
    done: int
    seconds: float
    pilot: bool = False

    def as_dict(self) -> dict[str, object]:
        """As JSON-able data."""
        return {**asdict(self), "settings": [asdict(one) for one in self.settings]}

    def __str__(self) -> str:
        models = max((one.models for one in self.settings), default=0)
        images = sorted({one.images for one in self.settings})
        shown = f"{images[0]:,}" if len(images) == 1 else f"{images[0]:,} to {images[-1]:,}"
        lines = [
            f"models:          {models:,}",
            f"settings:        {len(self.settings):,}",
            f"images:          {shown} per setting",
            f"forward passes:  {self.forward_passes:,}" + (f" ({self.done:,} are done)" if self.done else ""),
            f"estimated time:  {duration(self.seconds) if self.forward_passes else 'nothing to compute'}",
        ]
        if self.pilot:
            lines.append("This is the pilot. The number of further images depends on its speed and variance.")
        return "\n".join(lines)


def duration(seconds: float) -> str:
    """
    >>> duration(0.4), duration(75), duration(4000), duration(200_000)
    ('1 s', '1 min 15 s', '1 h 6 min', '2 d 7 h')
    """
    whole = max(1, round(seconds))
    for unit, size, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part} {smaller}"
    return f"{whole} s"


class OnlyPlannedError(ShiftbenchError):
    """Ends a run that is only planned."""

    def __init__(self, plan: DryRun) -> None:
        super().__init__("the run was only planned")
        self.plan = plan


def rehearse(context: RunContext, executor: Executor, workspace: Workspace | None, workers: int | None) -> NoReturn:
    """Time a few blocks in place of the run, and end it; ``workspace`` is where results would be, if it exists."""
    planned = context.results
    left = [one for one in planned if workspace is None or not is_complete(workspace, one)]
    passes = _passes(workspace, left, context.datasets) if workspace else sum(len(one.rows) for one in left)
    unfinished = {one.result.relative for one in left}
    listed: list[PlannedSetting] = []
    for name, results in by_key((one.setting.name, one) for one in planned).items():
        done = sum(one.result.relative not in unfinished for one in results)
        listed.append(PlannedSetting(name, len(results[0].rows), len(results), done))
    seconds = _seconds_per_pass(context, left, executor, worker_count(workers)) * passes if left else 0.0
    raise OnlyPlannedError(DryRun(tuple(listed), passes, sum(len(one.rows) for one in planned) - passes, seconds))


def _seconds_per_pass(context: RunContext, left: Sequence[PlannedResult], executor: Executor, workers: int) -> float:
    """Of some settings of each model, on few images, by as many workers as the run has."""
    chosen: list[PlannedResult] = []
    for results in by_key((one.result.classifier, one) for one in left).values():
        chosen += results[:: -(-len(results) // _SETTINGS)]
    shorter = [(one, *one.setting.shift.shorter()) for one in chosen]
    parts = by_key((times, replace(one, setting=replace(one.setting, shift=shift))) for one, shift, times in shorter)
    seconds = (times * len(own) * _timed(context, own, executor, workers) for times, own in parts.items())
    return sum(seconds) / len(chosen)


def _timed(context: RunContext, chosen: Sequence[PlannedResult], executor: Executor, workers: int) -> float:
    """Seconds per forward pass."""
    short = Evaluation(replace(context, results=tuple(chosen)))
    # A small block per worker and dataset; those of the second turn are of other images.
    turns: tuple[list[Block], list[Block]] = [], []
    for name in dict.fromkeys(one.dataset for one in chosen):
        images = len(context.datasets[name])
        size = min(_IMAGES, max(1, images // (2 * workers)))
        for number in range(2 * workers):
            if (number + 1) * size <= images:
                turns[number // workers].append(Block(number * size, (number + 1) * size, name))
    warm, timed = turns[0], turns[1] or turns[0]
    started = 0.0
    for items in (warm, timed):  # the first compiles kernels and loads libraries
        started = time.perf_counter()
        failures = executor.run(short, items, lambda count: None)
        if failures:
            raise ShiftbenchError("the model fails on the first images", found=failures[0])
    passes = sum(len(one.rows_between(item.start, item.stop)) for one in chosen for item in timed
                 if item.whole == one.dataset)  # fmt: skip
    return (time.perf_counter() - started) / max(passes, 1)


def _passes(store: Workspace, left: Sequence[PlannedResult], datasets: Mapping[str, Dataset]) -> int:
    """Forward passes of unfinished results: without finished blocks, and without what a design has predicted."""
    known = known_rows(store, left, datasets) if store.designs() else {}
    passes = 0
    for one, blocks in zip(left, block_states(store, left, all_items(left, datasets), datasets), strict=True):
        predicted = known[one.result.key].rows if one.result.key in known else np.empty(0, np.int64)
        for block, rows, lacks in blocks:
            passes += lacks * (rows - np.diff(np.searchsorted(predicted, [block.start, block.stop])).item())
    return passes
