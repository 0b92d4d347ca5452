"""Blocks of a run on a Ray cluster: the same blocks, the same files, on as many machines as there are.

Every worker is an actor that loads the data sets and its classifiers once and keeps them warm. It computes one
block at a time and writes its shards into the workspace, which all machines must see under the same path. So
nothing but block numbers and counts travels, memory stays bounded by one block a worker, and a driver that dies
loses nothing: the same command continues from the store.

Classifiers with the same needs share workers. Those with other needs (a GPU, more memory) have workers of their
own, and their own list of blocks.
"""

from __future__ import annotations

import fnmatch
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shiftbench.errors import ShiftbenchError
from shiftbench.runs.block import Report, Trouble, compute_block, explain
from shiftbench.runs.executors import TRIES, Agenda, Executor, Failure
from shiftbench.runs.plan import RunContext, WorkItem
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
    """Actors that compute blocks; those that die are replaced and their blocks computed again."""

    def __init__(
        self, address: str | None = None, *, workers: int | None = None, resources: Needs | None = None
    ) -> None:
        """``address`` of a running cluster ("auto" finds this machine's); without one, Ray starts here.

        ``workers`` is how many actors for classifiers of the same needs; without it, as many as there is room for.
        """
        self.address, self.workers = address, workers
        self.resources: Needs = resources or Resources()

    def run(self, context: RunContext, items: Sequence[WorkItem], report: Report) -> list[Failure]:
        ray = _import_ray()
        parts = _parts(context, self.resources)
        started_here = _connect(ray, self.address, self.workers, list(parts))
        try:
            crews = [
                _Crew(ray, part, [item for item in items if _concerns(part, item)], needs, self._places(ray, needs))
                for needs, part in parts.items()
            ]
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
    """Runs inside the cluster; its classifiers stay loaded from block to block."""

    def __init__(self, context: RunContext) -> None:
        self.context = context

    def ready(self) -> None:
        """Answered once the actor has a place and its context."""

    def compute(self, item: WorkItem, patient: bool) -> tuple[list[Trouble] | None, int, str | None]:
        """(what ``compute_block`` says, predictions made, why the block failed as a whole)."""
        counts: list[int] = []
        try:
            return compute_block(self.context, item, counts.append, wait=patient), sum(counts), None
        except UnwritableError:
            raise  # no other block could be stored either
        except Exception as error:
            # Told in words: an exception's class may not exist on the driver's side.
            return [], sum(counts), explain(error)


class _Crew:
    """The workers for classifiers of the same needs, and their blocks."""

    def __init__(self, ray: Any, context: RunContext, items: Sequence[WorkItem], needs: Resources, places: int) -> None:
        self._context = ray.put(context)
        self._actor = ray.remote(_Worker).options(scheduling_strategy="SPREAD", **needs.options())
        self.agenda = Agenda(items)
        self.places = min(places, len(items))
        self.failed_starts = 0

    def new_worker(self) -> Any:
        return self._actor.remote(self._context)


@dataclass(frozen=True)
class _Task:
    """What an actor is at: a block, or None while it starts."""

    crew: _Crew
    worker: Any
    item: WorkItem | None


class _Drive:
    """Hands out blocks, one to each worker that is ready, until all are done or given up."""

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
        """Whether any block is left or being computed; a worker that only waits for room does not count."""
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
        self, agenda: Agenda, item: WorkItem, troubles: list[Trouble] | None, count: int, why: str | None
    ) -> None:
        self.report(count)
        if why is None:
            agenda.take(item, troubles)
        else:
            agenda.lose(item, why)

    def _hand_out(self, crew: _Crew, worker: Any) -> None:
        """The next block for a worker; one that has nothing left to do makes room for others."""
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


def _parts(context: RunContext, needs: Needs) -> dict[Resources, RunContext]:
    """The run divided by what its classifiers need."""
    names: dict[Resources, list[str]] = {}
    for name in dict.fromkeys(cell.cell.classifier for cell in context.cells):
        names.setdefault(_needs_of(name, needs), []).append(name)
    return {
        own: replace(
            context,
            classifiers={name: context.classifiers[name] for name in chosen},
            cells=tuple(cell for cell in context.cells if cell.cell.classifier in set(chosen)),
            part=f"-{number}" if number else "",
        )
        for number, (own, chosen) in enumerate(names.items())
    }


def _needs_of(name: str, needs: Needs) -> Resources:
    """
    >>> needs = {"vit-*": Resources(gpus=1)}
    >>> _needs_of("vit-large", needs).gpus, _needs_of("alexnet", needs).gpus
    (1, 0.0)
    """
    if isinstance(needs, Resources):
        return needs
    return next((own for pattern, own in needs.items() if fnmatch.fnmatchcase(name, pattern)), Resources())


def _concerns(part: RunContext, item: WorkItem) -> bool:
    return any(cell.dataset == item.dataset for cell in part.cells)


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
