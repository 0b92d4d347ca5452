"""What had to be assumed about a model is recorded with it, and never in the spec of its results."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from shiftbench.arrays import Pixels
from shiftbench.classifiers import Preprocessing, load_classifier
from shiftbench.classifiers.defences import with_defences
from shiftbench.labels.space import LabelSpace, Scores

PETS = LabelSpace("pets", ("cat", "dog"))


def brightness(images: Pixels) -> Scores:
    light = images.mean(axis=(1, 2, 3)) / 255
    return np.stack([1 - light, light], axis=1).astype(np.float32)


def test_a_function_normalises_for_itself_so_only_its_geometry_is_assumed() -> None:
    classifier = load_classifier(brightness, labels=PETS)
    assert "resize" in classifier.assumed and "mean" not in classifier.assumed
    assert with_defences(classifier, "clahe").assumed == classifier.assumed
    assert pickle.loads(pickle.dumps(classifier)).assumed == classifier.assumed


def test_nothing_is_assumed_of_a_given_preprocessing() -> None:
    given = load_classifier(brightness, labels=PETS, preprocessing=Preprocessing())
    assert given.assumed == ()
    assert given.describe() == load_classifier(brightness, labels=PETS).describe()


def test_a_torch_module_and_its_onnx_twin_record_the_same_assumptions() -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(3, 2))
    with pytest.warns(UserWarning):
        both = [load_classifier(module, labels=PETS, engine=engine) for engine in ("torch", "auto")]
    assert {"resize", "mean", "std"} <= set(both[0].assumed)
    assert both[0].facts == both[1].facts
