"""The ONNX twin: which exporter made it, and what counts as agreement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from shiftbench.classifiers import load_classifier
from shiftbench.classifiers.onnx_ import TOLERANCE, OnnxClassifier, disagreement
from shiftbench.datasets.samples import sample_images
from shiftbench.labels.space import LabelSpace
from tests.classifiers.networks import SMALL, Small


def test_the_newer_exporter_steps_in(own_cache: Path, pets: LabelSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch.onnx.export

    def without_tracing(*args: Any, **options: Any) -> Any:
        if "dynamic_axes" in options:
            raise TypeError("export() got an unexpected keyword argument 'dynamic_axes'")
        return real(*args, **options)

    monkeypatch.setattr("torch.onnx.export", without_tracing)
    classifier = load_classifier(Small(), labels=pets, preprocessing=SMALL)
    assert isinstance(classifier, OnnxClassifier)
    images = sample_images(3, (32, 32))
    with torch.inference_mode():
        expected = Small().eval()(torch.from_numpy(SMALL.normalisation(images))).numpy()
    assert np.allclose(classifier.scores(images), expected, atol=1e-5)


def test_agreement() -> None:
    scores = np.array([[1.0, 10.0, 9.0], [3.0, 2.0, 1.0]], np.float32)
    assert disagreement(scores, scores + np.float32(0.9 * TOLERANCE * 10)) is None
    assert disagreement(scores, scores + np.float32(1.2 * TOLERANCE * 10)) is not None
    assert disagreement(scores, scores[:, :2]) is not None
    assert disagreement(scores, scores * np.float32(np.nan)) is not None
    assert disagreement(scores[:0], scores[:0]) is None


def test_ties_may_be_broken_either_way() -> None:
    tied = np.array([[1.0, 1.0 + 1e-6]], np.float32)
    assert disagreement(tied, tied[:, ::-1]) is None
