"""Running a suite: open the data, load the models, plan the results, compute the missing blocks, join what is complete.

Labels that the user gives are the classes of data and models. Otherwise a model that names its classes is matched with
the data by name. One that names none has the classes of the data if it has as many outputs: folders in sorted order, as
most training code numbers them. The guard checks the predictions in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Protocol, cast

from shiftbench._version import __version__
from shiftbench.arrays import BoolArray
from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.loading import load_classifier
from shiftbench.classifiers.options import UnknownOutputsError, assumed_warning
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.catalogue import copy_remarks, file_remarks
from shiftbench.errors import (
    BadImageError,
    ClassifierError,
    MissingClassesError,
    ResultWarning,
    SettingError,
    ShiftbenchError,
    UnknownClassesError,
    argument,
    explain,
    listed,
    without_credentials,
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
from shiftbench.runs.behaviour import ModelWatch
from shiftbench.runs.compute import Evaluation, KeptPredictions
from shiftbench.runs.plan import PlannedResult, RunContext, record_images
from shiftbench.runs.stateful import evaluate_stateful
from shiftbench.settings.base import LeftOut, Setting, Suite
from shiftbench.settings.roles import Data, Selection, data_sources, open_data
from shiftbench.store.run_records import Call, ModelRun, RunRecord, recorded_run
from shiftbench.store.spec import SettingRecord
from shiftbench.store.unchecked import UncheckedBlocks, remove_unchecked_blocks
from shiftbench.store.workspace import Result, Workspace

#: This many new results at once are listed in the workspace's catalogue; fewer are as quickly opened, on a disk.
_WORTH_CATALOGUING = 200
#: A run of at most this many predictions keeps them in memory for joining them.
_WORTH_KEEPING = 200_000


# -- data and models -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Inputs:
    """Datasets by ``Setting.dataset``, models by name, settings without data by name, and what was assumed."""

    datasets: dict[str, Dataset]
    classifiers: dict[str, Classifier]
    without_data: dict[str, str]
    notes: list[ResultWarning]


class LoadModels(Protocol):
    """Loads the models, by name: ``load_classifiers`` with the models and their options."""

    def __call__(
        self, *, space: LabelSpace | None, default: LabelSpace | None, datasets: Sequence[Dataset]
    ) -> dict[str, Classifier]: ...


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
    open_suite = partial(open_data, suite, data, selection=selection, allow_outside=allow_outside)
    folders_are_classes = labels == FOLDERS
    # Whether the folders are taken for the classes although the user does not say so.
    assumed = False
    try:
        datasets, without_data = open_suite(space=labels)
    except UnknownClassesError:
        if labels is not None:
            raise
        assumed = True
        datasets, without_data = open_suite(space=FOLDERS)
    # Labels that group other classes are those of the data alone; a model has the classes that they group.
    model_labels = None
    if isinstance(labels, LabelSpace) and labels.members is None:
        model_labels = labels
    try:
        classifiers = load(space=model_labels, default=_first_space(datasets), datasets=list(datasets.values()))
    except UnknownOutputsError:
        if labels is not None or assumed:
            raise
        # The folders are classes of a known label space, such as ten of ImageNet's, and the model has only these.
        assumed = True
        datasets, without_data = open_suite(space=FOLDERS)
        classifiers = load(space=model_labels, default=_first_space(datasets), datasets=list(datasets.values()))
    data_space = _first_space(datasets)
    if data_space is None or not (assumed or folders_are_classes):
        return Inputs(datasets, classifiers, without_data, [])
    model_spaces = [classifier.space for classifier in classifiers.values()]
    larger_space = _space_with_other_classes(model_spaces, data_space)
    if larger_space is not None:
        datasets, without_data = open_suite(space=larger_space)
    notes = _notes_on_folders(data_space, larger_space, model_spaces) if assumed else []
    return Inputs(datasets, classifiers, without_data, notes)


def _first_space(datasets: Mapping[str, Dataset]) -> LabelSpace | None:
    return next((dataset.space for dataset in datasets.values()), None)


def _space_with_other_classes(model_spaces: Sequence[LabelSpace], data_space: LabelSpace) -> LabelSpace | None:
    """The models' label space, some of whose classes the folders name; None if a model has the classes of the data."""
    if any(set(space.keys) == set(data_space.keys) for space in model_spaces):
        return None
    return next(iter(model_spaces), None)


