"""``shiftbench.metrics``: the names and signatures that people rely on, in fractions, without anything heavy."""

from __future__ import annotations

import inspect
import subprocess
import sys

import numpy as np
import pytest

import shiftbench.metrics as m

SIGNATURES = {
    "clopper_pearson": ["k", "n", "level"],
    "rms_calibration_error": ["confidence", "correct", "bin_size", "published"],
    "expected_calibration_error": ["confidence", "correct", "bins"],
    "aurra": ["confidence", "correct"],
    "aupr": ["in_scores", "out_scores"],
    "auroc": ["in_scores", "out_scores"],
    "fpr95": ["in_scores", "out_scores", "published"],
    "mean_average_precision": ["scores", "labels", "weighted", "step"],
    "pm_k": ["pmsets", "correct", "predicted", "labels", "labels_of", "k"],
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_names_and_arguments(name: str) -> None:
    assert list(inspect.signature(getattr(m, name)).parameters) == SIGNATURES[name]
    assert name in m.__all__ and name in dir(m)


def test_defaults() -> None:
    rms = inspect.signature(m.rms_calibration_error).parameters
    assert (rms["bin_size"].default, rms["published"].default) == (100, False)
    assert inspect.signature(m.mean_average_precision).parameters["weighted"].default is True


def test_everything_named_is_there() -> None:
    assert [name for name in m.__all__ if not hasattr(m, name)] == []


def test_values_are_fractions() -> None:
    """Every number of one small case lies in [0, 1], and would not if it were in percent."""
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.3, 1, 300)
    correct = rng.random(300) < 0.6
    scores = rng.random((300, 4))
    labels = rng.random((300, 4)) < 0.4
    values = [
        *m.clopper_pearson(30, 100, 0.95),
        m.rms_calibration_error(confidence, correct, 100, False),
        m.expected_calibration_error(confidence, correct),
        m.aurra(confidence, correct),
        m.aupr(confidence, confidence + 0.1),
        m.auroc(confidence, confidence + 0.1),
        m.fpr95(confidence, confidence + 0.1),
        m.mean_average_precision(scores, labels, True),
        m.mean_average_precision(scores, labels, False),
        m.pm_k({"a": ["b"], "c": []}, correct={"a": True, "b": False, "c": True}),
    ]
    assert all(0.0 < value < 1.0 for value in values), values


def test_importing_them_brings_nothing_heavy() -> None:
    heavy = ("torch", "scipy", "pyarrow", "PIL", "cv2", "numba", "sklearn", "pandas", "rich", "typer", "onnxruntime")
    code = (
        f"import sys; from shiftbench.metrics import {', '.join(SIGNATURES)}; "
        f"print(*[name for name in {heavy!r} if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""
