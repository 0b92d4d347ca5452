"""The data that claims are recomputed from: the testbed's results, released predictions, results in a workspace.

A table of models with the columns ``printed`` and ``model`` (and ``paper``, if a name means two networks) says which
model of the workspace is the network that a paper prints. A network may have several rows: the same weights with
another label space are another model.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS
from shiftbench.errors import DatasetError, listed
from shiftbench.grouping import by_key
from shiftbench.io.atomic import read_json
from shiftbench.io.paths import Location
from shiftbench.labels.catalogue import label_space
from shiftbench.metrics.base import metrics
from shiftbench.metrics.corruption import GROUPS, SEVERITIES, corruption_errors, mean_corruption_error
from shiftbench.metrics.detection import detect
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.published.importers import open_table
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

_TABLES = tomllib.loads(files("shiftbench.published").joinpath("data", "names.toml").read_text(encoding="utf-8"))
_MEANS: dict[str, list[str]] = _TABLES.pop("means")
_NAMES: dict[str, dict[str, str]] = _TABLES
TESTBED_NAMES, _SETTINGS, _CIFAR, _IMAGENET, _TABLE_NAMES = (
    _NAMES[table] for table in ("testbed", "settings", "cifar", "imagenet", "models_004")
)

_CIFAR_FILE = "cifar10_and_10.1_predictions*.npz"
_IMAGENET_FILE = "predictions_top5_{}.npz"
#: Files of the public release, one per model.
_RELEASED = (".npy", ".json")
#: Models whose predictions on ImageNetV2 are released worst first: the last column is top-1.
_WORST_FIRST = ("fv_16k",)

_CORRUPTED = "imagenet-c"
_IMAGES = {
    **SIZES, "imagenet-o": 2_000, "real-blurry-images": 1_000, "cifar-10": 10_000, "cifar-10.1-v4": 2_021,
    "cifar-10.1-v6": 2_000,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Data:
    """Data beyond the tables in the package. Asking for what was not given raises ``NoDataError``."""

    study: Study | None = None
    #: Setting to the file with its released predictions.
    files: Mapping[str, Path] | None = None
    #: A workspace with the networks' predictions, and its names for them by (paper, printed name); "" is any paper.
    run: StoredResults | None = None
    names: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)

    @property
    def testbed(self) -> Study:
        study = self.study or self._own_testbed
        if study is None:
            raise NoDataError("the testbed's public results (--testbed), or its models in a workspace")
        return study

    @cached_property
    def _own_testbed(self) -> Study | None:
        """The workspace's results on whole test sets, if its models are the testbed's."""
        names = {model: printed for (_, printed), models in self.names.items() for model in models}
        there = known_settings().keys() & set(self.run.settings if self.run is not None else ())
        entries = [
            (names.get(model, model), setting, score)
            for model, setting, score in (self.run.select(settings=there).scores() if self.run and there else ())
            if same_images(score.n, [SIZES[setting]] if setting in SIZES else [TENTH, ALL_IMAGES])
        ]
        if not entries or not is_testbed(results := results_from_scores(entries)):
            return None
        return Study(complete(replace(results, values=100.0 * results.values, unit=PERCENT)))

    def testbed_with(self, *settings: str) -> Study:
        """The testbed, if its results have these settings."""
        lost = [setting for setting in settings if setting not in self.testbed.results.settings]
        if lost:
            raise NoDataError(f"{' and '.join(lost)} in the testbed's results")
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
        value, sizes, low, high = column[model] / whole(results.unit), results.size(setting), None, None
        if sizes is not None:
            n = float(np.broadcast_to(sizes, len(results.models))[results.models.index(model)])
            low, high = clopper_pearson(value * n, n)
        found = Recomputed(value, 0.0, low, high)
        return found.rest() if error else found

    def accuracies(self, setting: str, k: int = 1) -> Mapping[str, float]:
        """Top-k accuracy of every model with released predictions, or in the workspace, by its name in 004's tables."""
        if self.files is None and self.run is not None:
            return _own_accuracies(self, setting, k)
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
        own = self.results_of(row)
        if row.metric == "gap":
            return Recomputed(self.score(own, "imagenet-200").value - self.score(own, row.setting).value)
        if row.metric == "AUPR":
            inside, outside = (self._read(_only(own, name)) for name in (f"val-on-{row.setting}-classes", row.setting))
            if np.isnan(inside.confidence).all() or np.isnan(outside.confidence).all():
                raise NoDataError(f"confidences over the classes of {row.setting}, beside the predictions")
            return _from_score(detect(inside, outside, "max_softmax", published=True).aupr)
        if row.setting.startswith(_CORRUPTED):
            return Recomputed(self._corruption(own, row))
        metric = "mean_average_precision" if row.metric == "mAP" else "top1"
        parts = [self.score(own, name, metric) for name in _MEANS.get(row.setting, [row.setting])]
        found = parts[0] if len(parts) == 1 else Recomputed(fmean(one.value for one in parts))
        return found.rest() if row.metric == "error" else found

    def results_of(self, row: PublishedValue) -> list[Result]:
        """The results of the network that a number is about."""
        assert self.run is not None
        names = self.names.get((row.paper, row.model)) or self.names.get(("", row.model)) or [row.model]
        own = [one for one in self.run.results if one.title in names or one.classifier in names]
        if not own:
            raise NoDataError("a model of the workspace for each network (a row of --models)")
        if len({one.title for one in own}) > len(names):
            raise StudyError(f"{row.model!r} is several models of the workspace", hint="name their ids in --models")
        return own

    def score(self, own: Sequence[Result], setting: str, metric: str = "top1") -> Recomputed:
        read, scored = self._read(_only(own, _SETTINGS.get(setting, setting))), metrics.get(metric)
        if read.top.shape[1] < min(scored.needs.top_k, len(read.space)):
            raise NoDataError(
                f"the best {scored.needs.top_k} classes of each image of {setting} (eval --metric {metric})"
            )
        return _from_score(scored(read))

    def _read(self, result: Result) -> Predictions:
        """Predictions on all images of a test set: on some of them chance alone gives another number."""
        assert self.run is not None
        corrupted = self.run.workspace.setting_record(result).member is not None
        every, own = ALL_IMAGES if corrupted else _IMAGES.get(result.setting), result.spec.images
        if every is not None and not same_images(own, [every]):
            raise NoDataError(f"results on all {every:,} images of {result.setting}, not on {own:,}")
        return self.run.workspace.read(result)

    def _corruption(self, own: Sequence[Result], row: PublishedValue) -> float:
        name = row.setting.removeprefix(f"{_CORRUPTED}.")
        types = {_CORRUPTED: BENCHMARK_CORRUPTIONS, "blur-mean": GROUPS["blur"]}.get(name, (name,))
        errors: dict[str, list[float]] = {}
        for corruption in types:
            for severity in SEVERITIES:
                places = ((title, corruption, severity) for title in sorted({one.title for one in own}))
                results = [self._released_files[at] for at in places if at in self._released_files]
                if len(results) != 1:
                    raise NoDataError(f"a result on the released files of imagenet-c.{corruption}.{severity:g}")
                errors.setdefault(corruption, []).append(metrics.get("error")(self._read(results[0])).value)
        if row.metric == "error":
            return fmean(error for by_severity in errors.values() for error in by_severity)
        clean = 1.0 - self.score(own, "imagenet").value if row.metric in ("relative CE", "relative mCE") else None
        return mean_corruption_error(errors, clean) if name == _CORRUPTED else corruption_errors(errors, clean)[name]

    @cached_property
    def _released_files(self) -> dict[tuple[str, str, float], Result]:
        """Results on the released files of ImageNet-C, by model, corruption and severity."""
        found = {}
        for one in self.run.results if self.run is not None else ():
            member = self.run.workspace.setting_record(one).member if self.run is not None else None
            if member is not None and member.family == _CORRUPTED and one.spec.source == "on-disk":
                found[one.title, member.name, member.level] = one
        return found


