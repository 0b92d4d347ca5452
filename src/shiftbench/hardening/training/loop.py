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
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save
from torch import nn
from torch.nn import functional

from shiftbench.classifiers.torch_ import evaluating
from shiftbench.classifiers.weights import fill, load_weights
from shiftbench.errors import argument
from shiftbench.hardening.architectures.base import Normalised, Scheduled, build
from shiftbench.hardening.augmentations.base import make_batch_augmentation
from shiftbench.hardening.classifier import WEIGHTS, describe, save_network, write_recipe
from shiftbench.hardening.errors import DivergedError, TrainingError
from shiftbench.hardening.recipe import Optimizer, Recipe, timm_part
from shiftbench.hardening.training.batches import Batch, Batches, to_pixels
from shiftbench.hardening.training.checkpoint import (
    CHECKPOINT,
    Checkpoint,
    Position,
    read_checkpoint,
    write_checkpoint,
    write_log,
)
from shiftbench.hardening.training.data import TrainingImages
from shiftbench.hardening.training.devices import Devices, Statistics
from shiftbench.hardening.training_schemes import make_criterion, make_scheme
from shiftbench.integrations.sinks import Sink
from shiftbench.io.atomic import write_bytes
from shiftbench.jobs.progress import Advance, progress_bar
from shiftbench.shifts.seeds import derive_seed

