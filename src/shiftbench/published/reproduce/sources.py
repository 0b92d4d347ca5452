"""The data that claims are recomputed from: the testbed's results, released predictions, results in a workspace.

A table of models with the columns ``printed`` and ``model`` (and ``paper``, if a name means two networks) says which
model of the workspace is the network that a paper prints. A network may have several rows: the same weights with
another label space are another model.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.resources import files
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.datasets import open_dataset
from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS
from shiftbench.datasets.factors import read_protocol
from shiftbench.errors import DatasetError, listed
from shiftbench.io.atomic import read_json
from shiftbench.io.paths import Location
from shiftbench.labels.catalogue import label_space
from shiftbench.metrics.base import SettingScore, metrics
from shiftbench.metrics.corruption import GROUPS, SEVERITIES, corruption_errors, mean_corruption_error
from shiftbench.metrics.detection import detect
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.published.importers import open_table, read_tables
from shiftbench.published.reproduce.base import NoDataError, Recomputed
from shiftbench.published.tables import PublishedValue, published
from shiftbench.runs.results import StoredResults
from shiftbench.store.predictions import Predictions
from shiftbench.store.workspace import Result
from shiftbench.studies.base import PERCENT, StudyError, whole
from shiftbench.studies.results import TableFile, results_from_scores, same_images
from shiftbench.studies.study import Study
from shiftbench.studies.testbed import ALL_IMAGES, SIZES, TENTH, complete, is_testbed, known_settings

AnyArray = NDArray[np.generic]

_NAMES = tomllib.loads(files("shiftbench.published").joinpath("data", "names.toml").read_text(encoding="utf-8"))
#: The settings that a printed mean is over.
_MEANS: dict[str, list[str]] = _NAMES["means"]
#: A paper's network to the testbed's model.
TESTBED_NAMES: dict[str, str] = _NAMES["testbed"]
#: A paper's setting to ours.
_SETTINGS: dict[str, str] = _NAMES["settings"]
#: A setting to its array in the released CIFAR-10 predictions.
_CIFAR: dict[str, str] = _NAMES["cifar"]
#: A setting to its file or folder of released ImageNet predictions.
_IMAGENET: dict[str, str] = _NAMES["imagenet"]
#: A model of the release to its name in the tables of 004.
_TABLE_NAMES: dict[str, str] = _NAMES["models_004"]

_CIFAR_FILE = "cifar10_and_10.1_predictions*.npz"
_IMAGENET_FILE = "predictions_top5_{}.npz"
#: Files of the public release, one per model.
_RELEASED = (".npy", ".json")
#: How many folders down the folders of test sets may lie.
_DEEPEST = 3
#: What the release appends to the names of two models in some of its folders: fv_64k_model.npy is fv_64k.
_NAME_SUFFIX = "_model"
#: The public release of CIFAR-10.1: a folder per test set, with one file per model, a list of predicted classes.
_CIFAR_FOLDERS = {
    "cifar-10": "original_predictions",
    "cifar-10.1-v4": "v4_predictions",
    "cifar-10.1-v6": "v6_predictions",
}
_CIFAR_SUFFIX = "_predictions.json"
#: The files of labels beside the folder of predictions; CIFAR-10's own labels are not in that release.
_CIFAR_LABELS = {
    "cifar-10": ("cifar10_test_set_original_labels.npy", "cifar10_test_labels.npy"),
    "cifar-10.1-v4": ("cifar10.1_v4_labels.npy",),
    "cifar-10.1-v6": ("cifar10.1_v6_labels.npy",),
}
#: The 20,000 original validation images that were annotated, on which figure 16 is based.
_ANNOTATED = "imagenet-annotatedval20k-0"

_CORRUPTED = "imagenet-c"
#: Table 11 of 000 states eight sizes for the nine sets of DeepFashion Remixed: the first is that of the set without
#: shift, and this is the smallest.
_FASHION = "deepfashion-remixed"
_FASHION_TEST = 42_640
_FASHION_LEAST = 480


@cache
def _image_counts() -> dict[str, int]:
    """The number of images of each published test set, by our settings.

    The images of StreetView StoreFronts were never released: other images, of whatever sizes the paper states, are the
    closest that anybody can evaluate on.
    """
    storefronts = read_protocol("streetview-storefronts")
    return {
        **SIZES,
        **{f"{storefronts.name}.{which}": size for which, size in storefronts.published.items()},
        "imagenet-o": 2_000,
        "real-blurry-images": 1_000,
        f"{_FASHION}.test": _FASHION_TEST,
        "cifar-10": 10_000,
        "cifar-10.1-v4": 2_021,
        "cifar-10.1-v6": 2_000,
    }


@dataclass(frozen=True, eq=False)
class Data:
    """Data beyond the tables in the package. Asking for what was not given raises ``NoDataError``."""

    study: Study | None = None
    #: Setting to the file with its released predictions.
    files: Mapping[str, Path] | None = None
    #: A workspace with the networks' predictions, and its names for them by (paper, printed name); "" is any paper.
    run: StoredResults | None = None
    names: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)
    #: Whether all data is public files that never change: the testbed's release of 204 models, not its newest table.
    is_release: bool = True

    @property
    def testbed(self) -> Study:
        """The testbed's public results, else the same settings and models in the workspace."""
        study = self.study or self._workspace_testbed
        if study is None:
            raise NoDataError("the testbed's public results (--testbed), or its models in a workspace")
        return study

    @cached_property
    def _workspace_testbed(self) -> Study | None:
        """The workspace's results on whole test sets, if its models are the testbed's."""
        if self.run is None:
            return None
        settings = known_settings().keys() & set(self.run.settings)
        if not settings:
            return None
        printed_names = {}
        for (_, printed), models in self.names.items():
            printed_names.update(dict.fromkeys(models, printed))
        entries = []
        for model, setting, score in self.run.select(settings=settings).scores():
            sizes = [SIZES[setting]] if setting in SIZES else [TENTH, ALL_IMAGES]
            if same_images(score.n, sizes):
                entries.append(SettingScore(printed_names.get(model, model), setting, score))
        if not entries:
            return None
        results = results_from_scores(entries)
        if not is_testbed(results):
            return None
        return Study(complete(replace(results, values=100.0 * results.values, unit=PERCENT)))

    def testbed_with(self, *settings: str) -> Study:
        """The testbed, if its results have these settings."""
        missing = [setting for setting in settings if setting not in self.testbed.results.settings]
        if missing:
            raise NoDataError(f"{' and '.join(missing)} in the testbed's results")
        return self.testbed

    def testbed_score(self, network: str, setting: str, *, error: bool = False) -> Recomputed:
        """Accuracy or error of a paper's network with its Clopper-Pearson interval, where the size is known."""
        results = self.testbed.results
        if network not in TESTBED_NAMES:
            raise NoDataError("networks that the testbed does not have")
        model = TESTBED_NAMES[network]
        column = results.of(setting) if setting in results.settings else {}
        if model not in column:
            raise NoDataError(f"{model} on {setting} in the testbed's results")
        accuracy = Recomputed(column[model] / whole(results.unit))
        sizes = results.size(setting)
        if sizes is not None:
            n = float(np.broadcast_to(sizes, len(results.models))[results.models.index(model)])
            low, high = clopper_pearson(accuracy.value * n, n)
            accuracy = replace(accuracy, low=low, high=high)
        return accuracy.as_error() if error else accuracy

    def accuracies(self, setting: str, k: int = 1) -> Mapping[str, float]:
        """Top-k accuracy of every model with released predictions, or in the workspace, by its name in 004's tables."""
        if self.files is None and self.run is not None:
            return _workspace_accuracies(self, setting, k)
        if self.files is None:
            raise NoDataError("released predictions on the images (--predictions), or a workspace (--workspace)")
        if setting not in self.files or (setting in _CIFAR and k != 1):
            raise NoDataError(f"released predictions on {setting}")
        return _accuracies(self.files[setting], setting, k)

    def looked_up(self, row: PublishedValue) -> Recomputed:
        """What the workspace's predictions give for a printed number."""
        if self.run is None:
            setting = _SETTINGS.get(row.setting, row.setting.partition(".")[0])
            raise NoDataError(
                f"results of these networks on {setting} (shiftbench eval; then --workspace W --models map.csv)"
            )
        results = self.results_of(row)
        if row.metric == "gap":
            return Recomputed(self.score(results, "imagenet-200").value - self.score(results, row.setting).value)
        if row.metric == "AUPR":
            return self._detection(results, row)
        if row.setting.startswith(_CORRUPTED):
            return Recomputed(self._corruption(results, row))
        metric = "mean_average_precision" if row.metric == "mAP" else "top1"
        scores = [self.score(results, name, metric) for name in _MEANS.get(row.setting, [row.setting])]
        recomputed = scores[0]
        if len(scores) > 1:
            recomputed = Recomputed(fmean(score.value for score in scores))
        return recomputed.as_error() if row.metric == "error" else recomputed

    def results_of(self, row: PublishedValue) -> list[Result]:
        """The results of the network that a number is about.

        Predictions that were imported over several label spaces are several versions of one network, since nobody knows
        what else they share: they complete each other here. Versions that were evaluated may have other weights.
        """
        assert self.run is not None
        names = self.names.get((row.paper, row.model)) or self.names.get(("", row.model)) or [row.model]
        results = [result for result in self.run.results if not {result.title, result.classifier}.isdisjoint(names)]
        if not results:
            raise NoDataError("a model of the workspace for each network (a row of --models)")
        is_imported = all(result.spec.answers is not None for result in results)
        if len(_titles(results)) > len(names) and not is_imported:
            raise NoDataError(f"the id of one model for {row.model}, which is several of the workspace (in --models)")
        return results

    def score(self, results: Sequence[Result], setting: str, metric: str = "top1") -> Recomputed:
        """A metric of the one result in a setting, which may have a paper's name."""
        predictions = self._read(_only(results, _SETTINGS.get(setting, setting)))
        compute = metrics.get(metric)
        top_k = compute.needs.top_k
        if predictions.top.shape[1] < min(top_k, len(predictions.space)):
            raise NoDataError(f"the best {top_k} classes of each image of {setting} (eval --metric {metric})")
        return _from_score(compute(predictions))

    def _detection(self, results: Sequence[Result], row: PublishedValue) -> Recomputed:
        """AUPR of images of unknown classes against those of known classes."""
        inside = self._read(_only(results, f"val-on-{row.setting}-classes"))
        outside = self._read(_only(results, row.setting))
        if np.isnan(inside.confidence).all() or np.isnan(outside.confidence).all():
            raise NoDataError(f"confidences over the classes of {row.setting}, beside the predictions")
        return _from_score(detect(inside, outside, "max_softmax", published=True).aupr)

    def _read(self, result: Result) -> Predictions:
        """Predictions on all images of a test set; an error if some are missing, which alone changes the numbers."""
        assert self.run is not None
        corrupted = self.run.workspace.setting_record(result).member is not None
        expected = ALL_IMAGES if corrupted else _image_counts().get(result.setting)
        images = result.spec.images
        if expected is not None and not same_images(images, [expected]):
            raise NoDataError(f"results on all {expected:,} images of {result.setting}, not on {images:,}")
        if result.setting.startswith(f"{_FASHION}.") and images < _FASHION_LEAST:
            raise NoDataError(f"results on at least {_FASHION_LEAST} images of {result.setting}, not on {images:,}")
        return self.run.workspace.read(result)

    def _corruption(self, results: Sequence[Result], row: PublishedValue) -> float:
        """A number on ImageNet-C: of one corruption, of the blurs, or of all fifteen."""
        name = row.setting.removeprefix(f"{_CORRUPTED}.")
        corruptions = {_CORRUPTED: BENCHMARK_CORRUPTIONS, "blur-mean": GROUPS["blur"]}.get(name, (name,))
        errors = {corruption: self._errors_by_severity(results, corruption) for corruption in corruptions}
        if row.metric == "error":
            return fmean(chain.from_iterable(errors.values()))
        clean = None
        if row.metric in ("relative CE", "relative mCE"):
            clean = 1.0 - self.score(results, "imagenet").value
        if name == _CORRUPTED:
            return mean_corruption_error(errors, clean)
        return corruption_errors(errors, clean)[name]

    def _errors_by_severity(self, results: Sequence[Result], corruption: str) -> list[float]:
        errors = []
        for severity in SEVERITIES:
            keys = [(title, corruption, severity) for title in sorted(_titles(results))]
            released = [self._released_files[key] for key in keys if key in self._released_files]
            if len(released) != 1:
                raise NoDataError(f"a result on the released files of imagenet-c.{corruption}.{severity:g}")
            errors.append(metrics.get("error")(self._read(released[0])).value)
        return errors

    @cached_property
    def _released_files(self) -> dict[tuple[str, str, float], Result]:
        """Results on the released files of ImageNet-C, by model, corruption and severity."""
        if self.run is None:
            return {}
        released = {}
        for result in self.run.results:
            member = self.run.workspace.setting_record(result).member
            if member is not None and member.family == _CORRUPTED and result.spec.source == "on-disk":
                released[result.title, member.name, member.level] = result
        return released


