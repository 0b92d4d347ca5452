"""Running a suite: open the data, load the models, plan the results, compute the missing blocks, join what is complete.

Labels that the user gives are the classes of data and models. Otherwise a model that names its classes is matched with
the data by name. One that names none has the classes of the data if it has as many outputs: folders in sorted order, as
most training code numbers them. The guard checks the predictions in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, reduce
from operator import or_
from typing import Any, cast

from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.loading import load_classifier
from shiftbench.classifiers.options import UnknownOutputsError, assumed_warning
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.catalogue import copy_remarks, file_remarks
from shiftbench.errors import (
    BadImageError,
    ClassifierError,
    ResultWarning,
    ShiftbenchError,
    UnknownClassesError,
    argument,
    explain,
    listed,
)
from shiftbench.grouping import by_key
from shiftbench.io.locks import file_lock
from shiftbench.io.paths import UnwritableError, is_object, remove_tree
from shiftbench.jobs.base import Block, Executor, Failure, Problem, Shard
from shiftbench.jobs.progress import progress_bar
from shiftbench.labels.catalogue import FOLDERS
from shiftbench.labels.guard import recognise_folders
from shiftbench.labels.space import LabelSpace
from shiftbench.metrics.base import Needs, metrics
from shiftbench.metrics.multilabel import MEAN_PRECISION
from shiftbench.runs import plan
from shiftbench.runs.compute import Evaluation, Kept
from shiftbench.runs.plan import PlannedResult, RunContext, record_images
from shiftbench.runs.stateful import evaluate_stateful
from shiftbench.settings.base import Suite
from shiftbench.settings.roles import Data, Selection, open_data
from shiftbench.store.run_records import Call, ModelRun, hidden, recorded_run
from shiftbench.store.spec import SettingRecord
from shiftbench.store.workspace import Result, Workspace

#: This many new results at once are listed in the workspace's catalogue; fewer are as quickly opened, on a disk.
_WORTH_CATALOGUING = 200
#: A run of at most this many predictions keeps them in memory for joining them.
_WORTH_KEEPING = 200_000
#: Loads the models, by name, with the classes that the user gave or those of the data, for the images of datasets.
LoadModels = Callable[[LabelSpace | None, LabelSpace | None, Sequence[Dataset]], dict[str, Classifier]]


@dataclass(frozen=True)
class Inputs:
    """Datasets by ``Setting.dataset``, models by name, settings left out with the reason, and what was assumed."""

    datasets: dict[str, Dataset]
    classifiers: dict[str, Classifier]
    left_out: dict[str, str]
    notes: list[ResultWarning]


def open_inputs(
    suite: Suite,
    data: Data,
    labels: LabelSpace | str | None,
    load: LoadModels,
    *,
    selection: Selection | None = None,
    allow_outside: bool = False,
) -> Inputs:
    """Open the data, load the models, and match their classes."""

    def opened(space: LabelSpace | str | None) -> tuple[dict[str, Dataset], dict[str, str]]:
        return open_data(suite, data, space=space, selection=selection, allow_outside=allow_outside)

    unknown = False
    try:
        datasets, left_out = opened(labels)
    except UnknownClassesError:
        if labels is not None:
            raise
        unknown = True
        datasets, left_out = opened(FOLDERS)
    # Groups of other classes are those of the data; a model has their members.
    given = labels if isinstance(labels, LabelSpace) and labels.members is None else None
    own = next((dataset.space for dataset in datasets.values()), None)
    try:
        classifiers = load(given, own, list(datasets.values()))
    except UnknownOutputsError:
        if labels is not None or unknown:
            raise
        # Folders of known classes, such as ten of ImageNet's, and a model that was trained on them alone.
        unknown = True
        datasets, left_out = opened(FOLDERS)
        own = next((dataset.space for dataset in datasets.values()), None)
        classifiers = load(given, own, list(datasets.values()))
    if own is None or (not unknown and labels != FOLDERS):
        return Inputs(datasets, classifiers, left_out, [])
    # The models' classes, if none of them has the data's: folders then name some of them.
    spaces = [classifier.space for classifier in classifiers.values()]
    other = next(iter(spaces), None) if all(set(space.keys) != set(own.keys) for space in spaces) else None
    if other is not None:
        datasets, left_out = opened(other)
        _, index = recognise_folders(own.keys, other)
        shown = listed([f"{folder} = {other.names[i]} ({i})" for folder, i in index.items()], 6)
        text = f"the {len(own)} class folders are classes of {other.name!r}, by name: {shown}"
    else:
        shown = listed([f"{i} = {key}" for i, key in enumerate(own.keys)], 6)
        text = f"the classes are the {len(own)} class folders in sorted order: {shown}"
        text += f"; {argument('labels', FOLDERS)} confirms this"
    # Nothing is assumed of models that name the same classes.
    noted = unknown and (other is not None or any(space is own for space in spaces))
    return Inputs(datasets, classifiers, left_out, [ResultWarning(text, "own-classes")] if noted else [])


def load_classifiers(
    classifiers: object,
    space: LabelSpace | None,
    *,
    default: LabelSpace | None = None,
    defences: str | Sequence[str] = (),
    threads: int | None = None,
    preprocessing: object = None,
    name: str | Sequence[str] | None = None,
    datasets: Sequence[Dataset] = (),
    **others: Any,
) -> dict[str, Classifier]:
    """By name, behind their defences. A second model of the same name gets a number; the same model is kept once.

    ``preprocessing`` and ``name`` are lists with one entry per model, or one value: a preprocessing for all models, the
    name of the only one. The ``datasets`` tell the size of the images to models of unknown input size. ``others`` are
    arguments of ``load_classifier``.
    """
    many = classifiers if isinstance(classifiers, list | tuple) else [classifiers]

    def per_model(value: object, what: str, flag: str) -> Sequence[Any]:
        shared = what == "preprocessing"
        values = value if isinstance(value, list | tuple) else [value] * len(many)
        values = list(values) * len(many) if shared and len(values) == 1 else values
        if len(values) != len(many):
            raise ClassifierError(
                f"{argument(what, flag=flag)} does not fit the number of models",
                found=f"{len(values)} for {len(many)} models",
                expected="one per model, in the same order" + (", or one for all" if shared else ""),
            )
        return values

    preprocessings = per_model(preprocessing, "preprocessing", "--preprocess")
    names = per_model([name] if isinstance(name, str) else name, "name", "--name")
    image_size = cache(lambda: common_image_size(datasets))
    loaded: dict[str, Classifier] = {}
    specs: dict[str, object] = {}
    for spec, stated, own_name in zip(many, preprocessings, names, strict=True):
        # One thread per model: blocks run in parallel, which scales better than one batch on all cores.
        others |= {"threads": threads or 1, "image_size": image_size, "default_labels": default}
        classifier = load_classifier(spec, labels=space, preprocessing=stated, name=own_name, **others)
        if defences:
            from shiftbench.classifiers.defences import with_defences

            classifier = with_defences(classifier, defences)
        same_name = loaded.get(classifier.name)
        if same_name is not None and _is_same_model(classifier, spec, same_name, specs[same_name.name]):
            # A number would make it another model, with an id and results of its own.
            continue
        base = classifier.name
        number = 2
        while classifier.name in loaded:
            classifier.name = f"{base}-{number}"
            number += 1
        loaded[classifier.name] = classifier
        specs[classifier.name] = spec
    return loaded


def _is_same_model(first: Classifier, first_spec: object, second: Classifier, second_spec: object) -> bool:
    """Whether two models have one name, one content and one preprocessing.

    The fingerprint of code does not cover what it reads when it is called: such models are the same only if they are
    loaded from the same place.
    """
    if first.describe() != second.describe() or first.space != second.space:
        return False
    same_place = first_spec is second_spec
    if isinstance(first_spec, str):
        same_place = first_spec == second_spec
    return same_place or first.self_contained or first.recorded is not None


def common_image_size(datasets: Sequence[Dataset], sample: int = 32) -> tuple[int, int] | None:
    """(height, width) of the images if all have the same: of ``sample`` images of each dataset, evenly spread."""
    sizes: set[tuple[int, int]] = set()
    for dataset in datasets:
        for index in sorted({round(i * (len(dataset) - 1) / (sample - 1)) for i in range(sample)}):
            try:
                sizes.add(cast(tuple[int, int], dataset.read(index).pixels.shape[:2]))
            except BadImageError:
                continue
            if len(sizes) > 1:
                return None
    return sizes.pop() if sizes else None


def input_warnings(classifiers: Iterable[Classifier], datasets: Iterable[Dataset]) -> list[ResultWarning]:
    """What is known before a run to weaken its results: assumed preprocessing, copies among the images, images
    without a recorded prediction."""
    datasets, found = list(datasets), []
    for dataset in datasets:
        found += [ResultWarning(f"{dataset.name}: {remark}", "data-files") for remark in file_remarks(dataset)]
        found += [ResultWarning(f"{dataset.name}: {remark}", "duplicate-images") for remark in copy_remarks(dataset)]
    for classifier in classifiers:
        if warning := assumed_warning(classifier):
            found.append(warning)
        recorded = classifier.recorded
        for dataset in datasets:
            missing = [] if recorded is None else recorded.coverage(dataset.ids)[0]
            if missing:
                text = f"{classifier.name} has no prediction for {len(missing)} of {len(dataset)} images of "
                text += f"{dataset.name}, such as {missing[0]!r}; they are left out of its scores"
                found.append(ResultWarning(text, "missing-predictions"))
    return found


def with_metrics(suite: Suite, datasets: Mapping[str, Dataset]) -> Suite:
    """Images with several labels are scored by mean average precision where a setting asks for accuracy."""
    several = {name for name, one in datasets.items() if one.label_sets is not None}
    settings = (
        replace(one, metric=MEAN_PRECISION) if one.dataset in several and one.metric == "top1" else one
        for one in suite.settings
    )
    return replace(suite, settings=tuple(settings))


def plan_results(
    suite: Suite,
    left_out: dict[str, str],
    classifiers: Mapping[str, Classifier],
    datasets: Mapping[str, Dataset],
    wanted: Sequence[str],
    keep_scores: bool,
    seed: int,
    workspace: Workspace,
) -> list[PlannedResult]:
    """Stored is what the wanted metrics and those of the settings need."""
    names = {*wanted, *(setting.metric for setting in suite.settings)}
    needs = reduce(or_, (metrics.get(name).needs for name in names), Needs(scores=keep_scores))
    for dataset in datasets.values():
        record_images(workspace, dataset)
    planned: list[PlannedResult] = []
    common = plan.Common()
    for setting in suite.settings:
        if setting.name in left_out:
            continue
        for classifier in classifiers.values():
            try:
                one = plan.plan_result(classifier, setting, datasets[setting.dataset], needs, seed, workspace, common)
            except ShiftbenchError as error:
                if not setting.optional or isinstance(error, UnwritableError):
                    raise
                left_out[f"{setting.name} ({classifier.name})"] = error.message
            else:
                planned.append(one)
    records = {one.result.spec.setting_key(one.setting.name): SettingRecord.of(one.setting) for one in planned}
    workspace.record_settings(records)
    return planned


@dataclass(frozen=True)
class Outcome:
    failures: list[Failure]
    complete: list[Result]
    blocks: int  #: Of the whole run.
    waiting: int  #: Blocks that results still wait for.
    made: int  #: Predictions that this run, not an earlier one, made.


def execute(context: RunContext, executor: Executor, shard: Shard | None, progress: bool, call: Call) -> Outcome:
    """Compute what is missing, and keep a record of the run."""
    workspace = context.workspace
    todo = _not_passing(context.results, lambda planned: plan.is_complete(workspace, planned))
    missing = {planned.result.key for planned in todo}
    started = {folder.name for folder in workspace.block_folders()} if todo else set()
    models: dict[str, ModelRun] = {}
    seen = {
        (name, data): known.among(dataset)
        for name, classifier in context.classifiers.items()
        if (known := classifier.trained_on) is not None
        for data, dataset in context.datasets.items()
    }
    for planned in context.results:
        name, key = planned.result.classifier, planned.result.key
        classifier = context.classifiers[name]
        source = classifier.origin[0] if classifier.origin else f"<{type(classifier).__qualname__}>"
        source = classifier.downloaded_from or source
        one = models.setdefault(
            name,
            ModelRun(
                id=planned.result.model_id,
                source=hidden(source),
                fingerprint=planned.result.spec.classifier.fingerprint,
                assumed=list(classifier.assumed),
                stated=list(classifier.stated),
            ),
        )
        shared = key in started or shard is not None
        if (name, planned.dataset) in seen:
            one.training_images[key] = int(seen[name, planned.dataset][planned.rows].sum())
        (one.reused if key not in missing else one.shared if shared else one.computed).append(key)
    with recorded_run(workspace, call, list(models.values())) as record:
        outcome = _compute(workspace, replace(context, record=record), todo, executor, shard, progress)
        if outcome.failures:
            record.status, record.error = "incomplete", str(outcome.failures[0])
    return outcome


def _compute(
    workspace: Workspace,
    context: RunContext,
    todo: Sequence[PlannedResult],
    executor: Executor,
    shard: Shard | None,
    progress: bool,
) -> Outcome:
    # All jobs of an array must cut the data alike, on whatever machine each of them runs.
    workers = shard.count if shard else executor.wanted_workers() if todo else 1
    blocks = plan.all_items(context.results, context.datasets, workers)
    own = blocks if shard is None else list(shard.of(blocks))
    already = sum(len(planned.rows) for planned in context.results) - sum(len(planned.rows) for planned in todo)
    stateless = {name: model for name, model in context.classifiers.items() if not model.stateful}
    in_blocks = [planned for planned in todo if planned.result.classifier in stateless]
    stateful = [planned for planned in todo if planned.result.classifier not in stateless]
    few = sum(len(one.rows) for one in todo) <= _WORTH_KEEPING and not any(one.needs.scores for one in todo)
    job = Evaluation(replace(context, classifiers=stateless, results=tuple(in_blocks)), made={} if few else None)
    if workspace.designs():  # most workspaces hold none
        from shiftbench.runs.known import known_rows

        job = replace(job, known=known_rows(workspace, in_blocks, context.datasets))
    failures: list[Failure] = []
    made = -sum(len(one.rows) for one in job.known.values())
    # Blocks that other jobs of the array have not begun come last; without locks nobody knows which these are.
    taken = set(blocks if shard is None or not shard.rebalance or is_object(workspace.root) else own)
    others = [block for block in blocks if block not in taken]
    for share, part in ((own, job), (others, replace(job, skip_claimed=True))):
        items, to_do, done = plan.missing_items(workspace, in_blocks, share, context.datasets)
        made += to_do
        if items:
            total = to_do + done + already
            with progress_bar("predictions", total, done + already, show=progress) as advance:
                failures += executor.run(part, items, advance)
    if stateful:
        to_do = sum(len(planned.rows) for planned in stateful)
        made += to_do
        with progress_bar("predictions", to_do + already, already, show=progress) as advance:
            failures += evaluate_stateful(context, stateful, advance)
    failures += _changed_models(workspace, context, todo)
    lacking = _not_passing(todo, lambda planned: _complete(workspace, planned, context, job.made or {}))
    if lacking and shard is None and not failures:
        why = "some of its predictions were withdrawn, or removed, during the run; the same command makes them again"
        failures += [
            Failure(one.result, Problem(f"classifier {one.result.classifier!r}", why), tries=1) for one in lacking
        ]
    if len(todo) - len(lacking) >= (1 if is_object(workspace.root) else _WORTH_CATALOGUING):
        workspace.write_catalogue()
    unfinished = {planned.result.relative for planned in lacking}
    complete = [planned.result for planned in context.results if planned.result.relative not in unfinished]
    stored = [(one, plan.stored_blocks(workspace, one, context.datasets[one.dataset])) for one in lacking]

    def is_missing(item: Block) -> bool:
        return any(one.dataset == item.whole and not plan.covering(there, item) for one, there in stored)

    return Outcome(failures, complete, len(blocks), sum(map(is_missing, blocks)), max(0, made))


def _changed_models(workspace: Workspace, context: RunContext, done: Sequence[PlannedResult]) -> Iterator[Failure]:
    """Those whose blocks may be of two models; the blocks are removed."""
    for name, results in by_key((planned.result.classifier, planned.result) for planned in done).items():
        try:
            context.watch.check(context.classifiers[name])
        except ClassifierError as error:
            for result in results:
                remove_tree(workspace.blocks_folder(result))
            yield Failure(results[0], Problem(f"classifier {name!r}", explain(error)), tries=1)


def _not_passing(results: Sequence[PlannedResult], test: Callable[[PlannedResult], bool]) -> list[PlannedResult]:
    """The results that fail a test of their files, which are read in parallel."""
    with ThreadPoolExecutor() as pool:
        return [planned for planned, passed in zip(results, pool.map(test, results), strict=True) if not passed]


def _complete(workspace: Workspace, planned: PlannedResult, context: RunContext, kept: Kept) -> bool:
    """Join a result's blocks into its one file, then clear them; False while blocks are missing."""
    result = planned.result
    with file_lock(workspace.lock_path(f"complete-{result.key}"), wait=context.patience):
        if plan.is_complete(workspace, planned):
            remove_tree(workspace.blocks_folder(result))
            return True
        data = context.datasets[planned.dataset]
        stored, own = plan.stored_blocks(workspace, planned, data), kept.get(result.key, {})
        whole = plan.read_blocks(workspace, planned, stored, Block(0, len(data)), own)
        if whole is None:
            # Where there are no locks, another run may have joined and cleared them just now.
            return plan.is_complete(workspace, planned)
        workspace.complete(result, [whole], context.made_by)
    return True