def predictions(row: PublishedValue, data: Data) -> Recomputed:
    """Recomputes the numbers that a workspace can give."""
    return data.looked_up(row)


def _only(own: Sequence[Result], setting: str) -> Result:
    found = [one for one in own if one.setting == setting]
    if len(found) != 1:
        raise NoDataError(f"{'one result' if found else 'a result'} on {setting}")
    return found[0]


def _from_score(score: object) -> Recomputed:
    value, low, high = (float(getattr(score, name)) for name in ("value", "low", "high"))
    return Recomputed(value, 0.0, low, high)


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
    for option, at, there in (
        ("--testbed: no file or folder", testbed, Path.exists),
        ("--predictions: no folder", predictions, Path.is_dir),
    ):
        if at is not None and not there(Path(at)):
            raise StudyError(f"{option} at {at}", hint="leave the option out to use the built-in tables only")
    study = None if testbed is None else open_table(Path(testbed))
    if study is not None and is_testbed(study.results):
        study = Study(study.results)  # the paper's groups are the package's, whatever list lies beside the table
    files = None if predictions is None else prediction_files(Path(predictions))
    run, names = None if workspace is None else StoredResults.open(workspace), {}
    if run is not None and models is not None:
        table = TableFile.read(models)
        if not {"printed", "model"} <= set(table.header):
            wrong = f"{table.name} is not a table of models"
            raise StudyError(wrong, found=listed(table.header), expected="the columns printed and model")
        rows = [dict(zip(table.header, map(str, row), strict=True)) for row in table.rows]
        # A name that the workspace does not have is an error now.
        titles = [run.models.title(run.find_model(row["model"])) for row in rows]
        names = by_key(((row.get("paper", ""), row["printed"]), title) for row, title in zip(rows, titles, strict=True))
    return Data(study, files, run, names)


