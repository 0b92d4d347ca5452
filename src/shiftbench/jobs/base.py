"""Work for threads, processes, or the machines of a cluster.

A job computes one item and keeps its result; an executor (``jobs.executors``, ``jobs.ray_executor``) decides where, how
many at once, and what to retry. Results are on disk when an item is done, so only items and counts are sent, and work
that was killed continues with the items that are missing.
"""

from __future__ import annotations

import re
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from shiftbench.errors import SettingError, argument, explain, is_internal
from shiftbench.io.paths import UnwritableError
from shiftbench.jobs.progress import Advance

#: An item that fails, or whose worker dies, is attempted this often; then it is reported, and the others go on.
TRIES = 3

#: A picklable function that prepares the requested inputs of an item, one after the other.
Reader = Callable[[Any, Sequence[Any]], Iterator[Any]]

#: Hashable and picklable; its text names it in messages: "block 0 to 99 of 'val'".
Item = TypeVar("Item", bound=Hashable)
#: The resources of a worker, as the executor defines them.
Demand = TypeVar("Demand", bound=Hashable)
T = TypeVar("T")


@dataclass(frozen=True)
class Shard:
    """One of several jobs that share the work, by default the only one: the argument ``shard`` of ``evaluate``.

    Attributes:
        number: Number of the job, counted from 1.
        count: Number of jobs.
        rebalance: Whether this job, when its own share is done, takes over items that other jobs have not begun.
    """

    number: int = 1
    count: int = 1
    rebalance: bool = field(default=False, repr=False)

    @classmethod
    def parse(cls, shard: str | Shard | None) -> Shard:
        """The shard of a text such as "2/8"; None is the only one. Raises SettingError for other texts."""
        if not isinstance(shard, str):
            return shard or cls()
        match = re.fullmatch(r"\s*([0-9]+)\s*/\s*([0-9]+)\s*", shard)
        if match is not None:
            number = int(match[1])
            count = int(match[2])
            if 1 <= number <= count:
                return cls(number, count)
        raise SettingError(
            f"invalid {argument('shard')}",
            found=shard,
            expected="JOB/JOBS, counted from one: 1/8, 2/8, ... 8/8",
            hint=f"with SLURM: --array=1-8, and {argument('shard')} from $SLURM_ARRAY_TASK_ID/8",
        )

    def of(self, items: Sequence[T]) -> Sequence[T]:
        """The items of this job: every ``count``-th of all items, finished or not, so that all jobs divide alike."""
        return items[self.number - 1 :: self.count]

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


@dataclass(frozen=True)
class Block:
    """Items ``start`` to ``stop`` of a named whole."""

    start: int
    stop: int
    whole: str = ""
    #: Whether it is a part of a block, cut for many workers.
    is_part: bool = False

    @property
    def name(self) -> str:
        """The name of its file; that of a part also states the end, so that it differs from that of a whole block."""
        if self.is_part:
            return f"{self.start:09d}-{self.stop:09d}"
        return f"{self.start:09d}"

    @property
    def slice(self) -> slice:
        return slice(self.start, self.stop)

    def __len__(self) -> int:
        return self.stop - self.start

    def __str__(self) -> str:
        return f"block {self.start} to {self.stop - 1} of {self.whole!r}"


def cut(count: int, size: int, whole: str = "") -> list[Block]:
    """Blocks of ``size`` items each, the last one shorter, that cover ``count`` items."""
    return [Block(start, min(start + size, count), whole) for start in range(0, count, size)]


