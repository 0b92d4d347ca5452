"""OpenVINO IR: ``model.xml`` with its weights in ``model.bin`` beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shiftbench.classifiers.description import Description, read_description
from shiftbench.classifiers.model_files import ModelFile, OpenedModel, StatedFacts, load_model_file, not_one_image_input
from shiftbench.classifiers.options import KnownInput, Options, existing_file, known_inputs
from shiftbench.errors import ClassifierError, raising, required
from shiftbench.labels.space import Scores

if TYPE_CHECKING:
    import openvino

#: The rules of OpenVINO's Model API for making an image as large as the input, in the words of our options.
_RESIZE_TYPES = {"standard": "squash", "fit_to_window": "fit", "fit_to_window_letterbox": "fit"}


class OpenVinoModel(OpenedModel):
    """A compiled model, with float32 arithmetic and with as many images per call as the file says."""

    def __init__(self, path: Path, threads: int, batch_size: int) -> None:
        library: openvino = required("openvino", "openvino", "running an OpenVINO model")
        core = library.Core()
        with raising(ClassifierError, f"OpenVINO can't open {path.name}", RuntimeError):
            model = core.read_model(path)
        inputs = model.inputs
        shape = inputs[0].partial_shape
        if len(inputs) != 1 or shape.rank.is_dynamic or len(shape) != 4:
            found = "; ".join(f"{entry.any_name}: {entry.partial_shape}" for entry in inputs)
            raise not_one_image_input(path.stem, found)
        self.facts = StatedFacts(_known_inputs(model), _description(model), _class_names(model))
        self._input_type = inputs[0].element_type.to_dtype()
        if shape[0].is_dynamic:
            shape[0] = batch_size
            with raising(ClassifierError, f"{path.name} can't be run on {batch_size} images at once", RuntimeError):
                model.reshape(shape)
        self.batch_size = shape[0].get_length()
        settings = {
            "INFERENCE_NUM_THREADS": threads,
            # Processors with bfloat16 would otherwise use it, and give other scores than the rest.
            "INFERENCE_PRECISION_HINT": "f32",
            "PERFORMANCE_HINT": "LATENCY",
        }
        self._compiled = core.compile_model(model, "CPU", settings)
        self.output_shapes = [_sizes(output) for output in model.outputs]
        self.engine = "openvino cpu"

    def run(self, batch: NDArray[np.generic]) -> Scores:
        scores = self._compiled(batch.astype(self._input_type, copy=False))[self.output_index]
        return np.array(scores, np.float32)  # The library reuses the memory of its own array.


def load_openvino(target: str, options: Options) -> ModelFile:
    """Load ``model.xml``. The file states its layout and size, and its metadata may state more."""
    path = existing_file(target)
    weights = path.with_suffix(".bin")
    if not weights.is_file():
        raise ClassifierError(
            f"the weights of {path.name} are missing",
            found=f"no {weights.name} beside it",
            expected="both files of the OpenVINO model in one folder",
        )
    return load_model_file(target, options, OpenVinoModel, weights)


def _sizes(entry: openvino.Output) -> list[int | None]:
    """The shape of an input or an output; empty if even the number of axes is open."""
    shape = entry.partial_shape
    if shape.rank.is_dynamic:
        return []
    return [side.get_length() if side.is_static else None for side in shape]


def _known_inputs(model: openvino.Model) -> list[KnownInput]:
    """What the input may be: by its layout if the file states it, otherwise by its shape."""
    entry = model.inputs[0]
    inputs = known_inputs(_sizes(entry), pixels=entry.element_type.to_string() == "u8")
    letters = str(entry.node.layout).strip("[]").replace(",", "").lower()
    return [known_input for known_input in inputs if known_input.normalisation.layout == letters] or inputs


def _model_info(model: openvino.Model, key: str) -> str:
    """A value of the section ``model_info``, where OpenVINO's Model API keeps what its models need; empty if none."""
    path = ["model_info", key]
    if not model.has_rt_info(path):
        return ""
    return str(model.get_rt_info(path).value).strip()


def _description(model: openvino.Model) -> Description:
    """The preprocessing that the file states.

    The order of the channels is not read: ``reverse_input_channels`` is relative to the order in which an application
    reads its images, and applications differ. Where ``embedded_processing`` is set, the graph itself normalises.
    """
    stated: dict[str, object] = {}
    is_embedded = _model_info(model, "embedded_processing").lower() in ("true", "yes", "1")
    for key, name in (("mean", "mean_values"), ("std", "scale_values")):
        values = [float(value) for value in _model_info(model, name).split()]
        if values and not is_embedded:
            stated[key] = values
    if stated:
        stated["scale"] = 1.0  # The values of the Model API are those of pixels from 0 to 255.
    resize_type = _model_info(model, "resize_type")
    if resize_type in _RESIZE_TYPES:
        stated["resize"] = _RESIZE_TYPES[resize_type]
    return read_description(stated, "the model_info of the file")


def _class_names(model: openvino.Model) -> list[str]:
    """The classes that the file names; blanks within a name are underscores there."""
    return _model_info(model, "labels").split()
