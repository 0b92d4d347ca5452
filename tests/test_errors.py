"""Errors name what their reader writes: arguments in Python, options on the command line."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from shiftbench.classifiers.base import trial_scores
from shiftbench.classifiers.options import new_sidecar
from shiftbench.datasets import open_dataset
from shiftbench.errors import ShiftbenchError, naming_options
from shiftbench.hardening import load_recipe, train
from shiftbench.hardening.training.checkpoint import refuse_other
from shiftbench.jobs import RayExecutor
from shiftbench.jobs.base import Shard
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
