"""``shiftbench doctor`` with a real network on class folders, as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shiftbench.datasets.base import Dataset
from tests.cli.test_gate import save_network
from tests.commands import answer, call
from tests.diagnosis.conftest import DIAGNOSED, RIGHT, cifar, reordered, resnet8  # noqa: F401 (fixtures)
from tests.runs.helpers import colour_folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory, cifar: Dataset) -> Path:  # noqa: F811
    root = tmp_path_factory.mktemp("data") / "photos"
    for row in DIAGNOSED[:160]:
        folder = root / cifar.space.names[int(cifar.labels[row])]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(cifar.read(row).pixels).save(folder / f"{row}.png")
    return root


@pytest.fixture
def model(tmp_path: Path, resnet8: Path) -> Path:  # noqa: F811
    """Columns in reverse, and no preprocessing stated: ImageNet's is assumed."""
    return reordered(resnet8, tmp_path / "model.onnx", [*range(9, -1, -1)])


def test_a_fault_is_explained_written_and_gone(model: Path, photos: Path) -> None:
    first = call("doctor", model, "-d", photos, "-q", "--write")
    assert first.exit_code == 1, first.output
    assert "fault:" in first.output and "--preprocess mean=" in first.output and "label order" in first.output
    sidecar = json.loads((model.parent / "model.onnx.json").read_text())
    assert sidecar["labels"][0] == "truck" and sidecar["size"] == 32
    found = answer("doctor", model, "-d", photos, "-q")
    assert found["status"] == "nothing found" and found["changes"] == {} and found["before"] > 0.75
    # An existing sidecar is only replaced with --force, and the refusal comes before the work.
    refused = call("doctor", model, "-d", photos, "-q", "--write", "--preprocess", "mean=0,std=1")
    assert refused.exit_code == 3 and "exists" in refused.output


def test_two_models(resnet8: Path, photos: Path) -> None:  # noqa: F811
    one = ["doctor", str(resnet8), str(resnet8), "-d", str(photos), "-q"]
    same = call(*one, "--preprocess", RIGHT)
    assert same.exit_code == 0 and "no stage differs" in same.output
    other = call(*one, "--json", "--preprocess", RIGHT, "--preprocess", f"{RIGHT},colour=bgr")
    assert other.exit_code == 1
    assert json.loads(other.stdout)["first_difference"] == "input"


@pytest.mark.parametrize("arguments", [["no.onnx"], ["no.onnx", "b.onnx", "c.onnx"], ["a.onnx", "--wrong"]])
def test_errors_have_their_own_exit_code(arguments: list[str], photos: Path) -> None:
    result = call("doctor", *arguments, "-d", photos)
    assert result.exit_code == 3 and "error:" in result.stderr


def signs_of_errors(answer_of_eval: dict[str, Any]) -> list[dict[str, str]]:
    """The warnings about results, without what is known before a run."""
    return [warning for warning in answer_of_eval["warnings"] if warning["code"] != "assumed-preprocessing"]


def test_a_network_that_expects_bgr_is_not_said_to_have_permuted_labels_only(tmp_path: Path) -> None:
    """Images of three colours: with the channels exchanged, it looks as if red and blue had exchanged their labels."""
    photos = colour_folder(tmp_path / "photos", per_class=30)
    Image.open(photos / "red" / "000.png").convert("RGBA").save(photos / "red" / "000.png")
    save_network(tmp_path / "bgr.onnx", np.eye(3, dtype=np.float32)[::-1].copy())
    (tmp_path / "classes.txt").write_text("red\ngreen\nblue\n")
    words = ("eval", tmp_path / "bgr.onnx", "--data", photos, "--labels", tmp_path / "classes.txt", "-q")
    first, *others = signs_of_errors(answer(*words, "-w", tmp_path / "w"))
    assert first["code"] == "permuted-labels" and "`shiftbench doctor` tests both" in first["message"]
    assert "converted-images" in [warning["code"] for warning in others]
    stated = ("--preprocess", "size=32,mean=0,std=0.1,scale=1/255,interpolation=bilinear,colour=rgb")
    first, *_ = signs_of_errors(answer(*words, "-w", tmp_path / "w", *stated))
    assert first["code"] == "permuted-labels" and "doctor" not in first["message"]


def test_two_models_whose_outputs_or_channels_differ(tmp_path: Path) -> None:
    """The cause is named, and the printed fix makes the two the same."""
    colour_folder(tmp_path / "photos", per_class=30)
    weights = np.array([[0, 1, 3], [1, 3, 0], [2, 0, 1]], np.float32)  # of red, green and blue for blue, green, red
    save_network(tmp_path / "a.onnx", weights)
    save_network(tmp_path / "swapped.onnx", weights[:, [1, 0, 2]])
    save_network(tmp_path / "bgr.onnx", weights[::-1].copy())
    stated = "size=32,mean=0,std=0.1,scale=1/255,interpolation=bilinear,colour={}"
    described = ("--data", tmp_path / "photos", "--labels", "folders", "--preprocess", stated.format("rgb"))
    assert call("describe", tmp_path / "a.onnx", *described, "--write").exit_code == 0
    for name in ("swapped", "bgr"):
        words = ("doctor", tmp_path / "a.onnx", tmp_path / f"{name}.onnx", "--data", tmp_path / "photos", "--quiet")
        options = ("--preprocess", stated.format("rgb"))
        before = json.loads(call(*words, *options, "--json").stdout)
        assert before["status"] == "different" and before["cause"]["model"] == name
        assert bool(before["cause"]["labels"]) == (name == "swapped")
        shown = call(*words, *options)
        assert shown.exit_code == 1 and f"cause: {before['cause']['text'][:20]}" in " ".join(shown.stdout.split())
        written = call(*words, *options, "--write")
        assert (tmp_path / f"{name}.onnx.json").is_file(), written.output
        after = call(*words)
        assert after.exit_code == 0, after.output
