"""Recipes of the two trainings, and the plan that keeps them and the evaluation within a time."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch
from msgspec import structs

from shiftbench import Dataset
from shiftbench.errors import UnknownNameError
from shiftbench.extend.classifiers import torch_device
from shiftbench.extend.errors import argument
from shiftbench.extend.io import read_json
from shiftbench.hardening.augmentations.base import image_augmentations
from shiftbench.hardening.errors import TrainingError
from shiftbench.hardening.finetuning.model import OwnModel
from shiftbench.hardening.recipe import Recipe, builtin_names, changed, recipe_from, tables_of
from shiftbench.hardening.recipe_check import check_recipe
from shiftbench.hardening.training.data import prepare_training
from shiftbench.hardening.training.devices import Devices
from shiftbench.hardening.training.loop import TrainingRun
from shiftbench.hardening.training.train import default_workers

PLAN = "plan.json"
#: The recipe of the control, and its folder.
CONTROL = "plain"
#: Fine-tuning a small dataset for longer seldom helps.
MAX_EPOCHS = 30
#: At most this many corrupted versions of each validation image are evaluated.
MAX_PASSES = 10
#: The number of corruptions, each with five severities.
SHIFTS = 75
#: The share of the time that may go into evaluation.
_EVALUATION_SHARE = 0.25
#: The share of the remaining time that is planned: steps take longer on a busy machine.
_PLANNED_SHARE = 0.85
_WARMUP_STEPS = 2
#: Steps that are measured after those that warm up, and the seconds after which measuring stops.
_MEASURED_STEPS = 6
_MEASURING_TIME = 30.0
_MAX_BATCH_SIZE = 64


class HardeningPlan(NamedTuple):
    """What fits into the time, by what was measured."""

    #: A digest of the model, the data and the options: a folder belongs to one of them.
    identity: str
    epochs: int
    steps_per_epoch: int
    batch_size: int
    #: Corrupted versions of each validation image that are evaluated.
    passes: int
    #: StepTime seconds: a step of each training, and the evaluation of one model.
    control_step: float
    hardened_step: float
    evaluation: float

    @property
    def steps(self) -> int:
        return self.epochs * self.steps_per_epoch

    @property
    def seconds(self) -> float:
        """The expected time of everything that follows the plan."""
        return self.steps * (self.control_step + self.hardened_step) + 3 * self.evaluation

    def text(self, augment: str, own: OwnModel, train_set: Dataset, val_set: Dataset) -> str:
        """The plan as the user reads it."""
        title = f"plan for {own.name}, {own.size} x {own.size} pixels, {len(own.classifier.space)} classes"
        rows = {
            "control (small shifts)": self.steps * self.control_step,
            augment: self.steps * self.hardened_step,
            "evaluation of all three models": 3 * self.evaluation,
        }
        lines = [f"{title}: about {_minutes(self.seconds)}"]
        lines += [f"  {name:32} {_minutes(seconds):>8}" for name, seconds in rows.items()]
        lines.append(
            f"  each training: {self.epochs} epochs of {len(train_set):,} images, {self.steps:,} steps of "
            f"{self.batch_size} images"
        )
        lines.append(
            f"  evaluation: {len(val_set):,} validation images, each clean and under {self.passes} of {SHIFTS} "
            "corruptions"
        )
        return "\n".join(lines)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min"


def read_plan(folder: Path, identity: str) -> HardeningPlan | None:
    """The plan of a run that was begun; raises if the folder belongs to another one."""
    if not (folder / PLAN).is_file():
        return None
    try:
        plan = HardeningPlan(**read_json(folder / PLAN))
    except (TypeError, ValueError) as error:
        raise TrainingError(f"{folder / PLAN} is damaged", found=error, hint="remove it to plan again") from error
    if plan.identity != identity:
        raise TrainingError(
            f"{folder} was begun with another model, other data or other options",
            hint=f"choose another folder ({argument('out')}), or remove this one to start again",
        )
    return plan


def check_validation(images: int) -> None:
    """Raises if there are too few images to meet each corruption with two of them."""
    if images < 2 * SHIFTS:
        raise TrainingError(
            "too few validation images",
            found=images,
            expected=f"at least {2 * SHIFTS}; with 1,000, differences of about two points show",
        )


def augment_names() -> list[str]:
    """The augmentations that have a recipe of their own."""
    return [name for name in builtin_names("finetuning") if name != CONTROL]


def finetuning_recipe(
    augment: str | Path, own: OwnModel, changes: Sequence[str] | Mapping[str, object], seed: int, images: int
) -> Recipe:
    """The recipe of a training of this model, but for the number of epochs."""
    name = str(augment)
    added: list[dict[str, object]] = []
    if name in builtin_names("finetuning") or name.endswith(".toml"):
        tables = tables_of(name, "finetuning")
    elif name in image_augmentations:
        tables = tables_of(CONTROL, "finetuning")
        added = [{"name": name}]
    else:
        raise UnknownNameError("augmentation", name, [*augment_names(), *image_augmentations.names()])
    augmentations: list[object] = []
    for part in tables.get("augmentations", []):
        if part in ("crop", {"name": "crop"}):
            augmentations.append({"name": "crop", "padding": max(1, own.size // 8)})
        else:
            augmentations.append(part)
    data = own.training_data()
    tables["augmentations"] = augmentations + added
    tables["architecture"] = {"name": own.architecture.name, **own.architecture.options}
    tables["data"] = {**tables.get("data", {}), "size": data.size, "preprocessing": data.preprocessing}
    batch_size = max(4, min(_MAX_BATCH_SIZE, images // 10))
    tables["train"] = {**tables.get("train", {}), "seed": seed, "batch_size": batch_size}
    recipe = recipe_from(changed(tables, changes))
    check_recipe(recipe)
    return recipe


class StepTime(NamedTuple):
    """How long a training takes."""

    #: Of one step, with its data.
    seconds: float
    steps_per_epoch: int


def measure(
    recipe: Recipe, own: OwnModel, train_set: Dataset, *, device: str, workers: int | None, progress: bool
) -> StepTime:
    """Takes a few steps of a training that is thrown away."""
    images, ready = prepare_training(recipe, train_set, show=progress)
    if workers is None:
        workers = default_workers(images)
    network = copy.deepcopy(own.network)
    devices = Devices(torch_device(device), recipe.train.precision)
    times: list[float] = []
    with TemporaryDirectory(prefix="shiftbench-") as folder, torch.random.fork_rng():
        run = TrainingRun(recipe, ready, Path(folder), "trial", images, None, devices, network=network)
        run.model.train()
        try:
            parts = run.batches.epoch(0, workers=workers)
            for number in range(_WARMUP_STEPS + _MEASURED_STEPS):
                began = time.monotonic()
                batch = list(islice(parts, run.batches.order.parts))
                if not batch or sum(times) > _MEASURING_TIME:
                    break
                run.step(number, batch)
                times.append(time.monotonic() - began)
        finally:
            run.batches.close()
    return StepTime(fmean(times[_WARMUP_STEPS:] or times), run.batches.count)


def make_plan(
    identity: str,
    control: StepTime,
    hardened: StepTime,
    batch_size: int,
    *,
    per_pass: float,
    remaining: float,
    spent: float,
) -> HardeningPlan:
    """Divides the time among both trainings and the evaluation; raises if it is too short.

    Args:
        identity: What the plan is for.
        control: The training without the augmentation.
        hardened: The training with it.
        batch_size: Images per step.
        per_pass: Seconds for all validation images in one setting, by one model.
        remaining: Seconds that are left.
        spent: Seconds that planning took.
    """
    usable = remaining * _PLANNED_SHARE
    epoch = control.steps_per_epoch * (control.seconds + hardened.seconds)
    passes = int(_EVALUATION_SHARE * usable / (3 * per_pass)) - 1
    passes = max(1, min(MAX_PASSES, passes))
    evaluation = per_pass * (1 + passes)
    epochs = int((usable - 3 * evaluation) / epoch)
    if epochs < 1:
        shortest = epoch + 6 * per_pass
        needed = math.ceil((spent + shortest / _PLANNED_SHARE) / 60 + 0.5)
        raise TrainingError(
            "too little time",
            found=f"{_minutes(spent + remaining)}; one epoch of both trainings takes {_minutes(epoch)}, and the "
            f"evaluation {_minutes(6 * per_pass)}",
            expected=f"at least {needed} minutes, and several times as many for a good result",
            hint=f"{argument('minutes', needed)}, or fewer training images: "
            + argument("changes", {"data.sample": 1000}, flag="--set"),
        )
    return HardeningPlan(
        identity,
        min(MAX_EPOCHS, epochs),
        control.steps_per_epoch,
        batch_size,
        passes,
        round(control.seconds, 4),
        round(hardened.seconds, 4),
        round(evaluation, 2),
    )


def planned(recipe: Recipe, plan: HardeningPlan) -> Recipe:
    """The recipe with the number of epochs that fits."""
    return structs.replace(recipe, train=structs.replace(recipe.train, epochs=plan.epochs))
