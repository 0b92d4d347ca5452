"""ExecuTorch: ``model.pte``, a program that PyTorch exported for phones and other devices, run by its own runtime."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.classifiers.model_files import ModelFile, OpenedModel, StatedFacts, load_model_file, not_one_image_input
from shiftbench.classifiers.options import Options, known_inputs
from shiftbench.classifiers.torch_ import import_torch
from shiftbench.errors import ClassifierError, raising, required
from shiftbench.labels.space import Scores

if TYPE_CHECKING:
    from executorch.runtime import Method

#: The only method of a program that is exported in the usual way.
_METHOD = "forward"
#: Numbers of torch's element types, as a program states them.
_UINT8 = 0
_FLOAT32 = 6


class ExecuTorchModel(OpenedModel):
    """A program with one image input. Programs of any batch size state the largest one, which is used."""

    engine = "executorch cpu"

    def __init__(self, path: Path, threads: int, batch_size: int) -> None:
        self._torch = import_torch()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # The module says at its import that it is experimental.
            runtime = required(
                "executorch.runtime", "executorch", "running an ExecuTorch program", package="executorch"
            )
        with raising(ClassifierError, f"ExecuTorch can't open {path.name}", ValueError, RuntimeError):
            # The program has the weights, and must live as long as its method.
            self._program = runtime.Runtime.get().load_program(path)
            self._method: Method = self._program.load_method(_METHOD)
        metadata = self._method.metadata
        inputs = [metadata.input_tensor_meta(i) for i in range(metadata.num_inputs())]
        sides = [list(entry.sizes()) for entry in inputs]
        if len(sides) != 1 or len(sides[0]) != 4 or inputs[0].dtype() not in (_UINT8, _FLOAT32):
            raise not_one_image_input(path.stem, "; ".join(map(str, inputs)))
        self.batch_size = int(sides[0][0])
        outputs = [metadata.output_tensor_meta(i) for i in range(metadata.num_outputs())]
        self.output_shapes = [list(entry.sizes()) for entry in outputs]
        self.facts = StatedFacts(known_inputs(sides[0], pixels=inputs[0].dtype() == _UINT8))

    def run(self, batch: NDArray[np.generic]) -> Scores:
        outputs: Any = self._method.execute([self._torch.from_numpy(np.ascontiguousarray(batch))])
        # The runtime reuses the memory of its outputs.
        scores: Scores = outputs[self.output_index].detach().numpy().astype(np.float32, copy=True)
        return scores


def load_executorch(target: str, options: Options) -> ModelFile:
    """Load ``model.pte``. The program states size, channels and layout of its input."""
    return load_model_file(target, options, ExecuTorchModel)
