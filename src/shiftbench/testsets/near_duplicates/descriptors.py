"""Descriptors: images as vectors, so that near-duplicates are close in l2.

| name | row | distance |
|---|---|---|
| ``pixels`` | the image resized to 32 x 32, uint8 | root mean square difference in grey levels |
| ``pixels-normalised`` | resized to 16 x 16, brightness and contrast removed | the same in standard deviations |
| ``features:NAME`` | penultimate layer of model NAME, normalised to length 1 | 0 (same direction) to 2 |
| ``scores:NAME`` | its scores, if its last layer cannot be removed | 0 to 2 |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench import Classifier, Dataset, Geometry, LabelSpace, ShiftbenchError
from shiftbench.errors import ClassifierError, MissingExtraError
from shiftbench.extend.classifiers import OnnxClassifier, RecordedPredictions, disagreement
from shiftbench.extend.datasets import sample_images
from shiftbench.extend.io import cache_folder, digest, file_digest, write_atomically
from shiftbench.extend.jobs import Computation, ComputeOptions, PerImage, per_image
from shiftbench.extend.types import FloatArray, IntArray, Pixels
from shiftbench.testsets.near_duplicates.search import pair_squares

Rows = NDArray[np.generic]
#: Side of the resized image that SSIM and alignment also compare.
SIDE = 32
#: Part of every cache key; raised when the cut changes.
_CUT_VERSION = 1
#: Operations that may follow the last layer because they do not mix features: spatial means, reshapes, softmax, bias,
#: temperature.
_BETWEEN = {
    "Softmax",
    "LogSoftmax",
    "Sigmoid",
    "Relu",
    "Identity",
    "Dropout",
    "Cast",
    "Clip",
    "Flatten",
    "Reshape",
    "Squeeze",
    "Unsqueeze",
    "ReduceMean",
    "GlobalAveragePool",
    "AveragePool",
    "Add",
    "Sub",
    "Mul",
    "Div",
}
#: Operations that compute class scores from features.
_LAST_LAYERS = {"Gemm", "MatMul", "Conv"}


class Descriptor(ABC):
    """Maps images to rows; ``scale`` times the l2 distance of rows is the reported distance."""

    name: str
    #: What makes the distance independent of the number of values in a row.
    scale: float = 1.0

    @property
    @abstractmethod
    def identity(self) -> list[object]:
        """JSON-serialisable: everything that determines the rows."""

    @abstractmethod
    def __call__(self, images: Sequence[Pixels]) -> Rows:
        """(N, D), uint8 or float32."""


@dataclass(frozen=True)
class PixelDescriptor(Descriptor):
    """The image resized to a small square, which ignores its aspect ratio."""

    side: int = SIDE
    name = "pixels"

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", 1 / np.sqrt(3 * self.side**2))

    @property
    def identity(self) -> list[object]:
        return [self.name, self.side]

    def __call__(self, images: Sequence[Pixels]) -> Rows:
        return squashed(images, self.side).reshape(len(images), 3 * self.side**2)


#: Byte levels per standard deviation: the range is four standard deviations in either direction.
_LEVELS = 31.75
#: Grey levels added to the standard deviation, so that the noise of a flat image is not amplified.
_FLOOR = 8.0


@dataclass(frozen=True)
class NormalisedPixelDescriptor(PixelDescriptor):
    """Each channel minus its mean, divided by the common standard deviation: ignores exposure and contrast."""

    side: int = 16
    name = "pixels-normalised"

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", 1 / (_LEVELS * np.sqrt(3 * self.side**2)))

    @property
    def identity(self) -> list[object]:
        return [self.name, self.side, _LEVELS, _FLOOR]

    def __call__(self, images: Sequence[Pixels]) -> Rows:
        values = squashed(images, self.side).astype(np.float64)
        values -= values.mean(axis=(1, 2), keepdims=True)
        values /= values.std(axis=(1, 2, 3), keepdims=True) + _FLOOR
        levels = np.clip(np.rint(values * _LEVELS + 128), 0, 255).astype(np.uint8)
        return levels.reshape(len(images), 3 * self.side**2)


class FeatureDescriptor(Descriptor):
    """Features of a classifier, or its scores if its last layer cannot be removed, normalised to length 1."""

    def __init__(self, classifier: Classifier) -> None:
        try:
            self.network = features_of(classifier)
            self.name = f"features:{classifier.name}"
        except (ClassifierError, MissingExtraError):
            self.network = classifier
            self.name = f"scores:{classifier.name}"

    @property
    def identity(self) -> list[object]:
        return ["features", self.network.fingerprint, self.network.preprocessing.describe()]

    def __call__(self, images: Sequence[Pixels]) -> Rows:
        network = self.network
        if not images:
            return np.empty((0, len(network.space)), np.float32)
        inputs = np.stack([network.preprocessing.geometry(image) for image in images])
        rows = network.scores(inputs).astype(np.float64)
        if not np.isfinite(rows).all():
            raise ClassifierError(f"{network.name} returned nan or inf")
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.asarray(rows / np.where(lengths > 0, lengths, 1), np.float32)


@dataclass(frozen=True)
class _Described:
    """A descriptor as a computation that can be pickled for remote workers."""

    by: Descriptor
    #: Whether the mirror images are described.
    mirrored: bool

    def __call__(self, images: Sequence[Pixels], indices: IntArray) -> Rows:
        if self.mirrored:
            images = [image[:, ::-1] for image in images]
        return self.by(images)


def describe(
    dataset: Dataset,
    descriptors: Sequence[Descriptor],
    options: ComputeOptions | None = None,
    *,
    mirrored: bool = False,
) -> list[PerImage]:
    """The rows of a dataset, or of its mirror images, for each descriptor; cached if there is a folder."""
    what = f"describing {dataset.name}"
    if mirrored:
        what += " mirrored"
    computations = [Computation(_Described(by, mirrored), [*by.identity, mirrored]) for by in descriptors]
    return per_image(dataset, computations, options, what=what)


def pair_distances(a: Rows, b: Rows, first: IntArray, second: IntArray) -> FloatArray:
    """l2 between pairs of rows; multiply by the descriptor's ``scale`` to get its distance."""
    squares = np.empty(len(first))
    distances = np.empty(len(first))
    # Sorted by the second row, so that a memory-mapped reference set is read sequentially.
    order = np.argsort(second, kind="stable")
    pair_squares(a, b, first[order], second[order], squares)
    distances[order] = np.sqrt(squares)
    return distances


