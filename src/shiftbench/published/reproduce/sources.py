"""The data that claims are recomputed from: the built-in tables, the testbed's results, predictions on images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from shiftbench.errors import DatasetError, listed
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.published.reproduce.base import NotAtHandError, Recomputed
from shiftbench.studies.base import StudyError
from shiftbench.studies.study import Study

NEEDS_TESTBED = "the testbed's public results and list of models (--testbed)"
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


@dataclass(frozen=True, eq=False)
class Data:
    """What is at hand beside the tables in the package. Asking for what is not raises ``NotAtHandError``."""

    study: Study | None = None
    #: Setting to the file with its predictions.
    files: Mapping[str, Path] | None = None

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
        value, n = self.testbed_accuracy(model, setting), self.testbed.results.size(setting)
        if n is None or n.ndim:
            return Recomputed(1.0 - value if error else value)
        low, high = clopper_pearson(value * float(n), float(n))
        return Recomputed(1.0 - value, 0.0, 1.0 - high, 1.0 - low) if error else Recomputed(value, 0.0, low, high)

    def accuracies(self, setting: str, k: int = 1) -> Mapping[str, float]:
        """Top-k accuracy of every model with released predictions, by its name in 004's tables."""
        if self.files is None:
            raise NotAtHandError(NEEDS_IMAGES)
        if setting not in self.files or (setting in _CIFAR and k != 1):
            raise NotAtHandError(f"released predictions on {setting}")
        return _accuracies(self.files[setting], setting, k)


def open_data(testbed: str | Path | None = None, predictions: str | Path | None = None) -> Data:
    """The optional folders, looked into at once, so that a wrong one is a clear error and not a missing number.

    ``testbed``: a folder with one results*.csv (models by settings) and one models*.csv. ``predictions``: a folder
    (or one above it) with the files of 004's released predictions; see ``prediction_files``.
    """
    return Data(
        None if testbed is None else read_testbed(Path(testbed)),
        None if predictions is None else prediction_files(Path(predictions)),
    )


def read_testbed(folder: Path) -> Study:
    from shiftbench.studies.models import read_models
    from shiftbench.studies.results import read_results
    from shiftbench.studies.testbed import default_sizes, with_aggregates

    results, models = (_only(folder, f"{kind}*.csv", "--testbed") for kind in ("results", "models"))
    return Study(default_sizes(with_aggregates(read_results(results))), read_models(models))


def prediction_files(folder: Path) -> dict[str, Path]:
    """Settings to files: ``cifar10_and_10.1_predictions*.npz`` and ``predictions_top5_<set>.npz``.

    The first holds ``models``, and for each of cifar10, v4 and v6 predicted classes (models, images) and ``labels_*``;
    the others ``models``, ``labels`` and ``predictions`` (models, images, 5), best first.
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
    if not found:
        raise StudyError(
            "no released predictions in that folder",
            found=_listing(folder),
            expected=f"{_CIFAR_FILE} or {_IMAGENET_FILE.format('*')}, there or one folder below",
        )
    return found


@cache
def _accuracies(path: Path, setting: str, k: int) -> Mapping[str, float]:
    try:
        with np.load(path) as data:
            if setting in _CIFAR:
                key = _CIFAR[setting]
                right = data[key] == data[f"labels_{key}"]
            else:
                right = (data["predictions"][:, :, :k] == data["labels"][:, None]).any(axis=-1)
            models = [str(name) for name in data["models"]]
    except (KeyError, ValueError, OSError) as error:
        raise DatasetError(f"{path.name} can't be read as released predictions", found=str(error)) from error
    means = np.asarray(right).mean(axis=1)
    return {_TABLE_NAMES.get(name, name): float(mean) for name, mean in zip(models, means, strict=True)}


def _only(folder: Path, pattern: str, option: str) -> Path:
    _check_folder(folder, option)
    paths = sorted(folder.glob(pattern))
    if len(paths) != 1:
        raise StudyError(
            f"{option}: not one file {pattern} but {len(paths) or 'none'}",
            found=listed([path.name for path in paths]) if paths else _listing(folder),
            expected="a folder with one results*.csv (models by settings) and one models*.csv",
        )
    return paths[0]


def _check_folder(folder: Path, option: str) -> None:
    if not folder.is_dir():
        raise StudyError(
            f"{option}: no folder at {folder}", hint="leave the option out to use the built-in tables only"
        )


def _listing(folder: Path) -> str:
    return listed(sorted(path.name for path in folder.iterdir())) or "an empty folder"
