"""``run_experiment``: train the grid, evaluate it on the suite, study it.

Runs are trained side by side, each on one core or one GPU, so that the number of workers changes no result. Finished
work is kept: a killed experiment continues with its unfinished runs, and each of those from its checkpoint.
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
    """Trains the planned run with the given number, and reports its epochs as progress."""

    runs: tuple[PlannedRun, ...]
    #: The training data of each part.
    data: tuple[str | Dataset, ...]

    def compute(self, item: int, advance: Advance, *, wait: bool) -> list[Problem] | None:
        run = self.runs[item]
        try:
            with one_torch_thread(), _own_device() as device:
                train(
                    run.recipe,
                    run.folder,
                    data=self.data[run.part],
                    name=run.name,
                    device=device,
                    progress=False,
                    wait=wait,
                    report=advance,
                )
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
    experiment = which if isinstance(which, Experiment) else load_experiment(which)
    experiment = experiment.at(scale)
    settings = experiment.scale(scale)
    if out is None:
        folder = Path("experiments") / f"{experiment.name}-{scale}"
    else:
        folder = Path(out)
    sources = tuple(_training_data(experiment.name, part, data) for part in experiment.parts)
    runs = plan_runs(experiment, scale, folder, seeds=seeds, changes=changes)
    for part in experiment.parts:
        suite = build_suite(part.suite, suite_options(data, settings.severities, settings.corruptions))
        _check_suite(suite, experiment, data)
    _train_all(runs, sources, executor, progress)
    evaluated = []
    for number, part in enumerate(experiment.parts):
        evaluation = evaluate(
            [run.spec for run in runs if run.part == number],
            part.suite,
            data,
            workspace or folder / "workspace",
            severities=settings.severities,
            corruptions=settings.corruptions,
            select=Selection(sample=settings.sample or None),
            keep_scores=experiment.metric == "mAP",
            executor=executor or "threads",
            progress=progress,
        )
        evaluated.append(evaluation)
    return study_runs(experiment, scale, runs, evaluated, command=command, changes=changes, level=level)


def _training_data(experiment: str, part: ExperimentPart, data: Data) -> str | Dataset:
    """The name, the path or the opened split of a part's training data; raises if the user gave no folder for it."""
    if not part.role:
        check_names("training dataset", [part.train], [name for name, _ in named_datasets])
        return part.train
    folder = data.get(part.role) if isinstance(data, Mapping) else data
    if not isinstance(folder, str | Path):
        hint = argument("data", {part.role: "FOLDER"})
        if part.role == "icons":
            hint += "; `shiftbench data icons FOLDER` makes it"
        raise SettingError(f"the experiment {experiment!r} needs data for {part.role}", hint=hint)
    if part.role in protocols():
        return open_splits(folder, part.role)[part.train]
    return str(Path(folder) / part.train.split("/", 1)[1])


def _check_suite(suite: Suite, experiment: Experiment, data: Data) -> None:
    """Raises before anything is trained if the suite's data are missing or the metric does not fit them."""
    opened, left_out = open_data(suite, data)
    shifted = [setting for setting in suite.settings if setting.reference is not None and setting.name not in left_out]
    if not shifted:
        hint = argument("data", {"ROLE": "FOLDER"})
        raise SettingError(f"suite {suite.name!r} has no shifted data", expected=", ".join(suite.roles), hint=hint)
    multilabel = [opened[setting.dataset].label_sets is not None for setting in shifted]
    if experiment.metric == "accuracy":
        fits = not any(multilabel)
        expected = "images with one label"
    elif experiment.metric == "mCE":
        fits = all(setting.member is not None and setting.member.name in ALEXNET.errors for setting in shifted)
        expected = "corruptions that AlexNet was evaluated under"
    elif experiment.metric == "mAP":
        fits = all(multilabel)
        expected = "images with several labels"
    else:
        fits = len(shifted) == 1
        expected = "one set of out-of-distribution images"
    if not fits:
        found = listed([setting.name for setting in shifted])
        raise SettingError(f"metric {experiment.metric!r} does not fit {suite.name!r}", found=found, expected=expected)


def _train_all(
    runs: Sequence[PlannedRun],
    data: tuple[str | Dataset, ...],
    executor: Executor | None,
    progress: bool,
) -> None:
    """Trains every run that is not finished; raises one error about all runs that failed, after the others."""
    unfinished = []
    for run in runs:
        finished = read_finished(run.folder)
        if finished is None:
            unfinished.append(run)
        else:
            refuse_other(run.folder, finished.recipe, finished.fingerprint, run.recipe, finished.fingerprint)
    _make_copies(unfinished, data, progress)
    total = sum(run.recipe.train.epochs for run in runs)
    remaining = sum(run.recipe.train.epochs - len(read_log(run.folder)) for run in unfinished)
    with progress_bar("training (epochs)", total, total - remaining, show=progress) as advance:
        training = _Training(tuple(unfinished), data)
        failures = _training_executor(executor).run(training, range(len(unfinished)), advance)
    if failures:
        causes = list(dict.fromkeys(str(failure) for failure in failures))
        error = TrainingError(
            f"{len(failures)} of {len(runs)} runs cannot be trained; all others are kept",
            found="\n            ".join(causes[:5]),
            hint=retry_hint(failures),
        )
        add_tracebacks(error, failures)
        raise error


def _make_copies(runs: Sequence[PlannedRun], data: tuple[str | Dataset, ...], progress: bool) -> None:
    """Augmented copies are made once, before the workers start, because all of them would make the same ones."""
    by_data = {(run.variant, run.part): run for run in runs if run.recipe.copies}
    for run in by_data.values():
        prepare_training(run.recipe, data[run.part], show=progress)


def _training_executor(executor: Executor | None) -> Executor:
    """Processes in place of threads: threads would wait for each other, since most of a step is Python code."""
    if executor is not None and not isinstance(executor, ThreadExecutor):
        return executor
    count = worker_count(None) if executor is None else executor.workers
    count = min(count, torch.cuda.device_count() or count)
    if count == 1:
        return ThreadExecutor(1)
    return ProcessExecutor(count)
