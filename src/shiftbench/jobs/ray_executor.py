"""Jobs on a Ray cluster: the same items and the same files, on all its machines.

Every worker is an actor that loads the job with its datasets and models once. It computes one item at a time and writes
the results to a folder that all machines see under the same path. So only items and counts are sent, memory is bounded
by one item per worker, and a driver that dies loses nothing: the same command resumes.

Models that need the same resources share workers; models that need others (a GPU, more memory) have their own workers
and their own list of items. Optionally each machine has a reader that prepares images for all its workers and sends
them through shared memory, a few ahead of what they ask for.
"""

from __future__ import annotations

import fnmatch
import logging
import math
import socket
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from shiftbench.errors import ShiftbenchError, argument
from shiftbench.io.paths import UnwritableError
from shiftbench.jobs.base import TRIES, Executor, Failure, Job, Problem, Reader
from shiftbench.jobs.executors import Agenda
from shiftbench.jobs.progress import Advance
from shiftbench.jobs.threads import worker_count

_log = logging.getLogger(__name__)
#: Seconds to wait for the head of a cluster.
_TIMEOUT = 10
#: Seconds between two looks at the workers.
_POLL_SECONDS = 5.0
#: Seconds without any worker until the user is informed what the run waits for.
_SILENT_SECONDS = 10.0
#: Prepared inputs per worker that a reader may hold ahead: settings of a block, 40 MB at 224 pixels.
_AHEAD = 2
#: Workers that a reader serves at once; the others wait.
_SERVED = 16


class RayError(ShiftbenchError):
    """Ray is not installed, or its cluster can't be reached or has no free resources."""


@dataclass(frozen=True)
class Resources:
    """Resources of one worker.

    Attributes:
        cpus: Cores.
        gpus: GPUs, or a share of one.
        memory: Bytes of memory.
    """

    cpus: float = 1.0
    gpus: float = 0.0
    memory: int | None = None

    @classmethod
    def parse(cls, text: str, default: Resources | None = None) -> Resources:
        """The resources of a text; those that it does not name are as in ``default``. Memory is in GB.

        >>> print(Resources.parse("gpus:0.5,memory:16", Resources(cpus=4)))
        4 CPUs, 0.5 GPUs, 16 GB of memory
        """
        amounts: dict[str, Any] = {}
        for word in text.split(","):
            kind, _, amount = word.strip().partition(":")
            try:
                amounts[kind] = float(amount)
                is_valid = kind in cls.__dataclass_fields__ and 0 <= amounts[kind] < math.inf
            except ValueError:
                is_valid = False
            if not is_valid:
                raise RayError(
                    "invalid resource specification",
                    found=word,
                    expected="comma-separated cpus:NUMBER, gpus:NUMBER, memory:GB",
                )
        if "memory" in amounts:
            amounts["memory"] = int(amounts["memory"] * 1e9)
        return replace(default or cls(), **amounts)

    def __str__(self) -> str:
        memory = f", {self.memory / 1e9:g} GB of memory" if self.memory else ""
        return f"{self.cpus:g} CPUs, {self.gpus:g} GPUs{memory}"


#: The resources of every model, or by patterns of model names, of which the first match counts.
Needs = Resources | Mapping[str, Resources]


