"""``run_experiment``: train the grid, evaluate it on the suite, study it.

Runs are trained side by side, each on one core or one GPU, so that the number of workers changes no result. Finished
work is kept: a killed experiment continues with its unfinished runs, and each of those from its checkpoint.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from numpy.typing import NDArray

from shiftbench import Dataset, LabelSpace, Run, Selection, evaluate, label_space, load_classifier
from shiftbench.datasets import named_datasets
from shiftbench.errors import MissingClassesError, SettingError
from shiftbench.extend.datasets import FOLDERS, find_label_space, open_splits, protocols
from shiftbench.extend.errors import argument, check_names, listed
from shiftbench.extend.io import Location
from shiftbench.extend.jobs import add_tracebacks, one_torch_thread, retry_hint, worker_count
from shiftbench.extend.metrics import ALEXNET
from shiftbench.extend.settings import Data
from shiftbench.extend.tables import read_log
from shiftbench.hardening.classifier import read_finished
from shiftbench.hardening.errors import BusyError, TrainingError
from shiftbench.hardening.experiments.base import Experiment, ExperimentPart, PlannedRun, load_experiment, plan_runs
from shiftbench.hardening.experiments.ranks import free_gpus, train_on_devices
from shiftbench.hardening.experiments.study import ExperimentStudy, study_runs
from shiftbench.hardening.training.checkpoint import refuse_other
from shiftbench.hardening.training.data import check_training_data, prepare_training
from shiftbench.hardening.training.train import train
from shiftbench.jobs import Advance, Executor, Job, Problem, ProcessExecutor, ThreadExecutor, progress_bar
from shiftbench.settings import Setting, ShiftOptions, Suite, SuiteOptions, build_suite, open_data


@dataclass(frozen=True)
class _Training(Job[int]):
    """Trains the planned run with the given number, and reports its epochs as progress."""

    runs: tuple[PlannedRun, ...]
    #: The training data of each part.
    data: tuple[str | Dataset, ...]
    #: The number of devices that each run is trained on.
    devices: int = 1

    def compute(self, item: int, advance: Advance, *, wait: bool) -> list[Problem] | None:
        run = self.runs[item]
        try:
            if self.devices > 1:
                train_on_devices(run, self.data[run.part], self.devices, advance, wait=wait)
                return []
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
    with free_gpus(1) as gpus:
        yield f"cuda:{gpus[0]}" if gpus else "auto"


def run_experiment(
    which: str | Path | Experiment,
    *,
    scale: str = "small",
    seeds: int | None = None,
    data: Data = None,
    labels: str | None = None,
    out: str | Path | None = None,
    workspace: str | Location | None = None,
    changes: Sequence[str] = (),
    executor: Executor | None = None,
    devices: int = 1,
    level: float = 0.95,
    progress: bool = True,
    command: str = "",
) -> ExperimentStudy:
    """Train what is not trained yet, evaluate what is not evaluated yet, and study all of it.

    Whatever can be wrong with data and label spaces, of the training and of the evaluation, is raised before the first
    run is trained.

    Args:
        which: Name of an experiment, a TOML file, or an experiment.
        scale: One of the experiment's scales.
        seeds: Training runs per variant; default: as in the scale.
        data: A folder, or a mapping from roles to folders: the roles of the suites, and those of training data.
        labels: Classes of training and test data, as in ``evaluate``: a name, a file, or ``"folders"``. It sets
            ``data.labels`` of every recipe.
        out: Folder of the runs.
        workspace: Workspace of the predictions; default: in the folder of the runs.
        changes: Changes to every recipe: ``"train.epochs=3"``.
        executor: Trains the runs, by default in processes of this machine, and evaluates them.
        devices: GPUs per run, or processes where there is no GPU. As in ``harden train``, each batch is divided into as
            many parts, which is a change of the recipe: ``train.splits``.
        level: Confidence level.
        progress: Whether progress bars are shown.
        command: The command that reproduces the study, for its page.
    """
    experiment = which if isinstance(which, Experiment) else load_experiment(which)
    experiment = experiment.at(scale)
    settings = experiment.scale(scale)
    if out is None:
        folder = Path("experiments") / f"{experiment.name}-{scale}"
    else:
        folder = Path(out)
    sources = tuple(_training_data(experiment.name, part, data) for part in experiment.parts)
    recipe_changes = list(changes)
    if devices > 1:
        recipe_changes.insert(0, f"train.splits={devices}")
    if labels is not None:
        recipe_changes.append(f"data.labels={labels}")
    runs = plan_runs(experiment, scale, folder, seeds=seeds, changes=recipe_changes)
    shifts = ShiftOptions(tuple(settings.severities), tuple(settings.corruptions))
    evaluations = []
    for number, part in enumerate(experiment.parts):
        part_runs = [run for run in runs if run.part == number]
        training_space = _check_training_data(part_runs, sources[number])
        evaluation_labels = None
        if labels is not None or part_runs[0].recipe.data.labels == FOLDERS:
            evaluation_labels = training_space
        suite = build_suite(part.suite, SuiteOptions.of(shifts, "data"))
        suite_data = _without_training_roles(data, experiment, suite)
        _check_suite(suite, experiment, suite_data, part_runs, evaluation_labels)
        evaluation = partial(
            evaluate,
            suite=part.suite,
            data=suite_data,
            labels=evaluation_labels,
            shifts=shifts,
            select=Selection(sample=settings.sample or None),
            keep_scores=experiment.metric == "mAP",
            progress=progress,
        )
        _rehearse(evaluation, training_space)
        evaluations.append(evaluation)
    _train_all(runs, sources, executor, devices, progress)
    evaluated = []
    for number, evaluation in enumerate(evaluations):
        models = [run.spec for run in runs if run.part == number]
        run_workspace = workspace or folder / "workspace"
        evaluated.append(evaluation(models, workspace=run_workspace, executor=executor or "threads"))
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


def _without_training_roles(data: Data, experiment: Experiment, suite: Suite) -> Data:
    """The user's data without what is only trained on: roles that a suite does not know are refused as misspelt."""
    if not isinstance(data, Mapping):
        return data
    training_roles = {part.role for part in experiment.parts} - set(suite.roles)
    return {role: source for role, source in data.items() if role not in training_roles}


