"""A workspace of many models in the 213 settings of the testbed, with synthetic predictions.

python -m benchmarks.synthetic_testbed FOLDER [--models 204] [--images 1000]

Specs, records and files are made by the functions that a run uses, so that keys and digests hold and every command
opens the workspace. No image exists and no model is run.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.preprocessing import Preprocessing
from shiftbench.datasets.base import Dataset, DecodedImage
from shiftbench.datasets.videos import row_id
from shiftbench.errors import BadImageError
from shiftbench.io.hashing import digest
from shiftbench.labels import label_space
from shiftbench.labels.space import LabelSpace, Scores
from shiftbench.metrics.base import Needs
from shiftbench.runs.plan import Common, plan_result, record_images
from shiftbench.settings.base import Setting, build_suite
from shiftbench.store.prediction_files import PredictionBlock, write_block
from shiftbench.store.predictions import setting_rows
from shiftbench.store.run_records import Call, ModelRun, recorded_run
from shiftbench.store.spec import SettingRecord
from shiftbench.store.workspace import Workspace
from shiftbench.studies.testbed import known_models

SUITE = "testbed-213"
#: Frames of one video: the anchor, and those up to 10 before and behind it.
_OFFSETS = (0, *range(1, 11), *range(-10, 0))
#: The number of classes that are stored of each prediction.
_TOP_K = 5
_WORKERS = 2


class ListedImages(Dataset):
    """Ids and labels of images that do not exist."""

    def __init__(self, name: str, space: LabelSpace, images: int, *, videos: bool = False) -> None:
        self.name = name
        self.space = space
        if videos:
            anchors = images // len(_OFFSETS)
            self.labels = np.repeat(np.arange(anchors) * len(space) // anchors, len(_OFFSETS)).astype(np.int32)
            self.ids = []
            for anchor in range(anchors):
                self.ids += [row_id(f"video_{anchor:05d}/000010.JPEG", offset) for offset in _OFFSETS]
        else:
            # Images are sorted by class, as folders are.
            self.labels = (np.arange(images) * len(space) // images).astype(np.int32)
            # Released corrupted images have the names of the original ones.
            stem = "ILSVRC2012_val" if name.startswith(("val", "imagenet-c/")) else name
            self.ids = [f"{space.keys[label]}/{stem}_{i:08d}.JPEG" for i, label in enumerate(self.labels)]

    @property
    def fingerprint(self) -> str:
        return digest(self.name, len(self.ids))

    def read(self, index: int) -> DecodedImage:
        raise BadImageError("there are no images behind a synthetic workspace")


class SyntheticModel(Classifier):
    """A model that exists as a name and a skill."""

    outputs = "probabilities"
    engine = "synthetic"
    self_contained = True
    states_classes = True

    def __init__(self, name: str, skill: float) -> None:
        self.name = name
        self.skill = skill
        self.space = label_space("imagenet-1k")
        self.preprocessing = Preprocessing()

    @property
    def fingerprint(self) -> str:
        return digest(self.name, self.skill)

    def scores(self, images: Pixels) -> Scores:
        raise NotImplementedError("a synthetic model has predictions only")

    def gradient_model(self) -> object:
        """Planning asks for it, so that attacks are among the settings; nothing is computed with it."""
        return self


@dataclass(frozen=True)
class Size:
    """The size of a workspace."""

    models: int
    images: int
    settings: int = 213

    @property
    def results(self) -> int:
        return self.models * self.settings


def model_names(count: int) -> list[str]:
    """Names of the testbed's models, so that the report knows their categories; numbered names where these end."""
    names = list(known_models())[:count]
    return names + [f"model-{number:04d}" for number in range(len(names), count)]


def models_of(count: int) -> list[SyntheticModel]:
    """Models of different skill, the best one last."""
    return [SyntheticModel(name, 0.5 + 2.5 * i / count) for i, name in enumerate(model_names(count))]


@cache
def settings_of(count: int) -> tuple[Setting, ...]:
    """The first settings of the suite."""
    return build_suite(SUITE).settings[:count]


