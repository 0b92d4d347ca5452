"""Metrics of an MLflow run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from shiftbench.errors import MissingExtraError
from shiftbench.integrations.sinks import sinks

#: What MLflow refuses in the name of a metric.
_REFUSED = re.compile(r"[^\w\-. /]")


class MlflowSink:
    """Logs to the active run, or to one of its own at a tracking URI (default: MLflow's)."""

    def __init__(self, uri: str = "") -> None:
        mlflow = _import_mlflow()
        active = mlflow.active_run()
        self.client = mlflow.MlflowClient(uri or None)
        self.own = active is None
        self.run_id: str = self._new_run() if active is None else active.info.run_id

    def _new_run(self) -> str:
        found = self.client.get_experiment_by_name("shiftbench")
        experiment = found.experiment_id if found else self.client.create_experiment("shiftbench")
        return str(self.client.create_run(experiment).info.run_id)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        for name, value in metrics.items():
            self.client.log_metric(self.run_id, _REFUSED.sub("_", name), value, step=step)

    def close(self) -> None:
        if self.own:
            self.client.set_terminated(self.run_id)


def _import_mlflow() -> Any:
    try:
        import mlflow
    except ImportError as error:
        raise MissingExtraError("mlflow", "integrations", "logging to MLflow") from error
    return mlflow


sinks.add("mlflow", MlflowSink)