def _check_training_data(runs: Sequence[PlannedRun], source: str | Dataset) -> LabelSpace:
    """Opens the training and validation data of a part's runs; returns the classes that the networks will have."""
    recipes = {json.dumps(run.recipe.as_dict()["data"]): run.recipe for run in runs}
    spaces = [check_training_data(recipe, source) for recipe in recipes.values()]
    return spaces[0]


class _RehearsedError(Exception):
    """Ends a rehearsal, before anything is computed."""


def _rehearse(evaluation: Callable[..., Run], space: LabelSpace) -> None:
    """Plan the evaluation with a model that is not trained; raises what would otherwise be raised after the training.

    ``evaluation`` is the evaluation without its models; ``space`` has the classes that the trained models will have.
    """

    def unanswered(images: NDArray[np.uint8]) -> NDArray[np.float32]:
        return np.zeros((len(images), len(space)), np.float32)

    def stop(context: object) -> None:
        raise _RehearsedError

    preprocessing = {"geometry": {"resize": 32, "resize_rule": "exact", "crop": None}}
    model = load_classifier(unanswered, name="untrained", labels=space, preprocessing=preprocessing)
    model.self_contained = True
    with TemporaryDirectory(prefix="shiftbench-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The evaluation itself will repeat them.
        with suppress(_RehearsedError):
            evaluation(model, workspace=folder, check=stop)


def _check_suite(
    suite: Suite, experiment: Experiment, data: Data, runs: Sequence[PlannedRun], labels: LabelSpace | None
) -> None:
    """Raises before anything is trained if the networks could not be scored on the suite.

    Its data may be missing, the networks may lack its classes, or the metric may not fit.
    """
    opened, without_data = open_data(suite, data, space=labels)
    available = [setting for setting in suite.settings if setting.name not in without_data]
    if not any(setting.reference for setting in available):
        hint = argument("data", {"ROLE": "FOLDER"})
        raise SettingError(f"suite {suite.name!r} has no shifted data", expected=", ".join(suite.roles), hint=hint)
    scored = _scored_settings(suite, available, opened, runs)
    shifted = [setting for setting in scored if setting.reference is not None]
    _check_reference(suite, shifted[0], scored)
    multilabel = [opened[setting.dataset].label_sets is not None for setting in shifted]
    if experiment.metric == "accuracy":
        fits = not any(multilabel)
        expected = "images with one label"
    elif experiment.metric == "mCE":
        corruptions = [None if setting.member is None else setting.member.name for setting in shifted]
        fits = all(corruption in ALEXNET.errors for corruption in corruptions)
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


def _scored_settings(
    suite: Suite, available: Sequence[Setting], opened: Mapping[str, Dataset], runs: Sequence[PlannedRun]
) -> list[Setting]:
    """The settings over classes that every network will have, as far as the recipes name the classes.

    The classes of other recipes are those of the training data.

    Raises:
        SettingError: No shifted setting is among them.
    """
    network_spaces: dict[str, LabelSpace] = {}
    for run in runs:
        space = find_label_space(run.recipe.data.labels or None)
        if isinstance(space, LabelSpace):
            network_spaces[space.name] = space
    scored: list[Setting] = []
    unscored: list[LabelSpace] = []
    for setting in available:
        setting_space = opened[setting.dataset].space if setting.space is None else label_space(setting.space)
        if all(_covers(space, setting_space) for space in network_spaces.values()):
            scored.append(setting)
        elif setting.reference is not None:
            unscored.append(setting_space)
    if not any(setting.reference for setting in scored):
        raise SettingError(
            f"the networks lack classes of every shifted setting of {suite.name!r}",
            found=f"networks over {listed(network_spaces)}",
            expected=f"all classes of {unscored[0].name!r}",
            hint=argument("changes", {"data.labels": unscored[0].name}, flag="--set"),
        )
    return scored


def _covers(space: LabelSpace, setting_space: LabelSpace) -> bool:
    """Whether scores over the first space can be turned into scores over the second."""
    try:
        setting_space.projection_from(space)
    except MissingClassesError:
        return False
    return True


def _check_reference(suite: Suite, shifted: Setting, scored: Sequence[Setting]) -> None:
    """Raises if the setting that a shifted one is compared with will not be evaluated."""
    if any(setting.name == shifted.reference for setting in scored):
        return
    references = [setting for setting in suite.settings if setting.name == shifted.reference]
    roles = [setting.dataset.split("/")[0] for setting in references]
    raise SettingError(
        f"{shifted.name!r} can't be compared with {shifted.reference!r}, which has no data",
        expected=f"data for {listed(roles)}",
        hint=argument("data", dict.fromkeys(roles, "FOLDER")),
    )


def _train_all(
    runs: Sequence[PlannedRun],
    data: tuple[str | Dataset, ...],
    executor: Executor | None,
    devices: int,
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
        training = _Training(tuple(unfinished), data, devices)
        failures = _training_executor(executor, devices).run(training, range(len(unfinished)), advance)
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


def _training_executor(executor: Executor | None, devices: int) -> Executor:
    """Processes in place of threads: threads would wait for each other, since most of a step is Python code."""
    if executor is not None and not isinstance(executor, ThreadExecutor):
        return executor
    count = worker_count(None) if executor is None else executor.workers
    count = min(count, torch.cuda.device_count() or count)
    count = max(1, count // devices)
    if count == 1:
        return ThreadExecutor(1)
    return ProcessExecutor(count)
