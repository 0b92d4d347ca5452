"""Predictions made elsewhere into a workspace: the same results as a run's, from files instead of a classifier."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from shiftbench._version import __version__
from shiftbench.classifiers.recorded import RecordedPredictions, record
from shiftbench.classifiers.recorded_files import (
    MISSING,
    PredictionFile,
    Truth,
    class_indices,
    read_predictions,
    read_truth,
)
from shiftbench.datasets.base import Dataset, DecodedImage
from shiftbench.datasets.catalogue import open_dataset
from shiftbench.datasets.images import bad_image
from shiftbench.datasets.stored import combine
from shiftbench.errors import (
    ClassifierError,
    DatasetError,
    ResultWarning,
    SettingError,
    StoreError,
    argument,
    listed,
    warn_user,
)
from shiftbench.io.paths import Location
from shiftbench.jobs.progress import Advance, progress_bar
from shiftbench.labels import label_space
from shiftbench.labels.catalogue import FOLDERS
from shiftbench.labels.space import LabelSpace
from shiftbench.metrics.base import Needs
from shiftbench.runs.match_predictions import Matching, check_agreement
from shiftbench.runs.plan import PlannedResult, is_complete, plan_result
from shiftbench.runs.results import StoredResults
from shiftbench.settings.base import Setting, build_suite, suites
from shiftbench.store.prediction_files import PredictionBlock, write_block
from shiftbench.store.run_records import Call, ModelRun, recorded_run
from shiftbench.store.spec import ClassifierRecord, SettingRecord
from shiftbench.store.workspace import Result, Workspace

#: All that was recorded is kept: there is no model to ask again.
_NEEDS = Needs(top_k=5, scores=True)


@dataclass(frozen=True)
class Imported:
    """What an import put into a workspace."""

    results: StoredResults
    #: How images were found in the dataset: "id", "file name", ..., or "order".
    matched_by: str
    #: Models that lack predictions for some images, and for how many.
    missing: Mapping[str, int]
    #: Models with predictions for images that the dataset lacks, and for how many.
    unknown: Mapping[str, int]


def import_predictions(
    files: str | Path | Sequence[str | Path],
    setting: str | Setting,
    workspace: str | Location | Workspace = "shiftbench-workspace",
    *,
    labels: LabelSpace | str | None = None,
    truth: str | Path | None = None,
    data: str | Location | Dataset | None = None,
    array: str | None = None,
    reference: str | None = None,
    in_order: bool = False,
    allow_unknown: bool = False,
    replace_old: bool = False,
    progress: bool = False,
    console: Console | None = None,
) -> Imported:
    """Put the predictions of one or many models in one setting into a workspace.

    The true classes come from ``data``, from ``truth``, or from the files themselves. Images are found by id, else by
    file name.

    Args:
        files: CSV, Parquet or NPZ files, of one or several models each.
        setting: The setting, or its name; one that a suite has keeps that suite's label space, metric and reference.
        workspace: Where the results are kept.
        labels: Label space of the predictions.
        truth: File with the true labels, if there is no ``data``.
        data: The dataset itself.
        array: Name of the array in a file of several.
        reference: Name of the setting that this one is compared with.
        in_order: Take row i as image i where a file names no images.
        allow_unknown: Ignore predictions for images that the dataset lacks, instead of refusing them.
        replace_old: Replace other predictions of the same models in this setting, instead of refusing the new ones.
        progress: Whether a progress bar is shown.
        console: Where progress is printed; default: standard error.

    Raises:
        StoreError: Files that don't fit each other or the dataset.
    """
    arguments = dict(locals())
    store = workspace if isinstance(workspace, Workspace) else Workspace(workspace)
    chosen = setting if isinstance(setting, Setting) else find_setting(setting)
    chosen = chosen if reference is None else replace(chosen, reference=reference)
    asked = label_space(labels) if isinstance(labels, str) and labels != FOLDERS else labels
    named = asked if isinstance(asked, LabelSpace) else None
    many = [files] if isinstance(files, str | Path) else list(files)
    read = [read_predictions(file, named, array=array, wide=True) for file in many]
    _check_models(read)
    dataset, space = _dataset(chosen, read, asked, truth, data)
    # Labels without names beside predictions without names are in one order.
    beside = data is None and truth is None
    found = Matching(dataset, in_order=in_order or beside, allow_unknown=allow_unknown)
    classifiers = [record(one, found.ids_of(one, file), space, file.source) for file in read for one in file.answers]
    planned = _plan_all(store, chosen, dataset, classifiers)
    old = _other_answers(store, [one.result for one in planned], replace_old)
    call = Call("import", import_predictions, arguments, {} if data is None else {chosen.dataset: str(data)})
    with (
        recorded_run(store, call, _model_runs(store, planned, classifiers, old)),
        progress_bar("models", len(classifiers), show=progress, console=console) as report,
    ):
        for one in old:
            store.predictions_path(one).unlink()
        missing = _store(store, dataset, planned, classifiers, report)
    results = [one.result for one in planned]
    result = Imported(StoredResults(store, results), found.rule, missing, found.unknown)
    for warning in [*_gaps(result), *result.results.warnings()]:
        warn_user(warning)
    return result


def find_setting(name: str) -> Setting:
    """The setting of that name in any suite, if its images are used as they are; else one of the user's own.

    >>> find_setting("imagenetv2-topimages").reference, find_setting("my-survey").reference
    ('val', None)
    """
    for suite in suites.names():
        for setting in build_suite(suite).settings:
            if setting.name == name and not setting.shifted:
                return setting
            if setting.name == name:
                raise SettingError(
                    f"the images of {name!r} are made by this package",
                    found=f"{setting.shift.name}, with a generator and seeds of its own",
                    hint="import predictions on images made elsewhere under another name",
                )
    return Setting(name, name)


def _check_models(files: Sequence[PredictionFile]) -> None:
    names = [answers.model for file in files for answers in file.answers]
    if not names:
        raise ClassifierError("the files record no model", found=", ".join(file.source for file in files) or "no file")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ClassifierError(
            f"{len(twice)} models occur more than once", found=", ".join(twice[:5]), hint="give each its own name"
        )


def _dataset(
    setting: Setting,
    files: Sequence[PredictionFile],
    asked: LabelSpace | str | None,
    truth: str | Path | None,
    data: str | Location | Dataset | None,
) -> tuple[Dataset, LabelSpace]:
    """The images with their true classes, and the label space that the predictions are read in."""
    truths = [read_truth(truth)] if truth is not None else [file.truth for file in files if file.truth is not None]
    if data is not None:
        dataset = open_dataset(data, space=asked)
        space = asked if isinstance(asked, LabelSpace) else dataset.space
        for one in truths:
            check_agreement(one, dataset, space)
        return dataset, space
    if not isinstance(asked, LabelSpace):
        raise ClassifierError(
            "nothing says which classes the predictions are about",
            hint=f"{argument('labels', 'imagenet-1k')}, another label space, or a file of the classes in order",
        )
    if not truths:
        raise ClassifierError(
            "nothing says which classes are right",
            expected="a column or array `label` in the files",
            hint=f"{argument('truth', 'FILE')} (columns id, label), or {argument('data', 'FOLDER')} with the images",
        )
    return _joined(setting.name, truths, asked), asked


def _joined(name: str, truths: Sequence[Truth], space: LabelSpace) -> LabelsOnly:
    """All images that the files name, each with one true class."""
    known: dict[str, int] = {}
    for truth in truths:
        labels = class_indices(truth.labels, space, truth.source).tolist()
        # Rows without names get the setting's: equal numbers of two test sets are not the same image.
        ids = truth.ids if truth.ids is not None else [f"{name}/{row:05d}" for row in range(len(labels))]
        for image, label in zip(ids, labels, strict=True):
            if known.setdefault(image, label) != label:
                raise ClassifierError(
                    f"{truth.source} gives one image two true classes",
                    found=f"{image}: {space.keys[known[image]]} and {space.keys[label]}",
                )
    return LabelsOnly(name, space, list(known), list(known.values()))


def _plan_all(
    store: Workspace, setting: Setting, dataset: Dataset, classifiers: Sequence[RecordedPredictions]
) -> list[PlannedResult]:
    store.record_dataset(
        dataset.name, dataset.fingerprint, dataset.space, dataset.ids, dataset.labels, dataset.describe()
    )
    planned = [_plan(store, setting, dataset, classifier) for classifier in classifiers]
    store.record_settings({one.result.spec.setting_key(setting.name): SettingRecord.of(setting) for one in planned})
    return planned


def _model_runs(
    store: Workspace,
    planned: Sequence[PlannedResult],
    classifiers: Sequence[RecordedPredictions],
    old: Sequence[Result],
) -> list[ModelRun]:
    made = []
    for one, classifier in zip(planned, classifiers, strict=True):
        key = [one.result.key]
        model = ModelRun(id=one.result.model_id, fingerprint=classifier.fingerprint)
        model.removed = [other.key for other in old if other.classifier == one.result.classifier]
        model.reused, model.computed = (key, []) if is_complete(store, one) else ([], key)
        made.append(model)
    return made


def _store(
    store: Workspace,
    dataset: Dataset,
    planned: Sequence[PlannedResult],
    classifiers: Sequence[RecordedPredictions],
    report: Advance,
) -> dict[str, int]:
    """Write the results unless they are there; how many images models lack."""
    missing: dict[str, int] = {}
    for one, classifier in zip(planned, classifiers, strict=True):
        found = classifier.lookup([dataset.ids[row] for row in one.rows], one.space)
        if not is_complete(store, one):
            scores = found.scores if one.needs.scores else None
            block = PredictionBlock(found.top[:, : one.needs.top_k], found.confidence, scores)
            write_block(store.predictions_path(one.result), block, one.result.spec, f"shiftbench {__version__}")
        lacking = int((found.top[:, 0] == MISSING).sum())
        missing |= {classifier.name: lacking} if lacking else {}
        report(1)
    return missing


def _plan(store: Workspace, setting: Setting, dataset: Dataset, classifier: RecordedPredictions) -> PlannedResult:
    """As for a run, but the model is one and the same in all settings, whatever it answered in this one."""
    planned = plan_result(classifier, setting, dataset, _NEEDS, 0, store)
    spec = replace(
        planned.result.spec, classifier=ClassifierRecord(classifier.identity), answers=classifier.fingerprint
    )
    return replace(planned, result=replace(planned.result, spec=spec))


def _other_answers(store: Workspace, results: Sequence[Result], wished: bool) -> list[Result]:
    """Other answers of the same model in the same setting, to be replaced: they would make two numbers of one."""
    fresh = {result.classifier: result for result in results}
    old = [
        result
        for result in store.results(fresh, [results[0].setting])
        if result.spec.classifier == fresh[result.classifier].spec.classifier
        and result.key != fresh[result.classifier].key
    ]
    if old and not wished:
        raise StoreError(
            f"{len(old)} of these models have other predictions in {results[0].setting!r} already",
            found=", ".join(result.classifier for result in old[:5]),
            hint=f"{argument('replace_old', True, flag='--replace')} replaces them; or name another workspace",
        )
    return old


def _gaps(imported: Imported) -> list[ResultWarning]:
    """One sentence for all models that lack images, and one for those that have too many."""
    problems = (
        (imported.missing, "lack predictions for some images, which are left out of their scores"),
        (imported.unknown, "have predictions for images that the dataset lacks, which are left out"),
    )
    notes = []
    for counts, what in problems:
        if counts:
            models = listed([f"{model}: {count:,}" for model, count in counts.items()], 3)
            text = f"{len(counts)} of {len(imported.results.results)} models {what} ({models})"
            notes.append(ResultWarning(text, "missing-predictions"))
    return notes


class LabelsOnly(Dataset):
    """Ids and labels without images.

    Its fingerprint differs from that of the dataset with images, so scores on the two never share a column.

    >>> pets = LabelSpace("pets", ("cat", "dog"))
    >>> LabelsOnly("survey", pets, ["a.jpg", "b.jpg"], [1, 0]).name
    'survey (labels only)'
    """

    def __init__(self, name: str, space: LabelSpace, ids: Sequence[str], labels: Sequence[int] | np.ndarray) -> None:
        if len(ids) != len(labels) or len(set(ids)) != len(ids):
            raise DatasetError(
                f"{name!r} needs one label for each of its images",
                found=f"{len(ids)} images, {len(set(ids))} different ones, {len(labels)} labels",
            )
        # Part of the name, so that it appears in every score's provenance.
        self.name, self.space, self.ids = f"{name} (labels only)", space, list(ids)
        self.labels = np.asarray(labels, np.int32)

    @cached_property
    def fingerprint(self) -> str:
        return combine(self.ids, self.labels, self.space, (b"" for _ in self.ids))

    def read(self, index: int) -> DecodedImage:
        raise bad_image(self.ids[index], "only its label is known, not the image")

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "pictures": "none: labels only"}
