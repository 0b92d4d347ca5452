"""Executors for one machine: threads of this process, or worker processes."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import pickle
import queue
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures import Executor as Pool
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import reduction, util
from pathlib import Path
from typing import Any, Literal

from shiftbench.errors import check_integer, check_names, explain
from shiftbench.io.paths import UnwritableError
from shiftbench.jobs.base import TRIES, Executor, Failure, Job, Problem
from shiftbench.jobs.progress import Advance
from shiftbench.jobs.threads import worker_count

ExecutorName = Literal["threads", "processes", "ray"]

_DIED = 'its worker process died (out of memory, or a script that does not begin under `if __name__ == "__main__"`?)'


class Agenda:
    """The items still to be computed: failed ones are retried, and those that another run computes come last.

    Parts of an item that succeeded are on disk, so a retry computes only the others.
    """

    def __init__(self, items: Iterable[Hashable]) -> None:
        self._queue = deque(items)
        #: Items that another run computes.
        self._held: deque[Hashable] = deque()
        self._tries: Counter[Hashable] = Counter()
        self.failures: list[Failure] = []
        #: Number of items whose worker did not die.
        self.answered = 0

    def __len__(self) -> int:
        return len(self._queue) + len(self._held)

    def next(self) -> tuple[Hashable, bool]:
        """The next item, and whether to wait for another run that computes it."""
        if self._queue:
            return self._queue.popleft(), False
        return self._held.popleft(), True

    def take(self, item: Hashable, problems: Sequence[Problem] | None) -> None:
        """Note how ``Job.compute`` ended: with problems, with none, or with None if another run computes the item."""
        self.answered += 1
        computed_elsewhere = problems is None
        if computed_elsewhere:
            self._held.append(item)
        elif problems:
            self._failed(item, problems)

    def put_back(self, item: Hashable) -> None:
        """Take back an item that was not computed, through no fault of its own."""
        self._queue.append(item)

    def lose(self, item: Hashable, reason: str) -> None:
        """Note that an item failed as a whole, or that its worker died."""
        self._failed(item, [Problem(str(item), reason)])

    def give_up(self, reason: str) -> None:
        """Report all items that are left as failures."""
        self.failures += [Failure(item, Problem(str(item), reason)) for item in (*self._queue, *self._held)]
        self._queue.clear()
        self._held.clear()

    def _failed(self, item: Hashable, problems: Sequence[Problem]) -> None:
        self._tries[item] += 1
        if self._tries[item] < TRIES:
            self._queue.append(item)
        else:
            self.failures += [Failure(item, problem) for problem in problems]


class _StoppedError(BaseException):
    """Raised in a worker thread, between two writes, after the run was interrupted."""


class _LocalExecutor(Executor):
    def __init__(self, workers: int) -> None:
        self.workers = workers

    def wanted_workers(self) -> int:
        return self.workers


class ThreadExecutor(_LocalExecutor):
    """Threads of this process. Decoding, shifts and inference release the GIL, and models are loaded once.

    Args:
        workers: Number of threads.
    """

    def run(self, job: Job[Any], items: Sequence[Hashable], advance: Advance) -> list[Failure]:
        agenda = Agenda(items)
        stop = threading.Event()
        advancing = threading.Lock()

        def guarded_advance(count: int) -> None:
            if stop.is_set():
                raise _StoppedError
            with advancing:
                advance(count)

        def compute(item: Hashable, waits: bool) -> list[Problem] | None:
            return job.attempt(item, guarded_advance, wait=waits)

        def assist() -> None:
            while job.assist():
                pass

        with ThreadPoolExecutor(self.workers, thread_name_prefix="shiftbench") as pool:
            try:
                _drive(pool, compute, agenda, self.workers, assist)
            except BaseException:
                stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        return agenda.failures


class ProcessExecutor(_LocalExecutor):
    """Worker processes, each of which loads the job with its datasets and models.

    Args:
        workers: Number of processes.
    """

    def run(self, job: Job[Any], items: Sequence[Hashable], advance: Advance) -> list[Failure]:
        agenda = Agenda(items)
        while agenda:
            for item in _attempt(job, agenda, advance, self.workers):
                # One of these items ended the pool. Run one by one, that item fails and the others succeed.
                alone = Agenda([item])
                while alone:
                    for lost in _attempt(job, alone, advance, 1):
                        alone.lose(lost, _DIED)
                agenda.failures += alone.failures
                agenda.answered += alone.answered
            if not agenda.answered and len(agenda.failures) >= TRIES:
                agenda.give_up("every worker process dies, whatever its item")
        return agenda.failures


def _attempt(job: Job[object], agenda: Agenda, advance: Advance, workers: int) -> list[Hashable]:
    """Run the agenda on worker processes; returns the items that were being computed when the pool broke.

    The list is empty if all items are done.
    """
    spawn = multiprocessing.get_context("spawn")
    counts = spawn.Queue()
    with _job_file(job) as file, _forwarding(counts, advance):
        # The type is not that of the parameters: what is sent as _Inherited arrives as a descriptor.
        arguments: Any = (file, counts, os.getpid())
        pool = ProcessPoolExecutor(workers, spawn, _start_worker, arguments)
        try:
            return _drive(pool, _compute_in_worker, agenda, workers)
        except BaseException:
            for process in list((pool._processes or {}).values()):
                process.terminate()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _drive(
    pool: Pool,
    compute: Callable[[Hashable, bool], list[Problem] | None],
    agenda: Agenda,
    workers: int,
    assist: Callable[[], None] | None = None,
) -> list[Hashable]:
    """Run until the agenda is empty or the pool breaks; returns the items that were then being computed.

    Workers for whom no item is left ``assist`` the others, so that no core is idle at the end.
    """
    running: dict[Future[list[Problem] | None], Hashable] = {}
    helpers: list[Future[None]] = []
    while agenda or running:
        while agenda and len(running) < workers:
            item, waits = agenda.next()
            try:
                running[pool.submit(compute, item, waits)] = item
            except BrokenProcessPool:
                return [item, *running.values()]
        helpers = [helper for helper in helpers if not helper.done()]
        if assist is not None:
            helpers += [pool.submit(assist) for _ in range(workers - len(running) - len(helpers))]
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            item = running.pop(future)
            try:
                agenda.take(item, future.result())
            except BrokenProcessPool:
                return [item, *running.values()]
            except UnwritableError:
                raise  # No other item could be stored either.
            except Exception as error:
                agenda.lose(item, explain(error))
    return []


@contextmanager
def _forwarding(counts: Any, advance: Advance) -> Iterator[None]:
    """Inside, the workers' counts reach the progress bar of the parent."""
    closing = threading.Event()

    def forward() -> None:
        while True:
            try:
                advance(counts.get(timeout=0.2))
            except queue.Empty:
                if closing.is_set():
                    return

    thread = threading.Thread(target=forward, daemon=True)
    thread.start()
    try:
        yield
    finally:
        closing.set()
        thread.join()


