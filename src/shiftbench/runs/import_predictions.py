"""Import predictions from files into a workspace, as results like those of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from shiftbench._version import __version__
from shiftbench.classifiers import recorded
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
    UnknownClassesError,
    argument,
    listed,
    warn_user,
)
from shiftbench.grouping import by_key
from shiftbench.io.paths import Location
from shiftbench.jobs.progress import progress_bar
from shiftbench.labels.catalogue import FOLDERS, LabelsArgument, find_label_space
from shiftbench.labels.space import LabelSpace
from shiftbench.metrics.base import Needs
from shiftbench.runs.plan import PlannedResult, is_complete, plan_result, record_images
from shiftbench.runs.results import StoredResults
from shiftbench.settings.base import Setting, build_suite, suites
from shiftbench.store.prediction_files import PredictionBlock, write_block
from shiftbench.store.run_records import Call, ModelRun, recorded_run
from shiftbench.store.spec import ClassifierRecord, SettingRecord
from shiftbench.store.workspace import Result, Workspace

#: All that was recorded is kept: there is no model to ask again.
_NEEDS = Needs(top_k=5, scores=True)
#: Under the whole name, else the file's name, else that without its ending.
_NAMINGS: dict[str, Callable[[str], str]] = {
    "id": str,
    "file name": lambda name: PurePosixPath(name).name,
    "file name without ending": lambda name: PurePosixPath(name).stem,
}


@dataclass(frozen=True)
class Imported:
    """What an import put into a workspace."""

    results: StoredResults
    matched_by: str  #: How images were found in the dataset: "id", "file name", ..., or "order".
    missing: Mapping[str, int]  #: Models that lack predictions for some images, and for how many.
    #: Models with predictions for images that the dataset lacks, and for how many.
    unknown: Mapping[str, int]


def import_predictions(
    files: str | Path | Sequence[str | Path],
    setting: str | Setting,
    workspace: str | Location | Workspace = "shiftbench-workspace",
    *,
    labels: LabelsArgument = None,
    truth: str | Path | None = None,
    data: str | Location | Dataset | None = None,
    array: str | None = None,
    reference: str | None = None,
    in_order: bool = False,
    allow_unknown: bool = False,
    replace_old: bool = False,
    progress: bool = False,
) -> Imported:
    """Put the predictions of one or many models in one setting into a workspace.

    The true classes come from ``data``, from ``truth``, or from the files themselves. Images are found by id, else by
    file name.

    Args:
        files: CSV, Parquet, NPZ or NPY files, of one or several models each, or what `shiftbench store export` wrote.
        setting: The setting, or its name; one that a suite has keeps that suite's label space, metric and reference.
        workspace: Where the results are kept.
        labels: Classes of the predictions: name of a label space, a file, a list of names in the model's order, or
            another form that ``evaluate`` takes.
        truth: File with the true labels, if there is no ``data``.
        data: The dataset itself.
        array: Name of the array in a file of several.
        reference: Name of the setting that this one is compared with.
        in_order: Take row i as image i where a file names no images.
        allow_unknown: Ignore predictions for images that the dataset lacks, instead of refusing them.
        replace_old: Replace other predictions of the same models in this setting, instead of refusing the new ones.
        progress: Whether a progress bar is shown.

    Raises:
        StoreError: Files that don't fit each other or the dataset.
    """
    arguments = dict(locals())
    store = workspace if isinstance(workspace, Workspace) else Workspace(workspace)
    chosen = setting if isinstance(setting, Setting) else find_setting(setting)
    if reference is not None:
        chosen = replace(chosen, reference=reference)
    asked = find_label_space(labels)
    files_read = _read_files(files, chosen.name, asked if isinstance(asked, LabelSpace) else None, array)
    dataset, space = _dataset(chosen, files_read, asked, truth, data)
    # Labels without names beside predictions without names are in one order.
    labels_are_beside = data is None and truth is None
    matching = Matching(dataset, in_order=in_order or labels_are_beside, allow_unknown=allow_unknown)
    planned = []
    for file in files_read:
        for answers in file.answers:
            classifier = recorded.record(answers, matching.ids_of(answers, file), space, file.source)
            planned.append(_plan(classifier, chosen, dataset, store))
    record_images(store, dataset)
    store.record_settings({one.result.spec.setting_key(chosen.name): SettingRecord.of(chosen) for one in planned})
    results = [one.result for one in planned]
    replaced = _other_answers(store, results, replace_old)
    replaced_keys = by_key((result.classifier, result.key) for result in replaced)
    models = [_model_run(one, replaced_keys.get(one.classifier.name, [])) for one in planned]
    call = Call("import", import_predictions, arguments, {} if data is None else {chosen.dataset: str(data)})
    missing: dict[str, int] = {}
    with (
        recorded_run(store, call, models),
        progress_bar("models", len(planned), show=progress) as report,
    ):
        for result in replaced:
            store.predictions_path(result).unlink()
        for one in planned:
            without_prediction = _write(one, dataset, store)
            if without_prediction:
                missing[one.classifier.name] = without_prediction
            report(1)
    imported = Imported(StoredResults(store, results), matching.rule, missing, matching.unknown)
    _warn(imported)
    return imported


def _read_files(
    files: str | Path | Sequence[str | Path], setting: str, labels: LabelSpace | None, array: str | None
) -> list[recorded.PredictionFile]:
    """What the files hold about one setting; every model is in one of them."""
    paths = [files] if isinstance(files, str | Path) else list(files)
    files_read = [recorded.read_predictions(path, labels, array=array, wide=True, setting=setting) for path in paths]
    names = Counter(answers.model for file in files_read for answers in file.answers)
    if not names:
        sources = ", ".join(file.source for file in files_read)
        raise ClassifierError("no model found in the files", found=sources or "no file")
    repeated = [name for name, count in names.items() if count > 1]
    if repeated:
        raise ClassifierError(
            f"{len(repeated)} models occur more than once",
            found=", ".join(repeated[:5]),
            hint="give each its own name",
        )
    return files_read


@dataclass(frozen=True)
class _PlannedImport:
    """A result to be written: the answers of one model, and whether the workspace has them already."""

    classifier: recorded.RecordedPredictions
    planned: PlannedResult
    complete: bool

    @property
    def result(self) -> Result:
        return self.planned.result


def _plan(
    classifier: recorded.RecordedPredictions, setting: Setting, dataset: Dataset, store: Workspace
) -> _PlannedImport:
    """As for a run, but the model is one and the same in all settings, whatever it answered in this one."""
    planned = plan_result(classifier, setting, dataset, _NEEDS, 0, store)
    spec = replace(
        planned.result.spec, classifier=ClassifierRecord(classifier.identity), answers=classifier.fingerprint
    )
    planned = replace(planned, result=replace(planned.result, spec=spec))
    return _PlannedImport(classifier, planned, is_complete(store, planned))


def _model_run(planned: _PlannedImport, removed: list[str]) -> ModelRun:
    """What the record of the import says about one model; ``removed`` are the keys of its replaced results."""
    result = planned.result
    model = ModelRun(id=result.model_id, fingerprint=planned.classifier.fingerprint)
    model.removed = removed
    if planned.complete:
        model.reused = [result.key]
    else:
        model.computed = [result.key]
    return model


def _write(planned: _PlannedImport, dataset: Dataset, store: Workspace) -> int:
    """Write the answers of one model, unless they are there; returns how many images have none."""
    needs = planned.planned.needs
    ids = [dataset.ids[row] for row in planned.planned.rows]
    known = planned.classifier.lookup(ids, planned.planned.space)
    if not planned.complete:
        scores = known.scores if needs.scores else None
        block = PredictionBlock(known.top[:, : needs.top_k], known.confidence, scores)
        path = store.predictions_path(planned.result)
        write_block(path, block, planned.result.spec, f"shiftbench {__version__}")
    return int((known.top[:, 0] == recorded.MISSING).sum())


def _warn(imported: Imported) -> None:
    problems = (
        (imported.missing, "lack predictions for some images, which are left out of their scores"),
        (imported.unknown, "have predictions for images that the dataset lacks, which are left out"),
    )
    for counts, problem in problems:
        if counts:
            models = listed([f"{model}: {count:,}" for model, count in counts.items()], 3)
            text = f"{len(counts)} of {len(imported.results.results)} models {problem} ({models})"
            warn_user(ResultWarning(text, "missing-predictions"))
    for warning in imported.results.warnings():
        warn_user(warning)


def find_setting(name: str) -> Setting:
    """The setting of that name in any suite, if its images are used as they are; else one of the user's own."""
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