@dataclass(frozen=True)
class Problem:
    """Why one part of an item failed; the other parts succeeded.

    Attributes:
        who: The model or part that failed.
        why: The reason.
        images: Ids of the images concerned.
        bug: The traceback, if the reason is a bug in this package; otherwise empty.
    """

    who: str
    why: str
    images: tuple[str, ...] = ()
    bug: str = ""

    @classmethod
    def of_error(cls, who: str, error: Exception, images: Sequence[str] = ()) -> Problem:
        """The problem that an exception caused."""
        bug = ""
        if is_internal(error):
            bug = "".join(traceback.format_exception(error))
        return cls(who, explain(error), tuple(images), bug)

    def __str__(self) -> str:
        return f"{self.who} failed{self._images_text()}: {self.why}"

    def _images_text(self) -> str:
        if not self.images:
            return ""
        if len(self.images) == 1:
            return f" on image {self.images[0]!r}"
        return f" on {len(self.images)} images, {self.images[0]!r} to {self.images[-1]!r}"


@dataclass(frozen=True)
class Failure:
    """An item that still had a problem after the last attempt.

    Attributes:
        item: The item.
        problem: Why it failed.
        tries: How often it was attempted.
    """

    item: Any
    problem: Problem
    tries: int = TRIES

    def __str__(self) -> str:
        if self.tries > 1:
            return f"{self.problem} ({self.tries} attempts)"
        return str(self.problem)


def retry_hint(failures: Sequence[Failure]) -> str:
    """What a user can do about failures: report a bug in this package, or fix another cause and rerun."""
    if any(failure.problem.bug for failure in failures):
        return (
            "this is a bug in shiftbench: please report it with the traceback, which the command line shows with "
            "--debug; finished work is kept"
        )
    return "fix the cause and rerun the same command; it resumes"


def add_tracebacks(error: Exception, failures: Sequence[Failure]) -> None:
    """Append the tracebacks of bugs in this package to the traceback of an error; its message stays short."""
    for bug in dict.fromkeys(failure.problem.bug for failure in failures if failure.problem.bug):
        error.add_note(bug)


class Job(ABC, Generic[Item]):
    """Work on items. A job is picklable: it is sent once to each worker, which keeps it from item to item."""

    @abstractmethod
    def compute(self, item: Item, advance: Advance, *, wait: bool) -> list[Problem] | None:
        """Compute what is missing of an item; returns the problems of parts that failed.

        Returns None if another run is computing the item and ``wait`` is False.
        """

    def attempt(self, item: Item, advance: Advance, *, wait: bool) -> list[Problem] | None:
        """Call ``compute``, and turn an exception into a problem of the whole item.

        It is turned into text where it happens, because its class and traceback may not exist in another process.

        Raises:
            UnwritableError: No other item could be stored either.
        """
        try:
            return self.compute(item, advance, wait=wait)
        except UnwritableError:
            raise
        except Exception as error:
            return [Problem.of_error(str(item), error)]

    def assist(self) -> bool:
        """Compute a part of an item that another thread of this process has begun; False if nothing is left."""
        return False

    def divided(
        self, items: Sequence[Item], demand_of: Callable[[str], Demand]
    ) -> dict[Demand, tuple[Job[Item], Sequence[Item]]]:
        """Parts of the job by the resources they need, for jobs whose parts have names."""
        return {demand_of(""): (self, items)}

    def threaded(self, threads: int) -> Job[Item]:
        """The same job with this number of threads per item; a job that always uses one thread returns itself."""
        return self

    def reader(self, threads: int) -> Reader | None:
        """A function that prepares inputs for several workers, on this number of threads; None if none are needed."""
        return None

    def with_reader(self, reader: Reader) -> Job[Item]:
        """The same job with inputs from ``reader``."""
        return self


class Executor(ABC):
    """Runs all items of a job and returns the failures. The results of an item are on disk when it is done."""

    @abstractmethod
    def run(self, job: Job[Any], items: Sequence[object], advance: Advance) -> list[Failure]:
        """Do a job for all items; returns the items that failed."""

    def wanted_workers(self) -> int:
        """How many items it computes at once."""
        return 1

    @contextmanager
    def kept(self) -> Iterator[None]:
        """A context for several runs, in which workers that take long to start are kept from one run to the next."""
        yield
