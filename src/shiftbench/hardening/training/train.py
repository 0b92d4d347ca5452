"""``train``: a recipe and data in, a classifier's folder out."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from msgspec import structs
from torch import nn

from shiftbench import Dataset
from shiftbench.errors import MissingExtraError
from shiftbench.extend.classifiers import torch_device
from shiftbench.extend.datasets import TrainedOn
from shiftbench.extend.io import inside
from shiftbench.extend.jobs import worker_count
from shiftbench.extend.tables import read_log
from shiftbench.hardening.architectures.baselines import BASELINES, fit_baseline, save_baseline
from shiftbench.hardening.classifier import BASELINE, RECIPE, Finished, describe, read_finished, save_finished
from shiftbench.hardening.errors import TrainingError
from shiftbench.hardening.recipe import Recipe, load_recipe, recipe_from
from shiftbench.hardening.recipe_check import baseline_options, check_recipe
from shiftbench.hardening.training.checkpoint import refuse_other, write_log
from shiftbench.hardening.training.data import (
    TrainingImages,
    open_training_set,
    prepare_training,
    prepare_validation,
)
from shiftbench.hardening.training.devices import FAILURE, Devices, backend_settings, read_failure
from shiftbench.hardening.training.loop import TOP, Trained, TrainingRun
from shiftbench.integrations import Sink, find_sink
from shiftbench.jobs import Advance


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
    report: Advance | None = None,
    wait: bool = False,
    network: nn.Module | None = None,
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
        report: Called after every epoch.
        wait: Where another process trains in the same folder, wait for its end instead of raising BusyError.
        network: A network that is trained in place of a new one; the recipe's architecture says how it is loaded
            again. It is changed.
    """
    folder = Path(out)
    check_recipe(recipe)
    folder.mkdir(parents=True, exist_ok=True)
    inside(folder / TOP / "weights", folder)  # Checkpoints are written there, and removed in the end.
    devices = Devices(torch_device(device), recipe.train.precision, recipe.train.rank_timeout)
    if recipe.train.splits == 1:
        # One part per device, or as many as the run was begun with: it may go on with more or fewer devices.
        splits = devices.world
        if (folder / RECIPE).is_file():
            splits = load_recipe(folder / RECIPE).train.splits
        recipe = structs.replace(recipe, train=structs.replace(recipe.train, splits=splits))
    with devices.sharing(folder, wait):
        finished = read_finished(folder)
        model_name = name or folder.resolve().name
        if recipe.architecture.name in BASELINES:
            return _train_baseline(recipe, folder, model_name, data, finished, progress)
        show = progress and devices.first
        # Networks and copies that an augmentation needs are made once, by the first rank of each machine.
        with devices.accelerator.local_main_process_first():
            images, ready = prepare_training(recipe, data, show=show)
        if finished is not None:
            refuse_other(folder, finished.recipe, finished.fingerprint, recipe, images.fingerprint)
            return Trained(folder, read_log(folder))
        held_out = prepare_validation(recipe, validation, images.space, show=show)
        if workers is None:
            workers = default_workers(images)
        open_sinks = [find_sink(sink) for sink in sinks] if devices.first else []
        try:
            # The caller's own random numbers go on as if nothing had happened.
            with torch.random.fork_rng(), backend_settings(recipe.train.cudnn_benchmark, recipe.train.tf32):
                run = TrainingRun(recipe, ready, folder, model_name, images, held_out, devices, open_sinks, network)
                return run.go(workers, progress, report)
        finally:
            for sink in open_sinks:
                sink.close()


def default_workers(images: TrainingImages) -> int:
    """None for images in memory, which are quickly augmented; otherwise the cores of this rank, at most eight."""
    if images.pixels is not None:
        return 0
    cores = worker_count(None) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return min(8, cores)


def train_on_ray(recipe: Recipe, out: str | Path, ranks: int, address: str | None = None, **options: Any) -> Trained:
    """``train`` on a cluster that runs Ray: Ray Train starts the ranks, one GPU each where the cluster has some.

    ``out`` and the data are paths that all machines share. Without ``address``, Ray is started on this machine.
    """
    try:
        import ray
        from ray.train import RunConfig, ScalingConfig, TrainingFailedError
        from ray.train.torch import TorchConfig, TorchTrainer
    except ImportError as error:
        raise MissingExtraError("ray", "ray", "training on a Ray cluster") from error
    started_here = not ray.is_initialized()
    if started_here:
        ray.init(address or "local", num_cpus=None if address else ranks, log_to_driver=False)
    try:
        gpus = ray.cluster_resources().get("GPU", 0) >= ranks  # type: ignore[no-untyped-call]
        folder = Path(out).resolve()
        (folder / FAILURE).unlink(missing_ok=True)
        # The machines of the cluster have other working directories.
        for key in ("data", "validation"):
            path = options.get(key)
            if isinstance(path, str | Path) and Path(path).exists():
                options[key] = str(Path(path).resolve())
        TorchTrainer(
            _ray_rank,
            train_loop_config={"recipe": recipe.as_dict(), "out": str(folder), "options": options},
            torch_config=TorchConfig(backend="nccl" if gpus else "gloo"),
            scaling_config=ScalingConfig(num_workers=ranks, use_gpu=gpus),
            run_config=RunConfig(name="ray", storage_path=str(folder)),
        ).fit()
    except TrainingFailedError as error:
        raise read_failure(folder) or TrainingError("training on Ray failed", found=error) from error
    finally:
        if started_here:
            ray.shutdown()
    return Trained(folder, read_log(folder))


def _ray_rank(config: dict[str, Any]) -> None:
    train(recipe_from(config["recipe"]), config["out"], progress=False, **config["options"])


def _train_baseline(
    recipe: Recipe, folder: Path, name: str, data: str | Dataset | None, finished: Finished | None, show: bool
) -> Trained:
    """A baseline is fitted once, not step by step (004): only [architecture], [data] and train.seed matter."""
    dataset = open_training_set(recipe.data.train if data is None else data, recipe.data)
    if finished is not None:
        refuse_other(folder, finished.recipe, finished.fingerprint, recipe, dataset.fingerprint)
        return Trained(folder, read_log(folder))
    began = time.monotonic()
    classifier = fit_baseline(baseline_options(recipe), dataset, seed=recipe.train.seed, name=name, show=show)
    save_baseline(classifier, folder / BASELINE)
    log = [{"epoch": 1, "step": 1, "seconds": round(time.monotonic() - began, 3)}]
    write_log(folder, log)
    description = describe(name, recipe, dataset.space, {**dataset.describe(), "with_copies": len(dataset)})
    description["preprocessing"] = classifier.preprocessing.describe()
    save_finished(folder, recipe, description, TrainedOn.of([dataset]))
    return Trained(folder, log)