#: Folder for the weights of the best epochs.
TOP = "top"
#: Steps between checks of the loss on a GPU, which has to be waited for.
_CHECK_EVERY = 50


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
        images: TrainingImages,
        held_out: TrainingImages | None,
        devices: Devices,
        sinks: Sequence[Sink] = (),
    ) -> None:
        self.recipe, self.folder, self.name, self.devices, self.sinks = recipe, folder, name, devices, sinks
        self.held_out: Batches | None = None
        self.images, self.seed, self.device = images, recipe.train.seed, devices.device
        devices.check_splits(recipe.train.splits)
        self.scheme = make_scheme(recipe.scheme.name, make_criterion(recipe.loss.name, recipe.loss.smoothing),
                                  **recipe.scheme.options)  # fmt: skip
        self.mixing = [make_batch_augmentation(part.name, **part.options) for part in recipe.batch_augmentations]
        rank, world = devices.rank, devices.world
        self.batches = Batches(images, ready, self.scheme.views, rank=rank, world=world)
        if held_out is not None:
            self.held_out = Batches(held_out, ready, 1, rank=rank, world=world, shuffled=False)
        torch.manual_seed(derive_seed(self.seed, "weights"))
        network = build(recipe.architecture.name, classes=len(images.space), **recipe.architecture.options)
        if recipe.train.start:
            _start_from(network, Path(recipe.train.start))
        if recipe.train.batch_norm == "sync":
            if self.device.type == "cpu" and world > 1:
                raise TrainingError(
                    "batch norms are synchronised on GPUs only",
                    found=f"{world} ranks on CPUs",
                    hint='train.batch_norm="part"',
                )
            network = nn.SyncBatchNorm.convert_sync_batchnorm(network)  # type: ignore[no-untyped-call]
        elif recipe.train.batch_norm == "split" and self.scheme.views > 1:
            network = timm_part("layers").convert_splitbn_model(network, self.scheme.views)
        #: Without what data-parallel training and torch.compile put around it.
        self.model = Normalised(network, recipe.data.mean, recipe.data.std).to(self.device)
        if recipe.train.channels_last:
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.scheduled = [part for part in self.model.modules() if isinstance(part, Scheduled)]
        optimizer = make_optimizer(network, recipe.optimizer)
        whole: Any = self.model
        if recipe.train.compile:
            backend = recipe.train.compile if isinstance(recipe.train.compile, str) else "inductor"
            whole = torch.compile(self.model, backend=backend)
        self.wrapped, self.optimizer = devices.prepare(whole, optimizer)
        self.statistics = Statistics(self.model, devices, recipe.train.splits)
        #: The running mean of weights and statistics.
        self.mean: Any = None
        if recipe.train.ema:
            made = timm_part("utils").ModelEmaV3
            self.mean = made(self.model, decay=recipe.train.ema, use_warmup=recipe.train.ema_warmup)
        self.scaler = devices.accelerator.scaler
        self.position, self.log = Position(), list[dict[str, Any]]()
        #: Of this rank in this epoch: loss times images, right answers, images.
        self.sums = torch.zeros(3, dtype=torch.float64, device=self.device)
        self._resume()

    def go(self, workers: int, progress: bool, report: Advance | None) -> Trained:
        epochs, done = self.recipe.train.epochs, self.position
        total, before = epochs * self.batches.count, done.epoch * self.batches.count + done.batch
        shown = progress and self.devices.first
        loaders = [one for one in (self.batches, self.held_out) if one is not None]
        try:
            with progress_bar(self.name, total, before, show=shown) as advance:
                while self.position.epoch < epochs:
                    self._epoch(workers, advance)
                    if report is not None:
                        report(1)
        except RuntimeError as error:
            # torch raises it anywhere in this process when a worker has ended.
            if codes := [code for code in (one.close() for one in loaders) if code]:
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
            for one in loaders:
                one.close()
        if self.devices.first:
            self._finish()
        self.devices.accelerator.wait_for_everyone()
        return Trained(self.folder, self.log)

    def _epoch(self, workers: int, advance: Advance) -> None:
        at = self.position
        began = saved = time.monotonic()
        earlier = at.seconds
        self.model.train()
        parts = self.batches.epoch(at.epoch, at.batch, workers=workers)
        while batch := list(islice(parts, self.batches.order.parts)):
            self.step(at.epoch * self.batches.count + at.batch, batch)
            at.batch += 1
            at.seconds = earlier + time.monotonic() - began
            # Ranks save together, by rank 0's clock.
            due = time.monotonic() - saved > self.recipe.train.checkpoint_seconds and at.batch < self.batches.count
            if self.devices.gathered([due])[0][0] if self.devices.world > 1 else due:
                self._save()
                saved = time.monotonic()
            advance(1)
        self._end_epoch(workers)

    def step(self, number: int, batch: Sequence[Batch]) -> None:
        """One step of the optimizer, from this rank's parts of the batch."""
        rate = self._rate(number)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group.get("lr_scale", 1.0)
        for part in self.scheduled:
            part.progress(number / (self.recipe.train.epochs * self.batches.count))
        self.statistics.begin()
        self.optimizer.zero_grad(set_to_none=True)
        for i, piece in enumerate(batch):
            last = i == len(batch) - 1
            # Gradients are exchanged with the last part that a rank computes.
            with nullcontext() if last else self.devices.accelerator.no_sync(self.wrapped):
                self._part(number, self.batches.order.mine.start + i, piece)
            self.statistics.add(last)
        self.statistics.end()
        if self.recipe.optimizer.clip:
            self.devices.accelerator.clip_grad_norm_(self.model.parameters(), self.recipe.optimizer.clip)
        self.optimizer.step()
        if self.mean is not None:
            self.mean.update(self.model, number + 1)
        if self.device.type == "cpu" or number % _CHECK_EVERY == 0:
            self._check(number, float(self.sums[0]))

    def _part(self, number: int, index: int, part: Batch) -> None:
        """Loss and gradient of a part of a batch."""
        own = (number, index) if self.recipe.train.splits > 1 else (number,)
        torch.manual_seed(derive_seed(self.seed, "step", *own))
        generator = torch.Generator().manual_seed(derive_seed(self.seed, "scheme", *own))
        views = [to_pixels(view.to(self.device, non_blocking=True)) for view in part.views]
        labels = targets = part.targets.to(self.device, non_blocking=True)
        if self.mixing and targets.ndim == 1:
            targets = functional.one_hot(targets, len(self.images.space)).float()
        for mix in self.mixing:
            views[0], targets = mix(views[0], targets, generator)
        loss, logits = self.scheme(self.wrapped, views, targets, generator)
        loss = sum((one.penalty() for one in self.scheduled), start=loss)
        self.devices.accelerator.backward(loss * part.share)
        hits = _hits(logits.detach(), labels)
        self.sums += torch.stack([loss.detach().double() * len(labels), hits.double(), hits.new_tensor(len(labels))])

    def _rate(self, number: int) -> float:
        highest, epochs = self.recipe.optimizer.lr, self.recipe.train.epochs
        return self.recipe.schedule.rate(number, highest=highest, epochs=epochs, steps_per_epoch=self.batches.count)

    def _check(self, number: int, value: float, what: str = "the loss is") -> None:
        if math.isfinite(value):
            return
        kept = (self.folder / CHECKPOINT).is_file()
        raise DivergedError(
            f"{what} {value} in step {number + 1}, epoch {number // self.batches.count + 1}",
            found=f"learning rate {self._rate(number):g}, scheme {self.recipe.scheme.name!r}",
            hint="train in another folder with a lower optimizer.lr, more schedule.warmup_epochs, or optimizer.clip=1"
            + ("; the last good checkpoint is kept" if kept else ""),
        )

    def _end_epoch(self, workers: int) -> None:
        at = self.position
        last = (at.epoch + 1) * self.batches.count - 1
        self._check(last, float(self.sums[0]))
        loss, hits, images = self.devices.summed(self.sums.tolist())
        line = {
            "epoch": at.epoch + 1, "step": last + 1, "loss": loss / images, "accuracy": hits / images,
            "lr": self._rate(last), "seconds": round(at.seconds, 3),
        }  # fmt: skip
        if self.held_out is not None:
            line |= self._validate(self.held_out, workers)
        self.log.append(line)
        at.epoch, at.batch, at.seconds = at.epoch + 1, 0, 0.0
        self.sums.zero_()
        self._save()
        if not self.devices.first:
            return
        write_log(self.folder, self.log)
        for sink in self.sinks:
            sink.log({f"train/{key}": value for key, value in line.items() if key != "step"}, last + 1)

    def _kept(self) -> dict[str, torch.Tensor]:
        """The weights that are kept: of the running mean, where there is one, and without split batch norms' others."""
        model = self.model if self.mean is None else self.mean.module
        state: Mapping[str, torch.Tensor] = model.network.state_dict()
        return {key: value for key, value in state.items() if ".aux_bn." not in key}

    def _best_epochs(self) -> list[Path]:
        """Files of the epochs with the best accuracy so far: ranked by the log, so that nothing has to be restored."""
        count = max(self.recipe.train.top, self.recipe.train.keep == "best")
        ranked = sorted(self.log, key=lambda line: (-line.get("validation_accuracy", 0.0), line["epoch"]))
        return [self.folder / TOP / f"epoch-{line['epoch']:04}.safetensors" for line in ranked[:count]]

    def _keep_best(self) -> None:
        """Before the checkpoint is written: a run that is killed in between does this epoch again."""
        wanted, newest = self._best_epochs(), self.folder / TOP / f"epoch-{self.log[-1]['epoch']:04}.safetensors"
        if newest in wanted:
            newest.parent.mkdir(exist_ok=True)
            weights = {key: value.detach().cpu().contiguous() for key, value in self._kept().items()}
            write_bytes(newest, save(weights), durable=True)
        for path in (self.folder / TOP).glob("epoch-*.safetensors"):
            if path not in wanted:
                path.unlink()

    @torch.inference_mode()
    def _validate(self, batches: Batches, workers: int) -> dict[str, float]:
        """Accuracy, top-5 accuracy and loss on the validation data, each rank on its share of the images."""
        model = self.model if self.mean is None else self.mean.module
        criterion = make_criterion(self.recipe.loss.name)
        sums = torch.zeros(4, dtype=torch.float64, device=self.device)
        with evaluating(model):
            for batch in batches.epoch(0, workers=workers):
                if not len(batch.targets):
                    continue
                targets = batch.targets.to(self.device)
                logits = model(to_pixels(batch.views[0].to(self.device))).float()
                loss = criterion(logits, targets) * len(targets)
                best = logits.topk(min(5, logits.shape[1]), dim=1).indices
                among = (best == targets[:, None]).any(dim=1).sum() if targets.ndim == 1 else loss
                seen = targets.new_tensor(len(targets))
                sums += torch.stack([one.double() for one in (_hits(logits, targets), among, loss, seen)])
        hits, among_top, total, images = self.devices.summed(sums.tolist())
        return {
            "validation_accuracy": hits / images,
            **({} if batches.images.targets.ndim == 2 else {"validation_top5": among_top / images}),
            "validation_loss": total / images,
        }

    def _states(self) -> dict[str, Any]:
        states = {"model": self.model, "optimizer": self.optimizer, "ema": self.mean, "scaler": self.scaler}
        return {key: one for key, one in states.items() if one is not None}

    def _save(self) -> None:
        if not all(bool(torch.isfinite(weight).all()) for weight in self.model.parameters()):
            done = self.position.epoch * self.batches.count + self.position.batch
            self._check(done - 1, math.nan, "weights are")
        self.position.sums = self.devices.gathered(self.sums.tolist())
        if not self.devices.first:
            return
        if self.position.batch == 0:
            self._keep_best()
        kept = {key: one.state_dict() for key, one in self._states().items()}
        content = Checkpoint(self.recipe, self.images.fingerprint, self.position, self.log, kept)
        write_checkpoint(self.folder, content)

    def _resume(self) -> None:
        found = read_checkpoint(self.folder, self.recipe, self.images.fingerprint)
        self.devices.accelerator.wait_for_everyone()
        if found is None:
            if self.devices.first:
                write_recipe(self.folder, self.recipe)
            return
        self.position, self.log = found.position, found.log
        self.sums += self.sums.new_tensor(found.position.sums_of(self.devices.rank, self.devices.world))
        for key, one in self._states().items():
            if key in found.states:  # a run may go on where another precision is native
                one.load_state_dict(found.states[key])
        if self.devices.first:
            write_log(self.folder, self.log)

    def _finish(self) -> None:
        about = describe(self.name, self.recipe, self.images.space, self.images.describe())
        kept = load_file(self._best_epochs()[0]) if self.recipe.train.keep == "best" else self._kept()
        save_network(self.folder, kept, self.recipe, about, self.images.trained_on)
        (self.folder / CHECKPOINT).unlink(missing_ok=True)
        if not self.recipe.train.top:
            shutil.rmtree(self.folder / TOP, ignore_errors=True)


