"""One of two ranks of a small training that is watched by a monitor, in each form that the documentation has."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from torch.utils.data import DataLoader, TensorDataset

import shiftbench as sb
from tests.integrations.conftest import Network

EPOCHS = 2
#: A rank that waits for this long in a collective operation fails. Longer than an evaluation on busy cores, and well
#: below the time limit of the tests.
COLLECTIVE_TIMEOUT = timedelta(seconds=200)
Report = dict[str, Any]


class Kept:
    """A sink that holds the steps that were logged."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self.steps.append(step)

    def close(self) -> None:
        pass


def run(form: str, settings: dict[str, Any], folder: Path, environment: Mapping[str, str]) -> None:
    """Train in one form, and write what this rank saw into ``folder/<rank>.json``."""
    faulthandler.register(signal.SIGUSR1)
    os.environ.update(environment)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    try:
        report = FORMS[form](settings, folder)
    except BaseException as error:
        traceback.print_exc()
        report = {"error": type(error).__name__, "found": getattr(error, "found", None), "text": str(error)}
    (folder / f"{environment['RANK']}.json").write_text(json.dumps(report))


@contextmanager
def process_group() -> Iterator[int]:
    """The process group of a training that is started by torchrun; the value is this process's rank."""
    torch.distributed.init_process_group("gloo", timeout=COLLECTIVE_TIMEOUT)
    try:
        torch.distributed.barrier()  # as after a step of the training
        yield torch.distributed.get_rank()
    finally:
        torch.distributed.destroy_process_group()


def training_data() -> TensorDataset:
    labels = torch.arange(16) % 2
    return TensorDataset(torch.rand(16, 3, 16, 16), labels)


def train_one_epoch(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    images, labels = training_data()[:8]
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def plain(settings: dict[str, Any], folder: Path) -> Report:
    """The plain loop of the documentation: every rank calls the monitor."""
    with process_group():
        model = torch.nn.parallel.DistributedDataParallel(Network())
        return watched_loop(model, settings)


def watched_loop(model: torch.nn.Module, settings: dict[str, Any]) -> Report:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    sink = Kept()
    monitor = sb.Monitor(**settings, sinks=[sink])
    metrics = []
    evaluated_images = 0
    for epoch in range(EPOCHS):
        train_one_epoch(model, optimizer)
        before = Network.seen
        metrics.append(monitor(model, epoch))
        evaluated_images += Network.seen - before
    return {"metrics": metrics, "steps": sink.steps, "evaluated_images": evaluated_images}


def plain_on_rank_0_alone(settings: dict[str, Any], folder: Path) -> Report:
    """Only rank 0 calls the monitor, while the other one waits in the next step of the training."""
    with process_group() as rank:
        model = torch.nn.parallel.DistributedDataParallel(Network())
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        metrics = []
        for epoch in range(EPOCHS):
            train_one_epoch(model, optimizer)
            if rank == 0:
                metrics.append(sb.Monitor(**settings)(model, epoch))
        return {"metrics": metrics}


def plain_that_fails(settings: dict[str, Any], folder: Path) -> Report:
    """The first call fails on rank 0, since the model's outputs are not numbers."""
    with process_group():
        network = Network()
        torch.nn.init.constant_(network.layers[-1].bias, float("nan"))  # type: ignore[arg-type]
        return {"metrics": [sb.Monitor(**settings)(network, 0)]}


def plain_that_crashes(settings: dict[str, Any], folder: Path) -> Report:
    """The evaluation ends on rank 0 with an error that is not ours."""

    class Crashing(Network):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            raise MemoryError("no memory is left")

    with process_group():
        return {"metrics": [sb.Monitor(**settings)(Crashing(), 0)]}


def plain_that_fails_later(settings: dict[str, Any], folder: Path) -> Report:
    """The second of three calls fails, which does not end the training."""
    with process_group():
        monitor = sb.Monitor(**settings)
        network = Network()
        broken = Network()
        torch.nn.init.constant_(broken.layers[-1].bias, float("nan"))  # type: ignore[arg-type]
        return {"metrics": [monitor(network, 0), monitor(broken, 1), monitor(network, 2)]}


def accelerate(settings: dict[str, Any], folder: Path) -> Report:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(Network())
    report = watched_loop(model, settings)
    accelerator.end_training()
    return report


def lightning(settings: dict[str, Any], folder: Path) -> Report:
    """The monitor beside a ModelCheckpoint, as documented; saving a checkpoint needs all ranks."""
    import lightning.pytorch as library
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.strategies import DDPStrategy

    class Module(library.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.network = Network()

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return self.network(images)  # type: ignore[no-any-return]

        def training_step(self, batch: Any, number: int) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(self(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    sink = Kept()
    monitor = sb.Monitor(**settings, sinks=[sink])
    best = ModelCheckpoint(folder / "checkpoints", monitor="shiftbench/photos-c/top1", mode="max")
    trainer = library.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        devices=2,
        strategy=DDPStrategy(timeout=COLLECTIVE_TIMEOUT),
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        callbacks=[monitor.lightning_callback(), best],
    )
    trainer.fit(Module(), DataLoader(training_data(), batch_size=4))
    logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
    return {"metrics": logged, "steps": sink.steps, "checkpoint": str(best.best_model_path)}


def trainer(settings: dict[str, Any], folder: Path) -> Report:
    """The Trainer of transformers."""
    from transformers import ResNetConfig, ResNetForImageClassification, Trainer, TrainingArguments

    examples = [
        {"pixel_values": image, "labels": int(label)} for image, label in zip(*training_data().tensors, strict=True)
    ]
    config = ResNetConfig(embedding_size=4, hidden_sizes=[4], depths=[1], layer_type="basic")
    arguments = TrainingArguments(
        str(folder / "trainer"),
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=4,
        report_to="none",
        save_strategy="epoch",
        use_cpu=True,
        disable_tqdm=True,
        ddp_timeout=int(COLLECTIVE_TIMEOUT.total_seconds()),
    )
    sink = Kept()
    monitor = sb.Monitor(**settings, sinks=[sink])
    model = ResNetForImageClassification(config)  # type: ignore[no-untyped-call]
    library_trainer = Trainer(
        model=model, args=arguments, train_dataset=examples, callbacks=[monitor.trainer_callback()]
    )
    library_trainer.train()
    entries = library_trainer.state.log_history
    return {"metrics": [entry for entry in entries if "shiftbench/photos-c/top1" in entry], "steps": sink.steps}


FORMS: dict[str, Callable[[dict[str, Any], Path], Report]] = {
    "plain": plain,
    "plain-on-rank-0-alone": plain_on_rank_0_alone,
    "plain-that-fails": plain_that_fails,
    "plain-that-crashes": plain_that_crashes,
    "plain-that-fails-later": plain_that_fails_later,
    "accelerate": accelerate,
    "lightning": lightning,
    "trainer": trainer,
}