def _notes_on_folders(
    folders: LabelSpace, larger_space: LabelSpace | None, model_spaces: Sequence[LabelSpace]
) -> list[ResultWarning]:
    """What is assumed where nobody states which classes the folders are."""
    if larger_space is not None:
        _, index = recognise_folders(folders.keys, larger_space)
        meanings = [f"{folder} = {larger_space.names[i]} ({i})" for folder, i in index.items()]
        classes = listed(meanings, 6)
        text = f"the {len(folders)} class folders are classes of {larger_space.name!r}, by name: {classes}"
        return [ResultWarning(text, "own-classes")]
    if any(space is folders for space in model_spaces):
        classes = listed([f"{i} = {key}" for i, key in enumerate(folders.keys)], 6)
        text = f"the classes are the {len(folders)} class folders in sorted order: {classes}"
        return [ResultWarning(f"{text}; {argument('labels', FOLDERS)} confirms this", "own-classes")]
    # Nothing is assumed of models that name the same classes themselves.
    return []


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
    **options: Any,
) -> dict[str, Classifier]:
    """By name, behind their defences. A second model of the same name gets a number; the same model is kept once.

    ``preprocessing`` and ``name`` are lists with one entry per model, or one value: a preprocessing for all models, the
    name of the only one. The ``datasets`` tell the size of the images to models of unknown input size. ``options`` are
    further arguments of ``load_classifier``.
    """
    specs = classifiers if isinstance(classifiers, list | tuple) else [classifiers]
    preprocessings = _preprocessing_per_model(preprocessing, len(specs))
    names = _name_per_model(name, len(specs))
    image_size = cache(lambda: common_image_size(datasets))
    loaded: dict[str, Classifier] = {}
    spec_of: dict[str, object] = {}
    for spec, model_preprocessing, model_name in zip(specs, preprocessings, names, strict=True):
        classifier = load_classifier(
            spec,
            labels=space,
            default_labels=default,
            preprocessing=model_preprocessing,
            name=model_name,
            image_size=image_size,
            # One thread per model: blocks run in parallel, which scales better than one batch on all cores.
            threads=threads or 1,
            **options,
        )
        if defences:
            from shiftbench.classifiers.defences import with_defences

            classifier = with_defences(classifier, defences)
        namesake = loaded.get(classifier.name)
        if namesake is not None and _is_same_model(classifier, spec, namesake, spec_of[namesake.name]):
            # A number would make it another model, with an id and results of its own.
            continue
        base = classifier.name
        number = 2
        while classifier.name in loaded:
            classifier.name = f"{base}-{number}"
            number += 1
        loaded[classifier.name] = classifier
        spec_of[classifier.name] = spec
    return loaded


def _preprocessing_per_model(preprocessing: object, models: int) -> Sequence[Any]:
    """The preprocessing of each model; a single one, alone or in a list, is that of all models."""
    if not isinstance(preprocessing, list | tuple):
        return [preprocessing] * models
    if len(preprocessing) == 1:
        return list(preprocessing) * models
    if len(preprocessing) != models:
        raise _wrong_number("preprocessing", "--preprocess", len(preprocessing), models, ", or one for all")
    return preprocessing


def _name_per_model(name: object, models: int) -> Sequence[Any]:
    """The name of each model, or None for each; a single name is that of the only model."""
    if isinstance(name, str):
        names: Sequence[Any] = [name]
    elif isinstance(name, list | tuple):
        names = name
    else:
        return [name] * models  # None, or a value that ``load_classifier`` refuses
    if len(names) != models:
        raise _wrong_number("name", "--name", len(names), models)
    return names


