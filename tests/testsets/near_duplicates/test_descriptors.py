"""Rows mean what their names say, and features are really those before the last layer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from onnx import numpy_helper
from PIL import Image

import shiftbench as sb
from shiftbench.classifiers.demo import DEMO_CLASSIFIERS
from shiftbench.classifiers.onnx_ import OnnxClassifier
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.subset import take
from shiftbench.errors import ClassifierError, ShiftbenchError
from shiftbench.labels.space import LabelSpace
from shiftbench.testsets.near_duplicates.descriptors import (
    FeatureDescriptor,
    NormalisedPixelDescriptor,
    PixelDescriptor,
    describe,
    descriptor,
    features_of,
    last_layer,
    pair_distances,
)
from shiftbench.testsets.near_duplicates.search import ExactIndex
from tests.classifiers.keras_networks import load_squeezenet
from tests.raised import raises


def weights_of(classifier: OnnxClassifier) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    graph = onnx.load(str(classifier.path)).graph
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    node = last_layer(graph)
    return stored[node.input[1]], stored[node.input[2]]


@pytest.mark.parametrize("name", ["efficientnet-lite0", "resnet8-cifar10"])
def test_the_last_layer_makes_the_scores_of_the_features(name: str, photographs: Dataset) -> None:
    classifier = sb.load_classifier(f"demo:{name}")
    assert isinstance(classifier, OnnxClassifier)
    images = np.stack([classifier.preprocessing.geometry(photographs.read(i).pixels) for i in range(3)])
    rows = features_of(classifier).scores(images)
    weight, bias = weights_of(classifier)
    assert rows.shape == (3, weight.shape[1])
    np.testing.assert_allclose(rows @ weight.T + bias, classifier.scores(images), rtol=1e-4, atol=1e-4)


def test_a_last_convolution_is_averaged_over_its_places(photographs: Dataset) -> None:
    """SqueezeNet ends in a convolution; torch computes the map that enters it independently."""
    quick, plain = (sb.load_classifier("demo:squeezenet1_1", engine=engine) for engine in ("auto", "torch"))
    images = np.stack([quick.preprocessing.geometry(photographs.read(i).pixels) for i in range(2)])
    seen: list[torch.Tensor] = []
    network = load_squeezenet(DEMO_CLASSIFIERS["squeezenet1_1"].weights())
    network.conv10.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        network(torch.from_numpy(plain.preprocessing.normalisation(images)))
    expected = seen[0].mean((2, 3)).numpy()
    for classifier in (quick, plain):
        features = features_of(classifier).scores(images)
        assert features.shape[1] == 512
        np.testing.assert_allclose(features, expected, rtol=1e-3, atol=1e-3)


def test_what_has_no_layers_gives_its_scores_and_says_so() -> None:
    pets = LabelSpace("pets", ("cat", "dog"))
    classifier = sb.load_classifier(lambda images: images.mean(axis=(1, 2))[:, :2], labels=pets, name="mean")
    assert FeatureDescriptor(classifier).name == "scores:mean"
    with raises(ClassifierError, found="FunctionClassifier"):
        features_of(classifier)
    assert FeatureDescriptor(sb.load_classifier("demo:squeezenet1_1")).name == "features:squeezenet1_1"


def test_a_module_whose_end_is_of_another_kind_gives_its_scores() -> None:
    class Odd(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(48, 3)
            self.second = torch.nn.Linear(48, 3)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            flat = images.flatten(1)
            return self.first(flat) * self.second(flat)  # type: ignore[no-any-return]

    torch.manual_seed(0)
    classifier = sb.load_classifier(
        Odd(),
        labels=LabelSpace("abc", ("a", "b", "c")),
        name="odd",
        preprocessing=sb.Preprocessing(sb.Geometry(resize=4, crop=4)),
    )
    assert FeatureDescriptor(classifier).name == "scores:odd"
    with raises(ClassifierError, found="a graph that ends in Flatten, Gemm, Gemm, Mul"):
        features_of(classifier)


def test_recorded_answers_describe_nothing(tmp_path: Path) -> None:
    (tmp_path / "answers.csv").write_text("id,prediction\na,1\n")
    recorded = sb.load_classifier(tmp_path / "answers.csv", labels="imagenet-1k")
    with pytest.raises(ShiftbenchError, match="not a network"):
        FeatureDescriptor(recorded)


def test_pixel_distance_is_the_root_mean_square_difference(small_pictures: NDArray[np.uint8]) -> None:
    pixels = PixelDescriptor()
    rows = pixels(list(small_pictures[:20]))
    np.testing.assert_array_equal(rows, small_pictures[:20].reshape(20, -1))  # 32 x 32 stays as it is
    first = np.arange(10)
    second = np.arange(10, 20)
    expected = [
        np.sqrt(((small_pictures[a].astype(float) - small_pictures[b]) ** 2).mean())
        for a, b in zip(first, second, strict=True)
    ]
    np.testing.assert_allclose(pixels.scale * pair_distances(rows, rows, first, second), expected)


def test_squashed_as_pillow_does(photographs: Dataset) -> None:
    picture = photographs.read(93).pixels
    expected = Image.fromarray(picture).resize((32, 32), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(PixelDescriptor()([picture])[0], np.asarray(expected).reshape(-1))


def test_exposure_and_contrast_drop_out_of_normalised_pixels(photographs: Dataset) -> None:
    picture = photographs.read(5).pixels
    normalised = NormalisedPixelDescriptor()
    rows = normalised([picture, (picture * 0.6).astype(np.uint8) + 30, photographs.read(6).pixels])
    near, far = normalised.scale * pair_distances(rows, rows, np.array([0, 0]), np.array([1, 2]))
    assert near < 0.1 < 0.5 < far


def test_rows_do_not_depend_on_neighbours_or_mirroring_twice(photographs: Dataset) -> None:
    classifier = sb.load_classifier("demo:squeezenet1_1")
    pictures = [photographs.read(i).pixels for i in range(3)]
    for describes in (PixelDescriptor(), NormalisedPixelDescriptor(), FeatureDescriptor(classifier)):
        together = describes(pictures)
        np.testing.assert_array_equal(together, np.concatenate([describes([picture]) for picture in pictures]))
    lengths = np.linalg.norm(FeatureDescriptor(classifier)(pictures), axis=1)
    np.testing.assert_allclose(lengths, 1, rtol=1e-6)


def test_mirrored_rows_are_those_of_the_mirrored_pictures(photographs: Dataset) -> None:
    dataset = take(photographs, range(4))
    rows = describe(dataset, [PixelDescriptor()], mirrored=True)[0].rows
    expected = PixelDescriptor()([dataset.read(i).pixels[:, ::-1] for i in range(4)])
    np.testing.assert_array_equal(rows, expected)


def test_features_put_a_crop_beside_its_picture(photographs: Dataset) -> None:
    """The nearest of all photographs to the middle 80 % of one is that one, by what a network sees."""
    from benchmarks.planted import cropped

    described = FeatureDescriptor(sb.load_classifier("demo:squeezenet1_1"))
    pictures = [photographs.read(i).pixels for i in range(24)]
    rows = described(pictures)
    crops = described([cropped(picture, 0.8) for picture in pictures[:8]])
    assert ExactIndex(rows).nearest(crops, 1).indices[:, 0].tolist() == list(range(8))


def test_unknown_descriptor() -> None:
    with pytest.raises(ShiftbenchError, match="unknown descriptor"):
        descriptor("pixel")
