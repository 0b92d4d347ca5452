"""A job on a Ray cluster: the same items, the same files, on as many machines as there are.

Every worker is an actor that loads the job, its data sets and classifiers, once and keeps them warm. It computes one
item at a time and writes its results where they belong, which all machines must see under the same path. So nothing
but items and counts travels, memory stays bounded by one item a worker, and a driver that dies loses nothing: the
same command continues from what is there.

Classifiers with the same needs share workers. Those with other needs (a GPU, more memory) have workers of their
own, and their own list of items. Where that pays, each machine has a reader: it makes pictures ready for all workers
there and sends them by way of the machine's shared memory, a few ahead of who asks.
"""

from __future__ import annotations

import fnmatch
import math
import socket
import threading
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from shiftbench.errors import ShiftbenchError, explain
from shiftbench.io.atomic import UnwritableError
from shiftbench.jobs.base import TRIES, Executor, Failure, Feed, Job, Trouble
from shiftbench.jobs.executors import Agenda
from shiftbench.jobs.progress import Advance
from shiftbench.jobs.threads import worker_count

#: Seconds within which a cluster's head must answer.
_PATIENCE = 10
#: What a reader may have ready that nobody has taken yet, for each worker: settings of a block, 40 MB at 224 pixels.
_AHEAD = 2
#: Workers that a reader serves at once; more wait for their turn.
_SERVED = 16


class RayError(ShiftbenchError):
    """Ray is missing, or its cluster can't be reached or has no room."""


@dataclass(frozen=True)
class Resources:
    """What one worker takes of a machine."""

    cpus: float = 1.0
    gpus: float = 0.0
    #: Bytes; None leaves it to Ray.
    memory: int | None = None

    @classmethod
    def parse(cls, text: str, default: Resources | None = None) -> Resources:
        """What is not named is as in ``default``; memory in GB.

        >>> print(Resources.parse("gpus:0.5,memory:16", Resources(cpus=4)))
        4 CPUs, 0.5 GPUs, 16 GB of memory
        """
        amounts: dict[str, Any] = {}
        for word in text.split(","):
            kind, _, amount = word.strip().partition(":")
            try:
                amounts[kind] = float(amount)
                known = kind in cls.__dataclass_fields__ and 0 <= amounts[kind] < math.inf
            except ValueError:
                known = False
            if not known:
                raise RayError(
                    "that is no amount of a resource",
                    found=word,
                    expected="cpus:NUMBER, gpus:NUMBER or memory:GB, with commas between them",
                )
        if "memory" in amounts:
            amounts["memory"] = int(amounts["memory"] * 1e9)
        return replace(default or cls(), **amounts)

    def options(self) -> dict[str, Any]:
        return {"num_cpus": self.cpus, "num_gpus": self.gpus, "memory": self.memory}

    def __str__(self) -> str:
        memory = f", {self.memory / 1e9:g} GB of memory" if self.memory else ""
        return f"{self.cpus:g} CPUs, {self.gpus:g} GPUs{memory}"


#: For all classifiers alike, or by patterns of their names, of which the first that fits counts.
Needs = Resources | Mapping[str, Resources]


