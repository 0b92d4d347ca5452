"""Metrics as TensorBoard scalars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shiftbench.errors import MissingExtraError
from shiftbench.integrations.sinks import sinks


class TensorBoardSink:
    """Writes event files with torch's SummaryWriter; a writer that is given stays open."""

    def __init__(self, target: Any = "") -> None:
        self.own = isinstance(target, str)
        self.writer = _writer(target) if self.own else target

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def close(self) -> None:
        if self.own:
            self.writer.close()


def _writer(folder: str) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingExtraError("tensorboard", "integrations", "logging to TensorBoard") from error
    return SummaryWriter(folder or None)


sinks.add("tensorboard", TensorBoardSink)
