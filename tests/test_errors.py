"""Errors name what their reader writes: arguments in Python, options on the command line."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from shiftbench.classifiers import load_classifier
from shiftbench.classifiers.base import trial_scores
from shiftbench.classifiers.options import new_sidecar
from shiftbench.datasets import open_dataset
from shiftbench.errors import (
    DatasetError,
    LabelError,
    MissingClassesError,
    MissingExtraError,
    ShiftbenchError,
    naming_options,
    raising,
    without_credentials,
)
from shiftbench.hardening import load_recipe, train
from shiftbench.hardening.training.checkpoint import refuse_other
from shiftbench.io.atomic import parse_json, read_json
from shiftbench.jobs import RayExecutor
from shiftbench.jobs.base import Shard
from shiftbench.labels.catalogue import find_label_space
from shiftbench.reports.page.server import bind
from shiftbench.studies.base import recognise_unit


def _taken_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        bind("127.0.0.1", other.getsockname()[1])


def _existing_sidecar() -> None:
    for name in ("m.onnx", "m.onnx.json"):
        Path(name).touch()
    new_sidecar("m.onnx")


def _deepfashion2() -> None:
    Path("train/annos").mkdir(parents=True)
    open_dataset(".")


def _no_cluster() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    with RayExecutor(f"127.0.0.1:{port}").kept():
        pass


def _no_run() -> None:
    train(load_recipe("cifar-standard", {"data.train": ""}), "run")


def _other_data() -> None:
    recipe = load_recipe("cifar-standard")
    refuse_other(Path("run"), recipe, "before", recipe, "after")


def _wrong_input() -> None:
    trial_scores("net", np.zeros((1, 8, 8, 3), np.uint8), lambda images: np.zeros(int("no number"), np.float32))


@pytest.mark.parametrize(
    ("fail", "in_python", "as_option"),
    [
        (lambda: Shard.parse("9/8"), "shard=...", "--shard"),
        (_no_cluster, "address='HOST:PORT'", "--address HOST:PORT"),
        (_taken_port, "port=0", "--port 0"),
        (_existing_sidecar, "force=True", "--force"),
        (_deepfashion2, "data={'deepfashion-remixed': '.'}", "--data deepfashion-remixed=."),
        (lambda: recognise_unit({"a": [0.5], "b": [50.0]}), "unit='percent'", "--unit percent"),
        (_other_data, "out=...", "--out"),
        (_no_run, "data='FOLDER'", "--data FOLDER"),
        (_wrong_input, "preprocessing='size=48x40,layout=nhwc'", "--preprocess size=48x40,layout=nhwc"),
    ],
)
def test_hints(
    fail: Callable[[], object], in_python: str, as_option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ShiftbenchError) as caught:
        fail()
    assert in_python in str(caught.value.hint) and as_option not in str(caught.value.hint)
    (tmp_path / "again").mkdir()
    monkeypatch.chdir(tmp_path / "again")
    with naming_options(), pytest.raises(ShiftbenchError) as caught:
        fail()
    assert as_option in str(caught.value.hint) and in_python not in str(caught.value.hint)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://user:SECRET@host/m.onnx", "https://***@host/m.onnx"),
        ("file not found: https:/user:SECRET@host/m.onnx", "file not found: https:/***@host/m.onnx"),
        ("s3://KEY:SECRET@bucket/x", "s3://***@bucket/x"),
        ("s3://K:SECRET@b and 'https://h/a?X-Amz-Signature=SECRET' end", "s3://***@b and 'https://h/a?***' end"),
        ("postgresql://me:SEC@RET@host/db", "postgresql://***@host/db"),
        ("timm:resnet50@weights.pth?num_classes=7", "timm:resnet50@weights.pth?num_classes=7"),
        ("hf:/home/me@work/model and a@b.example", "hf:/home/me@work/model and a@b.example"),
        ("C:/images?", "C:/images?"),
    ],
)
def test_errors_show_no_credentials(text: str, shown: str) -> None:
    assert without_credentials(text) == shown
    error = ShiftbenchError(text, found=text, expected=text, hint=text)
    assert str(error).count(shown) == 4
    assert error.message == shown
    assert error.found == shown


@pytest.mark.parametrize("suffix", [".json", ".toml"])
def test_files_that_are_nested_too_deeply(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"classes{suffix}"
    text = "[" * 100_000 + "]" * 100_000
    path.write_text(text if suffix == ".json" else f"classes = {text}")
    with pytest.raises(LabelError) as caught:
        find_label_space(str(path))
    assert "nested" in str(caught.value.found)


def test_a_sidecar_that_is_nested_too_deeply(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"no model")
    (tmp_path / "model.onnx.json").write_text('{"preprocessing": ' + "[" * 100_000)
    with pytest.raises(ShiftbenchError) as caught:
        load_classifier(str(tmp_path / "model.onnx"))
    assert "nested" in str(caught.value.found)


@pytest.mark.parametrize("read", [read_json, lambda path: parse_json(path.read_text())])
def test_deep_json_is_a_value_error(tmp_path: Path, read: Callable[[Path], object]) -> None:
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match="nested"):
        read(tmp_path / "deep.json")
    with pytest.raises(DatasetError), raising(DatasetError, "it can't be read", KeyError):
        raise RecursionError


def test_an_error_is_the_same_about_a_path() -> None:
    """Its class may have other arguments than a message."""
    error = MissingClassesError("classes are missing", 3, found="a", expected="b", hint="try c")
    about = error.about("photos")
    assert isinstance(about, MissingClassesError)
    assert (about.missing, about.found, about.expected, about.hint) == (3, "a", "b", "try c")
    assert about.message == "photos: classes are missing" and error.message == "classes are missing"
    assert str(about).startswith("photos: classes are missing")


@pytest.mark.parametrize(
    ("package", "words"),
    [
        ("torch", "training needs the package 'torch', which is not installed"),
        ("h5py, onnxruntime", "training needs packages that are not installed: h5py, onnxruntime"),
    ],
)
def test_one_or_several_missing_packages(package: str, words: str) -> None:
    assert MissingExtraError(package, "demo", "training").message == words
