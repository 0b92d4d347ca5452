"""Experiments as a whole: trained, evaluated, studied, killed and continued, on real CIFAR-10."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs
from PIL import Image

from shiftbench.errors import LabelError, SettingError, ShiftbenchError, UnknownNameError
from shiftbench.hardening.errors import BusyError, RecipeError, TrainingError
from shiftbench.hardening.experiments.base import (
    Experiment,
    ExperimentPart,
    ExperimentScale,
    Variant,
    load_experiment,
    plan_runs,
)
from shiftbench.hardening.experiments.ranks import _visible, free_gpus, train_on_devices
from shiftbench.hardening.experiments.report import experiment_table
from shiftbench.hardening.experiments.run import _own_device, run_experiment
from shiftbench.hardening.recipe import builtin_names
from shiftbench.io.locks import file_lock
from shiftbench.jobs.base import Executor
from shiftbench.jobs.executors import ThreadExecutor
from shiftbench.jobs.ray_executor import RayExecutor
from tests.commands import call, output

SMALLEST = Experiment(
    "smallest",
    "Two networks of a few thousand weights",
    (
        Variant("plain", "cifar-standard"),
        Variant("noisy", "cifar-noise", "plain", "Noise"),
    ),
    {
        "tiny": ExperimentScale(
            "100 images for an epoch",
            seeds=1,
            changes={
                "architecture": {"name": "resnet-20", "depth": 8, "width": 4},
                "train.epochs": 1,
                "train.batch_size": 32,
                "data.sample": 100,
                "data.validation": "",
            },
            sample=40,
            severities=(3,),
            corruptions=("fog", "gaussian_noise"),
        )
    },
    (ExperimentPart("cifar-10-train", "cifar-10-c"),),
    baseline=("plain",),
)


@pytest.mark.filterwarnings("ignore:.*at chance level")
def test_an_experiment_from_training_to_verdict_and_again_without_work(tmp_path: Path) -> None:
    study = run_experiment(SMALLEST, scale="tiny", out=tmp_path, executor=ThreadExecutor(1), progress=False)
    assert [run.name for run in study.runs] == ["plain-s0", "noisy-s0"]
    assert all((run.folder / "model.safetensors").is_file() for run in study.runs)
    assert study.images == (40, 40) and len(study.settings) == 3
    assert study.evidence == [] and any("one seed" in note for note in study.notes)
    before = {
        path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.suffix in (".parquet", ".safetensors")
    }
    again = run_experiment(SMALLEST, scale="tiny", out=tmp_path, executor=ThreadExecutor(1), progress=False)
    assert experiment_table(again).as_data() == experiment_table(study).as_data()
    assert before == {path: path.stat().st_mtime_ns for path in before}
    with pytest.raises(TrainingError, match=r"train\.epochs"):
        run_experiment(SMALLEST, scale="tiny", out=tmp_path, progress=False, changes=["train.epochs=2"])


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore:.*at chance level")
def test_a_ray_cluster_trains_the_same_weights(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    weights = []
    executors: dict[str, Executor] = {"here": ThreadExecutor(1), "there": RayExecutor(workers=2)}
    for name, executor in executors.items():
        study = run_experiment(SMALLEST, scale="tiny", out=tmp_path / name, executor=executor, progress=False)
        weights.append([(run.folder / "model.safetensors").read_bytes() for run in study.runs])
    assert weights[0] == weights[1] and len(set(weights[0])) == 2


def test_runs_at_the_same_time_train_on_different_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHIFTBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    with _own_device() as first:
        with _own_device() as second, _own_device() as third:
            assert (first, second, third) == ("cuda:0", "cuda:1", "auto")
        with _own_device() as again:
            assert again == "cuda:1"
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with _own_device() as only:
        assert only == "auto"


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore:.*at chance level")
def test_a_run_on_two_devices_has_the_weights_of_one_with_two_parts(tmp_path: Path) -> None:
    weights = []
    for devices in (1, 2):
        study = run_experiment(
            SMALLEST,
            scale="tiny",
            out=tmp_path / str(devices),
            changes=["train.splits=2"],
            devices=devices,
            executor=ThreadExecutor(1),
            progress=False,
        )
        weights.append([(run.folder / "model.safetensors").read_bytes() for run in study.runs])
    assert weights[0] == weights[1]


@pytest.mark.soak
def test_a_rank_that_fails_is_the_problem_of_its_run(tmp_path: Path) -> None:
    (run,) = plan_runs(structs.replace(SMALLEST, variants=SMALLEST.variants[:1]), "tiny", tmp_path)
    with pytest.raises(TrainingError, match=r"rank [01] failed"):
        train_on_devices(run, str(tmp_path / "nowhere"), 2, lambda epochs: None, wait=True)


def test_a_run_that_another_process_trains_is_left_to_it(tmp_path: Path) -> None:
    (run,) = plan_runs(structs.replace(SMALLEST, variants=SMALLEST.variants[:1]), "tiny", tmp_path)
    run.folder.mkdir(parents=True)
    with file_lock(run.folder / ".lock", wait=False), pytest.raises(BusyError):
        train_on_devices(run, "cifar-10-train", 2, lambda epochs: None, wait=False)


def test_gpus_of_several_devices_are_those_that_the_process_sees(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SHIFTBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5,7")
    with free_gpus(1) as taken, free_gpus(2) as gpus, free_gpus(1) as none:
        assert (taken, gpus, none) == ([0], [1, 2], [])
        assert _visible(gpus) == ["5", "7"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert _visible([1, 2]) == ["1", "2"]


def test_what_is_missing_is_said_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="icons-style"):
        run_experiment("icons-styles", out=tmp_path)
    with pytest.raises(UnknownNameError, match="tiny"):
        run_experiment("size", scale="teeny", out=tmp_path)
    with pytest.raises(SettingError, match="needs data for icons"):
        run_experiment("icons-style", out=tmp_path)
    with pytest.raises(SettingError, match=r"cifar-10\.1"):
        run_experiment("hyper-parameters", out=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changed", "of_scale", "found", "expected"),
    [
        (
            {"metric": "AUPR"},
            {},
            "cifar-10-c.fog.3, cifar-10-c.gaussian_noise.3",
            "one set of out-of-distribution images",
        ),
        ({"metric": "mAP"}, {}, "cifar-10-c.fog.3, cifar-10-c.gaussian_noise.3", "images with several labels"),
        ({"parts": (ExperimentPart("cifar-11", "cifar-10-c"),)}, {}, None, "cifar-10-train"),
        ({"parts": (ExperimentPart("cifar-10-train", "imagenet-c"),)}, {}, None, "imagenet-val"),
        ({}, {"severities": (9,)}, "9", "a number from 1 to 5"),
        ({}, {"corruptions": ("fogg",)}, None, "gaussian_noise"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_before_anything_is_trained(
    changed: dict[str, Any], of_scale: dict[str, Any], found: object, expected: str, tmp_path: Path
) -> None:
    scale = structs.replace(SMALLEST.scales["tiny"], **of_scale)
    with pytest.raises(ShiftbenchError) as caught:
        run_experiment(structs.replace(SMALLEST, scales={"tiny": scale}, **changed), scale="tiny", out=tmp_path)
    assert found is None or caught.value.found == found
    assert expected in str(caught.value.expected)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Images of two classes of one's own, to train on and to test with."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 24), ("val", 8)):
        for name, level in (("bad", 70), ("good", 180)):
            folder = tmp_path / "photos" / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = rng.normal(level, 30, (32, 32, 3)).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.png")
    return tmp_path / "photos"


def own_experiment(folder: Path) -> Path:
    """A copy of a built-in experiment, edited as the documentation says."""
    text = output("experiment", "show", "size")
    text = text.replace('train = "cifar-10-train"', 'train = "mine/train"', 1)
    text = text.replace('suite = "cifar-10-c"', 'suite = "corruptions"', 1)
    file = folder / "my.toml"
    file.write_text(text)
    return file


@pytest.mark.slow
def test_a_copy_of_a_built_in_experiment_runs_on_ones_own_classes(photos: Path, tmp_path: Path) -> None:
    words = ["experiment", "run", own_experiment(tmp_path), "--scale", "tiny", "--seeds", "1", "--labels", "folders"]
    words += ["--data", f"mine={photos}", "--data", f"data={photos / 'val'}", "--workers", "1"]
    printed = json.loads(output(*words, "--out", tmp_path / "runs", "--json", "-q"))
    assert "--labels folders" in json.dumps(printed)
    models = sorted((tmp_path / "runs" / "runs").glob("*/model.safetensors"))
    assert len(models) == len(load_experiment("size").at("tiny").variants)
    # A second time, nothing is trained again.
    before = [model.stat().st_mtime_ns for model in models]
    assert json.loads(output(*words, "--out", tmp_path / "runs", "--json", "-q")) == printed
    assert [model.stat().st_mtime_ns for model in models] == before


def test_what_does_not_fit_ones_own_data_is_said_before_anything_is_trained(photos: Path, tmp_path: Path) -> None:
    file = own_experiment(tmp_path)
    data = {"mine": str(photos), "data": str(photos / "val")}
    unknown = run_error(file, data, tmp_path / "runs")
    assert "--labels folders" in str(unknown.hint)
    # The command line has the option that is recommended: followed literally, the error does not come back.
    (photos / "val" / "good").rename(photos / "val" / "ugly")
    other_classes = run_error(file, data, tmp_path / "runs", "--labels", "folders")
    assert isinstance(other_classes, LabelError)
    (photos / "val" / "ugly").rename(photos / "val" / "good")
    # At the scale of the papers, the recipes name validation data of other classes.
    other_validation = run_error(file, data, tmp_path / "runs", "--labels", "folders", "--scale", "paper")
    assert isinstance(other_validation, LabelError)
    assert not (tmp_path / "runs").exists()


def run_error(file: Path, data: dict[str, str], out: Path, *words: str) -> ShiftbenchError:
    options = ["--scale", "tiny", *words]
    for role, folder in data.items():
        options += ["--data", f"{role}={folder}"]
    if "--scale" in words:
        options.remove("--scale")
        options.remove("tiny")
    done = call("experiment", "run", file, *options, "--out", out, "-q")
    assert isinstance(done.exception, ShiftbenchError), done.output
    return done.exception


def test_the_experiments_are_listed() -> None:
    names = [row["experiment"] for row in json.loads(output("experiment", "list", "--json"))]
    assert names == builtin_names("experiments")
    assert "cifar-corruptions" in output("experiment", "list")
    assert call("experiment", "show", "sizes").exit_code != 0


@pytest.mark.soak
@pytest.mark.parametrize(
    "name", ["cifar-corruptions", "size", "self-attention", "many-faces", "natural-adversarial", "enhancements"]
)
def test_the_built_in_experiments_run_in_miniature(name: str, tmp_path: Path) -> None:
    study = run_experiment(name, scale="tiny", out=tmp_path, progress=False)
    experiment = load_experiment(name).at("tiny")
    assert len(study.variants) == len(experiment.variants)
    assert len(study.directions) == len(experiment.claims)


@pytest.mark.soak
def test_a_killed_experiment_continues(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "from shiftbench.cli import main; main()",
        "experiment",
        "self-attention",
        "--scale",
        "tiny",
        "--seeds",
        "1",
        "--set",
        "train.epochs=3",
        "--out",
        str(tmp_path / "killed"),
        "--json",
        "-q",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while not list((tmp_path / "killed").glob("runs/*/model.safetensors")):
        assert process.poll() is None
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(2)  # its workers see that it is gone
    found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    command[command.index(str(tmp_path / "killed"))] = str(tmp_path / "whole")
    whole = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert found["variants"] == whole["variants"]


def test_an_experiment_begins_with_one_beside_it(tmp_path: Path) -> None:
    first = tmp_path / "first.toml"
    second = tmp_path / "second.toml"
    first.write_text('base = "icons-version"\nabout = "mine"\n')
    second.write_text('base = "first.toml"\nsuite = "icons-style"\ntrain = "icons/style.train"\n')
    found = load_experiment(second)
    assert (found.name, found.about, found.parts[0].suite) == ("second", "mine", "icons-style")
    first.write_text('base = "second.toml"\n')
    with pytest.raises(RecipeError, match="base"):
        load_experiment(second)
