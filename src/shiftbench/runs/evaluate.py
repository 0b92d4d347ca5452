"""``evaluate``: from classifiers, a suite and data to predictions in a workspace, and a run to look at."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from shiftbench._version import __version__
from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.loading import load_classifier
from shiftbench.datasets.base import Dataset
from shiftbench.errors import SettingError, ShiftbenchError
from shiftbench.labels.guard import OWN
from shiftbench.labels.space import LabelSpace
from shiftbench.metrics.base import Needs, metrics
from shiftbench.runs.data import Data, Selection, data_name, open_data
from shiftbench.runs.executors import Executor, Failure, ProcessExecutor, ThreadExecutor
from shiftbench.runs.plan import (
    PlannedCell,
    RunContext,
    is_complete,
    missing_items,
    plan_cell,
    work_items,
)
from shiftbench.runs.result import Run
from shiftbench.settings.base import Setting, Source, Suite, SuiteOptions, build_suite
from shiftbench.store.locks import claim
from shiftbench.store.prediction_files import PredictionBlock, read_block, write_block
from shiftbench.store.workspace import Workspace
from shiftbench.working import progress_bar, worker_count

Engine = Literal["threads", "processes"]


class IncompleteRunError(ShiftbenchError):
    """Some blocks failed; everything else is stored, and the same call continues."""


def evaluate(
    classifiers: Any,
    suite: str | Sequence[str | Setting] = "clean",
    data: Data = None,
    workspace: str | Path | Workspace = "shiftbench-workspace",
    *,
    labels: str | Path | LabelSpace | None = None,
    severities: Sequence[float] = (1, 2, 3, 4, 5),
    corruptions: Sequence[str] = (),
    source: Source = "in-memory",
    frost_textures: str | Path | None = None,
    seed: int = 0,
    select: Selection | None = None,
    metric: Sequence[str] = ("top1", "top5"),
    keep_scores: bool = False,
    workers: int | None = None,
    engine: Engine | Executor = "threads",
    progress: bool = True,
    trust: bool = False,
    console: Console | None = None,
) -> Run:
    """Evaluate classifiers under the settings of a suite; what is already in the workspace is not run again.

    ``classifiers`` is one or a list of: ``"timm:resnet50"``, ``"model.onnx"``, a torch module, any function
    from a uint8 batch to scores, ... (see ``shiftbench list classifiers``). ``data`` is a folder, file,
    data set or, for suites of several data sets, a mapping from role to one. Stopped at any instant, the
    same call continues where it was.
    """
    store = workspace if isinstance(workspace, Workspace) else Workspace(workspace)
    textures = None if frost_textures is None else str(frost_textures)
    options = SuiteOptions(tuple(severities), tuple(corruptions), source, textures, data_name(data))
    chosen = build_suite(suite, options)
    space = find_label_space(labels)
    datasets, left_out = open_data(chosen, data, space=space, selection=select)
    # Classes that the folders define are the classifiers' classes too.
    own = next(iter(datasets.values())).space if isinstance(space, str) else space
    loaded = _load_all(classifiers, own, trust)
    needs = _needs(metric, chosen, keep_scores)
    planned = _plan(chosen, left_out, loaded, datasets, needs, seed, store)
    if not planned:
        raise SettingError(
            f"suite {chosen.name!r} has nothing to evaluate", found="\n            ".join(left_out.values())
        )
    context = RunContext(store.root, datasets, loaded, tuple(planned), seed, f"shiftbench {__version__}")
    failures = _execute(context, _executor(engine, workers), progress, console)
    run = Run(store, [p.cell for p in planned], left_out=left_out)
    if failures:
        raise _incomplete(failures, run)
    for warning in run.warnings():
        warnings.warn(warning, stacklevel=2)
    return run


def find_label_space(labels: str | Path | LabelSpace | None) -> LabelSpace | str | None:
    """By name or from a file of classes; "folders" stays a word, for the data set to fill with meaning."""
    if labels is None or isinstance(labels, LabelSpace) or labels == OWN:
        return OWN if labels == OWN else labels
    from shiftbench.labels import label_space, load_label_space

    return load_label_space(Path(labels)) if Path(labels).is_file() else label_space(str(labels))


def _load_all(classifiers: Any, space: LabelSpace | None, trust: bool) -> dict[str, Classifier]:
    """By name; a second one of the same name gets a number."""
    many = classifiers if isinstance(classifiers, list | tuple) else [classifiers]
    loaded: dict[str, Classifier] = {}
    for spec in many:
        # One thread a classifier: the blocks run in parallel, which scales better than one batch on all cores.
        classifier = load_classifier(spec, labels=space, trust=trust, threads=1)
        base, number = classifier.name, 2
        while classifier.name in loaded:
            classifier.name, number = f"{base}-{number}", number + 1
        loaded[classifier.name] = classifier
    return loaded


def _needs(names: Sequence[str], suite: Suite, keep_scores: bool) -> Needs:
    """The union over the metrics asked for and those of the settings."""
    wanted = [metrics.get(name).needs for name in {*names, *(setting.metric for setting in suite.settings)}]
    return reduce(or_, wanted, Needs(scores=keep_scores))


def _plan(
    suite: Suite,
    left_out: dict[str, str],
    classifiers: Mapping[str, Classifier],
    datasets: Mapping[str, Dataset],
    needs: Needs,
    seed: int,
    workspace: Workspace,
) -> list[PlannedCell]:
    for dataset in datasets.values():
        workspace.record_dataset(
            dataset.name, dataset.fingerprint, dataset.space, dataset.ids, dataset.labels, dataset.describe()
        )
    planned = []
    for setting in suite.settings:
        if setting.name in left_out:
            continue
        for classifier in classifiers.values():
            try:
                cell = plan_cell(classifier, setting, datasets[setting.dataset], needs, seed, workspace)
            except ShiftbenchError as error:
                if not setting.optional:
                    raise
                left_out[f"{setting.name} ({classifier.name})"] = error.message
            else:
                planned.append(cell)
    return planned


def _executor(engine: Engine | Executor, workers: int | None) -> Executor:
    if isinstance(engine, Executor):
        return engine
    count = worker_count(workers)
    return ProcessExecutor(count) if engine == "processes" else ThreadExecutor(count)


def _execute(context: RunContext, executor: Executor, progress: bool, console: Console | None) -> list[Failure]:
    workspace = Workspace(context.root)
    todo = [cell for cell in context.cells if not is_complete(workspace, cell)]
    items, to_do, done = missing_items(workspace, todo, context.datasets)
    ready = sum(len(cell.rows) for cell in context.cells if cell not in todo)
    failures: list[Failure] = []
    if items:
        already = done + ready
        with progress_bar("predictions", to_do + already, already, show=progress, console=console) as report:
            failures = executor.run(replace(context, cells=tuple(todo)), items, report)
    failed_blocks = {(failure.item.dataset, failure.item.start) for failure in failures}
    whole = [
        cell
        for cell in todo
        if not failed_blocks
        & {(item.dataset, item.start) for item in work_items(cell.dataset, context.datasets[cell.dataset])}
    ]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda cell: _complete(workspace, cell, context), whole))
    return failures


def _complete(workspace: Workspace, planned: PlannedCell, context: RunContext) -> None:
    """Join a cell's shards into its one file, then clear them."""
    cell = planned.cell
    with claim(workspace.lock_path(f"complete-{cell.key}"), wait=True):
        if not is_complete(workspace, planned):
            items = work_items(planned.dataset, context.datasets[planned.dataset])
            starts = [item.start for item in items if len(planned.rows_between(item.start, item.stop))]
            blocks = [read_block(workspace.shard_path(cell, start), scores=True) for start in starts]
            joined = PredictionBlock.concatenate(blocks)
            write_block(workspace.predictions_path(cell), joined, cell.spec, context.made_by)
        shutil.rmtree(workspace.shards_folder(cell), ignore_errors=True)


def _incomplete(failures: Sequence[Failure], run: Run) -> IncompleteRunError:
    causes = list(dict.fromkeys(failure.error for failure in failures))
    return IncompleteRunError(
        f"{len(failures)} blocks of images failed; everything else is stored in {run.workspace.root}",
        found="\n            ".join(causes[:3]),
        hint="mend the cause and give the same command again: it continues where it stopped",
    )
