"""A job on a Ray cluster: the same items, the same files, on as many machines as there are.

Every worker is an actor that loads the job, its data sets and classifiers, once and keeps them warm. It computes one
item at a time and writes its results where they belong, which all machines must see under the same path. So nothing
but items and counts travels, memory stays bounded by one item a worker, and a driver that dies loses nothing: the
same command continues from what is there.

Classifiers with the same needs share workers. Those with other needs (a GPU, more memory) have workers of their
own, and their own list of items.
"""

from __future__ import annotations

import fnmatch
import socket
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shiftbench.errors import ShiftbenchError, explain
from shiftbench.jobs import TRIES, Executor, Failure, Job, Report, Trouble
from shiftbench.runs.executors import Agenda
from shiftbench.store.atomic import UnwritableError
from shiftbench.working import worker_count

#: Seconds within which a cluster's head must answer.
_PATIENCE = 10


class RayError(ShiftbenchError):
    """Ray is missing, or its cluster can't be reached or has no room."""


@dataclass(frozen=True)
class Resources:
    """What one worker takes of a machine."""

    cpus: float = 1.0
    gpus: float = 0.0
    #: Bytes; None leaves it to Ray.
    memory: int | None = None

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
        self, address: str | None = None, *, workers: int | None = None, resources: Needs | None = None
    ) -> None:
        """``address`` of a running cluster ("auto" finds this machine's); without one, Ray starts here.

        ``workers`` is how many actors for classifiers of the same needs; without it, as many as there is room for.
        """
        self.address, self.workers = address, workers
        self.resources: Needs = resources or Resources()

    def run(self, job: Job[Any], items: Sequence[Any], report: Report) -> list[Failure]:
        ray = _import_ray()
        parts = job.divided(items, lambda name: _needs_of(name, self.resources))
        started_here = _connect(ray, self.address, self.workers, list(parts))
        try:
            crews = [_Crew(ray, part, own, needs, self._places(ray, needs)) for needs, (part, own) in parts.items()]
            return _Drive(ray, crews, report).run()
        finally:
            if started_here:
                ray.shutdown()

    def _places(self, ray: Any, needs: Resources) -> int:
        room = sum(_room(node["Resources"], needs) for node in ray.nodes() if node["Alive"])
        if room == 0:
            raise RayError(
                "no machine of the cluster has room for a worker",
                found="; ".join(_about(node["Resources"]) for node in ray.nodes() if node["Alive"]),
                expected=f"{needs} on one machine",
                hint="ask for less with --cpus, --gpus and --memory, or add a machine",
            )
        return room if self.workers is None else min(self.workers, room)


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
        self._job = ray.put(job)
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

    def __init__(self, ray: Any, crews: Sequence[_Crew], report: Report) -> None:
        self.ray, self.crews, self.report = ray, crews, report
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
        self.report(count)
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


def _connect(ray: Any, address: str | None, workers: int | None, needs: Sequence[Resources]) -> bool:
    """Join a cluster, or start Ray on this machine; True when it was started here."""
    if ray.is_initialized():
        return False
    quiet = {"log_to_driver": False, "configure_logging": False}
    try:
        if address is None:
            cpus = max(1, round(worker_count(workers) * max(own.cpus for own in needs)))
            ray.init(address="local", num_cpus=cpus, include_dashboard=False, **quiet)
        else:
            _knock(address)
            ray.init(address=address, **quiet)
    except (OSError, RuntimeError, ValueError) as error:
        raise RayError(
            f"the Ray cluster at {address!r} can't be reached" if address else "Ray can't be started here",
            found=_gist(error),
            hint="start one with `ray start --head`, and name it: --address HOST:PORT" if address else None,
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