def squashed(images: Sequence[Pixels], side: int) -> Pixels:
    """(N, side, side, 3): whole images, resized without keeping their aspect ratio."""
    if not images:
        return np.empty((0, side, side, 3), np.uint8)
    geometry = Geometry(resize=side, crop=None, resize_rule="exact", interpolation="bilinear")
    return np.stack([geometry(image) for image in images])


def descriptor(spec: str | Classifier | Descriptor) -> Descriptor:
    """A descriptor by name ("pixels", "pixels-normalised"), or the features of a classifier or model spec."""
    if isinstance(spec, Descriptor):
        return spec
    if isinstance(spec, Classifier):
        return FeatureDescriptor(spec)
    plain = {"pixels": PixelDescriptor, "pixels-normalised": NormalisedPixelDescriptor}
    if spec in plain:
        return plain[spec]()
    from shiftbench import load_classifier

    try:
        return FeatureDescriptor(load_classifier(spec))
    except ClassifierError as error:
        raise ShiftbenchError(
            f"unknown descriptor {spec!r}",
            found=error.message,
            expected=f"{', '.join(plain)}, or a model such as demo:squeezenet1_1",
        ) from error


def features_of(classifier: Classifier) -> Classifier:
    """A network whose ``scores`` are the features: an ONNX graph or torch module cut before its last layer.

    Feature maps are averaged over space. ClassifierError if that layer cannot be found.
    """
    from shiftbench.extend.classifiers import TorchClassifier

    if isinstance(classifier, RecordedPredictions):
        raise ShiftbenchError(
            f"{classifier.name} contains recorded predictions, not a network",
            expected="a model that accepts new images",
        )
    images = sample_images(2, classifier.preprocessing.geometry.output or (224, 224))
    options: dict[str, Any] = {
        "name": f"{classifier.name} features",
        "preprocessing": classifier.preprocessing,
        "weights": digest("features", _CUT_VERSION, classifier.fingerprint),
        "batch_size": classifier.batch_size,
    }
    # How many features there are is only known after a forward pass, so a network for one is tried first.
    trial: Any
    if isinstance(classifier, OnnxClassifier):
        path = cache_folder("onnx") / f"{digest('features', _CUT_VERSION, file_digest(classifier.path))}.onnx"
        if not path.exists():
            _write_cut(classifier.path, path, classifier.name)
        options["device"] = classifier.device
        options["threads"] = classifier.threads
        trial = OnnxClassifier(path, space=_feature_space(1), **options)
        _ = trial.session  # Opening the session sets the batch size that the graph allows.
        size = trial.padded_forward(images[: trial.batch_size]).shape[1]
        return OnnxClassifier(path, space=_feature_space(size), **options)
    if isinstance(classifier, TorchClassifier):
        module: Any = _before(classifier.module, _head_of(classifier, images))
        options["device"] = classifier.device
        trial = TorchClassifier(module, space=_feature_space(1), **options)
        size = trial.padded_forward(images[: trial.batch_size]).shape[1]
        return TorchClassifier(module, space=_feature_space(size), **options)
    raise ClassifierError(
        f"{classifier.name} has no accessible layers",
        found=type(classifier).__name__,
        expected="an ONNX graph or a torch module",
    )


