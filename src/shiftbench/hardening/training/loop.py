"""The training loop.

    for every epoch, for every batch:
        for every part of it that is this rank's:
            views, targets = the part, augmented       (seed, epoch, image id) decide
            loss = scheme(model, views, targets)       standard, jsd, noise, fgsm, pgd, stability
        step of the optimizer at the schedule's rate   a pure function of the step
    checkpoint at every epoch's end and every few minutes; the log has one line per epoch

Every part draws its random numbers from (seed, step, part), so that a run which is stopped at any moment, even by
``kill -9``, goes on from its last checkpoint to the same weights. Rank 0 writes all files.
"""

from __future__ import annotations

import math
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save
from torch import nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from shiftbench.extend.classifiers import evaluating, fill, load_weights
from shiftbench.extend.errors import argument
from shiftbench.extend.io import write_bytes
from shiftbench.extend.shifts import derive_seed
from shiftbench.hardening.architectures.base import Normalised, Scheduled, build
from shiftbench.hardening.architectures.own import Preprocessed
from shiftbench.hardening.augmentations.base import make_batch_augmentation
from shiftbench.hardening.classifier import WEIGHTS, describe, save_network, write_recipe
from shiftbench.hardening.errors import DivergedError, TrainingError
from shiftbench.hardening.recipe import Optimizer, Recipe, TrainingData, timm_part
from shiftbench.hardening.training.batches import Batch, Batches, to_pixels
from shiftbench.hardening.training.checkpoint import (
    CHECKPOINT,
    Checkpoint,
    Position,
    read_checkpoint,
    write_checkpoint,
    write_log,
)
from shiftbench.hardening.training.data import TrainingImages, evaluation_preprocessing
from shiftbench.hardening.training.devices import Devices, Statistics, kept_statistics
from shiftbench.hardening.training.pace import Pace
from shiftbench.hardening.training_schemes import make_criterion, make_scheme
from shiftbench.integrations import Sink
from shiftbench.jobs import Advance, progress_bar

#: Folder for the weights of the best epochs.
TOP = "top"
#: Steps between checks of the loss, and of the time for a checkpoint on several ranks, on a GPU, for which they wait.
_CHECK_EVERY = 50


class Trained(NamedTuple):
    """A finished run: its folder, which ``hardened:FOLDER`` loads, and its log."""

    folder: Path
    log: list[dict[str, Any]]


