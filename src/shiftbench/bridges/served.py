"""Models behind a server that speaks the Open Inference Protocol (KServe v2, Triton, OpenVINO Model Server, MLServer).

The server says what its input is; everything else follows the policy for any model file. A served answer is not tied to
weights: the server may change them under the same name. Such a model is therefore recognised by its scores on fixed
images, in every run, and its provenance says "served".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit, urlunsplit

import numpy as np
from numpy.typing import NDArray

from shiftbench import LabelSpace
from shiftbench.bridges.json_server import JsonServer, address_options, check_address, stated_timeout
from shiftbench.classifiers import Options, Preprocessing
from shiftbench.errors import ClassifierError
from shiftbench.extend.classifiers import BatchedClassifier, known_inputs, network_fingerprint, settle, trial_scores
from shiftbench.extend.io import digest
from shiftbench.extend.types import FloatArray, Pixels

_MODEL_PATH = re.compile(r"(?P<root>.*)/v2/models/(?P<name>[^/]+)(?:/versions/(?P<version>[^/]+))?/?")
_TYPES: Mapping[str, type[np.generic]] = {
    "FP32": np.float32,
    "FP64": np.float64,
    "UINT8": np.uint8,
}
_DEFAULT_BATCH = 16


@dataclass(frozen=True)
class ServedTensor:
    """An input or output of a served model, as its metadata state it."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.datatype} {list(self.shape)}"


class InferenceServer(JsonServer):
    """The requests to one model of a server.

    Args:
        url: ``http://HOST/v2/models/NAME``, perhaps with ``/versions/N``.
        timeout: Seconds for one request.
    """

    protocol = "the Open Inference Protocol, version 2"

    def metadata(self) -> Mapping[str, object]:
        """What the server says about the model."""
        return self.answer(self.url)

    def infer(self, tensor: ServedTensor, batch: NDArray[np.generic], output: str) -> FloatArray:
        """The scores of a batch."""
        entry = {
            "name": tensor.name,
            "shape": list(batch.shape),
            "datatype": tensor.datatype,
            "data": batch.ravel().tolist(),
        }
        answer = self.answer(f"{self.url}/infer", {"inputs": [entry], "outputs": [{"name": output}]})
        for candidate in _entries(answer, "outputs"):
            if candidate.get("name") == output:
                return self._table(candidate, len(batch))
        raise self.wrong("lacks the output", f"{output!r}")

    def _table(self, output: Mapping[str, object], rows: int) -> FloatArray:
        try:
            table = np.asarray(output["data"], dtype=np.float64).reshape(_shape(output))
        except (KeyError, TypeError, ValueError) as problem:
            raise self.wrong("has an output that is not a table of numbers", str(problem)) from problem
        if table.ndim < 2 or len(table) != rows:
            raise self.wrong("does not have one row per image", f"{table.shape} for {rows} images")
        return table.reshape(rows, -1)


class ServedClassifier(BatchedClassifier):
    """A model behind a server. Its identity is its address, its name and version; see ``self_contained``."""

    def __init__(self, server: InferenceServer, name: str, tensor: ServedTensor, output: ServedTensor) -> None:
        super().__init__()
        self.server = server
        self.name = name
        self.space = LabelSpace("outputs", ("?",))
        self.preprocessing = Preprocessing()
        self.engine = "served (Open Inference Protocol), not tied to weights"
        self._tensor = tensor
        self._output = output

    @property
    def fingerprint(self) -> str:
        identity = digest("served", self.server.url, str(self._tensor), str(self._output))
        return network_fingerprint(identity, self.preprocessing.normalisation, self.outputs)

    def forward(self, images: Pixels) -> NDArray[np.float32]:
        normalisation = self.preprocessing.normalisation
        batch: NDArray[np.generic]
        if self.takes_pixels:
            batch = images[..., ::-1] if normalisation.colour_order == "bgr" else images
            if normalisation.layout == "nchw":
                batch = batch.transpose(0, 3, 1, 2)
        else:
            batch = normalisation(images).astype(_TYPES[self._tensor.datatype], copy=False)
        return self.server.infer(self._tensor, batch, self._output.name).astype(np.float32)