def prediction_files(folder: Path) -> dict[str, Path]:
    """Settings to files: ``cifar10_and_10.1_predictions*.npz``, ``predictions_top5_<set>.npz``, or the public release.

    The first holds ``models``, and for each of cifar10, v4 and v6 predicted classes (models, images) and ``labels_*``;
    the second ``models``, ``labels`` and ``predictions`` (models, images, 5). The release is a folder
    ``data/predictions/<set>`` with one .npy or .json of (images, 5) class indices per model, in the order of
    ``image_filenames`` in ``data/datasets/<set>.json``.
    """
    found: dict[str, Path] = {}
    for place in (folder, *sorted(path for path in folder.iterdir() if path.is_dir())):
        for cifar in sorted(place.glob(_CIFAR_FILE))[:1]:
            found = {**dict.fromkeys(_CIFAR, cifar), **found}
        for setting, name in _IMAGENET.items():
            path = place / _IMAGENET_FILE.format(name)
            if path.is_file():
                found.setdefault(setting, path)
            elif any(file.suffix in _RELEASED for file in (place / name).glob("*.*")):
                found.setdefault(setting, place / name)
    if not found:
        raise StudyError(
            "no released predictions in that folder",
            found=listed(sorted(path.name for path in folder.iterdir())) or "an empty folder",
            expected=f"{_CIFAR_FILE}, {_IMAGENET_FILE.format('*')} or the release's folders of .npy files, such as "
            "predictions/imagenetv2-b-33, there or one folder below",
        )
    return found


def released_revisions(folder: Path) -> list[dict[str, object]]:
    """Mean accuracies on every revision of ImageNetV2 in the public release, and a ResNet-152's (004, figure 7)."""
    families = {last.rpartition("-")[0]: setting for setting, last in _IMAGENET.items() if setting != "imagenet"}
    numbered = [
        (families[family], int(number), path)
        for place in (folder, *(path for path in folder.iterdir() if path.is_dir()))
        for path in place.iterdir()
        for family, _, number in [path.name.rpartition("-")]
        if family in families and number.isdigit() and path.is_dir()
    ]
    rows = []
    for setting, revision, path in sorted(numbered):
        row: dict[str, object] = {"set": setting, "revision": revision}
        for k in (1, 5):
            accuracies = _accuracies(path, setting, k)
            row |= {"models": len(accuracies), f"top{k}": fmean(accuracies.values())}
            row[f"resnet152_top{k}"] = accuracies.get("resnet152")
        rows.append(row)
    return rows


@cache
def _own_accuracies(data: Data, setting: str, k: int) -> Mapping[str, float]:
    found = {}
    for row in {row.model: row for row in published("004", setting=setting)}.values():
        with suppress(NoDataError):
            found[row.model] = data.score(data.results_of(row), setting, f"top{k}").value
    return found


@cache
def _accuracies(path: Path, setting: str, k: int) -> Mapping[str, float]:
    try:
        if setting in _CIFAR:
            key = _CIFAR[setting]
            with np.load(path) as data:
                right = dict(zip(data["models"], data[key] == data[f"labels_{key}"], strict=True))
        else:
            ranked, labels = _ranked_classes(path)
            right = {}
            for name, classes in ranked.items():
                worst_first = name in _WORST_FIRST and setting != "imagenet"
                first = classes[:, ::-1][:, :k] if worst_first else classes[:, :k]
                right[name] = (first == labels[:, None]).any(axis=-1)
    except (KeyError, ValueError, OSError) as error:
        raise DatasetError(f"{path.name} can't be read as released predictions", found=str(error)) from error
    return {_TABLE_NAMES.get(str(name), str(name)): float(hits.mean()) for name, hits in right.items()}


def _ranked_classes(path: Path) -> tuple[dict[str, AnyArray], AnyArray]:
    """By model, (images, 5) predicted classes on one of 004's ImageNet test sets, and the labels."""
    if path.is_file():
        with np.load(path) as data:
            return dict(zip(map(str, data["models"]), data["predictions"], strict=True)), data["labels"]
    images = read_json(path.parent.parent / "datasets" / f"{path.name}.json")["image_filenames"]
    space = label_space("imagenet-1k")
    ranked = {}
    for file in sorted(file for file in path.iterdir() if file.suffix in _RELEASED):
        found = np.load(file, allow_pickle=False) if file.suffix == ".npy" else np.array(read_json(file))
        if found.ndim != 2 or len(found) != len(images) or found.shape[1] < 5:
            raise ValueError(f"{file.name}: {found.shape} instead of ({len(images)}, 5)")
        ranked[file.stem] = found
    return ranked, np.array([space.index(wnid) for _, wnid in images])