class TrainingRun:
    """The model, the optimizer and the position of a run, from its beginning or its last checkpoint.

    ``recipe`` is written to the folder; ``ready`` is the same recipe with the files of its augmentations' networks.
    ``network`` is trained in place of a new one that the recipe describes.
    """

    def __init__(
        self,
        recipe: Recipe,
        ready: Recipe,
        folder: Path,
        name: str,
        images: TrainingImages,
        held_out: TrainingImages | None,
        devices: Devices,
        sinks: Sequence[Sink] = (),
        network: nn.Module | None = None,
    ) -> None:
        self.recipe = recipe
        self.folder = folder
        self.name = name
        self.images = images
        self.devices = devices
        self.sinks = sinks
        self.seed = recipe.train.seed
        self.device = devices.device
        devices.check_splits(recipe.train.splits)
        criterion = make_criterion(recipe.loss.name, recipe.loss.smoothing)
        self.scheme = make_scheme(recipe.scheme.name, criterion, **recipe.scheme.options)
        self.scheme.prepare(images.space, recipe.data.size, self.device)
        self.mixing = [make_batch_augmentation(part.name, **part.options) for part in recipe.batch_augmentations]
        self.batches = Batches(images, ready, self.scheme.views, rank=devices.rank, world=devices.world)
        self.held_out: Batches | None = None
        if held_out is not None:
            self.held_out = Batches(held_out, ready, 1, rank=devices.rank, world=devices.world, shuffled=False)
        if network is None:
            network = self._network()
        #: Batch norms whose forward pass is computed once more for the gradient.
        self.recomputed: list[_BatchNorm] = []
        if recipe.train.checkpoint_gradients:
            _checkpoint_gradients(network)
            self.recomputed = [module for module in network.modules() if isinstance(module, _BatchNorm)]
        #: The model without the wrappers of data-parallel training and torch.compile.
        self.model = on_pixels(network, recipe.data).to(self.device)
        if recipe.train.channels_last:
            with suppress(RuntimeError):  # Weights of five dimensions have no such layout.
                self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.scheduled = [module for module in self.model.modules() if isinstance(module, Scheduled)]
        compiled: Any = self.model
        if recipe.train.compile:
            backend = recipe.train.compile if isinstance(recipe.train.compile, str) else "inductor"
            compiled = torch.compile(self.model, backend=backend)
        self.wrapped, self.optimizer = devices.prepare(compiled, make_optimizer(network, recipe.optimizer))
        self.statistics = Statistics(self.model, devices, recipe.train.splits)
        #: The running mean of the weights and the batch norm statistics.
        self.ema: Any = None
        if recipe.train.ema:
            running_mean = timm_part("utils").ModelEmaV3
            self.ema = running_mean(self.model, decay=recipe.train.ema, use_warmup=recipe.train.ema_warmup)
        self.scaler = devices.accelerator.scaler
        self.position = Position()
        self.log: list[dict[str, Any]] = []
        #: This rank's sums over the epoch: loss times images, correct answers, images.
        self.sums = torch.zeros(3, dtype=devices.sum_type, device=self.device)
        self._resume()

    def _network(self) -> nn.Module:
        """The network of the recipe, with initial weights from the seed, or those of ``train.start``."""
        recipe = self.recipe
        torch.manual_seed(derive_seed(self.seed, "weights"))
        network = build(recipe.architecture.name, classes=len(self.images.space), **recipe.architecture.options)
        if recipe.train.start:
            _start_from(network, Path(recipe.train.start))
        if recipe.train.batch_norm == "sync":
            if self.device.type == "cpu" and self.devices.world > 1:
                raise TrainingError(
                    "batch norms are synchronised on GPUs only",
                    found=f"{self.devices.world} ranks on CPUs",
                    hint='train.batch_norm="part"',
                )
            network = nn.SyncBatchNorm.convert_sync_batchnorm(network)  # type: ignore[no-untyped-call]
        elif recipe.train.batch_norm == "split" and self.scheme.views > 1:
            network = timm_part("layers").convert_splitbn_model(network, self.scheme.views)
        return network

    @property
    def averaged_model(self) -> Any:
        """The model that is evaluated and kept: the running mean, if the recipe asks for one."""
        return self.model if self.ema is None else self.ema.module

    def _step_number(self) -> int:
        """The number of steps done so far."""
        return self.position.epoch * self.batches.count + self.position.batch

    def go(self, workers: int, progress: bool, report: Advance | None) -> Trained:
        """Trains to the last epoch and saves the network; ``report`` is called after every epoch."""
        epochs = self.recipe.train.epochs
        total = epochs * self.batches.count
        loaders = [self.batches]
        if self.held_out is not None:
            loaders.append(self.held_out)
        try:
            with progress_bar(self.name, total, self._step_number(), show=progress and self.devices.first) as advance:
                while self.position.epoch < epochs:
                    self._epoch(workers, advance, progress)
                    if report is not None:
                        report(1)
        except RuntimeError as error:
            # torch raises it anywhere in this process when a worker has ended.
            exit_codes = [loader.close() for loader in loaders]
            codes = [code for code in exit_codes if code]
            if codes:
                raise TrainingError(
                    "a worker process was killed, most often for want of memory",
                    found=f"exit code {codes[0]}",
                    hint=f"rerun it with a lower {argument('workers')}, or with more memory (/dev/shm too); it resumes",
                ) from error
            if self.recipe.train.compile and isinstance(error, torch._dynamo.exc.TorchDynamoException):
                hint = "train.compile=false, or install what the backend needs (a C++ compiler, Triton)"
                raise TrainingError("torch.compile failed", found=str(error).split("\n\n")[0], hint=hint) from error
            raise
        finally:
            for loader in loaders:
                loader.close()
        if self.devices.first:
            self._finish()
        self.devices.accelerator.wait_for_everyone()
        return Trained(self.folder, self.log)

    def _epoch(self, workers: int, advance: Advance, show: bool) -> None:
        """Train the rest of an epoch, from the batch where the position is, with checkpoints on the way."""
        position = self.position
        began = time.monotonic()
        saved = began
        earlier_seconds = position.seconds
        self.model.train()
        parts = self.batches.epoch(position.epoch, position.batch, workers=workers)
        pace = Pace(self.recipe.train.log_seconds if self.devices.first else 0, self.sums.tolist())
        while batch := pace.next_batch(parts, self.batches.order.parts):
            self.step(self._step_number(), batch)
            position.batch += 1
            if pace.due:
                self._log_pace(pace, show)
            position.seconds = earlier_seconds + time.monotonic() - began
            # No checkpoint is due at the last batch, because the end of the epoch writes one.
            due = time.monotonic() - saved > self.recipe.train.checkpoint_seconds
            due = due and position.batch < self.batches.count
            if self.devices.world > 1:
                due = self._agreed(due)
            if due:
                self._save()
                saved = time.monotonic()
            advance(1)
        self._end_epoch(workers)

    def _agreed(self, due: bool) -> bool:
        """Whether all ranks save now, by rank 0's clock. GPUs are asked rarely, because each question takes a wait."""
        if self.device.type != "cpu" and self.position.batch % _CHECK_EVERY:
            return False
        return bool(self.devices.gathered([due])[0][0])

    def _log_pace(self, pace: Pace, show: bool) -> None:
        """Tell how fast the training is, on standard error and to the trackers."""
        steps = self._step_number()
        left = self.recipe.train.epochs * self.batches.count - steps
        report = pace.report(self.sums.tolist(), left, self.devices.world, self.device)
        if show:
            line = report.line(self.position.epoch + 1, self.position.batch, self.batches.count)
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
        for sink in self.sinks:
            sink.log(report.metrics(), steps)

    def step(self, number: int, batch: Sequence[Batch]) -> None:
        """One step of the optimizer, from this rank's parts of the batch."""
        rate = self._rate(number)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group.get("lr_scale", 1.0)
        for module in self.scheduled:
            module.progress(number / (self.recipe.train.epochs * self.batches.count))
        self.statistics.begin()
        self.optimizer.zero_grad(set_to_none=True)
        for i, part in enumerate(batch):
            last = i == len(batch) - 1
            # Gradients are exchanged with the last part that a rank computes.
            with nullcontext() if last else self.devices.accelerator.no_sync(self.wrapped):
                self._part(number, self.batches.order.mine.start + i, part)
            self.statistics.add(last)
        self.statistics.end()
        if self.recipe.optimizer.clip:
            self.devices.accelerator.clip_grad_norm_(self.model.parameters(), self.recipe.optimizer.clip)
        self.optimizer.step()
        if self.ema is not None:
            self.ema.update(self.model, number + 1)
        if self.device.type == "cpu" or number % _CHECK_EVERY == 0:
            self._check(number, float(self.sums[0]))

    def _part(self, number: int, index: int, part: Batch) -> None:
        """Computes the loss and the gradient of a part of a batch."""
        # The number of the part decides the random numbers only where batches are divided.
        entropy = (number, index) if self.recipe.train.splits > 1 else (number,)
        torch.manual_seed(derive_seed(self.seed, "step", *entropy))
        generator = torch.Generator().manual_seed(derive_seed(self.seed, "scheme", *entropy))
        views = [to_pixels(view.to(self.device, non_blocking=True)) for view in part.views]
        labels = part.targets.to(self.device, non_blocking=True)
        targets = labels
        mixing = self.mixing
        if self.position.epoch >= self.recipe.train.epochs - self.recipe.train.epochs_unmixed:
            mixing = []
        if mixing and targets.ndim == 1:
            targets = functional.one_hot(targets, len(self.images.space)).float()
        for mix in mixing:
            views[0], targets = mix(views[0], targets, generator)
        loss, logits = self.scheme(self.wrapped, views, targets, generator)
        loss = sum((module.penalty() for module in self.scheduled), start=loss)
        with kept_statistics(self.recomputed):
            self.devices.accelerator.backward(loss * part.share)
        correct = count_correct(logits.detach(), labels)
        images = self.sums.new_tensor(len(labels))
        self.sums += torch.stack([loss.detach().to(images.dtype) * images, correct.to(images.dtype), images])

    def _rate(self, number: int) -> float:
        return self.recipe.schedule.rate(
            number,
            highest=self.recipe.optimizer.lr,
            epochs=self.recipe.train.epochs,
            steps_per_epoch=self.batches.count,
        )

    def _check(self, number: int, value: float, subject: str = "the loss is") -> None:
        """Raises if the value is not finite."""
        if math.isfinite(value):
            return
        hint = "train in another folder with a lower optimizer.lr, more schedule.warmup_epochs, or optimizer.clip=1"
        if (self.folder / CHECKPOINT).is_file():
            hint += "; the last good checkpoint is kept"
        raise DivergedError(
            f"{subject} {value} in step {number + 1}, epoch {number // self.batches.count + 1}",
            found=f"learning rate {self._rate(number):g}, scheme {self.recipe.scheme.name!r}",
            hint=hint,
        )

    def _end_epoch(self, workers: int) -> None:
        """Log the finished epoch, evaluate, and write the checkpoint from which the next one begins."""
        position = self.position
        last = (position.epoch + 1) * self.batches.count - 1
        self._check(last, float(self.sums[0]))
        loss, correct, images = self.devices.summed(self.sums.tolist())
        line = {
            "epoch": position.epoch + 1,
            "step": last + 1,
            "loss": loss / images,
            "accuracy": correct / images,
            "lr": self._rate(last),
            "seconds": round(position.seconds, 3),
        }
        if self.held_out is not None:
            line |= self._validate(self.held_out, workers)
        self.log.append(line)
        position.epoch += 1
        position.batch = 0
        position.seconds = 0.0
        self.sums.zero_()
        self._save()
        if not self.devices.first:
            return
        write_log(self.folder, self.log)
        for sink in self.sinks:
            sink.log({f"train/{key}": value for key, value in line.items() if key != "step"}, last + 1)

    def _kept(self) -> dict[str, torch.Tensor]:
        """The weights to save. The further statistics of split batch norms are left out: evaluation uses the first."""
        state: Mapping[str, torch.Tensor] = self.averaged_model.network.state_dict()
        return {key: value for key, value in state.items() if ".aux_bn." not in key}

    def _best_epochs(self) -> list[Path]:
        """The files of the epochs with the best accuracy so far, best first; the log alone decides which they are."""
        count = max(self.recipe.train.top, self.recipe.train.keep == "best")
        ranked = sorted(self.log, key=lambda line: (-line.get("validation_accuracy", 0.0), line["epoch"]))
        return [self._epoch_file(line["epoch"]) for line in ranked[:count]]

    def _epoch_file(self, epoch: int) -> Path:
        return self.folder / TOP / f"epoch-{epoch:04}.safetensors"

    def _keep_best(self) -> None:
        """Runs before the checkpoint is written, so that a run that is killed in between repeats this epoch."""
        best = self._best_epochs()
        newest = self._epoch_file(self.log[-1]["epoch"])
        if newest in best:
            newest.parent.mkdir(exist_ok=True)
            weights = {key: value.detach().cpu().contiguous() for key, value in self._kept().items()}
            write_bytes(newest, save(weights), durable=True)
        for path in (self.folder / TOP).glob("epoch-*.safetensors"):
            if path not in best:
                path.unlink()

    @torch.inference_mode()
    def _validate(self, batches: Batches, workers: int) -> dict[str, float]:
        """Accuracy, top-5 accuracy and loss on the validation data, each rank on its share of the images."""
        model = self.averaged_model
        criterion = make_criterion(self.recipe.loss.name)
        multilabel = batches.images.targets.ndim == 2
        sums = torch.zeros(4, dtype=self.devices.sum_type, device=self.device)
        with evaluating(model):
            for batch in batches.epoch(0, workers=workers):
                if not len(batch.targets):
                    continue
                targets = batch.targets.to(self.device)
                logits = model(to_pixels(batch.views[0].to(self.device))).float()
                loss = criterion(logits, targets) * len(targets)
                top5 = torch.zeros_like(loss)
                if not multilabel:
                    best = logits.topk(min(5, logits.shape[1]), dim=1).indices
                    top5 = (best == targets[:, None]).any(dim=1).sum()
                images = targets.new_tensor(len(targets))
                values = (count_correct(logits, targets), top5, loss, images)
                sums += torch.stack([value.to(sums.dtype) for value in values])
        total_correct, total_top5, total_loss, total_images = self.devices.summed(sums.tolist())
        line = {"validation_accuracy": total_correct / total_images}
        if not multilabel:
            line["validation_top5"] = total_top5 / total_images
        line["validation_loss"] = total_loss / total_images
        return line

    def _stateful(self) -> dict[str, Any]:
        """The objects whose state a checkpoint keeps, by their keys in it."""
        objects = {"model": self.model, "optimizer": self.optimizer, "ema": self.ema, "scaler": self.scaler}
        return {key: stateful for key, stateful in objects.items() if stateful is not None}

    def _save(self) -> None:
        """Writes a checkpoint; refuses weights that are not finite, so that the last good checkpoint stays."""
        are_finite = [bool(torch.isfinite(weight).all()) for weight in self.model.parameters()]
        if not all(are_finite):
            self._check(self._step_number() - 1, math.nan, "weights are")
        self.position.sums = self.devices.gathered(self.sums.tolist())
        if not self.devices.first:
            return
        if self.position.batch == 0:
            self._keep_best()
        states = {key: stateful.state_dict() for key, stateful in self._stateful().items()}
        checkpoint = Checkpoint(self.recipe, self.images.fingerprint, self.position, self.log, states)
        write_checkpoint(self.folder, checkpoint)

    def _resume(self) -> None:
        """Continues from the folder's checkpoint, if there is one; writes the recipe otherwise."""
        checkpoint = read_checkpoint(self.folder, self.recipe, self.images.fingerprint)
        self.devices.accelerator.wait_for_everyone()
        if checkpoint is None:
            if self.devices.first:
                write_recipe(self.folder, self.recipe)
            return
        self.position = checkpoint.position
        self.log = checkpoint.log
        self.sums += self.sums.new_tensor(checkpoint.position.sums_of(self.devices.rank, self.devices.world))
        for key, stateful in self._stateful().items():
            # A checkpoint may lack the scaler: a run may continue on a device with another native precision.
            if key in checkpoint.states:
                stateful.load_state_dict(checkpoint.states[key])
        if self.devices.first:
            write_log(self.folder, self.log)

    def _finish(self) -> None:
        description = describe(self.name, self.recipe, self.images.space, self.images.describe())
        weights = load_file(self._best_epochs()[0]) if self.recipe.train.keep == "best" else self._kept()
        save_network(self.folder, weights, self.recipe, description, self.images.trained_on)
        (self.folder / CHECKPOINT).unlink(missing_ok=True)
        if not self.recipe.train.top:
            shutil.rmtree(self.folder / TOP, ignore_errors=True)