def _start_from(network: nn.Module, path: Path) -> None:
    path = path / WEIGHTS if path.is_dir() else path
    own, given = network.state_dict(), load_weights(path)
    # The head for other classes begins anew: weight and bias, in a few networks of two heads. All else must fit.
    anew = {key: own[key] for key in own if key in given and own[key].shape[:1] != given[key].shape[:1]}
    fill(network, {**given, **anew} if len(anew) <= 4 else given, path.name)


def _hits(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Images whose best class is theirs; with several labels, the share of all questions answered right."""
    if targets.ndim == 2:
        return ((logits > 0) == (targets > 0)).float().mean(dim=1).sum()
    return (logits.argmax(dim=1) == targets).float().sum()


def make_optimizer(model: nn.Module, chosen: Optimizer) -> torch.optim.Optimizer:
    """timm's optimizer of this name; with a ``backbone_factor``, the head has a group of its own."""
    weights: object = model
    if chosen.backbone_factor != 1:
        # timm knows the head of its networks, which need not be linear; of ours it is the last linear layer.
        known: Any = getattr(model, "get_classifier", None)
        head = known() if known else tuple(part for part in model.modules() if isinstance(part, nn.Linear))[-1:]
        heads = head if isinstance(head, tuple) else (head,)  # distilled networks have two
        own = {id(one) for part in heads for one in part.parameters()}
        weights = [
            {"params": [p for p in model.parameters() if id(p) not in own], "lr_scale": chosen.backbone_factor},
            {"params": [p for p in model.parameters() if id(p) in own], "lr_scale": 1.0},
        ]
    # timm's "sgd" has Nesterov momentum, its "momentum" has not.
    plain = chosen.name == "sgd" and not (chosen.nesterov and chosen.momentum > 0)
    options = {"lr": chosen.lr, "weight_decay": chosen.weight_decay, "momentum": chosen.momentum,
               "filter_bias_and_bn": not chosen.decay_norms,
               "layer_decay": None if chosen.layer_decay == 1 else chosen.layer_decay}  # fmt: skip
    try:
        made: torch.optim.Optimizer = timm_part("optim").create_optimizer_v2(
            weights, "momentum" if plain else chosen.name, **{**options, **chosen.options}
        )
    except TypeError as error:
        raise TrainingError(f"invalid optimizer.options of {chosen.name!r}", found=error) from error
    return made