def _dataset(
    setting: Setting,
    files: Sequence[recorded.PredictionFile],
    asked: LabelSpace | str | None,
    truth: str | Path | None,
    data: str | Location | Dataset | None,
) -> tuple[Dataset, LabelSpace]:
    """The images with their true classes, and the label space that the predictions are read in."""
    truths = (
        [recorded.read_truth(truth)] if truth is not None else [file.truth for file in files if file.truth is not None]
    )
    if data is not None:
        dataset = _open_images(data, asked)
        space = asked if isinstance(asked, LabelSpace) else dataset.space
        for one in truths:
            check_agreement(one, dataset, space)
        return dataset, space
    if not isinstance(asked, LabelSpace):
        raise ClassifierError(
            "unknown classes of the predictions",
            hint=f"{argument('labels', 'imagenet-1k')}, another label space, or a file of the classes in order",
        )
    if not truths:
        raise ClassifierError(
            "the true classes are unknown",
            expected="a column or array `label` in the files",
            hint=f"{argument('truth', 'FILE')} (columns id, label), or {argument('data', 'FOLDER')} with the images",
        )
    # All images that the files name, each with one true class.
    known: dict[str, int] = {}
    for one in truths:
        labels = recorded.class_indices(one.labels, asked, one.source).tolist()
        # Rows without names get the setting's: equal numbers of two test sets are not the same image.
        ids = one.ids if one.ids is not None else [f"{setting.name}/{row:05d}" for row in range(len(labels))]
        for image, label in zip(ids, labels, strict=True):
            if known.setdefault(image, label) != label:
                raise ClassifierError(
                    f"{one.source} gives one image two true classes",
                    found=f"{image}: {asked.keys[known[image]]} and {asked.keys[label]}",
                )
    return LabelsOnly(setting.name, asked, list(known), list(known.values())), asked