def predictions(row: PublishedValue, data: Data) -> Recomputed:
    """Recompute one of the numbers that a workspace can give."""
    return data.looked_up(row)


def _titles(results: Sequence[Result]) -> set[str]:
    return {result.title for result in results}


def _only(results: Sequence[Result], setting: str) -> Result:
    """The single result in a setting; an error if there is none, or more than one."""
    in_setting = [result for result in results if result.setting == setting]
    if not in_setting:
        raise NoDataError(f"a result on {setting}")
    if len(in_setting) > 1:
        raise NoDataError(f"one result on {setting}")
    return in_setting[0]


def _from_score(score: Any) -> Recomputed:
    return Recomputed(float(score.value), 0.0, float(score.low), float(score.high))


def open_data(
    testbed: str | Path | None = None,
    predictions: str | Path | None = None,
    workspace: str | Location | None = None,
    models: Path | None = None,
) -> Data:
    """The optional folders, looked into at once, so that a wrong one is a clear error and not a missing number.

    ``testbed``: its public table of results, or the folder that holds it. ``predictions``: a folder (or one above it)
    with the files of 004's released predictions; see ``prediction_files``. ``workspace`` and ``models``: a workspace,
    and a table that names its models for the papers' networks.
    """
    without_option = "leave the option out to use the built-in tables only"
    if testbed is not None and not Path(testbed).exists():
        raise StudyError(f"--testbed: no file or folder at {testbed}", hint=without_option)
    if predictions is not None and not Path(predictions).is_dir():
        raise StudyError(f"--predictions: no folder at {predictions}", hint=without_option)
    study = None
    is_release = True
    if testbed is not None:
        study = open_table(Path(testbed))
        in_file, _ = read_tables(Path(testbed))
        is_release = is_testbed(in_file) and len(in_file.models) == len(study.results.models)
        if is_testbed(study.results):
            study = Study(study.results)  # the paper's groups are the package's, whatever list lies beside the table
    files = None if predictions is None else prediction_files(Path(predictions))
    if workspace is None:
        return Data(study, files, is_release=is_release)
    run = StoredResults.open(workspace)
    names = {} if models is None else _read_names(models, run)
    return Data(study, files, run, names, is_release=False)


