"""Corrupted copies by many workers, on this machine or on all of a cluster: the same files as from one."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from shiftbench.datasets.base import Dataset
from shiftbench.errors import StoreError
from shiftbench.jobs.base import Executor, Trouble
from shiftbench.jobs.base import Job as SpreadJob
from shiftbench.jobs.progress import Advance
from shiftbench.shifts.corruptions import Corruption
from shiftbench.shifts.writing.encoding import Encoding
from shiftbench.shifts.writing.job import Job, Layout, Staging
from shiftbench.shifts.writing.sizes import Preparation

#: Corrupted pictures of one item: seconds of work, so that handing it out costs nothing.
_PICTURES = 2000

LayoutOf = Callable[[Job], Layout]


@dataclass(frozen=True)
class Units:
    """Some units of a layout: the item that an executor hands out."""

    numbers: tuple[int, ...]

    def __str__(self) -> str:
        return f"the part from {self.numbers[0]} to {self.numbers[-1]} of the copies"


@dataclass(frozen=True)
class Copies(SpreadJob[Units]):
    """The copies of a data set as a job; every item is written by way of a folder of its own."""

    dataset: Dataset
    destination: Path
    shifts: Sequence[Corruption]
    preparation: Preparation
    encoding: Encoding
    seed: int
    layout_of: LayoutOf

    def compute(self, item: Units, advance: Advance, *, wait: bool) -> list[Trouble]:
        staging = Staging(self.destination, f"worker-{uuid.uuid4().hex}")
        job = Job(self.dataset, self.destination, self.shifts, self.preparation, self.encoding, self.seed, 1, staging)
        layout = self.layout_of(job)
        for number in item.numbers:
            before = job.written
            layout.write_unit(number)
            advance(job.written - before)
        job.keep_skipped(item.numbers[0])
        staging.clear()
        return []


def write_spread(job: Job, layout: Layout, layout_of: LayoutOf, executor: Executor) -> None:
    """Write the missing units of ``layout`` on an executor; the job is told what was written."""
    copies = Copies(job.dataset, job.destination, job.shifts, job.preparation, job.encoding, job.seed, layout_of)
    failures = executor.run(copies, _items(layout), job.wrote)
    if failures:
        raise StoreError(
            f"{len(failures)} parts of the copies could not be written",
            found=str(failures[0]),
            hint="the same command continues; what is written is kept",
        )


def _items(layout: Layout) -> list[Units]:
    units = layout.units()
    size = max(1, _PICTURES // max(1, len(layout.job.shifts) * layout.unit_images))
    return [Units(tuple(units[start : start + size])) for start in range(0, len(units), size)]
