"""A monitor as a callback of Lightning's Trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shiftbench.errors import MissingExtraError

if TYPE_CHECKING:
    from shiftbench.integrations.monitor import Monitor

try:
    from lightning.pytorch import Callback
except ModuleNotFoundError:
    try:
        from pytorch_lightning import Callback
    except ModuleNotFoundError as error:
        raise MissingExtraError("lightning", "integrations", "a callback for Lightning") from error


class LightningCallback(Callback):  # type: ignore[misc]
    """Evaluates at the end of training epochs, on the first process only.

    The metrics are logged through the module: loggers get them, and ``ModelCheckpoint(monitor=...)`` can use them. The
    module's ``forward`` must return class scores.
    """

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.is_global_zero:
            metrics = self.monitor.prefixed(self.monitor(pl_module, trainer.current_epoch))
            pl_module.log_dict(metrics, rank_zero_only=True)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self.monitor.close()