def _read_names(path: Path, run: StoredResults) -> dict[tuple[str, str], list[str]]:
    """The workspace's names of networks by (paper, printed name), from a table that maps them."""
    table = TableFile.read(path)
    if not {"printed", "model"} <= set(table.header):
        wrong = f"{table.name} is not a table of models"
        raise StudyError(wrong, found=listed(table.header), expected="the columns printed and model")
    names: dict[tuple[str, str], list[str]] = {}
    for cells in table.rows:
        row = dict(zip(table.header, map(str, cells), strict=True))
        # A name that the workspace does not have is an error now.
        title = run.models.title(run.find_model(row["model"]))
        names.setdefault((row.get("paper", ""), row["printed"]), []).append(title)
    return names


def prediction_files(folder: Path) -> dict[str, Path]:
    """Settings to files: ``cifar10_and_10.1_predictions*.npz``, ``predictions_top5_<set>.npz``, or the public releases.

    The first holds ``models``, and for each of cifar10, v4 and v6 predicted classes (models, images) and ``labels_*``;
    the second ``models``, ``labels`` and ``predictions`` (models, images, 5). ImageNetV2's release is a folder
    ``data/predictions/<set>`` with one .npy or .json of (images, 5) class indices per model, in the order of
    ``image_filenames`` in ``data/datasets/<set>.json``. CIFAR-10.1's is a folder
    ``model_predictions/<set>_predictions`` with one .json of class indices per model.
    """
    by_setting: dict[str, Path] = {}
    for parent in _folder_tree(folder):
        for setting, path in _files_in(parent).items():
            by_setting.setdefault(setting, path)
    if not by_setting:
        raise StudyError(
            "no released predictions in that folder",
            found=listed(sorted(path.name for path in folder.iterdir())) or "an empty folder",
            expected=f"{_CIFAR_FILE}, {_IMAGENET_FILE.format('*')} or the releases' folders of one file per model, "
            "such as predictions/imagenetv2-b-33 and model_predictions/v4_predictions, at most four folders down",
        )
    return by_setting