def _wrong_number(parameter: str, flag: str, values: int, models: int, also_expected: str = "") -> ClassifierError:
    return ClassifierError(
        f"{argument(parameter, flag=flag)} does not fit the number of models",
        found=f"{values} for {models} models",
        expected=f"one per model, in the same order{also_expected}",
    )


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
    datasets = list(datasets)
    warnings: list[ResultWarning] = []
    for dataset in datasets:
        warnings += [ResultWarning(f"{dataset.name}: {remark}", "data-files") for remark in file_remarks(dataset)]
        warnings += [ResultWarning(f"{dataset.name}: {remark}", "duplicate-images") for remark in copy_remarks(dataset)]
    for classifier in classifiers:
        if warning := assumed_warning(classifier):
            warnings.append(warning)
        if classifier.recorded is None:
            continue
        for dataset in datasets:
            missing, _ = classifier.recorded.coverage(dataset.ids)
            if missing:
                text = f"{classifier.name} has no prediction for {len(missing)} of {len(dataset)} images of "
                text += f"{dataset.name}, such as {missing[0]!r}; they are left out of its scores"
                warnings.append(ResultWarning(text, "missing-predictions"))
    return warnings


# -- planning --------------------------------------------------------------------------------------------------------


def with_metrics(suite: Suite, datasets: Mapping[str, Dataset]) -> Suite:
    """The suite, with mean average precision in place of accuracy where images have several labels."""
    settings: list[Setting] = []
    for setting in suite.settings:
        dataset = datasets.get(setting.dataset)
        if setting.metric == "top1" and dataset is not None and dataset.label_sets is not None:
            setting = replace(setting, metric=MEAN_PRECISION)
        settings.append(setting)
    return replace(suite, settings=tuple(settings))


@dataclass(frozen=True)
class Plan:
    """The results that a run is to have, and the settings that it leaves out."""

    results: list[PlannedResult]
    left_out: tuple[LeftOut, ...]


def plan_results(
    suite: Suite,
    without_data: Mapping[str, str],
    classifiers: Mapping[str, Classifier],
    datasets: Mapping[str, Dataset],
    metric_names: Sequence[str],
    keep_scores: bool,
    seed: int,
    workspace: Workspace,
) -> Plan:
    """Every classifier in every setting that has data and fits it, in the order of the settings.

    A prediction is stored as far as the named metrics and those of the settings need it. A classifier is left out of
    optional settings that don't fit it, and of any setting whose classes it lacks: a network of ImageNet-A's 200
    classes can be scored on ImageNet-A, but not over all 1,000 classes.

    Raises:
        MissingClassesError: A classifier lacks classes of every setting.
        ShiftbenchError: A classifier does not fit a setting that is not optional, for another reason.
    """
    needs = _needs_of_metrics(suite, metric_names, keep_scores=keep_scores)
    for dataset in datasets.values():
        record_images(workspace, dataset)
    results: list[PlannedResult] = []
    left_out: list[LeftOut] = []
    refusals: dict[str, MissingClassesError] = {}
    setting_records: dict[str, SettingRecord] = {}
    common = plan.Common()
    for setting in suite.settings:
        if setting.name in without_data:
            left_out.append(LeftOut(setting.name, without_data[setting.name]))
            continue
        dataset = datasets[setting.dataset]
        for classifier in classifiers.values():
            try:
                planned = plan.plan_result(classifier, setting, dataset, needs, seed, workspace, common)
            except MissingClassesError as error:
                left_out.append(LeftOut(setting.name, error.message, classifier.name, error.missing))
                if not setting.optional:
                    refusals.setdefault(classifier.name, error)
            except ShiftbenchError as error:
                if not setting.optional or isinstance(error, UnwritableError):
                    raise
                left_out.append(LeftOut(setting.name, error.message, classifier.name))
            else:
                results.append(planned)
                setting_records[planned.result.spec.setting_key(setting.name)] = SettingRecord.of(setting)
    evaluated = {planned.result.classifier for planned in results}
    _refuse_unevaluated(refusals, evaluated)
    workspace.record_settings(setting_records)
    return Plan(results, tuple(left_out))


def _needs_of_metrics(suite: Suite, metric_names: Sequence[str], *, keep_scores: bool) -> Needs:
    """What has to be stored of a prediction for the named metrics and those of the settings."""
    needs = Needs(scores=keep_scores)
    for name in {*metric_names, *(setting.metric for setting in suite.settings)}:
        needs = needs | metrics.get(name).needs
    return needs


