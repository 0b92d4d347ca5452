"""``evaluate``: from classifiers, a suite and data to predictions in a workspace, and a run to look at."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
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
from shiftbench.jobs import Executor, Failure
from shiftbench.labels.guard import OWN
from shiftbench.labels.space import LabelSpace
from shiftbench.metrics.base import Needs, metrics
from shiftbench.runs.block import Evaluation
from shiftbench.runs.data import Data, Selection, data_name, open_data
from shiftbench.runs.executors import ProcessExecutor, ThreadExecutor
from shiftbench.runs.plan import (
    Common,
    PlannedCell,
    RunContext,
    Share,
    WorkItem,
    all_items,
    is_complete,
    missing_items,
    plan_cell,
    read_whole_cell,
    work_items,
)
from shiftbench.runs.result import Run
from shiftbench.settings.base import Setting, Source, Suite, SuiteOptions, build_suite
from shiftbench.store.locks import claim
from shiftbench.store.places import is_object
from shiftbench.store.refusals import UnwritableError
from shiftbench.store.workspace import Workspace
from shiftbench.working import progress_bar, worker_count

Engine = Literal["threads", "processes", "ray"]
#: So many new results at once are listed in the workspace's catalogue; fewer are as quickly opened, on a disk.
_WORTH_CATALOGUING = 200


class IncompleteRunError(ShiftbenchError):
    """Some classifiers failed on some images; everything else is stored, and the same call continues."""

    def __init__(self, failures: Sequence[Failure], run: Run, cells: int) -> None:
        causes = list(dict.fromkeys(str(failure) for failure in failures))
        more = [f"... and {len(causes) - 5} more such"] if len(causes) > 5 else []
        super().__init__(
            f"{cells - len(run.cells)} of {cells} results (classifier by setting) are not complete; everything else is "
            f"stored in {run.workspace.root}",
            found="\n            ".join([*causes[:5], *more]),
            hint="mend the cause and give the same command again: it continues where it stopped",
        )
        self.failures = list(failures)
        #: What is complete.
        self.run = run


class SharedRun(Run):
    """What is complete after one job of several that share a run; the last of them finds everything."""

    def __init__(self, run: Run, share: Share, blocks: int, waiting: int) -> None:
        super().__init__(run.workspace, run.cells, left_out=run.left_out)
        own = len(range(share.job - 1, blocks, share.of))
        self.complete = waiting == 0
        #: For people: what this job did, and what the others have yet to do.
        self.word = (
            f"job {share.job} of {share.of}: all {blocks} blocks are done, and joined"
            if self.complete
            else f"job {share.job} of {share.of}: my {own} of {blocks} blocks are done; {waiting} are for other jobs"
        )


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
    share: Share | str | None = None,
) -> Run:
    """Evaluate classifiers under the settings of a suite; what is already in the workspace is not run again.

    ``classifiers`` is one or a list of: ``"timm:resnet50"``, ``"model.onnx"``, a torch module, any function
    from a uint8 batch to scores, ... (see ``shiftbench list classifiers``). ``data`` is a folder, file,
    data set or, for suites of several data sets, a mapping from role to one. Stopped at any instant, the
    same call continues where it was. Data and ``workspace`` may be URLs: ``"s3://bucket/folder"``.

    ``share`` ("3/8") computes the third of eight parts, for job arrays: the same call with 1/8, 2/8, ..., in any
    order or at once, on one workspace; the job that finds a result's last block joins it.
    """
    own_share = Share.parse(share) if isinstance(share, str) else share
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
    outcome = _execute(context, _executor(engine, workers), own_share, progress, console)
    run = Run(store, [p.cell for p in outcome.complete], left_out=left_out)
    if outcome.failures:
        raise IncompleteRunError(outcome.failures, run, len(planned))
    if own_share is not None:
        run = SharedRun(run, own_share, outcome.blocks, outcome.waiting)
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
        name, fingerprint, sets = dataset.name, dataset.fingerprint, dataset.label_sets
        workspace.record_dataset(
            name, fingerprint, dataset.space, dataset.ids, dataset.labels, dataset.describe(), label_sets=sets
        )
        workspace.record_metadata(name, fingerprint, dataset.metadata)
    planned, common = [], Common()
    for setting in suite.settings:
        if setting.name in left_out:
            continue
        for classifier in classifiers.values():
            try:
                cell = plan_cell(classifier, setting, datasets[setting.dataset], needs, seed, workspace, common)
            except ShiftbenchError as error:
                if not setting.optional or isinstance(error, UnwritableError):
                    raise
                left_out[f"{setting.name} ({classifier.name})"] = error.message
            else:
                planned.append(cell)
    return planned


def _executor(engine: Engine | Executor, workers: int | None) -> Executor:
    if isinstance(engine, Executor):
        return engine
    if engine == "ray":
        from shiftbench.runs.ray_engine import RayExecutor

        return RayExecutor(workers=workers)
    return local_executor(engine, workers)


def local_executor(engine: str, workers: int | None) -> Executor:
    """Threads or processes on this machine."""
    count = worker_count(workers)
    return ProcessExecutor(count) if engine == "processes" else ThreadExecutor(count)


@dataclass(frozen=True)
class _Outcome:
    failures: list[Failure]
    complete: list[PlannedCell]
    #: All blocks of the run, and how many of them results still wait for.
    blocks: int
    waiting: int


def _execute(
    context: RunContext, executor: Executor, share: Share | None, progress: bool, console: Console | None
) -> _Outcome:
    workspace = Workspace(context.root)
    blocks = all_items(context.cells, context.datasets)
    own = blocks if share is None else share.of_blocks(blocks)
    todo = _not_passing(context.cells, lambda cell: is_complete(workspace, cell))
    items, to_do, done = missing_items(workspace, todo, own)
    failures: list[Failure] = []
    if items:
        already = done + sum(len(cell.rows) for cell in context.cells) - sum(len(cell.rows) for cell in todo)
        with progress_bar("predictions", to_do + already, already, show=progress, console=console) as report:
            failures = executor.run(Evaluation(replace(context, cells=tuple(todo))), items, report)
    lacking = _not_passing(todo, lambda cell: _complete(workspace, cell, context))
    if len(todo) - len(lacking) >= (1 if is_object(workspace.root) else _WORTH_CATALOGUING):
        workspace.write_catalogue()
    unfinished = {cell.cell.relative for cell in lacking}
    complete = [cell for cell in context.cells if cell.cell.relative not in unfinished]
    return _Outcome(failures, complete, len(blocks), _still_missing(workspace, lacking, blocks))


def _not_passing(cells: Sequence[PlannedCell], test: Callable[[PlannedCell], bool]) -> list[PlannedCell]:
    """Those that fail a test of their files, which are read side by side."""
    with ThreadPoolExecutor() as pool:
        return [cell for cell, passed in zip(cells, pool.map(test, cells), strict=True) if not passed]


def _complete(workspace: Workspace, planned: PlannedCell, context: RunContext) -> bool:
    """Join a cell's shards into its one file, then clear them; False while shards are missing."""
    cell = planned.cell
    with claim(workspace.lock_path(f"complete-{cell.key}"), wait=True):
        if is_complete(workspace, planned):
            workspace.clear_shards(workspace.shards_folder(cell))
            return True
        items = work_items(planned.dataset, context.datasets[planned.dataset])
        blocks = read_whole_cell(workspace, planned, items)
        if blocks is None:
            # Where there are no locks, another run may have joined and cleared them just now.
            return is_complete(workspace, planned)
        workspace.complete(cell, blocks, context.made_by)
    return True


def _still_missing(workspace: Workspace, lacking: Sequence[PlannedCell], blocks: Sequence[WorkItem]) -> int:
    """How many blocks are not there for all of these cells."""
    stored = [(cell, workspace.stored_blocks(cell.cell)) for cell in lacking]

    def missing(item: WorkItem) -> bool:
        return any(
            cell.dataset == item.dataset and len(cell.rows_between(item.start, item.stop)) and item.start not in there
            for cell, there in stored
        )

    return sum(missing(item) for item in blocks)
