"""A monitor as a callback of the Trainer of transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shiftbench.errors import MissingExtraError

if TYPE_CHECKING:
    from shiftbench.integrations.monitor import Monitor

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise MissingExtraError("transformers", "hf", "a callback for the Trainer of transformers") from error


class HuggingFaceCallback(TrainerCallback):
    """Evaluates at the end of epochs, on the first process only, and adds the metrics to ``state.log_history``.

    The Trainer hands its reporters to no callback: for TensorBoard and others, give the monitor sinks.
    """

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor

    def on_epoch_end(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
        if state.is_world_process_zero:
            metrics = self.monitor.prefixed(self.monitor(model, round(state.epoch)))
            if metrics:
                state.log_history.append({**metrics, "epoch": state.epoch, "step": state.global_step})

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.monitor.close()
