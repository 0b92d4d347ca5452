"""Executors: where the blocks of a run are computed. A distributed engine fits behind the same interface."""

from __future__ import annotations

import multiprocessing
import os
import queue
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures import Executor as Pool
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

from shiftbench.errors import ShiftbenchError
from shiftbench.runs.block import Report, compute_block
from shiftbench.runs.plan import RunContext, WorkItem

#: A block whose worker died this often is given up, with its cause; the rest goes on.
_TRIES = 3


@dataclass(frozen=True)
class Failure:
    """A block that could not be computed; all others were."""

    item: WorkItem
    error: str


class Executor(ABC):
    """Computes all items; returns the failures. Each item's results are on disk when it is done."""

    @abstractmethod
    def run(self, context: RunContext, items: Sequence[WorkItem], report: Report) -> list[Failure]: ...


class _StoppedError(BaseException):
    """Raised inside a worker thread, between two writes, when the run was interrupted."""


class ThreadExecutor(Executor):
    """In this process. Decoding, shifts and inference release the GIL, and classifiers are loaded once."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def run(self, context: RunContext, items: Sequence[WorkItem], report: Report) -> list[Failure]:
        stop = threading.Event()
        lock = threading.Lock()

        def guarded_report(count: int) -> None:
            if stop.is_set():
                raise _StoppedError
            with lock:
                report(count)

        def compute(item: WorkItem, patient: bool) -> bool:
            return compute_block(context, item, guarded_report, wait=patient)

        with ThreadPoolExecutor(self.workers, thread_name_prefix="shiftbench") as pool:
            try:
                return _drive(pool, compute, items).failures
            except BaseException:
                stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise


class ProcessExecutor(Executor):
    """In worker processes that load the data sets and classifiers for themselves."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def run(self, context: RunContext, items: Sequence[WorkItem], report: Report) -> list[Failure]:
        left, failures = list(items), []
        for attempt in range(1, _TRIES + 1):
            outcome = self._attempt(context, left, report)
            failures += outcome.failures
            left = outcome.unfinished
            if not left:
                break
            if attempt == _TRIES:
                cause = f"its worker process died {_TRIES} times (out of memory?)"
                failures += [Failure(item, cause) for item in left]
        return failures

    def _attempt(self, context: RunContext, items: Sequence[WorkItem], report: Report) -> _Outcome:
        spawn = multiprocessing.get_context("spawn")
        counts: Any = spawn.Queue()
        forwarder = _Forwarder(counts, report)
        pool = ProcessPoolExecutor(self.workers, spawn, _start_worker, (context, counts, os.getpid()))
        try:
            return _drive(pool, _compute_in_worker, items)
        except BaseException:
            for process in list((pool._processes or {}).values()):
                process.terminate()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            forwarder.close()


@dataclass(frozen=True)
class _Outcome:
    failures: list[Failure]
    #: Items whose worker died.
    unfinished: list[WorkItem]


def _drive(pool: Pool, compute: Callable[[WorkItem, bool], bool], items: Sequence[WorkItem]) -> _Outcome:
    """Blocks that another run holds are left for last, then waited for."""
    failures: list[Failure] = []
    unfinished: list[WorkItem] = []
    for patient in (False, True):
        waiting: dict[Future[bool], WorkItem] = {}
        try:
            waiting = {pool.submit(compute, item, patient): item for item in items}
        except BrokenProcessPool:
            return _Outcome(failures, list(items))
        postponed: list[WorkItem] = []
        while waiting:
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                item = waiting.pop(future)
                try:
                    if not future.result():
                        postponed.append(item)
                except BrokenProcessPool:
                    unfinished.append(item)
                except Exception as error:
                    failures.append(Failure(item, explain(error)))
        items = postponed
        if not items or unfinished:
            break
    return _Outcome(failures, unfinished + (list(items) if unfinished else []))


def explain(error: Exception) -> str:
    """Our own errors speak for themselves; for others the place is told too."""
    if isinstance(error, ShiftbenchError):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" ({last[0].name}, line {last[0].lineno})" if last else ""
    return f"{type(error).__name__}: {error}{where}"


class _Forwarder:
    """Brings the workers' counts to the parent's progress bar."""

    def __init__(self, counts: Any, report: Report) -> None:
        self._counts, self._report = counts, report
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._forward, daemon=True)
        self._thread.start()

    def _forward(self) -> None:
        while True:
            try:
                self._report(self._counts.get(timeout=0.2))
            except queue.Empty:
                if self._closing.is_set():
                    return

    def close(self) -> None:
        self._closing.set()
        self._thread.join()


_worker_context: RunContext | None = None
_worker_counts: Any = None


def _start_worker(context: RunContext, counts: Any, parent: int) -> None:
    global _worker_context, _worker_counts
    _worker_context, _worker_counts = context, counts
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()


def _end_with_parent(parent: int) -> None:
    """A worker must not outlive a killed run: it would hold its claims and its memory."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _compute_in_worker(item: WorkItem, patient: bool) -> bool:
    assert _worker_context is not None
    return compute_block(_worker_context, item, _worker_counts.put, wait=patient)
