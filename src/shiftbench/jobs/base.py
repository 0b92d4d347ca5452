"""Work that can be spread over threads, processes, or the machines of a cluster.

A job knows how to compute one item and keep its result; an executor (``runs.executors``, ``runs.ray_engine``) decides
where, how many at once, and what to try again. Results are on disk when an item is done, so that nothing but items
and counts travels, and work that was killed continues with the items that are missing.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from shiftbench.errors import SettingError
from shiftbench.jobs.progress import Advance

#: An item that failed, or whose worker died, this often is given up, with its cause; the rest goes on.
TRIES = 3

#: Makes ready what an item is computed from, one thing that is asked for after the other. Picklable.
Feed = Callable[[Any, Sequence[Any]], Iterator[Any]]

#: Hashable, picklable, and named by its text: "the block of images 0 to 99 of 'val'".
Item = TypeVar("Item", bound=Hashable)
#: What a worker needs, in the words of an executor that knows resources.
Demand = TypeVar("Demand", bound=Hashable)


#: Anything that is shared out.
Entry = TypeVar("Entry")


@dataclass(frozen=True)
class Shard:
    """Job ``number`` of ``count`` jobs that share the work, counted from 1; by default the only one.

    >>> Shard.parse("3/8")
    Shard(number=3, count=8)
    """

    number: int = 1
    count: int = 1

    @classmethod
    def parse(cls, given: str | Shard | None) -> Shard:
        if not isinstance(given, str):
            return given or cls()
        match = re.fullmatch(r"\s*([0-9]+)\s*/\s*([0-9]+)\s*", given)
        number, count = (int(match[1]), int(match[2])) if match else (0, 0)
        if not 1 <= number <= count:
            raise SettingError(
                "invalid --shard",
                found=given,
                expected="JOB/JOBS, counted from one: 1/8, 2/8, ... 8/8",
                hint="with SLURM: --array=1-8 and --shard $SLURM_ARRAY_TASK_ID/8",
            )
        return cls(number, count)

    def of(self, items: Sequence[Entry]) -> Sequence[Entry]:
        """Every ``count``-th one of all items, finished or not, so that every job finds the same division."""
        return items[self.number - 1 :: self.count]

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


@dataclass(frozen=True)
class Trouble:
    """What kept some part of an item from being computed; the others were."""

    #: Who failed: a classifier, a shift, or the item as a whole.
    who: str
    why: str
    #: The images it failed on; none where that is not known.
    images: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.who} failed{_which(self.images)}: {self.why}"


@dataclass(frozen=True)
class Failure:
    """Parts of an item that could not be computed; all others were."""

    item: Any
    trouble: Trouble

    def __str__(self) -> str:
        return f"{self.trouble} ({TRIES} tries)"


class Job(ABC, Generic[Item]):
    """Picklable: sent once to each worker, which keeps it from item to item."""

    @abstractmethod
    def compute(self, item: Item, advance: Advance, *, wait: bool) -> list[Trouble] | None:
        """Compute what is missing of an item and tell which parts could not be made.

        None when another run is at it and ``wait`` is False.
        """

    def divided(
        self, items: Sequence[Item], demand_of: Callable[[str], Demand]
    ) -> dict[Demand, tuple[Job[Item], Sequence[Item]]]:
        """By what a worker needs, for jobs of several parts that are known by name."""
        return {demand_of(""): (self, items)}

    def threaded(self, threads: int) -> Job[Item]:
        """The same job where an item may use so many threads; many jobs use one, whatever they may."""
        return self

    def feed(self, threads: int) -> Feed | None:
        """What can be made ready for several workers by another, on so many threads; None if there is nothing."""
        return None

    def fed_by(self, feed: Feed) -> Job[Item]:
        """The same job where workers are given what ``feed`` makes ready."""
        return self


class Executor(ABC):
    """Computes all items; returns the failures. Each item's results are on disk when it is done."""

    @abstractmethod
    def run(self, job: Job[Any], items: Sequence[Any], advance: Advance) -> list[Failure]: ...

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Around several runs: what takes long to start is kept from one to the next."""
        yield


def _which(images: Sequence[str]) -> str:
    """
    >>> _which(["a.png"]), _which(["a.png", "b.png", "c.png"])
    (" on image 'a.png'", " on 3 images, 'a.png' to 'c.png'")
    """
    if not images:
        return ""
    return (
        f" on image {images[0]!r}" if len(images) == 1 else f" on {len(images)} images, {images[0]!r} to {images[-1]!r}"
    )