def on_pixels(network: nn.Module, data: TrainingData) -> Normalised | Preprocessed:
    """The network with its normalisation."""
    if data.preprocessing:
        return Preprocessed(network, evaluation_preprocessing(data).normalisation)
    return Normalised(network, data.mean, data.std)


def _checkpoint_gradients(network: nn.Module) -> None:
    """Switches the network to computing activations twice; raises if it has no such switch."""
    switch: Any = getattr(network, "set_grad_checkpointing", None)
    try:
        if switch is None:
            raise AssertionError("it has no set_grad_checkpointing")
        switch(True)
    except AssertionError as error:  # timm's networks that cannot do it assert that they are not asked to
        raise TrainingError(
            "the network cannot compute its activations again", found=error, hint="train.checkpoint_gradients=false"
        ) from error


def _start_from(network: nn.Module, path: Path) -> None:
    """Fills the network with the weights of a finished run's folder or a file; a head for other classes is left out."""
    if path.is_dir():
        path = path / WEIGHTS
    initial = network.state_dict()
    weights = load_weights(path)
    head = {}
    for key, tensor in initial.items():
        if key in weights and tensor.shape[:1] != weights[key].shape[:1]:
            head[key] = tensor
    # A head has a weight and a bias, and a few networks have two heads. More tensors mean another network, in which
    # case ``fill`` raises.
    if len(head) <= 4:
        weights = {**weights, **head}
    fill(network, weights, path.name)


