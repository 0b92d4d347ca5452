"""The data that claims are recomputed from: the built-in tables, the testbed's results, predictions on images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shiftbench.errors import DatasetError, listed
from shiftbench.io.atomic import read_json
from shiftbench.io.paths import Location
from shiftbench.labels.catalogue import label_space
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.published.importers import open_table
from shiftbench.published.reproduce.base import NotAtHandError, Recomputed
from shiftbench.published.reproduce.predictions import Lookup
from shiftbench.studies.base import StudyError
from shiftbench.studies.study import Study
from shiftbench.studies.testbed import is_testbed

AnyArray = NDArray[np.generic]
NEEDS_TESTBED = "the testbed's public results (--testbed)"
NEEDS_IMAGES = "released predictions on the images (--predictions)"

_CIFAR_FILE = "cifar10_and_10.1_predictions*.npz"
_IMAGENET_FILE = "predictions_top5_{}.npz"
#: Settings as in 004's tables, and their names in the released predictions.
_CIFAR = {"cifar-10": "cifar10", "cifar-10.1-v4": "v4", "cifar-10.1-v6": "v6"}
_IMAGENET = {
    "imagenet": "imagenet-validation-original",
    "imagenetv2-matched-frequency": "imagenetv2-b-33",
    "imagenetv2-threshold-0.7": "imagenetv2-a-44",
    "imagenetv2-top-images": "imagenetv2-c-12",
}

#: Models that the released predictions call by another name than 004's tables.
_TABLE_NAMES = {
    "random_features_256k_no_aug": "random_features_256k", "random_features_32k_no_aug": "random_features_32k",
    "resnet_preact_basic_110": "resnet_v2_basic_110", "resnet_preact_bottleneck_164": "resnet_v2_bottleneck_164",
    "resnetv2_tf": "resnetv2_tf_32", "wide_resnet_tf": "wide_resnet_tf_28_10",
    "shake_shake_26_2x32d_SSI": "shake_shake_32d", "shake_shake_26_2x64d_SSI": "shake_shake_64d",
    "shake_shake_26_2x64d_SSI_cutout16": "shake_shake_64d_cutout",
}  # fmt: skip


#: Files of the public release, one per model.
_RELEASED = (".npy", ".json")
#: Models whose predictions on ImageNetV2 are released worst first: the last column is top-1.
_WORST_FIRST = ("fv_16k",)


@dataclass(frozen=True, eq=False)
class Data:
    """What is at hand beside the tables in the package. Asking for what is not raises ``NotAtHandError``."""

    study: Study | None = None
    #: Setting to the file with its predictions.
    files: Mapping[str, Path] | None = None
    #: A workspace with the networks' predictions.
    lookup: Lookup | None = None

    @property
    def testbed(self) -> Study:
        if self.study is None:
            raise NotAtHandError(NEEDS_TESTBED)
        return self.study

    def testbed_with(self, *settings: str) -> Study:
        """The testbed, if its results have these settings."""
        lost = [setting for setting in settings if setting not in self.testbed.results.settings]
        if lost:
            raise NotAtHandError(f"{' and '.join(lost)} in the testbed's results")
        return self.testbed

    def testbed_accuracy(self, model: str, setting: str) -> float:
        """A fraction."""
        column = self.testbed.results.of(setting) if setting in self.testbed.results.settings else {}
        if not np.isfinite(column.get(model, np.nan)):
            raise NotAtHandError(f"{model} on {setting} in the testbed's results")
        return column[model] / 100.0 if self.testbed.results.unit == "percent" else column[model]

    def testbed_score(self, model: str, setting: str, *, error: bool = False) -> Recomputed:
        """Accuracy or error with its Clopper-Pearson interval, where the number of images is known."""
        value, results = self.testbed_accuracy(model, setting), self.testbed.results
        sizes = results.size(setting)
        if sizes is None:
            return Recomputed(1.0 - value if error else value)
        n = float(np.broadcast_to(sizes, len(results.models))[results.models.index(model)])
        low, high = clopper_pearson(value * n, n)
        return Recomputed(1.0 - value, 0.0, 1.0 - high, 1.0 - low) if error else Recomputed(value, 0.0, low, high)

    def accuracies(self, setting: str, k: int = 1) -> Mapping[str, float]:
        """Top-k accuracy of every model with released predictions, by its name in 004's tables."""
        if self.files is None:
            raise NotAtHandError(NEEDS_IMAGES)
        if setting not in self.files or (setting in _CIFAR and k != 1):
            raise NotAtHandError(f"released predictions on {setting}")
        return _accuracies(self.files[setting], setting, k)


