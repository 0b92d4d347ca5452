"""Import predictions from files into a workspace, as results like those of a run."""

from __future__ import annotations

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
    UnknownNameError,
    argument,
    check_names,
    listed,
    warn_user,
)
from shiftbench.grouping import by_key, repeated
from shiftbench.io.paths import Location
from shiftbench.jobs.progress import Advance, progress_bar
from shiftbench.labels.catalogue import FOLDERS, LabelsArgument, find_label_space
from shiftbench.labels.space import LabelSpace
from shiftbench.metrics.base import Needs
from shiftbench.runs.plan import PlannedResult, is_complete, plan_result, record_images
from shiftbench.runs.results import StoredResults
from shiftbench.settings.base import Setting, SuiteOptions, build_suite, suites
from shiftbench.shifts.base import NoShift
from shiftbench.store.prediction_files import PredictionBlock, write_block
from shiftbench.store.run_records import Call, ModelRun, recorded_run
from shiftbench.store.spec import ClassifierRecord, SettingRecord
from shiftbench.store.workspace import Result, Workspace

#: Who made the images that predictions were made on, where this package would make others.
MAKERS = ("testbed", "released-files")
#: The suites whose shifted images were released as files.
_RELEASED_SUITES = ("imagenet-c", "imagenet-c-extra", "cifar-10-c")


def _file_name(image_id: str) -> str:
    return PurePosixPath(image_id).name


def _file_stem(image_id: str) -> str:
    return PurePosixPath(image_id).stem


