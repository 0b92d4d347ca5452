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
    # Not every system can tell which cores a process may use.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def on_threads(
    work: Callable[[T], U], items: Iterable[T], threads: int | None = None, advance: Advance | None = None
) -> list[U]:
    """The results of ``work`` for each item, in the order of the items.

    After the first exception, or Ctrl-C, no further item is started, and the exception is raised. ``advance`` is
    called with 1 after each item, from one thread at a time.

    >>> on_threads(str.upper, "abc", threads=2)
    ['A', 'B', 'C']
    """
    item_list = list(items)
    results: dict[int, U] = {}
    # All threads share the iterator: taking a number from a range can't be interrupted by another thread.
    numbers = iter(range(len(item_list)))
    stop = threading.Event()
    advancing = threading.Lock()

    def take_turns() -> None:
        for number in numbers:
            if stop.is_set():
                return
            try:
                results[number] = work(item_list[number])
                if advance is not None:
                    with advancing:
                        advance(1)
            except BaseException:
                stop.set()
                raise

    workers = min(worker_count(threads), len(item_list))
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
    return [results[number] for number in range(len(item_list))]


_torch_threads_lock = threading.Lock()
#: For every thread inside ``one_torch_thread``: the number of torch threads before the first one entered.
_torch_threads_before: list[int] = []


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Run torch operators on one core each: the order of their sums, and so every bit, is the same on all machines.

    The setting belongs to the process, and several threads may be inside: the last one to leave restores it.
    """
    import torch

    with _torch_threads_lock:
        before = _torch_threads_before[0] if _torch_threads_before else torch.get_num_threads()
        _torch_threads_before.append(before)
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _torch_threads_lock:
            before = _torch_threads_before.pop()
            if not _torch_threads_before:
                torch.set_num_threads(before)
