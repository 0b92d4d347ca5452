"""The newcomer's first hour, played by a script: a fresh environment from the wheel, own images and own models.

Every form of the model reaches its true accuracy with at most one option, on the command line and in Python.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import numpy as np
import pytest

from tests.first_hour.conftest import Stranger
from tests.first_hour.own import CLASSES

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.soak

#: Called with the model's kind, the data, the option and a folder; prints the accuracy.
IN_PYTHON = """
import json, pickle, sys, warnings
warnings.simplefilter("ignore")
import shiftbench as sb
kind, data, option, folder = sys.argv[1:]
if kind == "torch":
    import torch
    model = torch.load(f"{folder}/network.pt", weights_only=False)
elif kind == "estimator":
    model = pickle.load(open(f"{folder}/estimator.pkl", "rb"))
elif kind == "function":
    sys.path.insert(0, folder)
    from own_function import scores as model
else:
    model = f"{folder}/fixed.onnx"
run = sb.evaluate(model, data=data, workspace=f"{folder}/python-{kind}", preprocessing=option or None, progress=False)
accuracy = next(iter(run.metrics().values()))
assert f"{100 * accuracy:.1f}" in run._repr_html_()  # what a notebook shows
print(json.dumps(accuracy))
"""
#: A function of NumPy alone: scores of the rounded mean brightness of the right third against the left one.
OWN_FUNCTION = """
import numpy as np

def scores(images):
    tilt = images[:, :, 22:].mean(axis=(1, 2, 3)) - images[:, :, :10].mean(axis=(1, 2, 3))
    return -np.abs(tilt[:, None] - np.array([-2.0, 0.0, 2.0]))

def classifier():
    return scores
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT], check=True)
    return next(folder.glob("shiftbench-*.whl"))


def environment(folder: Path, wheel: Path, extras: str) -> Path:
    """A fresh environment with the wheel; its folder of commands."""
    venv.create(folder, with_pip=True)
    commands = folder / ("Scripts" if os.name == "nt" else "bin")
    install = [str(commands / "python"), "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt")]
    subprocess.run([*install, f"shiftbench[{extras}] @ {wheel.as_uri()}" if extras else str(wheel)], check=True)
    return commands


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """With the extra for ONNX and nothing else."""
    return environment(tmp_path_factory.mktemp("plain") / "env", wheel, "onnx")


@pytest.fixture(scope="module")
def with_frameworks(tmp_path_factory: pytest.TempPathFactory, plain: Path) -> Path:
    """The same, which also finds torch and scikit-learn of the environment of the tests."""
    site = Path(
        subprocess.run(
            [plain / "python", "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
    )
    (site / "frameworks.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return plain


@pytest.fixture(scope="module")
def files(stranger: Stranger) -> Path:
    import torch

    torch.save(stranger.network, stranger.folder / "network.pt")
    (stranger.folder / "estimator.pkl").write_bytes(pickle.dumps(stranger.raw_estimator))
    (stranger.folder / "own_function.py").write_text(OWN_FUNCTION)
    return stranger.folder


def run(command: list[object], folder: Path) -> str:
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run([str(one) for one in command], cwd=folder, env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def by_command(commands: Path, model: str, stranger: Stranger, *options: str) -> float:
    words = [commands / "shiftbench", "eval", model, "--data", stranger.data, "--json", "-q", *options]
    found = json.loads(run([*words, "-w", f"command-{model}"], stranger.folder))
    return float(found["scores"][0]["value"])


def by_python(commands: Path, kind: str, stranger: Stranger, option: str) -> float:
    command = [commands / "python", "-c", IN_PYTHON, kind, stranger.data, option, stranger.folder]
    return float(json.loads(run(command, stranger.folder)))


def function_accuracy(stranger: Stranger) -> float:
    namespace: dict[str, object] = {}
    exec(OWN_FUNCTION, namespace)
    return stranger.accuracy(namespace["scores"](stranger.images))  # type: ignore[operator]


def test_onnx(plain: Path, files: Path, stranger: Stranger) -> None:
    truth = pytest.approx(stranger.true_accuracy)
    for name in ("fixed", "any_size", "nhwc"):
        assert by_command(plain, f"{name}.onnx", stranger, "--preprocess", stranger.statement) == truth
    assert by_python(plain, "onnx", stranger, stranger.statement) == truth


def test_a_function(plain: Path, files: Path, stranger: Stranger) -> None:
    truth = pytest.approx(function_accuracy(stranger))
    assert by_command(plain, "own_function.py", stranger) == truth
    assert by_python(plain, "function", stranger, "") == truth


def test_torch(with_frameworks: Path, files: Path, stranger: Stranger) -> None:
    truth = pytest.approx(stranger.true_accuracy)
    assert by_python(with_frameworks, "torch", stranger, stranger.statement) == truth
    assert by_command(with_frameworks, "network.pt", stranger, "--trust", "--preprocess", stranger.statement) == truth


def test_an_estimator(with_frameworks: Path, files: Path, stranger: Stranger) -> None:
    rows = stranger.images.reshape(len(stranger.images), -1).astype(float)
    truth = pytest.approx(float((stranger.raw_estimator.predict(rows) == np.array(CLASSES)[stranger.labels]).mean()))
    assert by_python(with_frameworks, "estimator", stranger, "") == truth
    assert by_command(with_frameworks, "estimator.pkl", stranger, "--trust") == truth
