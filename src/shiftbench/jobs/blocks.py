"""Work in blocks: cut, computed on threads or by an executor, kept on disk, joined.

Blocks that are kept are files of their own, renamed into place, so that any worker on any machine can make them and
work that was killed continues after the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.errors import StoreError
from shiftbench.jobs.base import Executor, Item, Job
from shiftbench.jobs.progress import Advance


@dataclass(frozen=True)
class Block:
    """Images ``start`` to ``stop`` of a named whole: an item for an executor."""

    start: int
    stop: int
    whole: str = ""

    @property
    def slice(self) -> slice:
        return slice(self.start, self.stop)

    def __len__(self) -> int:
        return self.stop - self.start

    def __str__(self) -> str:
        return f"block {self.start} to {self.stop - 1} of {self.whole!r}"


def cut(count: int, size: int, whole: str = "") -> list[Block]:
    """
    >>> [str(block) for block in cut(5, 2, "val")]
    ["block 0 to 1 of 'val'", "block 2 to 3 of 'val'", "block 4 to 4 of 'val'"]
    """
    return [Block(start, min(start + size, count), whole) for start in range(0, count, size)]


def run_items(job: Job[Item], items: Sequence[Item], executor: Executor, advance: Advance) -> None:
    """All items on an executor, whose workers see the same folders; raises if any of them failed."""
    failures = executor.run(job, items, advance)
    if failures:
        raise StoreError(
            f"{len(failures)} of {len(items)} blocks failed",
            found=str(failures[0]),
            hint="fix the cause and rerun the same command; it resumes",
        )


def save_array(path: Path, values: NDArray[Any]) -> None:
    """``np.save`` without a suffix added to the name."""
    with path.open("wb") as file:
        np.save(file, values, allow_pickle=False)
