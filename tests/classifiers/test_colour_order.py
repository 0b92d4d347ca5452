"""The colour order of models that take uint8 pixels and normalise them themselves."""

from pathlib import Path

import numpy as np
import pytest
import torch

import shiftbench as sb
from shiftbench.arrays import Pixels
from shiftbench.classifiers import load_classifier
from shiftbench.labels.space import Scores

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)


class MeanColours(torch.nn.Module):
    """The mean of each channel is the score of a class; takes uint8 pixels."""

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return pixels.float().mean((2, 3))


@pytest.fixture
def network(tmp_path: Path) -> Path:
    path = tmp_path / "colours.onnx"
    pixels = torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    torch.onnx.export(
        MeanColours(), (pixels,), str(path), dynamic_axes={"pixels": {0: "n"}}, input_names=["pixels"], dynamo=False
    )
    return path


def mean_colours(images: Pixels) -> Scores:
    scores: Scores = images.mean(axis=(1, 2)).astype(np.float32)
    return scores


def test_the_colour_order_of_a_file_that_takes_pixels_is_assumed_until_it_is_stated(network: Path) -> None:
    unstated = load_classifier(str(network), labels=["r", "g", "b"], preprocessing="size=8,interpolation=bilinear")
    assert unstated.takes_pixels and "colour order" in unstated.assumed
    stated = load_classifier(str(network), labels=["r", "g", "b"], preprocessing="size=8,colour=rgb")
    assert "colour order" not in stated.assumed
    assert stated.fingerprint == unstated.fingerprint
    np.testing.assert_array_equal(stated.scores(IMAGES), unstated.scores(IMAGES))


def test_a_file_that_takes_bgr_pixels_gets_them(network: Path) -> None:
    rgb = load_classifier(str(network), labels=["r", "g", "b"], preprocessing="size=8,colour=rgb")
    bgr = load_classifier(str(network), labels=["b", "g", "r"], preprocessing="size=8,colour=bgr")
    np.testing.assert_array_equal(bgr.scores(IMAGES), rgb.scores(IMAGES)[:, ::-1])
    assert bgr.fingerprint != rgb.fingerprint


def test_a_function_gets_rgb_unless_another_order_is_stated() -> None:
    rgb = load_classifier(mean_colours, labels=["r", "g", "b"], preprocessing="size=8")
    sources = {fact.name: fact.source for fact in rgb.facts}
    assert sources["colour order"] == "default"
    bgr = load_classifier(mean_colours, labels=["b", "g", "r"], preprocessing="size=8,colour=bgr")
    np.testing.assert_array_equal(bgr.scores(IMAGES), rgb.scores(IMAGES)[:, ::-1])
    assert bgr.fingerprint != rgb.fingerprint
    grey = load_classifier(mean_colours, labels=["light"], preprocessing="size=8,colour=grey")
    assert grey.scores(IMAGES).shape == (6, 1)


def test_a_mean_is_still_refused_for_a_model_that_takes_pixels(network: Path) -> None:
    with pytest.raises(sb.errors.ClassifierError) as refusal:
        load_classifier(str(network), labels=["r", "g", "b"], preprocessing="size=8,mean=0.5,std=0.5,colour=bgr")
    assert refusal.value.found == "mean, std"
