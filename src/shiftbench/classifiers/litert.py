"""LiteRT, formerly TensorFlow Lite: ``model.tflite``, with float or quantised inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.classifiers.base import Outputs
from shiftbench.classifiers.litert_metadata import read_metadata
from shiftbench.classifiers.model_files import ModelFile, OpenedModel, StatedFacts, load_model_file, not_one_image_input
from shiftbench.classifiers.options import KnownInput, Options, known_inputs
from shiftbench.classifiers.preprocessing import Normalisation
from shiftbench.errors import ClassifierError, raising, required
from shiftbench.labels.space import Scores

if TYPE_CHECKING:
    from ai_edge_litert.interpreter import Interpreter

#: The quantisation of probabilities that LiteRT prescribes for a softmax: steps of 1/256, beginning at 0.
_SOFTMAX_STEP = 1 / 256


@dataclass(frozen=True)
class Quantisation:
    """How a tensor holds real values: ``(integer - zero) * step``; a step of 0 means that it holds them as they are.

    Attributes:
        dtype: Name of the tensor's type, such as "int8".
        step: The difference of two neighbouring values.
        zero: The integer that stands for 0.
    """

    dtype: str
    step: float
    zero: int

    @classmethod
    def of(cls, tensor: Mapping[str, Any]) -> Quantisation:
        """The quantisation of a tensor, from the details that the interpreter gives."""
        step, zero = tensor["quantization"]
        return cls(np.dtype(tensor["dtype"]).name, float(step), int(zero))

    @property
    def is_integer(self) -> bool:
        return self.step > 0 and np.dtype(self.dtype).kind in "iu"

    @property
    def smallest(self) -> int:
        return int(np.iinfo(self.dtype).min)

    @property
    def is_softmax(self) -> bool:
        """Whether it is that of the probabilities of a softmax."""
        return self.is_integer and self.step == _SOFTMAX_STEP and self.zero == self.smallest

    def normalisation(self) -> Normalisation:
        """The normalisation under which the 256 values of a pixel are the 256 values of the tensor."""
        darkest = self.zero - self.smallest
        return Normalisation(mean=(darkest,) * 3, std=(1 / self.step,) * 3, scale=1, layout="nhwc")

    def to_tensor(self, values: NDArray[np.float32]) -> NDArray[np.generic]:
        if not self.is_integer:
            return values.astype(self.dtype)
        limits = np.iinfo(self.dtype)
        integers = np.rint(values / np.float32(self.step)) + np.float32(self.zero)
        tensor: NDArray[np.generic] = np.clip(integers, limits.min, limits.max).astype(self.dtype)
        return tensor

    def to_real(self, tensor: NDArray[np.generic]) -> Scores:
        values = tensor.astype(np.float32)
        if not self.is_integer:
            return values
        return (values - np.float32(self.zero)) * np.float32(self.step)


class LiteRtModel(OpenedModel):
    """An interpreter with one image input; the output with a score per class is its first one."""

    def __init__(self, path: Path, threads: int, batch_size: int) -> None:
        module = required("ai_edge_litert.interpreter", "litert", "running a LiteRT model", package="ai-edge-litert")
        self._module = module
        self._interpreter = self._open(path, threads)
        details = self._interpreter.get_input_details()
        sides = [int(side) for side in details[0].get("shape_signature", details[0]["shape"])]
        if len(details) != 1 or len(sides) != 4:
            found = "; ".join(f"{entry['name']}: {entry['shape'].tolist()}" for entry in details)
            raise not_one_image_input(path.stem, found)
        self.batch_size = int(details[0]["shape"][0])
        if sides[0] == -1 and -1 not in sides[1:]:
            self.batch_size = self._resized(path, threads, batch_size, sides[1:])
        self._input_index = details[0]["index"]
        self._input = Quantisation.of(self._interpreter.get_input_details()[0])
        output_details = self._interpreter.get_output_details()
        self.output_shapes = [[int(side) for side in entry["shape"]] for entry in output_details]
        self._output_indices = [int(entry["index"]) for entry in output_details]
        self._outputs = [Quantisation.of(entry) for entry in output_details]
        self.engine = "litert cpu"
        description, class_names = read_metadata(path)
        self.facts = StatedFacts(self._known_inputs(sides), description, class_names)

    @property
    def _output(self) -> Quantisation:
        return self._outputs[self.output_index]

    def stated_outputs(self) -> Outputs | None:
        return "probabilities" if self._output.is_softmax else None

    def _open(self, path: Path, threads: int) -> Interpreter:
        with raising(ClassifierError, f"LiteRT can't open {path.name}", ValueError, RuntimeError):
            interpreter = self._module.Interpreter(str(path), num_threads=threads)
            interpreter.allocate_tensors()
        return interpreter

    def _resized(self, path: Path, threads: int, batch_size: int, sides: list[int]) -> int:
        """Prepare the interpreter for batches of a size, if the graph allows it; the size that it has then."""
        try:
            index = self._interpreter.get_input_details()[0]["index"]
            self._interpreter.resize_tensor_input(index, [batch_size, *sides])
            self._interpreter.allocate_tensors()
        except (ValueError, RuntimeError):
            # Some converters write the size of one image into the graph.
            self._interpreter = self._open(path, threads)
            return 1
        return batch_size

    def _known_inputs(self, sides: list[int]) -> list[KnownInput]:
        """What the input may be. A quantised input that nobody describes is assumed to hold pixels."""
        inputs = known_inputs(sides, pixels=self._input.dtype == "uint8" and not self._input.is_integer)
        if not self._input.is_integer:
            return inputs
        quantised: list[KnownInput] = []
        for known_input in inputs:
            normalisation = replace(
                self._input.normalisation(),
                layout=known_input.normalisation.layout,
                colour_order=known_input.normalisation.colour_order,
            )
            quantised.append(replace(known_input, normalisation=normalisation))
        return quantised

    def run(self, batch: NDArray[np.generic]) -> Scores:
        self._interpreter.set_tensor(self._input_index, self._input.to_tensor(batch.astype(np.float32, copy=False)))
        self._interpreter.invoke()
        scores = self._output.to_real(self._interpreter.get_tensor(self._output_indices[self.output_index]))
        if self._output.is_softmax:
            # Rounding to 1/256 leaves rows that sum to 0.98 or 1.02.
            scores /= scores.sum(axis=-1, keepdims=True)
        return scores


def load_litert(target: str, options: Options) -> ModelFile:
    """Load ``model.tflite``. The file states its size and layout; its metadata may state mean, std and class names."""
    return load_model_file(target, options, LiteRtModel)