def _open_images(data: str | Location | Dataset, labels: LabelSpace | str | None) -> Dataset:
    """The dataset as ``evaluate`` opens it: classes that nobody knows are its folders, in sorted order."""
    try:
        return open_dataset(data, labels=labels)
    except UnknownClassesError:
        if labels is not None:
            raise
    dataset = open_dataset(data, labels=FOLDERS)
    classes = listed([f"{i} = {key}" for i, key in enumerate(dataset.space.keys)], 6)
    text = f"the classes are the {len(dataset.space)} class folders in sorted order: {classes}"
    warn_user(ResultWarning(f"{text}; {argument('labels', FOLDERS)} confirms this", "own-classes"))
    return dataset


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


class Matching:
    """The names in files as names in a dataset; the first naming under which any is found counts for all."""

    def __init__(self, dataset: Dataset, *, in_order: bool = False, allow_unknown: bool = False) -> None:
        self.dataset, self.in_order, self.allow_unknown = dataset, in_order, allow_unknown
        #: How images were found: "id", "file name", ..., or "order".
        self.rule = "id"
        #: Models with predictions for images that the dataset lacks, and how many.
        self.unknown: dict[str, int] = {}
        self._known: dict[str, str] = {}
        self._last: tuple[Sequence[str], list[str]] | None = None

    def ids_of(self, answers: recorded.Answers, file: recorded.PredictionFile) -> Sequence[str]:
        """The dataset's own names of a model's images."""
        if answers.ids is None:
            if not self.in_order:
                hint = f"{argument('in_order', True)}, if row i is the i-th image of the dataset"
                raise recorded.unnamed(file.source, file.titles, hint)
            if len(answers) != len(self.dataset):
                raise ClassifierError(
                    f"{file.source} can't be taken in order",
                    found=f"{len(answers)} predictions of {answers.model}",
                    expected=f"{len(self.dataset)}, one for each image of {self.dataset.name!r}",
                )
            self.rule = "order"
            return self.dataset.ids
        names = self.translate(answers.ids)
        own = set(self._known.values())
        strange = [name for name in names if name not in own]
        if strange and not self.allow_unknown:
            raise ClassifierError(
                f"{file.source} has predictions of {answers.model} for {len(strange)} images that "
                f"{self.dataset.name!r} lacks",
                found=f"ids such as {', '.join(strange[:3])}",
                expected=f"ids such as {', '.join(list(self.dataset.ids)[:3])}",
                hint=f"name the images as the dataset does; {argument('allow_unknown', True)} leaves the others out",
            )
        if strange:
            self.unknown[answers.model] = len(strange)
        return names

    def translate(self, ids: Sequence[str]) -> list[str]:
        """Each name as the dataset has it; a name that it lacks stays as it is."""
        # The models of one file share one list of ids.
        if self._last is None or self._last[0] is not ids:
            for rule, naming in _NAMINGS.items() if not self._known else ():
                known = {naming(image): image for image in self.dataset.ids}
                # A name that two images share is ambiguous.
                if len(known) == len(self.dataset) and any(naming(name) in known for name in ids):
                    self.rule, self._known = rule, known
                    break
            self._known = self._known or {image: image for image in self.dataset.ids}
            naming = _NAMINGS[self.rule]
            self._last = ids, [self._known.get(naming(name), name) for name in ids]
        return self._last[1]


def check_agreement(truth: recorded.Truth, dataset: Dataset, space: LabelSpace) -> None:
    """Labels beside the predictions must be those of the dataset: else the two count classes differently."""
    ids = truth.ids
    if ids is None:  # taken in order, as the predictions beside them
        if (count := len(truth.labels)) != len(dataset):
            raise ClassifierError(f"{truth.source} has another number of labels", found=count, expected=len(dataset))
        ids = dataset.ids
    row = {image: i for i, image in enumerate(dataset.ids)}
    to_dataset = np.append(dataset.space.relabel_from(space), recorded.MISSING)
    true_labels = to_dataset[recorded.class_indices(truth.labels, space, truth.source)].tolist()
    named = zip(Matching(dataset).translate(ids), true_labels, strict=True)
    shared = [(name, label) for name, label in named if name in row]
    differing = [(name, label) for name, label in shared if label != dataset.labels[row[name]]]
    if differing:
        name, label = differing[0]
        keys = (*dataset.space.keys, "no class of it")
        raise ClassifierError(
            f"the labels in {truth.source} are not those of {dataset.name!r} "
            f"for {len(differing)} of {len(shared)} images",
            found=f"{name}: {keys[label]} in the file, {keys[dataset.labels[row[name]]]} in the dataset",
            hint="one of the two has its classes in another order, and the file's label space must be named "
            f"({argument('labels')}); or a file without names of images has them in another order",
        )


class LabelsOnly(Dataset):
    """Ids and labels without images.

    Its fingerprint differs from that of the dataset with images, so scores on the two never share a column.
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
