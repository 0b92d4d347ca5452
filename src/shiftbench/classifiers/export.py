"""The ONNX twin of a torch module: exported once, kept in a cache, used only where it agrees."""

from __future__ import annotations

import contextlib
import logging
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.classifiers.onnx_ import open_session
from shiftbench.classifiers.preprocessing import Preprocessing
from shiftbench.errors import ClassifierError
from shiftbench.io.cache import cache_folder
from shiftbench.io.hashing import digest
from shiftbench.labels.space import Scores

#: Two engines agree where no score differs by more than this part of the largest one, and the classes agree.
TOLERANCE = 1e-4
#: Part of every cache key; raise it when the export changes.
EXPORT_VERSION = 1
# Tracing changes global state of torch.
_exporting = threading.Lock()


def twin_path(weights: str, preprocessing: Preprocessing) -> Path:
    """Where the twin of these weights is kept; the input size is part of a traced graph, so it counts too."""
    key = digest(EXPORT_VERSION, weights, preprocessing.geometry.output, preprocessing.normalisation.layout)
    return cache_folder("onnx") / f"{key}.onnx"


def disagreement(reference: Scores, candidate: Scores) -> str | None:
    """Why two score tables can't stand for each other, or None if they can.

    >>> disagreement(np.array([[1.0, 2.0]]), np.array([[1.0, 2.00001]]))
    >>> disagreement(np.array([[1.0, 2.0]]), np.array([[1.0, 2.1]]))
    'scores differ by 0.1, more than 0.0001 of the largest, 2'
    """
    if reference.shape != candidate.shape:
        return f"shapes differ: {reference.shape} and {candidate.shape}"
    if not (np.isfinite(reference).all() and np.isfinite(candidate).all()):
        return "some scores are not finite"
    largest = float(np.abs(reference).max(initial=0))
    worst = float(np.abs(reference - candidate).max(initial=0))
    if worst > TOLERANCE * largest:
        return f"scores differ by {worst:.3g}, more than {TOLERANCE} of the largest, {largest:.3g}"
    # Two classes may change places only where they are as good as tied.
    rows = np.arange(len(reference))
    gap = reference.max(axis=1) - reference[rows, candidate.argmax(axis=1)]
    if (gap > 2 * TOLERANCE * largest).any():
        return "the best classes differ"
    return None


def onnx_twin(
    module: object,
    path: Path,
    images: Pixels,
    preprocessing: Preprocessing,
    reference: Scores,
) -> None:
    """Make sure that ``path`` holds a graph that gives ``reference`` on ``images``.

    A twin in the cache is checked again, for the weights' hash does not know the code of every forward pass.
    Raises ClassifierError with the reasons when no exporter succeeds.
    """
    inputs = preprocessing.normalisation(images)
    reasons = []
    if path.exists():
        reason = _fault(path, inputs, reference)
        if reason is None:
            return
        reasons.append(f"cached: {reason}")
    # The tracing exporter takes one second where the newer one takes twelve; both are checked the same way.
    for title in ("tracing", "dynamo"):
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".export-") as folder:
            draft = Path(folder) / "model.onnx"
            try:
                with _exporting, _quiet():
                    _export(module, inputs[:2], draft, preprocessing.geometry.output is None, title == "dynamo")
                reason = _fault(draft, inputs, reference)
                if reason is None and len(list(Path(folder).iterdir())) > 1:
                    reason = "the graph is too large for one file"
            except Exception as error:
                reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200] if str(error) else ''}"
            if reason is None:
                # Atomic, so that concurrent processes see no half-written graph.
                draft.replace(path)
                return
        reasons.append(f"{title}: {reason}")
    raise ClassifierError("the model can't be run through onnxruntime", found="; ".join(reasons))


def _fault(path: Path, inputs: NDArray[np.generic], reference: Scores) -> str | None:
    """Other batch sizes than the exported one are tried too: a trace may have fixed it by accident."""
    try:
        session = open_session(path)
        run: Callable[[object], Scores] = lambda x: session.run(None, {session.get_inputs()[0].name: x})[0]  # noqa: E731
        return disagreement(reference, run(inputs)) or disagreement(reference[:1], run(inputs[:1]))
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"


def _export(module: Any, inputs: NDArray[np.generic], path: Path, any_size: bool, dynamo: bool) -> None:
    import torch

    axes = {0: "batch", 2: "height", 3: "width"} if any_size else {0: "batch"}
    how: dict[str, Any] = {"opset_version": 17, "dynamic_axes": {"images": axes, "scores": {0: "batch"}}}
    if dynamo:
        sides = {axis: torch.export.Dim(name) for axis, name in axes.items()}
        how = {"verbose": False, "external_data": False, "dynamic_shapes": (sides,)}
    names: dict[str, Any] = {"input_names": ["images"], "output_names": ["scores"]}
    torch.onnx.export(module, (torch.from_numpy(inputs),), str(path), dynamo=dynamo, **names, **how)


@contextlib.contextmanager
def _quiet() -> Any:
    """Exporters tell their life by warnings; a failure comes as an exception all the same."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