def _refuse_unevaluated(refusals: Mapping[str, MissingClassesError], evaluated: Collection[str]) -> None:
    """Raise the error of the first classifier that lacks classes and is evaluated nowhere.

    A model that fits no setting was given the wrong labels, or the wrong suite.
    """
    for name, refusal in refusals.items():
        if name not in evaluated:
            raise refusal


# -- executing -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunRequest:
    """What a run is asked to do, apart from its settings and datasets, which a design may reduce."""

    workspace: Workspace
    classifiers: Mapping[str, Classifier]
    #: Optional settings that have no data, with the reason.
    without_data: Mapping[str, str]
    #: What the user named as data, for the record of the run.
    data: Data
    #: Names of the metrics to compute later; they decide how much of each prediction is stored.
    metric_names: Sequence[str]
    keep_scores: bool
    seed: int
    watch: ModelWatch
    executor: Executor
    shard: Shard | None
    progress: bool
    #: The call by the user, for the record of the run.
    call: Call
    #: As ``RunContext.patience``.
    patience: float | bool = True
    #: Called with the plan before anything is computed; an exception it raises ends the run.
    check: Callable[[RunContext], object] | None = None


@dataclass(frozen=True)
class Outcome:
    """What a run computed, and what is still missing."""

    failures: list[Failure]
    complete: list[Result]
    #: Number of results that the run should have.
    planned: int
    #: Number of blocks of all results.
    blocks: int
    #: Number of blocks that results still wait for.
    waiting: int
    #: Number of predictions that this run, not an earlier one, made.
    new_predictions: int
    #: Settings of the suite that the run does not evaluate.
    left_out: tuple[LeftOut, ...]


class AnsweredByPlanError(ShiftbenchError):
    """Raised by a check of the plan that has the answer itself: nothing else is computed, but warnings are reported."""


def plan_and_execute(request: RunRequest, suite: Suite, datasets: Mapping[str, Dataset]) -> Outcome:
    """Plan the results of a suite, and compute those that the workspace lacks."""
    workspace = request.workspace
    planned = plan_results(
        suite,
        request.without_data,
        request.classifiers,
        datasets,
        request.metric_names,
        request.keep_scores,
        request.seed,
        workspace,
    )
    sources = data_sources(suite, request.data)
    for dataset_name, source in sources.items():
        if dataset_name in datasets:
            dataset = datasets[dataset_name]
            workspace.record_source(dataset.name, dataset.fingerprint, source)
    if not planned.results:
        reasons = "\n            ".join(dict.fromkeys(omission.reason for omission in planned.left_out))
        raise SettingError(f"suite {suite.name!r} has nothing to evaluate", found=reasons)
    context = RunContext(
        workspace,
        datasets,
        request.classifiers,
        tuple(planned.results),
        request.seed,
        made_by=f"shiftbench {__version__}",
        patience=request.patience,
        watch=request.watch,
        left_out=planned.left_out,
    )
    if request.check is not None:
        request.check(context)
    call = replace(request.call, data=dict(sources.values()))
    return execute(context, request.executor, request.shard, request.progress, call)


def execute(context: RunContext, executor: Executor, shard: Shard | None, progress: bool, call: Call) -> Outcome:
    """Compute what is missing, and keep a record of the run."""
    workspace = context.workspace
    todo = _not_passing(context.results, lambda planned: plan.is_complete(workspace, planned))
    if todo:
        remove_unchecked_blocks(workspace)
    models = _model_runs(context, todo, shared=shard is not None)
    with recorded_run(workspace, call, models) as record:
        context.watch.unchecked = UncheckedBlocks(workspace, record.id)
        try:
            outcome = _compute(replace(context, record=record), todo, executor, shard, progress)
        except BaseException:
            # The next run, which may be in this process, must not wait for this one.
            context.watch.unchecked.release()
            raise
        finally:
            _note_usage(record, context)
        if outcome.failures:
            record.status = "incomplete"
            record.error = str(outcome.failures[0])
    return outcome


