"""Threads that share a list of work.

Threads, not processes: decoding, the corruptions' kernels and encoding release the interpreter lock, and nothing
has to be copied between processes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

T = TypeVar("T")


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