def count_correct(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The number of correct images; for multi-label targets, the sum over images of the share of correct labels."""
    if targets.ndim == 2:
        return ((logits > 0) == (targets > 0)).float().mean(dim=1).sum()
    return (logits.argmax(dim=1) == targets).float().sum()


def make_optimizer(model: nn.Module, settings: Optimizer) -> torch.optim.Optimizer:
    """timm's optimizer of this name; with a ``backbone_factor``, the head has a group of its own."""
    weights: object = model
    if settings.backbone_factor != 1:
        head = _head_parameters(model)
        weights = [
            {"params": [p for p in model.parameters() if id(p) not in head], "lr_scale": settings.backbone_factor},
            {"params": [p for p in model.parameters() if id(p) in head], "lr_scale": 1.0},
        ]
    name = settings.name
    if name == "sgd" and not (settings.nesterov and settings.momentum > 0):
        # timm's "sgd" has Nesterov momentum, its "momentum" has not.
        name = "momentum"
    options = {
        "lr": settings.lr,
        "weight_decay": settings.weight_decay,
        "momentum": settings.momentum,
        "filter_bias_and_bn": not settings.decay_norms,
        "layer_decay": None if settings.layer_decay == 1 else settings.layer_decay,
        **settings.options,
    }
    try:
        optimizer: torch.optim.Optimizer = timm_part("optim").create_optimizer_v2(weights, name, **options)
    except TypeError as error:
        raise TrainingError(f"invalid optimizer.options of {settings.name!r}", found=error) from error
    return optimizer


def _head_parameters(model: nn.Module) -> set[int]:
    """The ids of the parameters of the last layer."""
    get_classifier: Any = getattr(model, "get_classifier", None)
    if get_classifier:
        # timm's networks say what their head is, which need not be linear; distilled networks have two.
        head = get_classifier()
        heads = head if isinstance(head, tuple) else (head,)
    else:
        linear_layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
        heads = tuple(linear_layers[-1:])
    parameters: set[int] = set()
    for layer in heads:
        parameters.update(id(parameter) for parameter in layer.parameters())
    return parameters
