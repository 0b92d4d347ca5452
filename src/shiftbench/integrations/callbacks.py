"""A monitor as a callback of training frameworks, which are imported when one is made."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from shiftbench.errors import required

if TYPE_CHECKING:
    from shiftbench.integrations.monitor import Monitor


def lightning_callback(monitor: Monitor) -> Any:
    """Evaluates at the end of training epochs, on the first process only.

    The metrics are logged through the module: loggers get them, and ``ModelCheckpoint(monitor=...)`` can use them. The
    module's ``forward`` must return class scores.
    """
    old = importlib.util.find_spec("lightning") is None and importlib.util.find_spec("pytorch_lightning") is not None
    library = required("pytorch_lightning" if old else "lightning.pytorch", "integrations", "a callback for Lightning")

    class LightningCallback(library.Callback):  # type: ignore[misc, name-defined]
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            if trainer.is_global_zero:
                metrics = monitor.prefixed(monitor(pl_module, trainer.current_epoch))
                pl_module.log_dict(metrics, rank_zero_only=True)

        def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
            monitor.close()

    return LightningCallback()


def trainer_callback(monitor: Monitor) -> Any:
    """Evaluates at the end of epochs, on the first process only, and adds the metrics to ``state.log_history``.

    The Trainer of transformers hands its reporters to no callback: for TensorBoard and others, give the monitor sinks.
    """
    library = required("transformers", "hf", "a callback for the Trainer of transformers")

    class HuggingFaceCallback(library.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_epoch_end(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
            if state.is_world_process_zero:
                metrics = monitor.prefixed(monitor(model, round(state.epoch)))
                if metrics:
                    state.log_history.append({**metrics, "epoch": state.epoch, "step": state.global_step})

        def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            monitor.close()

    return HuggingFaceCallback()