def _files_in(parent: Path) -> dict[str, Path]:
    """The files and folders of released predictions in a folder, by setting."""
    by_setting: dict[str, Path] = {}
    for cifar in sorted(parent.glob(_CIFAR_FILE))[:1]:
        by_setting |= dict.fromkeys(_CIFAR, cifar)
    for setting, name in _CIFAR_FOLDERS.items():
        if any((parent / name).glob(f"*{_CIFAR_SUFFIX}")):
            by_setting.setdefault(setting, parent / name)
    for setting, name in _IMAGENET.items():
        path = parent / _IMAGENET_FILE.format(name)
        if path.is_file():
            by_setting[setting] = path
        elif any(file.suffix in _RELEASED for file in (parent / name).glob("*.*")):
            by_setting[setting] = parent / name
    return by_setting


def _folders_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir())


def _folder_tree(folder: Path) -> list[Path]:
    """A folder and those within it, level by level.

    The checkouts of both releases may lie side by side, and the predictions of ImageNetV2 lie in the folder
    ``data/predictions`` of its checkout.
    """
    tree = [folder]
    level = [folder]
    for _ in range(_DEEPEST):
        level = list(chain.from_iterable(_folders_in(parent) for parent in level))
        tree += level
    return tree


def released_revisions(folder: Path) -> list[dict[str, object]]:
    """Accuracies on every revision of ImageNetV2 in the public release (004, figures 7 and 8).

    The release has other models for each revision, whose mean would jump with the selection. The means are over the
    models that all revisions of a set have; beside them stands the ResNet-152.
    """
    # The settings name the last revision of each set: imagenetv2-b-33 belongs to the family imagenetv2-b.
    families = {last.rpartition("-")[0]: setting for setting, last in _IMAGENET.items() if setting != "imagenet"}
    revisions: dict[str, dict[int, Path]] = {}
    for parent in _folder_tree(folder):
        for path in _folders_in(parent):
            family, _, number = path.name.rpartition("-")
            if family in families and number.isdigit() and _model_files(path):
                revisions.setdefault(families[family], {}).setdefault(int(number), path)
    rows = []
    for setting, paths in sorted(revisions.items()):
        common = sorted(set.intersection(*(set(_model_files(path)) for path in paths.values())))
        for revision, path in sorted(paths.items()):
            row: dict[str, object] = {"set": setting, "revision": revision, "released": len(_model_files(path))}
            row["models"] = len(common)
            for k in (1, 5):
                accuracies = _accuracies(path, setting, k)
                shared = [accuracies[_table_name(model)] for model in common]
                row[f"top{k}"] = fmean(shared) if shared else None
                row[f"resnet152_top{k}"] = accuracies.get("resnet152")
            rows.append(row)
    return rows