class RayExecutor(Executor):
    """Actors that compute items; those that die are replaced and their items computed again."""

    def __init__(
        self,
        address: str | None = None,
        *,
        workers: int | None = None,
        resources: Needs | None = None,
        reader_cpus: int = 0,
    ) -> None:
        """``address`` of a running cluster ("auto" finds this machine's); without one, Ray starts here.

        ``workers`` is how many actors for classifiers of the same needs; without it, as many as there is room for.
        ``reader_cpus`` is what the reader of each machine takes; with 0 there is none, and workers read for
        themselves.
        """
        self.address, self.workers, self.reader_cpus = address, workers, reader_cpus
        self.resources: Needs = resources or Resources()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Joined to the cluster, or Ray started here; within another ``kept``, as it is."""
        ray = _import_ray()
        started_here = _connect(ray, self.address, self._cpus())
        try:
            yield
        finally:
            if started_here:
                ray.shutdown()

    def run(self, job: Job[Any], items: Sequence[Any], advance: Advance) -> list[Failure]:
        ray = _import_ray()
        parts = job.divided(items, lambda name: _needs_of(name, self.resources))
        feed = job.feed(self.reader_cpus) if self.reader_cpus else None
        with self.kept(), _reading(ray, feed, self.reader_cpus) as readers:
            crews = [
                _Crew(ray, part.fed_by(readers) if readers else part, own, needs, self._places(ray, needs, readers))
                for needs, (part, own) in parts.items()
            ]
            return _Drive(ray, crews, advance).run()

    def _cpus(self) -> int:
        """Of a Ray that is started here."""
        needs = [self.resources] if isinstance(self.resources, Resources) else self.resources.values()
        each = max((own.cpus for own in needs), default=1.0)
        return max(1, round(worker_count(self.workers) * each)) + self.reader_cpus

    def _places(self, ray: Any, needs: Resources, readers: _Readers | None) -> int:
        machines = _machines(ray)
        if readers:
            for node in readers.by_node.keys() & machines.keys():
                machines[node]["CPU"] -= self.reader_cpus
        room = sum(_room(machine, needs) for machine in machines.values())
        if room == 0:
            raise RayError(
                "no machine of the cluster has room for a worker",
                found="; ".join(map(_about, machines.values())) + (" beside its reader" if readers else ""),
                expected=f"{needs} on one machine",
                hint="ask for less with --cpus, --gpus and --memory, or add a machine",
            )
        return room if self.workers is None else min(self.workers, room)


class _Reader:
    """Runs inside the cluster, once on each machine, and makes ready what the workers there ask for."""

    def __init__(self) -> None:
        self._feed: Feed | None = None
        self._loading = threading.Lock()

    def stream(self, shared: list[Any], item: Hashable, wanted: Sequence[Any]) -> Iterator[Any]:
        """``shared`` holds the feed, which the driver keeps: a reader that was started again finds it there."""
        import ray

        with self._loading:
            self._feed = self._feed or ray.get(shared[0])
        yield from self._feed(item, wanted)


@dataclass(frozen=True)
class _Readers:
    """The readers by machine; what a worker asks, its own machine's answers. Where there is none, it helps itself."""

    by_node: Mapping[str, Any]
    #: A reference to the feed.
    shared: Any

    def __call__(self, item: Hashable, wanted: Sequence[Any]) -> Iterator[Any]:
        import ray

        reader = self.by_node.get(ray.get_runtime_context().get_node_id())
        if reader is None:
            yield from ray.get(self.shared)(item, wanted)
            return
        asked = reader.stream.options(num_returns="streaming", _generator_backpressure_num_objects=_AHEAD)
        for answer in asked.remote([self.shared], item, wanted):
            yield ray.get(answer)


@contextmanager
def _reading(ray: Any, feed: Feed | None, cpus: int) -> Iterator[_Readers | None]:
    """A reader on each machine that has room for one, as long as the work lasts; None if nothing can be made ready."""
    if feed is None:
        yield None
        return
    nodes = [node for node, machine in _machines(ray).items() if machine.get("CPU", 0.0) > cpus]
    if not nodes:
        raise RayError(
            "no machine of the cluster has room for a reader and a worker",
            found="; ".join(map(_about, _machines(ray).values())),
            expected=f"more than {cpus} CPUs",
            hint="ask for less with --reader-cpus",
        )
    readers = {node: _reader_on(ray, node, cpus).remote() for node in nodes}
    try:
        yield _Readers(readers, ray.put(feed))
    finally:
        for reader in readers.values():
            ray.kill(reader)


def _reader_on(ray: Any, node: str, cpus: int) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return ray.remote(_Reader).options(
        num_cpus=cpus,
        max_concurrency=_SERVED,
        max_restarts=-1,  # a reader that dies is started again, and what it was at is made again
        max_task_retries=TRIES,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=True),
    )


class _Worker:
    """Runs inside the cluster; what the job needs stays loaded from item to item."""

    def __init__(self, job: Job[Any]) -> None:
        self.job = job

    def ready(self) -> None:
        """Answered once the actor has a place and its job."""

    def compute(self, item: Hashable, patient: bool) -> tuple[list[Trouble] | None, int, str | None]:
        """(what ``Job.compute`` says, how much was done, why the item failed as a whole)."""
        counts: list[int] = []
        try:
            return self.job.compute(item, counts.append, wait=patient), sum(counts), None
        except UnwritableError:
            raise  # no other item could be stored either
        except Exception as error:
            # Told in words: an exception's class may not exist on the driver's side.
            return [], sum(counts), explain(error)


class _Crew:
    """The workers of the same needs, and their items."""

    def __init__(self, ray: Any, job: Job[Any], items: Sequence[Hashable], needs: Resources, places: int) -> None:
        self._job = ray.put(job.threaded(max(1, int(needs.cpus))))
        self._actor = ray.remote(_Worker).options(scheduling_strategy="SPREAD", **needs.options())
        self.agenda = Agenda(items)
        self.places = min(places, len(items))
        self.failed_starts = 0

    def new_worker(self) -> Any:
        return self._actor.remote(self._job)


@dataclass(frozen=True)
class _Task:
    """What an actor is at: an item, or None while it starts."""

    crew: _Crew
    worker: Any
    item: Hashable | None


