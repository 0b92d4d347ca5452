"""Where a monitor's metrics go: experiment trackers, registered by name.

A third party's sink is one class with ``log`` and ``close``, and a function from the text after the colon to it::

    from shiftbench.integrations import sinks

    @sinks.register("mine")
    def mine(target):
        return MySink(target)
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from shiftbench.errors import ShiftbenchError, required
from shiftbench.registry import Registry

_EXTRA = "integrations"
_WANDB_STEP = "shiftbench_step"


class Sink(Protocol):
    """A place that metrics are logged to."""

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Keep the metrics of one step, durably: training may be killed at any time."""

    def close(self) -> None:
        """End what was begun; runs and writers that the user made are left open."""


#: What follows the colon of ``name:target`` (may be empty) to a sink.
SinkMaker = Callable[[str], Sink]
sinks: Registry[SinkMaker] = Registry("sink")


def find_sink(sink: str | Sink) -> Sink:
    """The sink of a spec such as ``"tensorboard:runs/first"``, or the given one.

    Args:
        sink: ``name`` or ``name:target``, or an object with ``log`` and ``close``.

    Returns:
        The sink.

    Raises:
        UnknownNameError: If no sink of that name is registered.
        MissingExtraError: If its library is not installed.
    """
    if not isinstance(sink, str):
        return sink
    name, _, target = sink.partition(":")
    return sinks.get(name)(target)


@sinks.register("tensorboard")
class TensorBoardSink:
    """Writes event files with torch's SummaryWriter; a writer that is given stays open."""

    def __init__(self, target: Any = "") -> None:
        # A writer that the user opened is the user's to close.
        self._opened_here = isinstance(target, str)
        self.writer = target
        if self._opened_here:
            library = required("torch.utils.tensorboard", _EXTRA, "logging to TensorBoard", "tensorboard")
            self.writer = library.SummaryWriter(target or None)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def close(self) -> None:
        if self._opened_here:
            self.writer.close()


@sinks.register("mlflow")
class MlflowSink:
    """Logs to the active run, or to one of its own at a tracking URI (default: MLflow's)."""

    def __init__(self, uri: str = "") -> None:
        mlflow = required("mlflow", _EXTRA, "logging to MLflow")
        active = mlflow.active_run()
        self._opened_here = active is None
        try:
            self.client = mlflow.MlflowClient(uri or None)
            self.run_id: str = self._new_run() if active is None else active.info.run_id
        except mlflow.exceptions.MlflowException as error:
            raise ShiftbenchError(
                f"MLflow cannot log to {uri or mlflow.get_tracking_uri()!r}",
                found=str(error),
                hint="sqlite:///FILE needs `pip install sqlalchemy alembic`; or mlflow:http://HOST:PORT, a server",
            ) from error

    def _new_run(self) -> str:
        """The id of a new run in the experiment "shiftbench"."""
        experiment = self.client.get_experiment_by_name("shiftbench")
        if experiment:
            experiment_id = experiment.experiment_id
        else:
            experiment_id = self.client.create_experiment("shiftbench")
        return str(self.client.create_run(experiment_id).info.run_id)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        for name, value in metrics.items():
            # MLflow refuses other characters in the name of a metric.
            accepted_name = re.sub(r"[^\w\-. /]", "_", name)
            self.client.log_metric(self.run_id, accepted_name, value, step=step)

    def close(self) -> None:
        if self._opened_here:
            self.client.set_terminated(self.run_id)


@sinks.register("wandb")
class WandbSink:
    """Logs to the active run, or begins one of a project: offline, unless ``WANDB_MODE`` is set."""

    def __init__(self, project: str = "") -> None:
        wandb = required("wandb", _EXTRA, "logging to Weights & Biases")
        self._opened_here = wandb.run is None
        self.run = wandb.run
        if self._opened_here:
            mode = os.environ.get("WANDB_MODE", "offline")
            self.run = wandb.init(project=project or "shiftbench", mode=mode)
        self._defined: set[str] = set()

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        for name in metrics.keys() - self._defined:
            # The run's own step counts the training's log calls, which are not ours.
            self.run.define_metric(name, step_metric=_WANDB_STEP)
            self._defined.add(name)
        self.run.log({**metrics, _WANDB_STEP: step})

    def close(self) -> None:
        if self._opened_here:
            self.run.finish()