def load_served(target: str, options: Options) -> ServedClassifier:
    """Load ``http://HOST/v2/models/NAME[?timeout=60]``.

    Raises ClassifierError if the server does not answer, or the model takes no images.
    """
    url, timeout = _address(target)
    server = InferenceServer(url, timeout)
    metadata = server.metadata()
    inputs = [_tensor(entry) for entry in _entries(metadata, "inputs")]
    outputs = [_tensor(entry) for entry in _entries(metadata, "outputs")]
    match = _MODEL_PATH.fullmatch(urlsplit(url).path)
    name = options.name or (match["name"] if match else "served")
    if len(inputs) != 1 or len(inputs[0].shape) != 4 or inputs[0].datatype not in _TYPES:
        raise ClassifierError(
            f"the input of {name} is not one batch of images",
            found="; ".join(map(str, inputs)) or "no inputs",
            expected=f"one input of four dimensions, {', '.join(_TYPES)}",
            hint="for other inputs, evaluate a Python function that calls the server",
        )
    classifier = ServedClassifier(server, name, inputs[0], _scores_output(name, outputs, options))
    batch = inputs[0].shape[0]
    classifier.batch_size = batch if batch > 0 else options.batch_size or _DEFAULT_BATCH

    def trial(preprocessing: Preprocessing) -> NDArray[np.float32]:
        classifier.preprocessing = preprocessing
        images = options.trial_images(preprocessing)[: classifier.batch_size]
        return trial_scores(classifier.name, images, classifier.padded_forward)

    failures: list[ClassifierError] = []
    for known_input in known_inputs(inputs[0].shape, inputs[0].datatype == "UINT8"):
        classifier.takes_pixels = known_input.pixels
        try:
            settled, scores = settle(name, options, replace(known_input, source="file"), trial)
            return settled.finish(classifier, scores)
        except ClassifierError as problem:
            failures.append(problem)
    raise failures[0]


def _scores_output(name: str, outputs: Sequence[ServedTensor], options: Options) -> ServedTensor:
    """The output with the scores: the stated one, or the only table."""
    stated = [description.output for description, _ in options.described if description.output]
    tables = [output for output in outputs if len(output.shape) == 2 or output.shape[2:] == (1, 1)]
    candidates = [output for output in outputs if output.name in stated] if stated else tables
    if len(candidates) != 1:
        raise ClassifierError(
            f"{name} has no output, or several, that could be the scores",
            found="; ".join(map(str, outputs)) or "no outputs",
            expected="one output of two dimensions",
        )
    return candidates[0]


def _address(target: str) -> tuple[str, float]:
    """The address without its options, and the time limit."""
    parts = urlsplit(target)
    check_address(parts)
    if parts.scheme not in ("http", "https") or not _MODEL_PATH.fullmatch(parts.path):
        raise ClassifierError(
            "not the address of a served model", found=target, expected="http://HOST/v2/models/NAME[/versions/N]"
        )
    options = address_options(parts, {"timeout": "SECONDS"})
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", "")), stated_timeout(options)


def _entries(answer: Mapping[str, object], key: str) -> list[Mapping[str, object]]:
    value = answer.get(key)
    if not isinstance(value, list):
        return []
    return [entry for entry in value if isinstance(entry, Mapping)]


def _tensor(entry: Mapping[str, object]) -> ServedTensor:
    return ServedTensor(str(entry.get("name")), str(entry.get("datatype")), _shape(entry))


def _shape(entry: Mapping[str, object]) -> tuple[int, ...]:
    sides = entry.get("shape")
    if not isinstance(sides, list) or not all(isinstance(side, int) for side in sides):
        return ()
    return tuple(sides)