def _feature_space(size: int) -> LabelSpace:
    """Features as the classes of a network, because a classifier needs some."""
    return LabelSpace("features", tuple(str(i) for i in range(size)))


def _write_cut(source: Path, target: Path, name: str) -> None:
    """Write an ONNX graph whose output is the input of its last layer; ClassifierError if there is none."""
    try:
        import onnx
    except ImportError as error:
        raise MissingExtraError("onnx", "export", "cutting an ONNX graph before its last layer") from error
    model = onnx.load(str(source))
    last = last_layer(model.graph)
    if last is None:
        raise ClassifierError(
            f"cannot find the last layer of {name}",
            found=f"a graph that ends in {', '.join(node.op_type for node in model.graph.node[-4:])}",
            expected="a Gemm, MatMul or Conv followed by nothing that mixes features",
        )
    constants = _constants(model.graph)
    features = next(tensor for tensor in last.input if tensor not in constants)
    if last.op_type == "Conv":
        model.graph.node.append(onnx.helper.make_node("GlobalAveragePool", [features], ["_pooled"]))
        model.graph.node.append(onnx.helper.make_node("Flatten", ["_pooled"], ["_features"]))
        features = "_features"
    del model.graph.output[:]
    model.graph.output.append(onnx.helper.make_empty_tensor_value_info(features))
    write_atomically(target, lambda path: onnx.save(model, str(path)))


def last_layer(graph: Any) -> Any:
    """The node that computes class scores from features, or None if the graph ends differently."""
    node_of_output = {}
    for node in graph.node:
        node_of_output.update(dict.fromkeys(node.output, node))
    constants = _constants(graph)
    tensor = graph.output[0].name
    while tensor in node_of_output:
        node = node_of_output[tensor]
        inputs = [name for name in node.input if name and name not in constants]
        if node.op_type in _LAST_LAYERS:
            return node if len(inputs) == 1 else None
        # A reshape may compute its shape from the batch; its first input is the data.
        if node.op_type not in _BETWEEN or (len(inputs) != 1 and node.op_type != "Reshape"):
            return None
        tensor = inputs[0]
    return None


def _constants(graph: Any) -> set[str]:
    """The tensors that do not depend on the input."""
    constants = {tensor.name for tensor in graph.initializer}
    # Nodes are in topological order, as the standard demands, so one pass is enough.
    for node in graph.node:
        if all(name in constants for name in node.input if name):
            constants.update(node.output)
    return constants


def _head_of(classifier: Any, images: object) -> object:
    """The last linear or convolutional layer of a torch module that ran, if its output gives the scores: as it is, or
    its spatial mean, with or without a ReLU."""
    import torch

    # Every layer that ran, with its output.
    ran: list[tuple[object, Any]] = []

    def note(layer: object, _: object, output: Any) -> None:
        ran.append((layer, output))

    layers = [layer for layer in classifier.module.modules() if isinstance(layer, torch.nn.Linear | torch.nn.Conv2d)]
    hooks = [layer.register_forward_hook(note) for layer in layers]
    try:
        scores = classifier.padded_forward(images)
    finally:
        for hook in hooks:
            hook.remove()
    if ran:
        last, last_output = ran[-1]
        output = last_output.detach().float().cpu().numpy()
        if output.ndim == 2:
            possible_scores = [output]
        else:
            possible_scores = [output.mean((2, 3)), np.maximum(output, 0).mean((2, 3))]
        if any(disagreement(scores, possible[: len(scores)]) is None for possible in possible_scores):
            return last
    raise ClassifierError(
        f"cannot find the last layer of {classifier.name}", expected="a Linear or Conv2d whose output is the scores"
    )


def _before(module: Any, head: Any) -> object:
    """The module with the input of ``head`` as its output."""
    import torch

    class Cut(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, images: object) -> object:
            inputs_of_head: list[Any] = []
            hook = head.register_forward_pre_hook(lambda _, inputs: inputs_of_head.append(inputs[0]))
            try:
                self.module(images)
            finally:
                hook.remove()
            features = inputs_of_head[-1]
            return features.mean((2, 3)) if features.ndim == 4 else features

    return Cut()