def released_annotated(folder: Path) -> list[dict[str, object]]:
    """Accuracies of the release on the annotated original images beside those on all of them, by model (figure 16).

    Figure 16 divides the annotated images by selection frequency, which the release does not have.
    """
    paths = [parent / _ANNOTATED for parent in _folder_tree(folder)]
    path = next((path for path in paths if _model_files(path)), None)
    everything = prediction_files(folder).get("imagenet")
    if path is None or everything is None:
        return []
    rows = []
    annotated = {k: _accuracies(path, _ANNOTATED, k) for k in (1, 5)}
    original = {k: _accuracies(everything, "imagenet", k) for k in (1, 5)}
    images = len(_released_labels(path))
    for model in sorted(annotated[1].keys() & original[1].keys()):
        row: dict[str, object] = {"model": model, "images": images}
        for k in (1, 5):
            low, high = clopper_pearson(annotated[k][model] * images, images)
            row |= {
                f"original_top{k}": original[k][model],
                f"annotated_top{k}": annotated[k][model],
                f"annotated_top{k}_low": low,
                f"annotated_top{k}_high": high,
            }
        rows.append(row)
    return rows


@cache
def _workspace_accuracies(data: Data, setting: str, k: int) -> Mapping[str, float]:
    """Top-k accuracy in the workspace of every model that 004 prints and the workspace has, by its printed name."""
    printed = {row.model: row for row in published("004", setting=setting)}
    accuracies = {}
    for model, row in printed.items():
        with suppress(NoDataError):
            accuracies[model] = data.score(data.results_of(row), setting, f"top{k}").value
    return accuracies