def datasets_of(settings: Sequence[Setting], images: int) -> dict[str, Dataset]:
    """By role: a dataset for each that the settings name."""
    datasets: dict[str, Dataset] = {}
    for setting in settings:
        # Images of val have labels of all classes, also where a setting takes a part of them.
        is_val = setting.dataset.startswith(("imagenet-val", "imagenetv2", "imagenet-c/"))
        space = "imagenet-1k" if is_val or setting.space is None else setting.space
        if setting.dataset not in datasets:
            videos = setting.metric.startswith("pm")
            name = "val" if setting.dataset == "imagenet-val" else setting.dataset
            datasets[setting.dataset] = ListedImages(name, label_space(space), images, videos=videos)
    return datasets


def synthetic_block(
    rng: np.random.Generator, labels: NDArray[np.int32], classes: int, ease: NDArray[np.float64]
) -> PredictionBlock:
    """Predictions like those of a real classifier: right with a probability that grows with ``ease``."""
    images = len(labels)
    is_right = rng.random(images) < 1 / (1 + np.exp(-ease))
    # The other classes are neighbours of the true one, which are all different.
    others = (labels[:, None] + rng.permutation(min(classes - 1, 40))[None, :_TOP_K] + 1) % classes
    top = np.where(is_right[:, None], np.c_[labels, others][:, :_TOP_K], others[:, :_TOP_K])
    logit = 0.8 * ease + np.where(is_right, 1.0, -0.7) + rng.normal(0, 1, images)
    return PredictionBlock(top.astype(np.int32), (1 / (1 + np.exp(-logit))).astype(np.float32))


def write_model(root: Path, size: Size, number: int) -> ModelRun:
    """Write all results of one model."""
    workspace = Workspace(root)
    settings = settings_of(size.settings)
    datasets = datasets_of(settings, size.images)
    model = models_of(size.models)[number]
    rng = np.random.default_rng([size.images, number])
    common = Common()
    keys = []
    for place, setting in enumerate(settings):
        dataset = datasets[setting.dataset]
        planned = plan_result(model, setting, dataset, Needs(top_k=_TOP_K), 0, workspace, common)
        labels = setting_rows(dataset.labels, dataset.space, planned.space).labels
        difficulty = np.random.default_rng(place).normal(1.5 * (place % 5) / 4, 1.5, len(planned.rows))
        block = synthetic_block(rng, labels, len(planned.space), model.skill - difficulty)
        write_block(workspace.predictions_path(planned.result), block, planned.result.spec, "benchmark")
        keys.append(planned.result.key)
    return ModelRun(id=planned.result.model_id, source="synthetic", fingerprint=model.fingerprint, computed=keys)


def fill(root: Path, size: Size) -> float:
    """Write a workspace of this size; returns the seconds it took."""
    begin = time.perf_counter()
    workspace = Workspace(root)
    settings = settings_of(size.settings)
    datasets = datasets_of(settings, size.images)
    for dataset in datasets.values():
        record_images(workspace, dataset)
    common = Common()
    model = models_of(size.models)[0]
    records: dict[str, SettingRecord] = {}
    for setting in settings:
        planned = plan_result(model, setting, datasets[setting.dataset], Needs(), 0, workspace, common)
        records[planned.result.spec.setting_key(setting.name)] = SettingRecord.of(setting)
    workspace.record_settings(records)
    with ProcessPoolExecutor(_WORKERS, multiprocessing.get_context("spawn")) as pool:
        models = list(pool.map(partial(write_model, root, size), range(size.models)))
    call = Call("evaluate", fill, {"root": root, "size": size})
    with recorded_run(workspace, call, models):
        workspace.write_catalogue()
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", type=int, default=204)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--settings", type=int, default=213)
    options = parser.parse_args()
    size = Size(options.models, options.images, options.settings)
    print(f"{size.results:,} results in {fill(options.folder, size):.0f} s")


if __name__ == "__main__":
    main()