def open_data(
    testbed: str | Path | None = None,
    predictions: str | Path | None = None,
    workspace: str | Location | None = None,
    models: Path | None = None,
) -> Data:
    """The optional folders, looked into at once, so that a wrong one is a clear error and not a missing number.

    ``testbed``: its public table of results, or the folder that holds it. ``predictions``: a folder
    (or one above it) with the files of 004's released predictions; see ``prediction_files``. ``workspace`` and
    ``models``: a workspace, and a table that names its models for the papers' networks; see ``Lookup``.
    """
    return Data(
        None if testbed is None else _read_testbed(Path(testbed)),
        None if predictions is None else prediction_files(Path(predictions)),
        None if workspace is None else Lookup.open(workspace, models),
    )


def _read_testbed(path: Path) -> Study:
    if not path.exists():
        raise StudyError(
            f"--testbed: no file or folder at {path}", hint="leave the option out to use the built-in tables only"
        )
    study = open_table(path)
    # The paper's groups are those of the package's list, whatever list lies beside the table.
    return Study(study.results) if is_testbed(study.results) else study


def prediction_files(folder: Path) -> dict[str, Path]:
    """Settings to files: ``cifar10_and_10.1_predictions*.npz``, ``predictions_top5_<set>.npz``, or the public release.

    The first holds ``models``, and for each of cifar10, v4 and v6 predicted classes (models, images) and ``labels_*``;
    the second ``models``, ``labels`` and ``predictions`` (models, images, 5). The release is a folder
    ``data/predictions/<set>`` with one .npy or .json of (images, 5) class indices per model, in the order of
    ``image_filenames`` in ``data/datasets/<set>.json``.
    """
    _check_folder(folder, "--predictions")
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
            found=_listing(folder),
            expected=f"{_CIFAR_FILE}, {_IMAGENET_FILE.format('*')} or the release's folders of .npy files, such as "
            "predictions/imagenetv2-b-33, there or one folder below",
        )
    return found


@cache
def _accuracies(path: Path, setting: str, k: int) -> Mapping[str, float]:
    try:
        if path.is_dir():
            right = _from_release(path, setting, k)
        else:
            with np.load(path) as data:
                right = _cifar_hits(data, setting) if setting in _CIFAR else _imagenet_hits(data, setting, k)
    except (KeyError, ValueError, OSError) as error:
        raise DatasetError(f"{path.name} can't be read as released predictions", found=str(error)) from error
    return {_TABLE_NAMES.get(name, name): float(hits.mean()) for name, hits in right.items()}


def _cifar_hits(data: Mapping[str, AnyArray], setting: str) -> dict[str, AnyArray]:
    key = _CIFAR[setting]
    return dict(zip(map(str, data["models"]), data[key] == data[f"labels_{key}"], strict=True))


def _imagenet_hits(data: Mapping[str, AnyArray], setting: str, k: int) -> dict[str, AnyArray]:
    models, labels = map(str, data["models"]), data["labels"]
    return {
        name: _hits(name, setting, ranked, labels, k) for name, ranked in zip(models, data["predictions"], strict=True)
    }


def _hits(model: str, setting: str, ranked: AnyArray, labels: AnyArray, k: int) -> AnyArray:
    """Which images have their label among the first k of (images, 5) predicted classes."""
    best_first = ranked[:, ::-1] if (model in _WORST_FIRST and setting != "imagenet") else ranked
    return np.asarray((best_first[:, :k] == labels[:, None]).any(axis=-1))


def _from_release(folder: Path, setting: str, k: int) -> dict[str, AnyArray]:
    listed_images = read_json(folder.parent.parent / "datasets" / f"{folder.name}.json")["image_filenames"]
    space = label_space("imagenet-1k")
    labels = np.array([space.index(wnid) for _, wnid in listed_images])
    return {
        path.stem: _hits(path.stem, setting, _ranked(path, len(labels)), labels, k)
        for path in sorted(folder.iterdir())
        if path.suffix in _RELEASED
    }


def _ranked(path: Path, images: int) -> AnyArray:
    found = np.load(path, allow_pickle=False) if path.suffix == ".npy" else np.array(read_json(path))
    if found.ndim != 2 or len(found) != images or found.shape[1] < 5:
        raise ValueError(f"{path.name}: {found.shape} instead of ({images}, 5)")
    return np.asarray(found)


def _check_folder(folder: Path, option: str) -> None:
    if not folder.is_dir():
        raise StudyError(
            f"{option}: no folder at {folder}", hint="leave the option out to use the built-in tables only"
        )


def _listing(folder: Path) -> str:
    return listed(sorted(path.name for path in folder.iterdir())) or "an empty folder"
