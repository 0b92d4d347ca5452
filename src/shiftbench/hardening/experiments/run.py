"""``run_experiment``: train the grid, evaluate it on the suite, study it.

Runs are trained side by side, each on one core or one GPU, so that the number of workers changes no result. What is
done is kept: a killed experiment continues with its unfinished runs, and they with their checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from shiftbench.api import evaluate, suite_options
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.catalogue import named_datasets
from shiftbench.datasets.factors import open_splits, protocols
from shiftbench.errors import SettingError, argument, check_names, listed
from shiftbench.hardening.classifier import read_finished
from shiftbench.hardening.errors import BusyError, TrainingError
from shiftbench.hardening.experiments.base import Experiment, ExperimentPart, PlannedRun, load_experiment, plan_runs
from shiftbench.hardening.experiments.study import ExperimentStudy, study_runs
from shiftbench.hardening.training.checkpoint import refuse_other
from shiftbench.hardening.training.data import prepare_training
from shiftbench.hardening.training.train import train
from shiftbench.io.cache import cache_folder
from shiftbench.io.locks import file_lock
from shiftbench.io.paths import Location
from shiftbench.jobs.base import Executor, Job, Problem, add_tracebacks, retry_hint
from shiftbench.jobs.executors import ProcessExecutor, ThreadExecutor
from shiftbench.jobs.progress import Advance, progress_bar
from shiftbench.jobs.threads import one_torch_thread, worker_count
from shiftbench.metrics.corruption import ALEXNET
from shiftbench.reports.page.sections.training import read_log
from shiftbench.settings.base import Suite, build_suite
from shiftbench.settings.roles import Data, Selection, open_data


@dataclass(frozen=True)
class _Training(Job[int]):
    """Trains the planned run of a number; reports epochs."""

    runs: tuple[PlannedRun, ...]
    #: Of each part.
    data: tuple[str | Dataset, ...]

    def compute(self, item: int, advance: Advance, *, wait: bool) -> list[Problem] | None:
        run = self.runs[item]
        try:
            with one_torch_thread(), _own_device() as device:
                train(run.recipe, run.folder, data=self.data[run.part], name=run.name, device=device, progress=False,
                      wait=wait, report=advance)  # fmt: skip
        except BusyError:
            return None
        except TrainingError as error:
            return [Problem(run.name, str(error))]
        return []


@contextmanager
def _own_device() -> Iterator[str]:
    """The first GPU on which no other run of this machine trains; the default device if none is free."""
    with ExitStack() as held:
        for number in range(torch.cuda.device_count()):
            if held.enter_context(file_lock(cache_folder("hardening", "gpus") / f"{number}.lock", wait=False)):
                yield f"cuda:{number}"
                return
        yield "auto"


def run_experiment(
    which: str | Path | Experiment,
    *,
    scale: str = "small",
    seeds: int | None = None,
    data: Data = None,
    out: str | Path | None = None,
    workspace: str | Location | None = None,
    changes: Sequence[str] = (),
    executor: Executor | None = None,
    level: float = 0.95,
    progress: bool = True,
    command: str = "",
) -> ExperimentStudy:
    """Train what is not trained yet, evaluate what is not evaluated yet, and study all of it.

    ``executor`` trains the runs, by default in processes of this machine, and evaluates them.
    """
    experiment = (which if isinstance(which, Experiment) else load_experiment(which)).at(scale)
    folder = Path("experiments") / f"{experiment.name}-{scale}" if out is None else Path(out)
    sources = tuple(_training_data(experiment.name, part, data) for part in experiment.parts)
    runs, chosen = plan_runs(experiment, scale, folder, seeds=seeds, changes=changes), experiment.scale(scale)
    for part in experiment.parts:
        _check_suite(
            build_suite(part.suite, suite_options(data, chosen.severities, chosen.corruptions)), experiment, data
        )
    _train_all(runs, sources, executor, progress)
    evaluated = [
        evaluate(
            [run.spec for run in runs if run.part == number],
            part.suite,
            data,
            workspace or folder / "workspace",
            severities=chosen.severities,
            corruptions=chosen.corruptions,
            select=Selection(sample=chosen.sample or None),
            keep_scores=experiment.metric == "mAP",
            executor=executor or "threads",
            progress=progress,
        )
        for number, part in enumerate(experiment.parts)
    ]
    return study_runs(experiment, scale, runs, evaluated, command=command, changes=changes, level=level)


def _training_data(experiment: str, part: ExperimentPart, data: Data) -> str | Dataset:
    if not part.role:
        check_names("training dataset", [part.train], [name for name, _ in named_datasets])
        return part.train
    given = data.get(part.role) if isinstance(data, Mapping) else data
    if not isinstance(given, str | Path):
        icons = "; `shiftbench data icons FOLDER` makes it" if part.role == "icons" else ""
        hint = argument("data", {part.role: "FOLDER"}) + icons
        raise SettingError(f"the experiment {experiment!r} needs data for {part.role}", hint=hint)
    if part.role in protocols():
        return open_splits(given, part.role)[part.train]
    return str(Path(given) / part.train.split("/", 1)[1])


def _check_suite(suite: Suite, experiment: Experiment, data: Data) -> None:
    """What the evaluation needs is checked before anything is trained: its data, and those that the metric fits."""
    opened, left_out = open_data(suite, data)
    shifted = [one for one in suite.settings if one.reference is not None and one.name not in left_out]
    if not shifted:
        hint = argument("data", {"ROLE": "FOLDER"})
        raise SettingError(f"suite {suite.name!r} has no shifted data", expected=", ".join(suite.roles), hint=hint)
    known = [one.member is not None and one.member.name in ALEXNET.errors for one in shifted]
    several = [opened[one.dataset].label_sets is not None for one in shifted]
    fits, expected = {
        "accuracy": (not any(several), "images with one label"),
        "mCE": (all(known), "corruptions that AlexNet was evaluated under"),
        "mAP": (all(several), "images with several labels"),
        "AUPR": (len(shifted) == 1, "one set of out-of-distribution images"),
    }[experiment.metric]
    if not fits:
        found = listed([one.name for one in shifted])
        raise SettingError(f"metric {experiment.metric!r} does not fit {suite.name!r}", found=found, expected=expected)


def _train_all(
    runs: Sequence[PlannedRun],
    data: tuple[str | Dataset, ...],
    executor: Executor | None,
    progress: bool,
) -> None:
    todo = []
    for run in runs:
        if (found := read_finished(run.folder)) is None:
            todo.append(run)
        else:
            refuse_other(run.folder, found.recipe, found.fingerprint, run.recipe, found.fingerprint)
    for run in {(run.variant, run.part): run for run in todo if run.recipe.copies}.values():
        # Made here, once, and not by every worker at the same time.
        prepare_training(run.recipe, data[run.part], show=progress)
    if executor is None or isinstance(executor, ThreadExecutor):
        # Threads would train one after the other, so to speak: most of a step is Python's.
        count = worker_count(None) if executor is None else executor.workers
        count = min(count, torch.cuda.device_count() or count)
        executor = ThreadExecutor(1) if count == 1 else ProcessExecutor(count)
    total = sum(run.recipe.train.epochs for run in runs)
    done = total - sum(run.recipe.train.epochs - len(read_log(run.folder)) for run in todo)
    with progress_bar("training (epochs)", total, done, show=progress) as advance:
        failures = executor.run(_Training(tuple(todo), data), range(len(todo)), advance)
    if failures:
        causes = list(dict.fromkeys(str(failure) for failure in failures))
        error = TrainingError(
            f"{len(failures)} of {len(runs)} runs cannot be trained; all others are kept",
            found="\n            ".join(causes[:5]),
            hint=retry_hint(failures),
        )
        add_tracebacks(error, failures)
        raise error