@cache
def _accuracies(path: Path, setting: str, k: int) -> Mapping[str, float]:
    """Top-k accuracy of every model in released predictions, by its name in 004's tables."""
    try:
        hits = _cifar_hits(path, setting) if setting in _CIFAR else _imagenet_hits(path, setting, k)
    except (KeyError, ValueError, OSError) as error:
        raise DatasetError(f"{path.name} can't be read as released predictions", found=str(error)) from error
    return {_table_name(name): float(model_hits.mean()) for name, model_hits in hits.items()}


def _table_name(name: str) -> str:
    return _TABLE_NAMES.get(name, name)


def _cifar_hits(path: Path, setting: str) -> dict[str, AnyArray]:
    key = _CIFAR[setting]
    if path.is_dir():
        return _released_cifar_hits(path, setting)
    with np.load(path) as data:
        return dict(zip(map(str, data["models"]), data[key] == data[f"labels_{key}"], strict=True))


def _released_cifar_hits(folder: Path, setting: str) -> dict[str, AnyArray]:
    labels = _cifar_labels(folder, setting)
    hits = {}
    for file in sorted(folder.glob(f"*{_CIFAR_SUFFIX}")):
        classes = np.array(read_json(file))
        if classes.shape != labels.shape:
            raise ValueError(f"{file.name}: {classes.shape} instead of {labels.shape}")
        hits[file.name.removesuffix(_CIFAR_SUFFIX)] = classes == labels
    return hits


def _cifar_labels(folder: Path, setting: str) -> AnyArray:
    """The labels of the images that a folder of CIFAR-10.1's release is about.

    Its repository has those of CIFAR-10.1 in ``datasets``. Those of CIFAR-10's test set are read from a file beside the
    predictions, or from the dataset itself.
    """
    parents = (folder, folder.parent, folder.parent.parent, folder.parent.parent / "datasets")
    for parent in parents:
        for name in _CIFAR_LABELS[setting]:
            if (parent / name).is_file():
                labels: AnyArray = np.load(parent / name, allow_pickle=False)
                return labels
    if setting == "cifar-10":
        try:
            return np.asarray(open_dataset("cifar-10-test").labels)
        except DatasetError as error:
            wanted = f"the labels of CIFAR-10's test set, as {_CIFAR_LABELS[setting][0]} beside the predictions"
            raise NoDataError(wanted) from error
    raise ValueError(f"no {_CIFAR_LABELS[setting][0]} in {folder.parent.parent / 'datasets'}")


def _imagenet_hits(path: Path, setting: str, k: int) -> dict[str, AnyArray]:
    hits = {}
    for name, classes, labels in _ranked_classes(path):
        # Some files of Fisher vectors are released worst first: their last column is right more often than the first.
        worst_first = name.startswith("fv_") and _hit_rate(classes[:, -1], labels) > _hit_rate(classes[:, 0], labels)
        ranked = classes[:, ::-1] if worst_first else classes
        hits[name] = (ranked[:, :k] == labels[:, None]).any(axis=-1)
    return hits


def _hit_rate(classes: AnyArray, labels: AnyArray) -> float:
    return float((classes == labels).mean())


def _ranked_classes(path: Path) -> Iterator[tuple[str, AnyArray, AnyArray]]:
    """For each model on one of 004's ImageNet test sets, (images, 5) predicted classes, and the labels."""
    if path.is_file():
        with np.load(path) as data:
            labels = data["labels"]
            for name, classes in zip(map(str, data["models"]), data["predictions"], strict=True):
                yield name, classes, labels
        return
    labels = _released_labels(path)
    for name, file in _model_files(path).items():
        classes = np.load(file, allow_pickle=False) if file.suffix == ".npy" else np.array(read_json(file))
        if classes.ndim != 2 or len(classes) != len(labels) or classes.shape[1] < 5:
            raise ValueError(f"{file.name}: {classes.shape} instead of ({len(labels)}, 5)")
        yield name, classes, labels


def _model_files(path: Path) -> dict[str, Path]:
    """The files of a folder of ImageNetV2's release by model; none if there is no such folder."""
    if not path.is_dir():
        return {}
    files = sorted(file for file in path.iterdir() if file.suffix in _RELEASED)
    return {file.stem.removesuffix(_NAME_SUFFIX): file for file in files}


@cache
def _released_labels(path: Path) -> AnyArray:
    """The labels of the images of a folder of ImageNetV2's release."""
    images = read_json(path.parent.parent / "datasets" / f"{path.name}.json")["image_filenames"]
    space = label_space("imagenet-1k")
    return np.array([space.index(wnid) for _, wnid in images])