class _Drive:
    """Hands out items, one to each worker that is ready, until all are done or given up."""

    def __init__(self, ray: Any, crews: Sequence[_Crew], advance: Advance) -> None:
        self.ray, self.crews, self.advance = ray, crews, advance
        self.running: dict[Any, _Task] = {}

    def run(self) -> list[Failure]:
        try:
            for crew in self.crews:
                for _ in range(crew.places):
                    self._start_worker(crew)
            while self._unfinished():
                finished, _ = self.ray.wait(list(self.running), num_returns=1)
                self._take(self.running.pop(finished[0]), finished[0])
            return [failure for crew in self.crews for failure in crew.agenda.failures]
        finally:
            for task in self.running.values():
                self.ray.kill(task.worker)

    def _unfinished(self) -> bool:
        """Whether any item is left or being computed; a worker that only waits for room does not count."""
        computing = any(task.item is not None for task in self.running.values())
        return computing or any(crew.agenda for crew in self.crews)

    def _start_worker(self, crew: _Crew) -> None:
        worker = crew.new_worker()
        self.running[worker.ready.remote()] = _Task(crew, worker, None)

    def _take(self, task: _Task, answer: Any) -> None:
        try:
            result = self.ray.get(answer)
        except UnwritableError as error:
            self.ray.kill(task.worker)
            # Ray's own copy of it tells the whole way through the worker too.
            raise getattr(error, "cause", error) from None
        except self.ray.exceptions.RayError as error:
            self._worker_died(task, error)
            return
        if task.item is None:
            task.crew.failed_starts = 0
        else:
            self._note(task.crew.agenda, task.item, *result)
        self._hand_out(task.crew, task.worker)

    def _note(
        self, agenda: Agenda, item: Hashable, troubles: list[Trouble] | None, count: int, why: str | None
    ) -> None:
        self.advance(count)
        if why is None:
            agenda.take(item, troubles)
        else:
            agenda.lose(item, why)

    def _hand_out(self, crew: _Crew, worker: Any) -> None:
        """The next item for a worker; one that has nothing left to do makes room for others."""
        if not crew.agenda:
            self.ray.kill(worker)
            return
        item, patient = crew.agenda.next()
        self.running[worker.compute.remote(item, patient)] = _Task(crew, worker, item)

    def _worker_died(self, task: _Task, error: Exception) -> None:
        if task.item is not None:
            task.crew.agenda.lose(task.item, f"its worker died: {_gist(error)}")
        else:
            task.crew.failed_starts += 1
            if task.crew.failed_starts >= TRIES:
                raise RayError(
                    "no worker can be started on the cluster",
                    found=_gist(error),
                    hint="every machine needs the same Python, the same shiftbench, the models and the data",
                )
        if task.crew.agenda:
            self._start_worker(task.crew)


def _needs_of(name: str, needs: Needs) -> Resources:
    """
    >>> needs = {"vit-*": Resources(gpus=1)}
    >>> _needs_of("vit-large", needs).gpus, _needs_of("alexnet", needs).gpus
    (1, 0.0)
    """
    if isinstance(needs, Resources):
        return needs
    return next((own for pattern, own in needs.items() if fnmatch.fnmatchcase(name, pattern)), Resources())


def _machines(ray: Any) -> dict[str, dict[str, float]]:
    """What each machine of the cluster has."""
    return {node["NodeID"]: dict(node["Resources"]) for node in ray.nodes() if node["Alive"]}


def _connect(ray: Any, address: str | None, cpus: int) -> bool:
    """Join a cluster, or start Ray on this machine; True when it was started here."""
    if ray.is_initialized():
        return False
    quiet = {"log_to_driver": False, "configure_logging": False}
    try:
        if address is None:
            ray.init(address="local", num_cpus=cpus, include_dashboard=False, **quiet)
        else:
            _knock(address)
            ray.init(address=address, **quiet)
    except (OSError, RuntimeError, ValueError) as error:
        raise RayError(
            f"the Ray cluster at {address!r} can't be reached" if address else "Ray can't be started here",
            found=_gist(error),
            hint="start one with `ray start --head`, and name it: --address HOST:PORT; if it asks for a token, set "
            "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN here too"
            if address
            else None,
        ) from error
    return True


def _knock(address: str) -> None:
    """Whether anybody answers at HOST:PORT: Ray itself tries for minutes before it says no."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()


def _room(machine: Mapping[str, float], needs: Resources) -> int:
    """How many workers a machine can hold at once.

    >>> _room({"CPU": 8.0, "GPU": 2.0}, Resources(cpus=2, gpus=1))
    2
    """
    wanted = {"CPU": needs.cpus, "GPU": needs.gpus, "memory": needs.memory or 0.0}
    return min((int(machine.get(kind, 0.0) / amount) for kind, amount in wanted.items() if amount), default=1)


def _about(machine: Mapping[str, float]) -> str:
    return str(Resources(machine.get("CPU", 0.0), machine.get("GPU", 0.0), int(machine.get("memory", 0.0))))


def _import_ray() -> Any:
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise RayError("the engine 'ray' needs Ray", hint="pip install 'shiftbench[ray]'") from error
    return ray


def _gist(error: Exception) -> str:
    """The one line of Ray's long messages that says what happened: a traceback's last, else the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[-1] if "creation task" in lines[0] else lines[0]