#: In a worker process: its job, or the reason why that could not be loaded.
_worker_job: Job[Any] | str = "not started"
#: In a worker process: the queue that takes its counts to the parent.
_worker_counts: Any = None


@contextmanager
def _job_file(job: Job[object]) -> Iterator[_Inherited | str]:
    """A file with the job, for its workers; through a pipe, Python would wait forever for a worker that dies early.

    The file has no name, so nothing is left of a killed run. On Windows, where a new process inherits no open file, it
    has a name, and the system's cleaning removes what a killed run leaves.
    """
    if hasattr(reduction, "DupFd"):
        with tempfile.TemporaryFile(prefix="shiftbench-job-") as file:
            pickle.dump(job, file)
            file.flush()
            yield _Inherited(file.fileno())
        return
    with tempfile.TemporaryDirectory(prefix="shiftbench-job-", ignore_cleanup_errors=True) as folder:
        path = Path(folder, "job")
        path.write_bytes(pickle.dumps(job))
        yield str(path)


class _Inherited:
    """An open file, for the processes that are started with it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __reduce__(self) -> tuple[object, ...]:
        return _opened, (reduction.DupFd(self._descriptor),)


def _opened(descriptor: Any) -> int:
    return int(descriptor.detach())


def _start_worker(file: int | str, counts: object, parent: int) -> None:
    """Load the job in a worker process, and prepare its end."""
    global _worker_job, _worker_counts
    if isinstance(file, str):
        file = os.open(file, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    # The file is mapped, not read: all workers share the position in it.
    with mmap.mmap(file, 0, access=mmap.ACCESS_READ) as content:
        try:
            _worker_job = pickle.loads(content)
        except Exception as error:
            _worker_job = explain(error)
    os.close(file)
    _worker_counts = counts

    def end(*_: object) -> None:
        # The thread of the queue is not waited for: a worker that ends during its first count would hang.
        util.Finalize(None, os._exit, (1,), exitpriority=0)
        # The exception of this exit removes an unfinished file, as any other error does.
        sys.exit(1)

    signal.signal(signal.SIGTERM, end)
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()


def _end_with_parent(parent: int) -> None:
    """End this worker process when its parent has ended.

    A worker must not outlive a killed run: it would keep its locks and its memory. On Windows, ``os.getppid`` stays the
    same when the parent has ended, but multiprocessing notices the end.
    """
    parent_process = multiprocessing.parent_process()
    while os.getppid() == parent and (parent_process is None or parent_process.is_alive()):
        time.sleep(0.5)
    os._exit(1)


def _compute_in_worker(item: Hashable, waits: bool) -> list[Problem] | None:
    """``Job.attempt`` in a worker process."""
    if isinstance(_worker_job, str):
        return [Problem("a worker process", _worker_job)]
    return _worker_job.attempt(item, _worker_counts.put, wait=waits)


def find_executor(executor: str | Executor, workers: int | None) -> Executor:
    """An executor by name, or the one given."""
    if workers is not None:
        check_integer("workers", workers)
    if isinstance(executor, Executor):
        return executor
    if executor == "ray":
        from shiftbench.jobs.ray_executor import RayExecutor

        return RayExecutor(workers=workers)
    kinds = {"threads": ThreadExecutor, "processes": ProcessExecutor}
    check_names("executor", [executor], [*kinds, "ray"])
    return kinds[executor](worker_count(workers))
