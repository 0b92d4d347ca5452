"""Executors: where the blocks of a run are computed. A distributed engine fits behind the same interface."""

from __future__ import annotations

import multiprocessing
import os
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures import Executor as Pool
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

from shiftbench.runs.block import Report, Trouble, compute_block, explain
from shiftbench.runs.plan import RunContext, WorkItem
from shiftbench.store.atomic import UnwritableError

#: A block that failed, or whose worker died, this often is given up, with its cause; the rest goes on.
TRIES = 3
_DIED = "its worker process died (out of memory?)"


@dataclass(frozen=True)
class Failure:
    """Cells of a block that could not be computed; all others were."""

    item: WorkItem
    trouble: Trouble

    def __str__(self) -> str:
        return f"{self.trouble} ({TRIES} tries)"


class Executor(ABC):
    """Computes all items; returns the failures. Each item's results are on disk when it is done."""

    @abstractmethod
    def run(self, context: RunContext, items: Sequence[WorkItem], report: Report) -> list[Failure]: ...


class Agenda:
    """The blocks still to be computed: failed ones come again, and those that another run holds come last.

    A block whose trouble was one classifier's has the others' results on disk, so that only the classifier's own
    are computed again.
    """

    def __init__(self, items: Iterable[WorkItem]) -> None:
        self._queue, self._held = deque(items), deque[WorkItem]()
        self._tries: Counter[WorkItem] = Counter()
        self.failures: list[Failure] = []
        #: Blocks that their worker lived through.
        self.answered = 0

    def __len__(self) -> int:
        return len(self._queue) + len(self._held)

    def next(self) -> tuple[WorkItem, bool]:
        """(block, whether to wait for another run that is at it)."""
        return (self._queue.popleft(), False) if self._queue else (self._held.popleft(), True)

    def take(self, item: WorkItem, troubles: Sequence[Trouble] | None) -> None:
        """What became of a block, in the words of ``compute_block``."""
        self.answered += 1
        if troubles is None:
            self._held.append(item)
        elif troubles:
            self._failed(item, troubles)

    def lose(self, item: WorkItem, why: str) -> None:
        """A block failed as a whole, or its worker died."""
        self._failed(item, [_of_block(item, why)])

    def give_up(self, why: str) -> None:
        self.failures += [Failure(item, _of_block(item, why)) for item in (*self._queue, *self._held)]
        self._queue.clear()
        self._held.clear()

    def _failed(self, item: WorkItem, troubles: Sequence[Trouble]) -> None:
        self._tries[item] += 1
        if self._tries[item] < TRIES:
            self._queue.append(item)
        else:
            self.failures += [Failure(item, trouble) for trouble in troubles]


def _of_block(item: WorkItem, why: str) -> Trouble:
    return Trouble(f"the block of images {item.start} to {item.stop - 1} of {item.dataset!r}", why)


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

        def compute(item: WorkItem, patient: bool) -> list[Trouble] | None:
            return compute_block(context, item, guarded_report, wait=patient)

        agenda = Agenda(items)
        with ThreadPoolExecutor(self.workers, thread_name_prefix="shiftbench") as pool:
            try:
                _drive(pool, compute, agenda, self.workers)
            except BaseException:
                stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        return agenda.failures


class ProcessExecutor(Executor):
    """In worker processes that load the data sets and classifiers for themselves."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def run(self, context: RunContext, items: Sequence[WorkItem], report: Report) -> list[Failure]:
        agenda = Agenda(items)
        while agenda:
            for item in self._attempt(context, agenda, report, self.workers):
                # One of them ended the pool. Alone, the guilty one shows, and the others come through.
                self._compute_alone(context, item, agenda, report)
            if not agenda.answered and len(agenda.failures) >= TRIES:
                agenda.give_up("no worker process stays alive, whatever block it gets")
        return agenda.failures

    def _compute_alone(self, context: RunContext, item: WorkItem, agenda: Agenda, report: Report) -> None:
        alone = Agenda([item])
        while alone:
            for lost in self._attempt(context, alone, report, 1):
                alone.lose(lost, _DIED)
        agenda.failures += alone.failures
        agenda.answered += alone.answered

    def _attempt(self, context: RunContext, agenda: Agenda, report: Report, workers: int) -> list[WorkItem]:
        """The blocks that were being computed when the pool broke; none when all is done."""
        spawn = multiprocessing.get_context("spawn")
        counts: Any = spawn.Queue()
        forwarder = _Forwarder(counts, report)
        pool = ProcessPoolExecutor(workers, spawn, _start_worker, (context, counts, os.getpid()))
        try:
            return _drive(pool, _compute_in_worker, agenda, workers)
        except BaseException:
            for process in list((pool._processes or {}).values()):
                process.terminate()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            forwarder.close()


def _drive(
    pool: Pool, compute: Callable[[WorkItem, bool], list[Trouble] | None], agenda: Agenda, workers: int
) -> list[WorkItem]:
    """Until the agenda is empty, or the pool broke: then the blocks that were being computed."""
    running: dict[Future[list[Trouble] | None], WorkItem] = {}
    while agenda or running:
        while agenda and len(running) < workers:
            item, patient = agenda.next()
            try:
                running[pool.submit(compute, item, patient)] = item
            except BrokenProcessPool:
                return [item, *running.values()]
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            item = running.pop(future)
            try:
                agenda.take(item, future.result())
            except BrokenProcessPool:
                return [item, *running.values()]
            except UnwritableError:
                raise  # no other block could be stored either
            except Exception as error:
                agenda.lose(item, explain(error))
    return []


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


def _compute_in_worker(item: WorkItem, patient: bool) -> list[Trouble] | None:
    assert _worker_context is not None
    return compute_block(_worker_context, item, _worker_counts.put, wait=patient)
