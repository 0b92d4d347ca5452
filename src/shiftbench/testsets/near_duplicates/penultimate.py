"""Features of a classifier: the output before its last layer, or its scores if that layer cannot be removed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.onnx_ import OnnxClassifier, disagreement
from shiftbench.classifiers.recorded import RecordedPredictions
from shiftbench.classifiers.samples import sample_images
from shiftbench.errors import ClassifierError, MissingExtraError, ShiftbenchError
from shiftbench.io.cache import cache_folder
from shiftbench.io.hashing import digest, file_digest
from shiftbench.labels.space import LabelSpace, Scores

Layer = Literal["auto", "penultimate", "scores"]

#: Part of every cache key; raised when the cut changes.
_CUT_VERSION = 1
#: Operations that may follow the last layer because they do not mix features: spatial means, reshapes, softmax, bias,
#: temperature.
_BETWEEN = {
    "Softmax", "LogSoftmax", "Sigmoid", "Relu", "Identity", "Dropout", "Cast", "Clip", "Flatten", "Reshape",
    "Squeeze", "Unsqueeze", "ReduceMean", "GlobalAveragePool", "AveragePool", "Add", "Sub", "Mul", "Div",
}  # fmt: skip
_LAST_LAYERS = {"Gemm", "MatMul", "Conv"}


@dataclass(frozen=True)
class NetworkFeatures:
    """A network whose ``scores`` are the features, and which layer they come from."""

    network: Classifier
    layer: Literal["penultimate", "scores"]
    #: Why scores are used although features were requested.
    why_scores: str = ""

    @property
    def size(self) -> int:
        return len(self.network.space)


def features_of(classifier: Classifier, layer: Layer = "auto") -> NetworkFeatures:
    """The penultimate layer of an ONNX graph or torch module; the scores of other classifiers.

    ``layer="penultimate"`` raises an error instead of falling back, ``"scores"`` always uses the scores. Feature maps
    are averaged over space.
    """
    if isinstance(classifier, RecordedPredictions):
        raise ClassifierError(
            f"{classifier.name} contains recorded predictions, not a network",
            expected="a model that accepts new images",
        )
    if layer not in ("auto", "penultimate", "scores"):
        raise ClassifierError(f"unknown layer {layer!r}", expected="auto, penultimate or scores")
    if layer == "scores":
        return NetworkFeatures(classifier, "scores")
    try:
        return NetworkFeatures(_cut(classifier), "penultimate")
    except ShiftbenchError as error:
        if layer == "penultimate":
            raise
        return NetworkFeatures(classifier, "scores", why_scores=error.message)


def _cut(classifier: Classifier) -> Classifier:
    if isinstance(classifier, OnnxClassifier):
        return _cut_graph(classifier)
    from shiftbench.classifiers.torch_ import TorchClassifier

    if isinstance(classifier, TorchClassifier):
        return _cut_module(classifier)
    raise ClassifierError(
        f"{classifier.name} has no accessible layers",
        found=type(classifier).__name__,
        expected="an ONNX graph or a torch module",
        hint='use layer="scores"',
    )


# -- ONNX graphs -------------------------------------------------------------------------------------------------


def _cut_graph(classifier: OnnxClassifier) -> Classifier:
    path = cache_folder("onnx") / f"{digest('features', _CUT_VERSION, file_digest(classifier.path))}.onnx"
    if not path.exists():
        _write_cut(classifier.path, path, classifier.name)

    def make(size: int) -> OnnxClassifier:
        return OnnxClassifier(
            path,
            name=f"{classifier.name} features",
            space=_numbered(size),
            preprocessing=classifier.preprocessing,
            weights=digest("features", _CUT_VERSION, classifier.fingerprint),
            threads=classifier.threads,
            batch_size=classifier.batch_size,
            device=classifier.device,
        )

    trial = make(1)
    images = sample_images(2, classifier.preprocessing.geometry.output or (224, 224))
    _ = trial.session
    return make(trial.padded_forward(images[: trial.batch_size]).shape[1])


def _write_cut(source: Path, target: Path, name: str) -> None:
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
            hint='use layer="scores"',
        )
    features = next(tensor for tensor in last.input if tensor not in constants(model.graph))
    if last.op_type == "Conv":
        model.graph.node.append(onnx.helper.make_node("GlobalAveragePool", [features], ["_pooled"]))
        model.graph.node.append(onnx.helper.make_node("Flatten", ["_pooled"], ["_features"]))
        features = "_features"
    del model.graph.output[:]
    model.graph.output.append(onnx.helper.make_empty_tensor_value_info(features))
    draft = target.with_suffix(".tmp")
    onnx.save(model, str(draft))
    draft.replace(target)


def last_layer(graph: Any) -> Any:
    """The node that computes class scores from features, or None if the graph ends differently."""
    maker = {output: node for node in graph.node for output in node.output}
    fixed = constants(graph)
    tensor = graph.output[0].name
    while tensor in maker:
        node = maker[tensor]
        moving = [name for name in node.input if name and name not in fixed]
        if node.op_type in _LAST_LAYERS:
            return node if len(moving) == 1 else None
        # A reshape may compute its shape from the batch; its first input is the data.
        if node.op_type not in _BETWEEN or (len(moving) != 1 and node.op_type != "Reshape"):
            return None
        tensor = moving[0]
    return None


def constants(graph: Any) -> set[str]:
    """The tensors that do not depend on the input."""
    fixed = {tensor.name for tensor in graph.initializer}
    for node in graph.node:  # in topological order, by the standard
        if all(name in fixed for name in node.input if name):
            fixed.update(node.output)
    return fixed


# -- torch modules -----------------------------------------------------------------------------------------------


def _cut_module(classifier: Any) -> Classifier:
    from shiftbench.classifiers.torch_ import TorchClassifier

    images = sample_images(2, classifier.preprocessing.geometry.output or (224, 224))
    head = _head_of(classifier, images)

    def make(size: int) -> TorchClassifier:
        return TorchClassifier(
            _before(classifier.module, head),
            name=f"{classifier.name} features",
            space=_numbered(size),
            preprocessing=classifier.preprocessing,
            weights=digest("features", _CUT_VERSION, classifier.fingerprint),
            batch_size=classifier.batch_size,
            device=classifier.device,
        )

    return make(make(1).padded_forward(images).shape[1])


def _head_of(classifier: Any, images: object) -> object:
    """The last linear or convolutional layer that ran, if its output gives the scores."""
    import torch

    seen: list[tuple[object, Any]] = []
    layers = [part for part in classifier.module.modules() if isinstance(part, (torch.nn.Linear, torch.nn.Conv2d))]
    hooks = [part.register_forward_hook(lambda part, _, output: seen.append((part, output))) for part in layers]
    try:
        scores = classifier.padded_forward(images)
    finally:
        _remove(hooks)
    if seen and _explains(scores, seen[-1][1].detach().float().cpu().numpy()):
        return seen[-1][0]
    raise ClassifierError(
        f"cannot find the last layer of {classifier.name}",
        expected="a Linear or Conv2d whose output is the scores",
        hint='use layer="scores"',
    )


def _explains(scores: Scores, output: NDArray[np.float32]) -> bool:
    """Whether the scores are a layer's output, or its spatial mean, with or without a ReLU."""
    candidates = [output] if output.ndim == 2 else [output.mean((2, 3)), np.maximum(output, 0).mean((2, 3))]
    return any(disagreement(scores, candidate[: len(scores)]) is None for candidate in candidates)


def _before(module: Any, head: Any) -> object:
    """The module with the input of ``head`` as its output."""
    import torch

    class Cut(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, images: object) -> object:
            seen: list[Any] = []
            hook = head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
            try:
                self.module(images)
            finally:
                _remove([hook])
            return seen[-1].mean((2, 3)) if seen[-1].ndim == 4 else seen[-1]

    return Cut()


def _remove(hooks: Iterable[Any]) -> None:
    for hook in hooks:
        hook.remove()


def _numbered(size: int) -> LabelSpace:
    return LabelSpace("features", tuple(str(i) for i in range(size)))