def _model_runs(context: RunContext, todo: Sequence[PlannedResult], *, shared: bool) -> list[ModelRun]:
    """What the record of the run says about each model; ``shared``: several jobs compute the results together."""
    missing = {planned.result.key for planned in todo}
    started: set[str] = set()
    if todo:
        started = {folder.name for folder in context.workspace.block_folders()}
    trained_on = _training_images(context)
    models: dict[str, ModelRun] = {}
    for planned in context.results:
        name = planned.result.classifier
        key = planned.result.key
        if name not in models:
            models[name] = _model_run(context.classifiers[name], planned.result)
        model = models[name]
        if (name, planned.dataset) in trained_on:
            model.training_images[key] = int(trained_on[name, planned.dataset][planned.rows].sum())
        if key not in missing:
            model.reused.append(key)
        elif shared or key in started:
            model.shared.append(key)
        else:
            model.computed.append(key)
    return list(models.values())


def _note_usage(record: RunRecord, context: RunContext) -> None:
    """Enter what servers have counted for their answers, the trials of the loaders included."""
    names = {planned.result.model_id: planned.result.classifier for planned in context.results}
    for model in record.models:
        usage = context.classifiers[names[model.id]].take_usage()
        model.usage = {what: count for what, count in usage.items() if count}


def _training_images(context: RunContext) -> dict[tuple[str, str], BoolArray]:
    """By model and dataset: which images the model was trained on; only of models whose training images are known."""
    trained_on: dict[tuple[str, str], BoolArray] = {}
    for name, classifier in context.classifiers.items():
        if classifier.trained_on is None:
            continue
        for dataset_name, dataset in context.datasets.items():
            trained_on[name, dataset_name] = classifier.trained_on.among(dataset)
    return trained_on


def _model_run(classifier: Classifier, result: Result) -> ModelRun:
    """The record of a model, without results."""
    if classifier.downloaded_from:
        source = classifier.downloaded_from
    elif classifier.origin:
        source = classifier.origin[0]
    else:
        source = f"<{type(classifier).__qualname__}>"
    return ModelRun(
        id=result.model_id,
        source=without_credentials(source),
        fingerprint=result.spec.classifier.fingerprint,
        assumed=list(classifier.assumed),
        stated=list(classifier.stated),
        trained_with=list(classifier.trained_with),
    )


def _compute(
    context: RunContext, todo: Sequence[PlannedResult], executor: Executor, shard: Shard | None, progress: bool
) -> Outcome:
    """Compute the missing predictions, join the blocks of complete results, and count what is still missing."""
    workspace = context.workspace
    workers = 1
    if shard is not None:
        # All jobs of an array must cut the data alike, on whatever machine each of them runs.
        workers = shard.count
    elif todo:
        workers = executor.wanted_workers()
    blocks = plan.all_items(context.results, context.datasets, workers)
    finished = _prediction_count(context.results) - _prediction_count(todo)
    stateful = [planned for planned in todo if context.classifiers[planned.result.classifier].stateful]
    job = _block_job(context, todo)
    failures, new_predictions = _compute_blocks(job, blocks, finished, executor, shard, progress)
    if stateful:
        missing = _prediction_count(stateful)
        new_predictions += missing
        with progress_bar("predictions", missing + finished, finished, show=progress) as advance:
            failures += evaluate_stateful(context, stateful, advance)
    failures += _changed_models(workspace, context, todo)
    if context.watch.unchecked is not None:
        context.watch.unchecked.close_run()
        # Another run that computed some of these blocks may have been killed meanwhile.
        remove_unchecked_blocks(workspace)
    lacking = _not_passing(todo, lambda planned: _complete(workspace, planned, context, job.kept or {}))
    if lacking and shard is None and not failures:
        failures += [_withdrawn(planned.result) for planned in lacking]
    worth_cataloguing = 1 if is_object(workspace.root) else _WORTH_CATALOGUING
    if len(todo) - len(lacking) >= worth_cataloguing:
        workspace.write_catalogue()
    unfinished = {planned.result.relative for planned in lacking}
    complete = [planned.result for planned in context.results if planned.result.relative not in unfinished]
    return Outcome(
        failures,
        complete,
        planned=len(context.results),
        blocks=len(blocks),
        waiting=_count_missing_blocks(context, lacking, blocks),
        new_predictions=max(0, new_predictions),
        left_out=context.left_out,
    )


