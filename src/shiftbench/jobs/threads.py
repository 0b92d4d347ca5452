"""How many workers long work gets, and running it on threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


def worker_count(workers: int | None) -> int:
    """As asked, else one for each core this process may use."""
    if workers is not None:
        return max(1, workers)
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1


def on_threads(work: Callable[[T], U], items: Iterable[T], threads: int) -> list[U]:
    """What ``work`` makes of each item, in their order.

    >>> on_threads(str.upper, "abc", threads=2)
    ['A', 'B', 'C']
    """
    if threads == 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, items))


def for_each(work: Callable[[T], None], items: Iterable[T], workers: int) -> None:
    """Call ``work`` with every item; the first error, or Ctrl-C, stops all after their present item.

    >>> seen = []
    >>> for_each(seen.append, range(4), workers=2)
    >>> sorted(seen)
    [0, 1, 2, 3]
    """
    if workers == 1:
        for item in items:
            work(item)
        return
    remaining, taking, stop = iter(items), threading.Lock(), threading.Event()

    def take_turns() -> None:
        while not stop.is_set():
            with taking:
                try:
                    item = next(remaining)
                except StopIteration:
                    return
            try:
                work(item)
            except BaseException:
                stop.set()
                raise

    with ThreadPoolExecutor(workers) as pool:
        turns = [pool.submit(take_turns) for _ in range(workers)]
        try:
            for turn in as_completed(turns):
                turn.result()
        finally:
            stop.set()


_counting = threading.Lock()
_inside: list[int] = []


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Torch's operators on one core each: the order of their sums, and so every bit, then depends on no machine.

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