#: Everything that was recorded is kept: there is no model to ask again.
_NEEDS = Needs(top_k=5, scores=True)
#: Images are found by their id, else by the name of their file, else by that name without its ending.
_NAMINGS: dict[str, Callable[[str], str]] = {
    "id": str,
    "file name": _file_name,
    "file name without ending": _file_stem,
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
    made_by: str | None = None,
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
        made_by: Who made the images, where a suite would make them in memory: ``"testbed"``, the code of the ImageNet
            testbed, whose published numbers the results may then stand beside, or ``"released-files"``, the files of a
            benchmark as its authors released them.
        progress: Whether a progress bar is shown.

    Raises:
        StoreError: Files that don't fit each other or the dataset.
    """
    arguments = dict(locals())
    store = workspace if isinstance(workspace, Workspace) else Workspace(workspace)
    if not isinstance(setting, Setting):
        setting = find_setting(setting, made_by)
    if reference is not None:
        setting = replace(setting, reference=reference)
    named_space = find_label_space(labels)
    file_space = named_space if isinstance(named_space, LabelSpace) else None
    files_read = _read_files(files, setting.name, file_space, array)
    dataset, space = _dataset(setting, files_read, named_space, truth, data)
    if setting.source == "in-memory":
        # The shifted images are not at hand. A report must not show the images without shift in their place.
        dataset = LabelsOnly(setting.name, dataset.space, dataset.ids, dataset.labels)
    # Labels without names beside predictions without names are in one order.
    labels_are_beside = data is None and truth is None
    matching = Matching(dataset, in_order=in_order or labels_are_beside, allow_unknown=allow_unknown)
    imports: list[_PlannedImport] = []
    for file in files_read:
        for classifier in _recorded_models(file, matching, space):
            imports.append(_plan(classifier, setting, dataset, store, made_by))
    sources = {} if data is None else {setting.dataset: str(data)}
    call = Call("import", import_predictions, arguments, sources)
    imported = _write_all(imports, dataset, store, call, matching, replace_old=replace_old, progress=progress)
    _warn(imported)
    return imported


def import_answers(
    answers: recorded.RecordedPredictions,
    setting: Setting,
    dataset: Dataset,
    workspace: str | Location | Workspace = "shiftbench-workspace",
    *,
    seed: int = 0,
) -> Imported:
    """Put the answers of one model to the images of a setting, shifted by this package, into a workspace.

    Unlike ``import_predictions``, the setting may have a shift: the caller vouches that the images were made with this
    seed, as ``sb.torch_dataset`` makes them. Other answers of the model in this setting are replaced.

    Args:
        answers: The answers; their ids are those of the dataset.
        setting: The setting.
        dataset: Its clean images.
        workspace: Where the results are kept.
        seed: The seed of the shift.
    """
    arguments = {key: value for key, value in locals().items() if key in ("workspace", "seed")}
    store = workspace if isinstance(workspace, Workspace) else Workspace(workspace)
    answers.of_shifted_images = True
    planned = _plan(answers, setting, dataset, store, None, seed)
    matching = Matching(dataset, in_order=False, allow_unknown=False)
    call = Call("import", import_answers, arguments)
    return _write_all([planned], dataset, store, call, matching, replace_old=True, progress=False)


def _write_all(
    imports: Sequence[_PlannedImport],
    dataset: Dataset,
    store: Workspace,
    call: Call,
    matching: Matching,
    *,
    replace_old: bool,
    progress: bool,
) -> Imported:
    """Write the answers of all models, with what a reader of the workspace needs to know about them."""
    setting = imports[0].planned.setting
    results = [planned.result for planned in imports]
    record_images(store, dataset)
    setting_record = SettingRecord.of(setting)
    store.record_settings({result.spec.setting_key(setting.name): setting_record for result in results})
    replaced = _other_answers(store, results, replace_old)
    replaced_keys = by_key((result.classifier, result.key) for result in replaced)
    models = [_model_run(planned, replaced_keys.get(planned.classifier.name, [])) for planned in imports]
    with (
        recorded_run(store, call, models),
        progress_bar("models", len(imports), show=progress) as advance,
    ):
        for result in replaced:
            store.predictions_path(result).unlink()
        missing = _write_each(imports, dataset, store, advance)
    return Imported(StoredResults(store, results), matching.rule, missing, matching.unknown)


def _read_files(
    files: str | Path | Sequence[str | Path], setting: str, labels: LabelSpace | None, array: str | None
) -> list[recorded.PredictionFile]:
    """What the files hold about one setting; every model is in one of them."""
    paths = [files] if isinstance(files, str | Path) else list(files)
    files_read = [recorded.read_predictions(path, labels, array=array, wide=True, setting=setting) for path in paths]
    names: list[str] = []
    for file in files_read:
        names += [answers.model for answers in file.answers]
    if not names:
        sources = ", ".join(file.source for file in files_read)
        raise ClassifierError("no model found in the files", found=sources or "no file")
    shared_names = repeated(names)
    if shared_names:
        raise ClassifierError(
            f"{len(shared_names)} models occur more than once",
            found=", ".join(shared_names[:5]),
            hint="give each its own name",
        )
    return files_read


def _recorded_models(
    file: recorded.PredictionFile, matching: Matching, space: LabelSpace
) -> list[recorded.RecordedPredictions]:
    """The models of a file, with the ids of the dataset in place of the names in the file."""
    return [recorded.record(answers, matching.ids_of(answers, file), space, file.source) for answers in file.answers]


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
    classifier: recorded.RecordedPredictions,
    setting: Setting,
    dataset: Dataset,
    store: Workspace,
    made_by: str | None,
    seed: int = 0,
) -> _PlannedImport:
    """As for a run, but the model is one and the same in all settings, whatever it answered in this one."""
    planned = plan_result(classifier, setting, dataset, _NEEDS, seed, store)
    spec = replace(
        planned.result.spec, classifier=ClassifierRecord(classifier.identity), answers=classifier.fingerprint
    )
    if made_by is not None:
        # Numbers on images of another origin never share a column, nor a mean, with those of this package.
        origin = f"images made by {made_by}"
        spec = replace(
            spec, made_by=made_by, provenance=f"{spec.provenance}; {origin}", family=f"{spec.family}; {origin}"
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


def _write_each(
    imports: Sequence[_PlannedImport], dataset: Dataset, store: Workspace, advance: Advance
) -> dict[str, int]:
    """Write the answers of all models; returns for how many images each of them has none, if there are any."""
    missing: dict[str, int] = {}
    for planned in imports:
        images_without = _write(planned, dataset, store)
        if images_without:
            missing[planned.classifier.name] = images_without
        advance(1)
    return missing


def _write(planned: _PlannedImport, dataset: Dataset, store: Workspace) -> int:
    """Write the answers of one model, unless they are there; returns how many images have none."""
    needs = planned.planned.needs
    ids = [dataset.ids[row] for row in planned.planned.rows]
    answer = planned.classifier.lookup(ids, planned.planned.space)
    if not planned.complete:
        scores = answer.scores if needs.scores else None
        block = PredictionBlock(answer.top[:, : needs.top_k], answer.confidence, scores)
        path = store.predictions_path(planned.result)
        write_block(path, block, planned.result.spec, f"shiftbench {__version__}")
    return int((answer.top[:, 0] == recorded.MISSING).sum())


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


def find_setting(name: str, made_by: str | None = None) -> Setting:
    """The setting of that name in any suite, if its images are used as they are; else one of the user's own.

    Images that a suite would make in memory may have been made elsewhere: ``made_by`` says by whom.
    """
    if made_by is not None:
        return _setting_made_elsewhere(name, made_by)
    for suite in suites.names():
        for setting in build_suite(suite).settings:
            if setting.name == name and not setting.shifted:
                return setting
            if setting.name == name:
                raise _made_here(setting)
    return Setting(name, name)


def _made_here(setting: Setting) -> SettingError:
    """The error about predictions on images that a suite makes in memory, if nobody says who made these."""
    hint = "import predictions on images made elsewhere under another name"
    for maker in MAKERS:
        if any(released.name == setting.name for released in _settings_made_by(maker)):
            hint = f"if they are from there: {argument('made_by', maker)}"
    return SettingError(
        f"the images of {setting.name!r} are made by this package",
        found=f"{setting.shift.name}, with a generator and seeds of its own",
        hint=hint,
    )


def _settings_made_by(maker: str) -> list[Setting]:
    """The settings whose shifted images somebody else has made."""
    if maker == "testbed":
        return list(build_suite("testbed-213").settings)
    settings: list[Setting] = []
    for suite in _RELEASED_SUITES:
        settings += build_suite(suite, SuiteOptions(source="on-disk")).settings
    return settings


def _setting_made_elsewhere(name: str, made_by: str) -> Setting:
    """The setting, with images that are used as they are."""
    check_names("maker of images", [made_by], MAKERS)
    candidates = _settings_made_by(made_by)
    for setting in candidates:
        if setting.name == name and setting.shifted:
            return replace(setting, shift=NoShift(), source="in-memory")
        if setting.name == name:
            return setting
    raise UnknownNameError(f"setting with images made by {made_by}", name, [setting.name for setting in candidates])


def _dataset(
    setting: Setting,
    files: Sequence[recorded.PredictionFile],
    labels: LabelSpace | str | None,
    truth: str | Path | None,
    data: str | Location | Dataset | None,
) -> tuple[Dataset, LabelSpace]:
    """The images with their true classes, and the label space that the predictions are read in."""
    if truth is not None:
        truths = [recorded.read_truth(truth)]
    else:
        truths = [file.truth for file in files if file.truth is not None]
    if data is not None:
        dataset = _open_images(data, labels)
        space = labels if isinstance(labels, LabelSpace) else dataset.space
        for labels_of_file in truths:
            check_agreement(labels_of_file, dataset, space)
        return dataset, space
    if not isinstance(labels, LabelSpace):
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
    return _labels_only(setting, truths, labels), labels


def _labels_only(setting: Setting, truths: Sequence[recorded.Truth], space: LabelSpace) -> LabelsOnly:
    """All images that the files name, each with one true class."""
    # The name of the test set is part of the id, because row 5 of another test set is not the same image. Corrupted
    # copies are of the images of the setting that they are compared with, in the same order.
    test_set = setting.name
    if setting.member is not None and setting.reference is not None:
        test_set = setting.reference
    true_class: dict[str, int] = {}
    for truth in truths:
        labels = recorded.class_indices(truth.labels, space, truth.source).tolist()
        ids = truth.ids
        if ids is None:
            ids = [f"{test_set}/{row:05d}" for row in range(len(labels))]
        for image, label in zip(ids, labels, strict=True):
            if true_class.setdefault(image, label) != label:
                raise ClassifierError(
                    f"{truth.source} gives one image two true classes",
                    found=f"{image}: {space.keys[true_class[image]]} and {space.keys[label]}",
                )
    return LabelsOnly(setting.name, space, list(true_class), list(true_class.values()))


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


def _other_answers(store: Workspace, results: Sequence[Result], replace_old: bool) -> list[Result]:
    """Other answers of the same model in the same setting, to be replaced: a model would have two numbers there.

    Raises:
        StoreError: There are some, and ``replace_old`` is False.
    """
    new_results = {result.classifier: result for result in results}
    old: list[Result] = []
    for stored in store.results(new_results, [results[0].setting]):
        new = new_results[stored.classifier]
        if stored.spec.classifier == new.spec.classifier and stored.key != new.key:
            old.append(stored)
    if old and not replace_old:
        raise StoreError(
            f"{len(old)} of these models have other predictions in {results[0].setting!r} already",
            found=", ".join(result.classifier for result in old[:5]),
            hint=f"{argument('replace_old', True, flag='--replace')} replaces them; or name another workspace",
        )
    return old


class Matching:
    """Translates the names of images in files to those in a dataset.

    The first of ``_NAMINGS`` under which an image is found counts for all.
    """

    def __init__(self, dataset: Dataset, *, in_order: bool = False, allow_unknown: bool = False) -> None:
        self.dataset = dataset
        self.in_order = in_order
        self.allow_unknown = allow_unknown
        #: How images were found: "id", "file name", ..., or "order".
        self.rule = "id"
        #: Models with predictions for images that the dataset lacks, and how many.
        self.unknown: dict[str, int] = {}
        self._naming: Callable[[str], str] = str
        #: By name of an image under the naming: its id. Empty until the first translation.
        self._id_of: dict[str, str] = {}
        #: The last names that were translated, and their ids: the models of one file share one list of names.
        self._last: tuple[Sequence[str], list[str]] | None = None

    def ids_of(self, answers: recorded.Answers, file: recorded.PredictionFile) -> Sequence[str]:
        """The dataset's ids of a model's images."""
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
        ids = self.translate(answers.ids)
        dataset_ids = set(self._id_of.values())
        unknown = [image_id for image_id in ids if image_id not in dataset_ids]
        if unknown and not self.allow_unknown:
            raise ClassifierError(
                f"{file.source} has predictions of {answers.model} for {len(unknown)} images that "
                f"{self.dataset.name!r} lacks",
                found=f"ids such as {', '.join(unknown[:3])}",
                expected=f"ids such as {', '.join(list(self.dataset.ids)[:3])}",
                hint=f"name the images as the dataset does; {argument('allow_unknown', True)} leaves the others out",
            )
        if unknown:
            self.unknown[answers.model] = len(unknown)
        return ids

    def translate(self, names: Sequence[str]) -> list[str]:
        """Each name as the dataset has it; a name that it lacks stays as it is."""
        if self._last is None or self._last[0] is not names:
            if not self._id_of:
                self._find_naming(names)
            self._last = names, [self._id_of.get(self._naming(name), name) for name in names]
        return self._last[1]

    def _find_naming(self, names: Sequence[str]) -> None:
        """Choose the first naming under which an image has one of these names; otherwise images are found by id."""
        for rule, naming in _NAMINGS.items():
            id_of = {naming(image_id): image_id for image_id in self.dataset.ids}
            # A name that two images share is ambiguous.
            if len(id_of) == len(self.dataset) and any(naming(name) in id_of for name in names):
                self.rule = rule
                self._naming = naming
                self._id_of = id_of
                return
        self._id_of = {image_id: image_id for image_id in self.dataset.ids}


def check_agreement(truth: recorded.Truth, dataset: Dataset, space: LabelSpace) -> None:
    """Raise ClassifierError if labels beside the predictions are not those of the dataset: the classes of the two then
    have different numbers."""
    ids = truth.ids
    if ids is None:  # taken in order, as the predictions beside them
        count = len(truth.labels)
        if count != len(dataset):
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
        # The name says that there are no images, so that it appears in every score's provenance.
        self.name = f"{name} (labels only)"
        self.space = space
        self.ids = list(ids)
        self.labels = np.asarray(labels, np.int32)

    @cached_property
    def fingerprint(self) -> str:
        return combine(self.ids, self.labels, self.space, (b"" for _ in self.ids))

    def read(self, index: int) -> DecodedImage:
        raise bad_image(self.ids[index], "only its label is known, not the image")

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "pictures": "none: labels only"}
