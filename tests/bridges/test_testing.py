"""Assertions about robustness, by themselves and as a plug-in of pytest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from shiftbench.bridges import assert_not_worse
from shiftbench.bridges.testing import verdicts
from shiftbench.datasets import Dataset, from_arrays
from shiftbench.errors import SettingError

STATED = {"size": 8, "interpolation": "bilinear", "outputs": "logits"}


def images(count: int) -> Dataset:
    pixels = np.random.default_rng(0).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)
    return from_arrays(pixels, (pixels.mean((1, 2, 3)) > 127.5).astype(int), space=["dark", "light"], name="noise")


def by_mean(batch: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Always right."""
    light = batch.mean(axis=(1, 2, 3)) - 127.5
    scores: NDArray[np.float64] = np.stack([-light, light], axis=1)
    return scores


def by_corner(batch: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Looks at one pixel, and is wrong for many images."""
    return by_mean(batch[:, :1, :1])


def test_a_worse_model_fails_and_a_better_or_equal_one_passes() -> None:
    verdicts.clear()
    data = images(400)
    with pytest.raises(AssertionError, match="FAIL: by_corner against"):
        assert_not_worse(by_corner, by_mean, data, preprocessing=STATED)
    better = assert_not_worse(by_mean, by_corner, data, preprocessing=STATED)
    assert better.gate is not None and better.gate.verdict == "pass" and better.gate.images == 400
    same = assert_not_worse(by_mean, by_mean, data, preprocessing=STATED)
    assert same.gate is None and len(same.run.results) == 1
    assert [text.split(":")[0] for text in verdicts] == ["FAIL", "PASS", "IDENTICAL"]


def test_few_images_show_nothing() -> None:
    def nearly(batch: NDArray[np.uint8]) -> NDArray[np.float64]:
        return np.asarray(by_mean(batch) + np.array([0.001, 0.0]))

    data = images(30)
    with pytest.raises(AssertionError, match="NOT ENOUGH IMAGES"):
        assert_not_worse(nearly, by_mean, data, preprocessing=STATED)
    allowed = assert_not_worse(nearly, by_mean, data, preprocessing=STATED, undecided="pass")
    assert allowed.gate is not None and allowed.gate.verdict == "not enough images"
    wide = assert_not_worse(nearly, by_mean, data, preprocessing=STATED, margin={"clean": 60.0})
    assert wide.gate is not None and wide.gate.verdict == "pass"
    for wrong in ({"margin": {"clear": 2.0}}, {"undecided": "skip"}):
        with pytest.raises(SettingError):
            assert_not_worse(nearly, by_mean, data, **wrong)


PROJECT = """
import pytest
from tests.bridges.test_testing import STATED, by_corner, by_mean, images

def test_better(assert_not_worse):
    assert_not_worse(by_mean, by_corner, images(400), preprocessing=STATED)

def test_worse(assert_not_worse):
    assert_not_worse(by_corner, by_mean, images(400), preprocessing=STATED)

def test_other():
    pass
"""


def test_the_plug_in_of_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_project.py").write_text(PROJECT)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-m", "pytest", "-p", "no:shiftbench", "-p", "shiftbench.bridges.pytest_plugin"]
    command += ["-p", "no:cacheprovider", "--strict-markers", str(tmp_path)]
    environment = {"PYTHONPATH": str(root), "PATH": "", "HOME": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert "1 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    summary = done.stdout.partition("= robustness =")[2]
    assert "PASS: by_mean against" in summary and "FAIL: by_corner against" in summary
    chosen = subprocess.run(
        [*command, "-m", "not robustness"], env=environment, capture_output=True, text=True, timeout=300, cwd=tmp_path
    )
    assert "1 passed, 2 deselected" in chosen.stdout and "robustness =" not in chosen.stdout.partition("deselected")[2]
