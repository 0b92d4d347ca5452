"""The training loop.

    for every epoch, for every batch:
        views, targets = the batch, augmented          (seed, epoch, image id) decide
        loss = scheme(model, views, targets)           standard, jsd, noise, fgsm, pgd, stability
        step of the optimizer at the schedule's rate   a pure function of the step
    checkpoint at every epoch's end and every few minutes; the log has one line per epoch

Every step draws its random numbers from (seed, step), so that a run which is stopped at any moment, even by
``kill -9``, goes on from its last checkpoint to the same weights.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from shiftbench.classifiers.torch_ import evaluating
from shiftbench.hardening.architectures.base import Normalised
from shiftbench.hardening.augmentations.base import make_batch_augmentation
from shiftbench.hardening.classifier import build_network, describe, save_network, write_recipe
from shiftbench.hardening.errors import DivergedError
from shiftbench.hardening.losses import make_criterion
from shiftbench.hardening.recipe import Optimizer, Recipe
from shiftbench.hardening.training.batches import Batch, Batches, to_pixels
from shiftbench.hardening.training.checkpoint import (
    CHECKPOINT,
    Checkpoint,
    Position,
    read_checkpoint,
    write_checkpoint,
)
from shiftbench.hardening.training.data import Pictures
from shiftbench.hardening.training.log import write_log
from shiftbench.hardening.training_schemes import make_scheme
from shiftbench.jobs.progress import Advance, progress_bar
from shiftbench.shifts.seeds import derive_seed

_VALIDATION_BATCH = 256


class Trained(NamedTuple):
    """A finished run: its folder, which ``hardened:FOLDER`` loads, and its log."""

    folder: Path
    log: list[dict[str, Any]]


class TrainingRun:
    """Model, optimizer and position of a run, from its beginning or its last checkpoint."""

    def __init__(
        self,
        recipe: Recipe,
        ready: Recipe,
        folder: Path,
        name: str,
        pictures: Pictures,
        held_out: Pictures | None,
        device: str,
    ) -> None:
        self.recipe, self.folder, self.name, self.device = recipe, folder, name, device
        self.pictures, self.held_out, self.seed = pictures, held_out, recipe.train.seed
        self.scheme = make_scheme(recipe.scheme.name, make_criterion(recipe.loss.name, recipe.loss.smoothing),
                                  **recipe.scheme.options)  # fmt: skip
        self.mixing = [make_batch_augmentation(part.name, **part.options) for part in recipe.batch_augmentations]
        self.batches = Batches(pictures, ready, self.scheme.views)
        torch.manual_seed(derive_seed(self.seed, "weights"))
        network = build_network(recipe, len(pictures.space))
        self.model = Normalised(network, recipe.data.mean, recipe.data.std).to(device)
        self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimizer = make_optimizer(self.model, recipe.optimizer)
        self.mean = make_mean(self.model, recipe.train.ema)
        self.half = device.startswith("cuda")
        self.precision = torch.bfloat16 if self.half and torch.cuda.is_bf16_supported() else torch.float16
        # Only float16 has gradients too small to be written.
        self.scaler = torch.amp.GradScaler("cuda", enabled=self.half and self.precision == torch.float16)
        self.position, self.log, self.best = Position(), list[dict[str, Any]](), dict[str, object]()
        self._resume()

    def go(self, workers: int, progress: bool, console: Console | None, report: Advance | None) -> Trained:
        epochs, done = self.recipe.train.epochs, self.position
        total, before = epochs * self.batches.count, done.epoch * self.batches.count + done.batch
        with progress_bar(self.name, total, before, show=progress, console=console) as advance:
            while self.position.epoch < epochs:
                self._epoch(workers, advance)
                if report is not None:
                    report(1)
        self._finish()
        return Trained(self.folder, self.log)

    def _epoch(self, workers: int, advance: Advance) -> None:
        at = self.position
        began = saved = time.monotonic()
        earlier = at.seconds
        self.model.train()
        for batch in self.batches.epoch(at.epoch, at.batch, workers=workers):
            loss, hits = self.step(at.epoch * self.batches.count + at.batch, batch)
            at.batch, at.images = at.batch + 1, at.images + len(batch.targets)
            at.loss, at.hits = at.loss + loss * len(batch.targets), at.hits + hits
            at.seconds = earlier + time.monotonic() - began
            if time.monotonic() - saved > self.recipe.train.checkpoint_seconds and at.batch < self.batches.count:
                self._save()
                saved = time.monotonic()
            advance(1)
        self._end_epoch()

    def step(self, number: int, batch: Batch) -> tuple[float, float]:
        """One step of the optimizer; the loss, and how many of the images were answered right."""
        torch.manual_seed(derive_seed(self.seed, "step", number))
        generator = torch.Generator().manual_seed(derive_seed(self.seed, "scheme", number))
        views, targets = [to_pixels(view.to(self.device)) for view in batch.views], batch.targets.to(self.device)
        for mix in self.mixing:
            views[0], targets = mix(views[0], targets, generator)
        set_rate(self.optimizer, self._rate(number))
        with torch.autocast(self.device.split(":")[0], self.precision, enabled=self.half):
            loss, logits = self.scheme(self.model, views, targets, generator)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise self._diverged(number, value)
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        if self.recipe.optimizer.clip:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.optimizer.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.mean is not None:
            self.mean.update_parameters(self.model)
        return value, self._hits(logits.detach(), batch.targets.to(self.device))

    def _rate(self, number: int) -> float:
        return self.recipe.schedule.rate(
            number,
            highest=self.recipe.optimizer.lr,
            epochs=self.recipe.train.epochs,
            steps_per_epoch=self.batches.count,
        )

    def _hits(self, logits: torch.Tensor, targets: torch.Tensor) -> float:
        """Images whose best class is theirs; with several labels, the share of all questions answered right."""
        if self.recipe.loss.name == "binary":
            return float(((logits > 0) == (targets > 0.5)).float().mean(dim=1).sum())
        return float((logits.argmax(dim=1) == targets.argmax(dim=1)).sum())

    def _diverged(self, number: int, value: float) -> DivergedError:
        kept = (self.folder / CHECKPOINT).is_file()
        return DivergedError(
            f"the loss is {value} in step {number + 1}, epoch {self.position.epoch + 1}",
            found=f"learning rate {self._rate(number):g}, scheme {self.recipe.scheme.name!r}",
            hint="train in another folder with a lower optimizer.lr, more schedule.warmup_epochs, or optimizer.clip=1"
            + ("; the last good checkpoint is kept" if kept else ""),
        )

    def _end_epoch(self) -> None:
        at = self.position
        last = (at.epoch + 1) * self.batches.count - 1
        line = {
            "epoch": at.epoch + 1, "step": last + 1, "loss": at.loss / at.images, "accuracy": at.hits / at.images,
            "lr": self._rate(last), "seconds": round(at.seconds, 3),
        }  # fmt: skip
        if self.held_out is not None:
            line["validation_accuracy"] = accuracy = self._validate(self.held_out)
            if self.recipe.train.keep == "best" and accuracy > at.best:
                at.best = accuracy
                self.best = {key: value.clone() for key, value in self._kept().state_dict().items()}
        self.log.append(line)
        at.next_epoch()
        self._save()
        write_log(self.folder, self.log)

    def _kept(self) -> nn.Module:
        """The network whose weights are kept: of the running mean, where there is one."""
        model: Any = self.model if self.mean is None else self.mean.module
        network: nn.Module = model.network
        return network

    @torch.inference_mode()
    def _validate(self, pictures: Pictures) -> float:
        model: Any = self.model if self.mean is None else self.mean.module
        hits = 0.0
        with evaluating(model):
            for start in range(0, len(pictures), _VALIDATION_BATCH):
                rows = range(start, min(start + _VALIDATION_BATCH, len(pictures)))
                images = to_pixels(torch.from_numpy(pictures.stacked(rows)).to(self.device))
                hits += self._hits(model(images), torch.from_numpy(pictures.targets[rows]).to(self.device))
        return hits / len(pictures)

    def _save(self) -> None:
        if not all(bool(torch.isfinite(weight).all()) for weight in self.model.parameters()):
            raise self._diverged(self.position.epoch * self.batches.count, math.nan)
        states: dict[str, Any] = {
            "model": self.model,
            "optimizer": self.optimizer,
            "ema": self.mean,
            "scaler": self.scaler,
        }
        kept = {key: one.state_dict() for key, one in states.items() if one is not None} | {"best": self.best}
        content = Checkpoint(self.recipe, self.pictures.fingerprint, self.position, self.log, kept)
        write_checkpoint(self.folder, content)

    def _resume(self) -> None:
        found = read_checkpoint(self.folder, self.recipe, self.pictures.fingerprint)
        if found is None:
            write_recipe(self.folder, self.recipe)
            return
        self.position, self.log, self.best = found.position, found.log, found.states["best"]
        self.model.load_state_dict(found.states["model"])
        self.optimizer.load_state_dict(found.states["optimizer"])
        self.scaler.load_state_dict(found.states["scaler"])
        if self.mean is not None:
            self.mean.load_state_dict(found.states["ema"])
        write_log(self.folder, self.log)

    def _finish(self) -> None:
        network = self._kept()
        if self.best:
            network.load_state_dict(self.best)
        about = describe(self.name, self.recipe, self.pictures.space, self.pictures.describe())
        save_network(self.folder, network, self.recipe, about)
        (self.folder / CHECKPOINT).unlink(missing_ok=True)


def make_optimizer(model: nn.Module, chosen: Optimizer) -> torch.optim.Optimizer:
    """All weights in one group; with a ``backbone_factor``, the last linear layer in a group of its own."""
    groups = [{"params": list(model.parameters()), "factor": 1.0}]
    if chosen.backbone_factor != 1:
        head = [part for part in model.modules() if isinstance(part, nn.Linear)][-1:]
        own = {id(one) for part in head for one in part.parameters()}
        groups = [
            {"params": [p for p in model.parameters() if id(p) not in own], "factor": chosen.backbone_factor},
            {"params": [p for p in model.parameters() if id(p) in own], "factor": 1.0},
        ]
    if chosen.name == "sgd":
        nesterov = chosen.nesterov and chosen.momentum > 0
        return torch.optim.SGD(
            groups, chosen.lr, momentum=chosen.momentum, nesterov=nesterov, weight_decay=chosen.weight_decay
        )
    kind = torch.optim.Adam if chosen.name == "adam" else torch.optim.AdamW
    return kind(groups, chosen.lr, weight_decay=chosen.weight_decay)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate * group["factor"]


def make_mean(model: nn.Module, decay: float) -> AveragedModel | None:
    """The running mean of weights and statistics; None where the recipe wants none."""
    if not decay:
        return None
    average = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
    return AveragedModel(model, multi_avg_fn=average, use_buffers=True)
