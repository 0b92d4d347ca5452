"""Metrics of a Weights & Biases run; offline unless the user says otherwise."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from shiftbench.errors import MissingExtraError
from shiftbench.integrations.sinks import sinks

_STEP = "shiftbench_step"


class WandbSink:
    """Logs to the active run, or begins one of a project: offline, unless ``WANDB_MODE`` is set."""

    def __init__(self, project: str = "") -> None:
        wandb = _import_wandb()
        self.own = wandb.run is None
        mode = os.environ.get("WANDB_MODE", "offline")
        self.run = wandb.init(project=project or "shiftbench", mode=mode) if self.own else wandb.run
        self._defined: set[str] = set()

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        for name in metrics.keys() - self._defined:
            # The run's own step counts the training's log calls, which are not ours.
            self.run.define_metric(name, step_metric=_STEP)
            self._defined.add(name)
        self.run.log({**metrics, _STEP: step})

    def close(self) -> None:
        if self.own:
            self.run.finish()


def _import_wandb() -> Any:
    try:
        import wandb
    except ImportError as error:
        raise MissingExtraError("wandb", "integrations", "logging to Weights & Biases") from error
    return wandb


sinks.add("wandb", WandbSink)
