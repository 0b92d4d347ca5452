"""The tests of the plug-in: the conformance checks do most of the work."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import shiftbench as sb
from shiftbench.conformance import assert_conforms
from shiftbench.metrics import simulated_predictions


def test_the_corruption_conforms() -> None:
    assert_conforms(sb.check_corruption("stripes"))


def test_the_metric_conforms_and_has_a_known_value() -> None:
    predictions = simulated_predictions(np.random.default_rng(0), 200)
    wrong = (predictions.top[:, 0] != predictions.labels) & (predictions.confidence > 0.9)
    cases = [(predictions, float(wrong.mean()))]
    assert_conforms(sb.check_metric("confident_mistakes", cases=cases, sizes=[18, 100], replicates=100))


def test_the_dataset_conforms(tmp_path: Path) -> None:
    records = np.random.default_rng(0).integers(0, 256, (5, 1 + 3 * 32**2), dtype=np.uint8)
    records[:, 0] %= 10
    records.tofile(tmp_path / "images.raw")
    dataset = sb.open_dataset(tmp_path / "images.raw")
    assert len(dataset) == 5
    assert_conforms(sb.check_dataset(dataset, reopen=lambda: sb.open_dataset(tmp_path / "images.raw")))