def _prediction_count(results: Iterable[PlannedResult]) -> int:
    return sum(len(planned.rows) for planned in results)


def _block_job(context: RunContext, todo: Sequence[PlannedResult]) -> Evaluation:
    """The job that computes missing results block by block: all but those of stateful models."""
    stateless = {name: model for name, model in context.classifiers.items() if not model.stateful}
    results = tuple(planned for planned in todo if planned.result.classifier in stateless)
    few = _prediction_count(todo) <= _WORTH_KEEPING
    has_scores = any(planned.needs.scores for planned in todo)
    job = Evaluation(
        replace(context, classifiers=stateless, results=results),
        kept={} if few and not has_scores else None,
    )
    if context.workspace.designs():  # most workspaces hold none
        from shiftbench.runs.known import known_rows

        job = replace(job, known=known_rows(context.workspace, results, context.datasets))
    return job


def _compute_blocks(
    job: Evaluation,
    blocks: Sequence[Block],
    finished: int,
    executor: Executor,
    shard: Shard | None,
    progress: bool,
) -> tuple[list[Failure], int]:
    """Failures, and the number of new predictions. ``finished``: predictions of results that were complete before."""
    context = job.context
    own_blocks = blocks if shard is None else shard.of(blocks)
    blocks_of_other_jobs: list[Block] = []
    # Without locks, as in an object store, nobody knows which blocks another job has begun.
    if shard is not None and shard.rebalance and not is_object(context.workspace.root):
        in_own_share = set(own_blocks)
        blocks_of_other_jobs = [block for block in blocks if block not in in_own_share]
    failures: list[Failure] = []
    new_predictions = -sum(len(known_rows.rows) for known_rows in job.known.values())
    for share, share_job in ((own_blocks, job), (blocks_of_other_jobs, replace(job, skip_claimed=True))):
        missing = plan.missing_items(context.workspace, context.results, share, context.datasets)
        new_predictions += missing.to_do
        if missing.items:
            already = missing.done + finished
            with progress_bar("predictions", missing.to_do + already, already, show=progress) as advance:
                failures += executor.run(share_job, missing.items, advance)
    return failures, new_predictions


def _withdrawn(result: Result) -> Failure:
    """The failure of a result that lacks predictions although nothing failed."""
    reason = "some of its predictions were withdrawn, or removed, during the run; the same command makes them again"
    return Failure(result, Problem(f"classifier {result.classifier!r}", reason), tries=1)


def _count_missing_blocks(context: RunContext, lacking: Sequence[PlannedResult], blocks: Sequence[Block]) -> int:
    """How many blocks some result still waits for."""
    blocks_of_dataset = by_key((block.whole, block) for block in blocks)
    missing: set[Block] = set()
    for planned in lacking:
        stored = plan.stored_blocks(context.workspace, planned, context.datasets[planned.dataset])
        for block in blocks_of_dataset.get(planned.dataset, []):
            if block not in missing and not plan.covering(stored, block):
                missing.add(block)
    return len(missing)


def _changed_models(workspace: Workspace, context: RunContext, done: Sequence[PlannedResult]) -> Iterator[Failure]:
    """A failure for each model that changed during the run: its blocks may be of two models, and are removed."""
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
        passed = list(pool.map(test, results))
    return [planned for planned, has_passed in zip(results, passed, strict=True) if not has_passed]


def _complete(workspace: Workspace, planned: PlannedResult, context: RunContext, kept: KeptPredictions) -> bool:
    """Join a result's blocks into its one file, then clear them; False while blocks are missing."""
    result = planned.result
    with file_lock(workspace.lock_path(f"complete-{result.key}"), wait=context.patience):
        if plan.is_complete(workspace, planned):
            remove_tree(workspace.blocks_folder(result))
            return True
        dataset = context.datasets[planned.dataset]
        stored = plan.stored_blocks(workspace, planned, dataset)
        all_images = Block(0, len(dataset))
        predictions = plan.read_blocks(workspace, planned, stored, all_images, kept.get(result.key, {}))
        if predictions is None:
            # Where there are no locks, another run may have joined and cleared them just now.
            return plan.is_complete(workspace, planned)
        workspace.complete(result, [predictions], context.made_by)
    return True
