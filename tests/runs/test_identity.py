"""A stored number is of exactly the images and the model that it names."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import shiftbench as sb
from shiftbench.api import IncompleteRunError
from shiftbench.classifiers.base import IMAGENET_21K
from shiftbench.datasets import sample
from shiftbench.datasets.overlap import TrainedOn
from shiftbench.datasets.subset import take
from shiftbench.errors import ResultWarning
from shiftbench.metrics.base import Needs, Score
from shiftbench.runs.compute import predict
from shiftbench.store.export import export_table
from shiftbench.store.run_records import Call, ModelRun, recorded_run
from shiftbench.store.workspace import Workspace
from tests.reports.recorded import record
from tests.runs.helpers import COLOURS, brightest_channel, colour_folder

SMALL: Any = {"preprocessing": {"size": 32}, "labels": "folders", "progress": False, "workers": 1}


def only_score(run: sb.Run) -> Score:
    ((_, _, score),) = run.scores("top1")
    return score


#: Calls before the first batch: one to count the outputs; with fixed images one for their scores, six that tell whether
#: the images of a batch change each other's scores, and two that tell whether the scores are the same again.
BEFORE = 10


class Meddler:
    """A model in whose second batch of the data something happens to it."""

    def __init__(self, happens: Any) -> None:
        self.happens = happens
        self.batches = 0

    def __call__(self, images: Any) -> Any:
        self.batches += 1
        if self.batches == BEFORE + 2:
            self.happens()
        return brightest_channel(images)[:, [2, 1, 0]]


def exchange(folder: Path) -> None:
    for path in folder.glob("*/*.png"):
        Image.fromarray(np.full((40, 40, 3), 9, np.uint8)).save(path)


def truncate(folder: Path) -> None:
    for path in folder.glob("*/*.png"):
        path.write_bytes(path.read_bytes()[:200])


@pytest.mark.parametrize("damage", [shutil.rmtree, exchange, truncate])
def test_images_that_change_during_a_run_never_end_in_a_complete_result(tmp_path: Path, damage: Any) -> None:
    folder = colour_folder(tmp_path / "data", per_class=40)
    shutil.copytree(folder, tmp_path / "kept")
    meddler = Meddler(lambda: damage(folder))
    with pytest.raises(IncompleteRunError, match="changed or vanished"):
        sb.evaluate(meddler, data=folder, workspace=tmp_path / "w", name="m", batch_size=16, **SMALL)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(tmp_path / "kept", folder)
    meddler.batches = BEFORE + 2
    run = sb.evaluate(meddler, data=folder, workspace=tmp_path / "w", name="m", batch_size=16, **SMALL)
    score = only_score(run)
    fresh = sb.evaluate(meddler, data=folder, workspace=tmp_path / "fresh", name="m", batch_size=16, **SMALL)
    assert score.n == 120 and score.value == only_score(fresh).value


def test_a_line_of_pixels_costs_that_image_only(tmp_path: Path) -> None:
    folder = colour_folder(tmp_path / "data", per_class=4)
    Image.fromarray(np.zeros((1, 20_000, 3), np.uint8)).save(folder / "red/line.png")
    options = {**SMALL, "preprocessing": {"resize": 256, "crop": 224}}
    with pytest.warns(ResultWarning, match="left out of all scores"):
        run = sb.evaluate(brightest_channel, data=folder, workspace=tmp_path / "w", **options)
    score = only_score(run)
    assert score.n == 12
    # a model that squashes its images can use it
    both = sb.evaluate(brightest_channel, data=folder, workspace=tmp_path / "v", name="s", **SMALL)
    assert only_score(both).n == 13


def test_copies_are_reported_once_by_a_run(tmp_path: Path) -> None:
    folder = colour_folder(tmp_path / "data", per_class=4)
    shutil.copy(folder / "red/000.png", folder / "blue/again.png")
    with pytest.warns(ResultWarning) as caught:
        sb.evaluate(brightest_channel, data=folder, workspace=tmp_path / "w", **SMALL)
    found = [one.message for one in caught if getattr(one.message, "code", "") == "duplicate-images"]
    assert len(found) == 2 and "several classes" in str(found[1])


def test_images_that_the_model_was_trained_on_are_reported(tmp_path: Path) -> None:
    data = sb.open_dataset(colour_folder(tmp_path / "data", per_class=4), space=COLOURS)
    other = sb.open_dataset(colour_folder(tmp_path / "other", per_class=4, seed=1), space=COLOURS)
    part = sample(data, 5)
    model = sb.load_classifier(brightest_channel, labels=COLOURS, preprocessing={"size": 32})
    model.trained_on = TrainedOn.of([part])
    overlapping = take(data, part.indices[2:].tolist())
    for number, (dataset, expected) in enumerate([(data, 5), (part, 5), (overlapping, 3), (other, 0)]):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            sb.evaluate(model, data=dataset, workspace=tmp_path / f"w{number}", progress=False)
        found = [str(one.message) for one in caught if getattr(one.message, "code", "") == "training-images"]
        assert len(found) == (expected > 0)
        assert all(f"trained on {expected} of the {len(dataset)} images" in text for text in found)
        run = sb.Run.open(tmp_path / f"w{number}")
        assert run.to_arrow().column("training_images").to_pylist() == [expected]
        table = run.table()
        assert ("‡" in table.to_markdown()) == (expected > 0)
        export_table(run.workspace, tmp_path / f"{number}.csv", run.results)
        rows = list(csv.DictReader((tmp_path / f"{number}.csv").open()))
        assert {row["training_images"] for row in rows} == {str(expected)}


def training_warnings(run: sb.Run) -> list[str]:
    return [str(warning) for warning in run.trained_on() if warning.code == "training-corruptions"]


def test_training_on_a_corruption_that_is_measured_is_reported(tmp_path: Path) -> None:
    """002 asks not to train on the corruptions of the benchmark; the mark is stored with the results."""
    model = sb.load_classifier(brightest_channel, labels=COLOURS, preprocessing={"size": 32})
    model.trained_with = ("contrast", "gaussian_noise")
    options = {"suite": "corruptions", "severities": (3,), "workspace": tmp_path / "w", "progress": False}
    folder = colour_folder(tmp_path / "data", per_class=2)
    with pytest.warns(ResultWarning, match="was trained with contrast"):
        sb.evaluate(model, data=folder, labels=COLOURS, corruptions=("contrast", "fog"), **options)  # type: ignore[arg-type]
    run = sb.Run.open(tmp_path / "w")
    [warning] = training_warnings(run)
    assert "gaussian_noise" not in warning
    table = run.table().to_text(400)
    assert warning in table and "‡" not in table
    fog = [result for result in run.results if "fog" in result.setting]
    assert run.trained_on(fog) == []


def test_a_network_that_saw_imagenet_21k_is_marked_on_imagenet_o(tmp_path: Path) -> None:
    record(tmp_path, "imagenet-o", 20, 0, space="imagenet-o-200")
    record(tmp_path, "imagenet-a", 20, 10, space="imagenet-a-200")
    [result] = [result for result in sb.Run.open(tmp_path).results if result.setting == "imagenet-o"]
    models = [ModelRun(id=result.model_id, trained_with=[IMAGENET_21K], computed=[result.key])]
    with recorded_run(Workspace(tmp_path), Call("evaluate", sb.evaluate, {}), models):
        pass
    run = sb.Run.open(tmp_path)
    [warning] = training_warnings(run)
    assert "ImageNet-O" in warning
    others = [result for result in run.results if result.setting == "imagenet-a"]
    assert run.trained_on(others) == []


def test_where_it_is_not_known_what_a_model_was_trained_on_nothing_is_said(tmp_path: Path) -> None:
    run = sb.evaluate(brightest_channel, data=colour_folder(tmp_path / "data"), workspace=tmp_path / "w", **SMALL)
    assert run.to_arrow().column("training_images").to_pylist() == [None] and run.trained_on() == []


TIES = """
import hashlib, json, numpy as np
from shiftbench.metrics.base import Needs
from shiftbench.runs.compute import predict
from shiftbench.store.export import export_table
scores = np.random.default_rng(0).normal(size=(500, 1000)).round(1).astype(np.float32)
top = predict(scores, "logits", Needs(top_k=5)).top
print(json.dumps([hashlib.sha256(top.tobytes()).hexdigest(), top[:20].tolist()]))
"""


def test_equal_scores_rank_by_lower_index_on_every_cpu() -> None:
    scores = np.random.default_rng(0).normal(size=(500, 1000)).round(1).astype(np.float32)
    expected = [[i for _, i in sorted((-value, i) for i, value in enumerate(row))][:5] for row in scores.tolist()]
    assert predict(scores, "logits", Needs(top_k=5)).top.tolist() == expected
    umath: Any = __import__("numpy._core._multiarray_umath", fromlist=["__cpu_dispatch__"])
    present = [name for name in umath.__cpu_dispatch__ if umath.__cpu_features__[name]]
    found = set()
    for kept in {0, 1, len(present)}:
        environment = {**os.environ, "NPY_DISABLE_CPU_FEATURES": " ".join(present[kept:])}
        done = subprocess.run([sys.executable, "-c", TIES], env=environment, capture_output=True, text=True, check=True)
        digest, rows = json.loads(done.stdout)
        assert rows == expected[:20]
        found.add(digest)
    assert len(found) == 1
