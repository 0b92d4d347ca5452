"""``train``: a recipe and data in, a classifier's folder out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import torch
from msgspec import structs
from rich.console import Console

from shiftbench.classifiers.torch_ import torch_device
from shiftbench.datasets.base import Dataset
from shiftbench.hardening.classifier import read_finished
from shiftbench.hardening.errors import BusyError
from shiftbench.hardening.recipe import Recipe
from shiftbench.hardening.recipe_check import check_recipe
from shiftbench.hardening.training.baselines import BASELINES, fit_baseline
from shiftbench.hardening.training.checkpoint import refuse_other
from shiftbench.hardening.training.data import LoadedImages, prepare_training, prepare_validation
from shiftbench.hardening.training.devices import Devices
from shiftbench.hardening.training.log import read_log
from shiftbench.hardening.training.loop import Trained, TrainingRun
from shiftbench.integrations.sinks import Sink, find_sink
from shiftbench.io.locks import file_lock
from shiftbench.jobs.progress import Advance
from shiftbench.jobs.threads import worker_count


def train(
    recipe: Recipe,
    out: str | Path,
    *,
    data: str | Dataset | None = None,
    validation: str | Dataset | None = None,
    name: str | None = None,
    workers: int | None = None,
    device: str = "auto",
    sinks: Sequence[str | Sink] = (),
    progress: bool = True,
    console: Console | None = None,
    report: Advance | None = None,
    wait: bool = False,
) -> Trained:
    """Follow a recipe; the same call continues a run that was stopped, and returns at once from a finished one.

    Under torchrun each process is a rank: it takes its parts of every batch, and rank 0 writes the files.

    Args:
        recipe: The recipe.
        out: Folder of the run.
        data: Training data in place of the recipe's.
        validation: Validation data in place of the recipe's.
        name: Name of the trained model.
        workers: Processes per device that make batches ahead; they change no result. Default: none for images in
            memory, else up to eight, as there are cores.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:1"``.
        sinks: Experiment trackers to which each epoch is logged: ``"tensorboard:runs"``, ``"wandb"``, ...
        progress: Whether a progress bar is shown.
        console: Where progress is printed; default: standard error.
        report: Called after every epoch.
        wait: Where another process trains in the same folder, wait for its end instead of raising BusyError.
    """
    folder = Path(out)
    check_recipe(recipe)
    folder.mkdir(parents=True, exist_ok=True)
    devices = Devices(torch_device(device), recipe.train.precision)
    if recipe.train.splits == 1 and devices.world > 1:
        recipe = structs.replace(recipe, train=structs.replace(recipe.train, splits=devices.world))
    with file_lock(folder / ".lock", wait=wait) if devices.first else nullcontext(True) as ours:
        if not ours:
            raise BusyError(f"another process is training in {folder}", hint="wait for it, or choose another --out")
        finished, called = read_finished(folder), name or folder.resolve().name
        if recipe.architecture.name in BASELINES:
            return fit_baseline(recipe, folder, called, data, finished, progress)
        shown = progress and devices.first
        # Networks and copies that an augmentation needs are made once, by the first rank of each machine.
        with devices.accelerator.local_main_process_first():
            loaded, ready = prepare_training(recipe, data, show=shown, console=console)
        if finished is not None:
            refuse_other(folder, finished.recipe, finished.fingerprint, recipe, loaded.fingerprint)
            return Trained(folder, read_log(folder))
        held_out = prepare_validation(recipe, validation, loaded.space, show=shown, console=console)
        opened = [find_sink(sink) for sink in sinks] if devices.first else []
        try:
            # The caller's own random numbers go on as if nothing had happened.
            with torch.random.fork_rng():
                run = TrainingRun(recipe, ready, folder, called, loaded, held_out, devices, opened)
                return run.go(default_workers(loaded) if workers is None else workers, progress, console, report)
        finally:
            for sink in opened:
                sink.close()


def default_workers(loaded: LoadedImages) -> int:
    """None for images in memory, which are quickly augmented; else the cores of this rank, at most eight."""
    if loaded.pixels is not None:
        return 0
    return min(8, worker_count(None) // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
