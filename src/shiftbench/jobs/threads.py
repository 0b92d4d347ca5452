"""The number of workers, and work on threads of this process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TypeVar

from shiftbench.jobs.progress import Advance

T = TypeVar("T")
U = TypeVar("U")


def worker_count(workers: int | None) -> int:
    """The given number, or one per core that this process may use."""
    if workers is not None:
        return max(1, workers)
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1


def on_threads(
    work: Callable[[T], U], items: Iterable[T], threads: int | None = None, advance: Advance | None = None
) -> list[U]:
    """``work`` of each item, in the order of the items.

    After the first exception, or Ctrl-C, no further item is started, and it is raised. ``advance`` is called with 1
    after each item, from one thread at a time.

    >>> on_threads(str.upper, "abc", threads=2)
    ['A', 'B', 'C']
    """
    todo = list(items)
    done: dict[int, U] = {}
    # The iterator is shared: taking a number from a range is one step for threads.
    numbers, stop, advancing = iter(range(len(todo))), threading.Event(), threading.Lock()

    def take_turns() -> None:
        for number in numbers:
            if stop.is_set():
                return
            try:
                done[number] = work(todo[number])
                if advance is not None:
                    with advancing:
                        advance(1)
            except BaseException:
                stop.set()
                raise

    workers = min(worker_count(threads), len(todo))
    if workers <= 1:
        take_turns()
    else:
        with ThreadPoolExecutor(workers) as pool:
            turns = [pool.submit(take_turns) for _ in range(workers)]
            try:
                for turn in as_completed(turns):
                    turn.result()
            finally:
                stop.set()
    return [done[number] for number in range(len(todo))]


_counting = threading.Lock()
_inside: list[int] = []


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Torch operators on one core each: the order of their sums, and so every bit, is the same on all machines.

    The setting belongs to the process, and several threads may be inside: the last one to leave restores it.
    """
    import torch

    with _counting:
        _inside.append(_inside[0] if _inside else torch.get_num_threads())
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _counting:
            before = _inside.pop()
            if not _inside:
                torch.set_num_threads(before)
