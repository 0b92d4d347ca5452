"""``train``: a recipe and data in, a classifier's folder out."""

from __future__ import annotations

from pathlib import Path

import torch
from rich.console import Console

from shiftbench.classifiers.torch_ import torch_device
from shiftbench.datasets.base import Dataset
from shiftbench.hardening.classifier import read_finished
from shiftbench.hardening.errors import BusyError
from shiftbench.hardening.recipe import Recipe
from shiftbench.hardening.recipe_check import check_recipe
from shiftbench.hardening.training.baselines import BASELINES, fit_baseline
from shiftbench.hardening.training.checkpoint import refuse_other
from shiftbench.hardening.training.log import read_log
from shiftbench.hardening.training.loop import Trained, TrainingRun
from shiftbench.hardening.training.setup import prepare_training, prepare_validation
from shiftbench.io.locks import file_lock
from shiftbench.jobs.progress import Advance


def train(
    recipe: Recipe,
    out: str | Path,
    *,
    data: str | Dataset | None = None,
    validation: str | Dataset | None = None,
    name: str | None = None,
    workers: int = 0,
    device: str = "auto",
    progress: bool = True,
    console: Console | None = None,
    report: Advance | None = None,
    wait: bool = False,
) -> Trained:
    """Follow a recipe; the same call continues a run that was stopped, and returns at once from a finished one.

    ``data`` and ``validation`` replace what the recipe names. ``workers`` are processes that make batches ahead
    (0: none); they change no result. ``report`` is called after every epoch. Where another process trains in
    the same folder, ``wait`` for its end, or raise BusyError.

    Args:
        recipe: The recipe.
        out: Folder of the run.
        data: Training data in place of the recipe's.
        validation: Validation data in place of the recipe's.
        name: Name of the trained model.
        workers: Processes that make batches ahead (0: none); they change no result.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:1"``.
        progress: Whether a progress bar is shown.
        console: Where progress is printed; default: standard error.
        report: Called after every epoch.
        wait: Where another process trains in the same folder, wait for its end instead of raising BusyError.
    """
    folder = Path(out)
    check_recipe(recipe)
    folder.mkdir(parents=True, exist_ok=True)
    with file_lock(folder / ".lock", wait=wait) as ours:
        if not ours:
            raise BusyError(f"another process is training in {folder}", hint="wait for it, or choose another --out")
        finished, called = read_finished(folder), name or folder.resolve().name
        if recipe.architecture.name in BASELINES:
            return fit_baseline(recipe, folder, called, data, finished, progress)
        pictures, ready = prepare_training(recipe, data, show=progress, console=console)
        if finished is not None:
            refuse_other(folder, finished.recipe, finished.fingerprint, recipe, pictures.fingerprint)
            return Trained(folder, read_log(folder))
        held_out = prepare_validation(recipe, validation, pictures.space, show=progress, console=console)
        # The caller's own random numbers go on as if nothing had happened.
        with torch.random.fork_rng():
            run = TrainingRun(recipe, ready, folder, called, pictures, held_out, torch_device(device))
            return run.go(workers, progress, console, report)