class RayExecutor(Executor):
    """Ray actors; those that die are replaced and their items retried.

    Workers that the cluster has no room for wait in Ray's queue: an autoscaling cluster grows for them, and machines
    that join during the run get work.

    Args:
        address: Address of a running cluster ("auto" finds the one of this machine); None: start one on this machine.
        workers: Number of actors for models with the same resources; default: as many as the cluster has room for, now
            and during the run.
        resources: What each actor needs.
        reader_cpus: CPUs of the reader of each machine, which prepares images; 0: workers read for themselves.
        patience: Seconds to wait for a worker to be placed while none computes.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        workers: int | None = None,
        resources: Needs | None = None,
        reader_cpus: int = 0,
        patience: float = 900,
    ) -> None:
        self.address = address
        self.workers = workers
        self.resources: Needs = resources or Resources()
        self.reader_cpus = reader_cpus
        self.patience = patience

    @contextmanager
    def kept(self) -> Iterator[None]:
        """A context that is connected to the cluster, or to Ray started on this machine; contexts may be nested."""
        ray = _import_ray()
        started_here = _connect(ray, self.address, self._local_cpus())
        try:
            yield
        finally:
            if started_here:
                ray.shutdown()

    def _local_cpus(self) -> int:
        """Number of CPUs that Ray gets if it is started on this machine."""
        if isinstance(self.resources, Resources):
            cpus_per_worker = self.resources.cpus
        else:
            cpus_per_worker = max((needs.cpus for needs in self.resources.values()), default=1.0)
        return max(1, round(worker_count(self.workers) * cpus_per_worker)) + self.reader_cpus

    def run(self, job: Job[Any], items: Sequence[object], advance: Advance) -> list[Failure]:
        ray = _import_ray()
        # Models with other needs, such as a GPU, get workers of their own: each group is a part of the job.
        divided = job.divided(items, lambda name: _needs_of(name, self.resources))
        reader = job.reader(self.reader_cpus) if self.reader_cpus else None
        with self.kept(), _reading(ray, reader, self.reader_cpus) as readers:
            groups = []
            for needs, (job_part, part_items) in divided.items():
                if readers is not None:
                    job_part = job_part.with_reader(readers)
                groups.append(_Group(ray, job_part, part_items, needs, self.workers))
            return _Drive(ray, groups, advance, self.patience).run()

    def wanted_workers(self) -> int:
        """As many workers as the user asked for, or as the cluster has room for now."""
        if self.workers or self.address is None:
            return worker_count(self.workers)
        needs = _needs_of("", self.resources)
        with self.kept():
            return sum(_room(machine, needs) for machine in _machines(_import_ray()).values())


class _Reader:
    """An actor per machine that prepares what the workers there ask for."""

    def __init__(self) -> None:
        self._reader: Reader | None = None
        self._loading = threading.Lock()

    def stream(self, shared: list[Any], item: Hashable, requests: Sequence[object]) -> Iterator[Any]:
        """Yield the requested inputs of an item.

        ``shared`` holds the reader function, which the driver keeps for readers that are restarted. It is in a list
        because Ray would replace a reference that is an argument itself by its value, for every call.
        """
        import ray

        with self._loading:
            self._reader = self._reader or ray.get(shared[0])
        yield from self._reader(item, requests)


@dataclass(frozen=True)
class _Readers:
    """The reader that workers are given: it passes their requests on to the actor of their machine."""

    #: The handle of a ``_Reader`` by the id of its machine.
    by_node: Mapping[str, Any]
    #: A reference to the job's own reader function.
    shared: Any

    def __call__(self, item: Hashable, requests: Sequence[object]) -> Iterator[Any]:
        """Yield the requested inputs of an item; a worker on a machine without a reader reads them for itself."""
        import ray

        actor = self.by_node.get(ray.get_runtime_context().get_node_id())
        if actor is None:
            read = ray.get(self.shared)
            yield from read(item, requests)
            return
        # The actor stops when it is this many inputs ahead of the worker, because they wait in the machine's memory.
        stream = actor.stream.options(num_returns="streaming", _generator_backpressure_num_objects=_AHEAD)
        for reference in stream.remote([self.shared], item, requests):
            yield ray.get(reference)


@contextmanager
def _reading(ray: ModuleType, reader: Reader | None, cpus: int) -> Iterator[_Readers | None]:
    """A context with a reader on each machine that can hold one; yields None if the job has nothing to prepare."""
    if reader is None:
        yield None
        return
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = [node for node, machine in _machines(ray).items() if machine.get("CPU", 0.0) > cpus]
    if not nodes:
        raise RayError(
            "no machine of the cluster can hold a reader and a worker",
            found=_describe_cluster(ray),
            expected=f"more than {cpus} CPUs",
            hint=f"request less with {argument('reader_cpus')}",
        )
    actor = ray.remote(_Reader)
    # A reader that dies is restarted, and its calls are repeated.
    actor_options = {"num_cpus": cpus, "max_concurrency": _SERVED, "max_restarts": -1, "max_task_retries": TRIES}
    readers = {}
    for node in nodes:
        strategy = NodeAffinitySchedulingStrategy(node, soft=True)
        readers[node] = actor.options(scheduling_strategy=strategy, **actor_options).remote()
    try:
        yield _Readers(readers, ray.put(reader))
    finally:
        for reader_actor in readers.values():
            ray.kill(reader_actor)


class _Worker:
    """An actor; the job stays loaded from item to item."""

    def __init__(self, job: Job[object]) -> None:
        self.job = job

    def ready(self) -> str:
        """The machine of the actor, once it is placed and has its job."""
        import ray

        return str(ray.get_runtime_context().get_node_id())

    def compute(self, item: Hashable, waits: bool) -> tuple[list[Problem] | None, int]:
        """The result of ``Job.attempt``, and the amount done."""
        counts: list[int] = []
        problems = self.job.attempt(item, counts.append, wait=waits)
        return problems, sum(counts)


class _Group:
    """The workers with the same resources, and their items."""

    def __init__(
        self, ray: ModuleType, job: Job[object], items: Sequence[Hashable], needs: Resources, workers: int | None
    ) -> None:
        shared_job = ray.put(job.threaded(max(1, int(needs.cpus))))
        resources = {"num_cpus": needs.cpus, "num_gpus": needs.gpus, "memory": needs.memory}
        actor = ray.remote(_Worker).options(scheduling_strategy="SPREAD", **resources)
        self.new_worker: Callable[[], Any] = lambda: actor.remote(shared_job)
        self.agenda = Agenda(items)
        self.needs = needs
        self.workers = workers
        #: Number of workers that wait for a place or load their job.
        self.starting = 0
        #: Number of items that are being computed.
        self.computing = 0
        self.failed_starts = 0

    def first_workers(self, ray: ModuleType) -> int:
        """Number of workers to start at once: by default as many as the cluster has room for now."""
        if self.workers:
            return self.lacking()
        room = sum(_room(machine, self.needs) for machine in _machines(ray).values())
        return min(room, len(self.agenda)) or self.lacking()

    def lacking(self) -> int:
        """Number of further workers to start, no more than there are items.

        Without a number of workers, one more than the cluster has room for is always in Ray's queue, for machines that
        join later.
        """
        missing = 1
        if self.workers:
            missing = self.workers - self.computing
        return min(missing, len(self.agenda)) - self.starting


@dataclass(frozen=True)
class _Task:
    """What an actor computes: an item, or None while it starts."""

    group: _Group
    worker: Any
    item: Hashable | None
    node: str = ""


class _Drive:
    """Gives each worker that is ready an item, until all are done or given up."""

    def __init__(self, ray: ModuleType, groups: Sequence[_Group], advance: Advance, patience: float) -> None:
        from ray.util.metrics import Counter

        self.ray = ray
        self.groups = groups
        self.advance = advance
        self.patience = patience
        #: By reference to the answer of an actor: what it computes.
        self.running: dict[Any, _Task] = {}
        self.done = Counter("shiftbench_done", "Predictions or other results that are done.")
        #: When an item was last computed, and whether the user has been informed since then.
        self.idle_since = time.monotonic()
        self.reported = False

    def run(self) -> list[Failure]:
        """Run until all items are done or given up; returns the failures."""
        try:
            for group in self.groups:
                self._start_workers(group, group.first_workers(self.ray))
            # Workers that are still starting do not count.
            while any(group.agenda or group.computing for group in self.groups):
                for group in self.groups:
                    self._start_workers(group, group.lacking())
                finished, _ = self.ray.wait(list(self.running), num_returns=1, timeout=_POLL_SECONDS)
                for answer in finished:
                    self._take(self.running.pop(answer), answer)
                self._check_idle_time()
        finally:
            for task in self.running.values():
                self.ray.kill(task.worker)
        failures: list[Failure] = []
        for group in self.groups:
            failures += group.agenda.failures
        return failures

    def _check_idle_time(self) -> None:
        """Inform the user if no worker has been placed for a while; raise RayError when the patience is over."""
        if any(group.computing for group in self.groups):
            self.idle_since = time.monotonic()
            self.reported = False
        idle_seconds = time.monotonic() - self.idle_since
        if idle_seconds < min(_SILENT_SECONDS, self.patience):
            return
        needs = dict.fromkeys(str(group.needs) for group in self.groups if group.agenda)
        error = RayError(
            "no machine of the cluster can hold a worker",
            found=_describe_cluster(self.ray),
            expected=f"{' and '.join(needs)} on one machine",
            hint=f"request less ({argument('resources', flag='--cpus, --gpus, --memory')}), or add a machine",
        )
        if not self.reported:
            cluster = error.found or "none"
            _log.warning("waiting for a machine with %s; the cluster has %s", error.expected, cluster)
            self.reported = True
        if idle_seconds >= self.patience:
            raise error

    def _start_workers(self, group: _Group, count: int) -> None:
        for _ in range(count):
            worker = group.new_worker()
            group.starting += 1
            self.running[worker.ready.remote()] = _Task(group, worker, None)

    def _take(self, task: _Task, answer: object) -> None:
        """Take the answer of a worker, and give it the next item; a worker is ended if there are no more items."""
        group = task.group
        if task.item is None:
            group.starting -= 1
        else:
            group.computing -= 1
        try:
            result = self.ray.get(answer)
        except UnwritableError as error:
            self.ray.kill(task.worker)
            # Actors are killed, not stopped: the others get a moment to finish what they write.
            self.ray.wait([*self.running, answer], num_returns=len(self.running) + 1, timeout=_TIMEOUT)
            # Ray's own copy includes the traceback of the worker.
            raise getattr(error, "cause", error) from None
        except self.ray.exceptions.RayError as error:
            self._take_death(task, error)
            return
        if task.item is None:
            group.failed_starts = 0
            task = replace(task, node=result)
        else:
            problems, count = result
            self.advance(count)
            if count:
                self.done.inc(count)
            group.agenda.take(task.item, problems)
        self._give_next_item(task)

    def _take_death(self, task: _Task, error: Exception) -> None:
        """Note that a worker died; raises RayError if workers die again and again while they start."""
        group = task.group
        if task.item is None:
            group.failed_starts += 1
            if group.failed_starts >= TRIES:
                raise RayError(
                    "no worker can be started on the cluster",
                    found=_short(error),
                    hint="every machine needs the same Python, the same shiftbench, the models and the data",
                ) from None
        elif task.node not in _machines(self.ray):
            # The machine left the cluster, which is no fault of the item.
            group.agenda.put_back(task.item)
        else:
            group.agenda.lose(task.item, f"its worker died: {_short(error)}")

    def _give_next_item(self, task: _Task) -> None:
        agenda = task.group.agenda
        if not agenda:
            self.ray.kill(task.worker)
            return
        item, waits = agenda.next()
        task.group.computing += 1
        # The name is what Ray's dashboard shows.
        answer = task.worker.compute.options(name=str(item)).remote(item, waits)
        self.running[answer] = replace(task, item=item)


def _needs_of(name: str, needs: Needs) -> Resources:
    """The resources of the model of this name."""
    if isinstance(needs, Resources):
        return needs
    for pattern, resources in needs.items():
        if fnmatch.fnmatchcase(name, pattern):
            return resources
    return Resources()


def _machines(ray: ModuleType) -> dict[str, dict[str, float]]:
    """The resources of each machine of the cluster."""
    return {node["NodeID"]: dict(node["Resources"]) for node in ray.nodes() if node["Alive"]}


def _connect(ray: ModuleType, address: str | None, cpus: int) -> bool:
    """Connect to a cluster, or start Ray on this machine; returns False if this process was connected already."""
    if ray.is_initialized():
        return False
    quiet = {"log_to_driver": False, "configure_logging": False}
    try:
        if address is None:
            ray.init(address="local", num_cpus=cpus, include_dashboard=False, **quiet)
        else:
            _check_answers(address)
            ray.init(address=address, **quiet)
    except (OSError, RuntimeError, ValueError) as error:
        if not address:
            raise RayError("Ray can't be started here", found=_short(error)) from error
        raise RayError(
            f"the Ray cluster at {address!r} can't be reached",
            found=_short(error),
            hint=f"start one with `ray start --head` and pass {argument('address', 'HOST:PORT')}; if it requires a "
            "token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN here too",
        ) from error
    return True


def _check_answers(address: str) -> None:
    """Raise OSError at once if nothing answers at an address with a host: Ray itself retries for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_TIMEOUT).close()


def _room(machine: Mapping[str, float], needs: Resources) -> int:
    """Number of workers that a machine can hold."""
    amounts = {"CPU": needs.cpus, "GPU": needs.gpus, "memory": needs.memory or 0.0}
    return min((int(machine.get(kind, 0.0) / amount) for kind, amount in amounts.items() if amount), default=1)


def _describe_cluster(ray: ModuleType) -> str:
    """The resources of all machines, for messages."""
    texts = []
    for machine in _machines(ray).values():
        memory = int(machine.get("memory", 0.0))
        texts.append(str(Resources(machine.get("CPU", 0.0), machine.get("GPU", 0.0), memory)))
    return "; ".join(texts)


def _import_ray() -> ModuleType:
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise RayError("the executor 'ray' needs Ray", hint="pip install 'shiftbench[ray]'") from error
    return ray


def _short(error: Exception) -> str:
    """The informative line of Ray's long messages: the last of a traceback, otherwise the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[-1] if "creation task" in lines[0] else lines[0]
