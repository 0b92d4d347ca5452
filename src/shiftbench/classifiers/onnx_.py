"""Classifiers that onnxruntime computes: the user's .onnx files, and the ONNX twins of torch models."""

from __future__ import annotations

import ast
import importlib
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.classifiers.base import Outputs
from shiftbench.classifiers.batching import BatchedClassifier, network_fingerprint, trial_scores
from shiftbench.classifiers.facts import assumed_facts
from shiftbench.classifiers.options import (
    Options,
    available_threads,
    existing_file,
    looks_like_probabilities,
    space_for,
)
from shiftbench.classifiers.preprocessing import Normalisation, Preprocessing
from shiftbench.classifiers.samples import sample_images
from shiftbench.datasets.geometry import Geometry
from shiftbench.errors import ClassifierError, MissingExtraError
from shiftbench.io.hashing import digest, file_digest
from shiftbench.labels.guard import recognise_names
from shiftbench.labels.space import LabelSpace, Scores

#: On CPU more images at once are no faster: the working set leaves the cache.
CPU_BATCH = 16
_FLOATS = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}


class OnnxClassifier(BatchedClassifier):
    """A graph with one image input and scores as its first output.

    A float input is fed normalised images; a uint8 input gets the pixels as they are, for then the graph
    normalises by itself. The session opens on first use, and again after unpickling.

    Scores are the same to the bit for any number of threads and any batch: see ``rows``.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        name: str,
        space: LabelSpace,
        preprocessing: Preprocessing,
        weights: str | None = None,
        outputs: Outputs = "logits",
        threads: int | None = None,
        batch_size: int | None = None,
        device: str = "cpu",
    ) -> None:
        super().__init__()
        self.path = Path(path).resolve()
        self.name, self.space, self.preprocessing, self.outputs = name, space, preprocessing, outputs
        self.threads = threads or available_threads()
        self.device = device
        self.batch_size = batch_size or CPU_BATCH
        self.engine = f"onnxruntime {device}"
        self._weights = weights or digest("onnx", file_digest(self.path))
        self._session: object = None

    @property
    def fingerprint(self) -> str:
        return network_fingerprint(self._weights, self.preprocessing.normalisation, self.outputs)

    def rows(self) -> int:
        """At least one image per thread, and two.

        With fewer, onnxruntime divides one image's convolutions and products among the threads, or takes the
        kernels for vectors, and the last bits change. A graph of fixed batch size needs all its rows.
        """
        return self._fixed_batch or max(2, self.threads)

    def forward(self, images: Pixels) -> Scores:
        session = self.session
        scores: Scores = session.run([self._output], {self._input: self._feed(images)})[0]
        return scores.reshape(len(images), -1) if scores.ndim > 2 else scores

    @property
    def session(self) -> Any:
        if self._session is None:
            with self._running:
                if self._session is None:
                    self._open()
        return self._session

    def _open(self) -> None:
        session = open_session(self.path, self.threads, self.device)
        entry = image_input(session, self.name)
        self._input, self._output = entry.name, session.get_outputs()[0].name
        self._dtype = np.uint8 if entry.type == "tensor(uint8)" else _FLOATS[entry.type]
        self._channels_last = len(entry.shape) == 4 and entry.shape[-1] == 3 and entry.shape[1] != 3
        batch = entry.shape[0]
        self._fixed_batch = batch if isinstance(batch, int) and batch > 0 else 0
        if self._fixed_batch:
            self.batch_size = self._fixed_batch
        self._session = session

    def scores(self, images: Pixels) -> Scores:
        _ = self.session  # the graph may fix the batch size, which must be known before the batch is cut
        return super().scores(images)

    def _feed(self, images: Pixels) -> NDArray[np.generic]:
        if self._dtype == np.uint8:
            return np.ascontiguousarray(images if self._channels_last else images.transpose(0, 3, 1, 2))
        return self.preprocessing.normalisation(images).astype(self._dtype, copy=False)

    def _shrink(self, size: int) -> None:
        if self._fixed_batch:
            raise ClassifierError(
                f"{self.name} does not fit into memory, and its graph fixes the batch at {self._fixed_batch}",
                hint="export it again with a dynamic batch axis",
            )
        super()._shrink(size)

    def __reduce_ex__(self, protocol: object) -> Any:
        """By the path of the graph, which is quick; by the spec where another machine lacks the file."""
        return _revive, (self.__getstate__(), self.origin)

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "_session": None}


def _revive(state: dict[str, Any], origin: tuple[str, Options] | None) -> object:
    if origin is not None and not state["path"].exists():
        from shiftbench.classifiers.loading import reload

        return reload(*origin, state["name"])
    classifier = OnnxClassifier.__new__(OnnxClassifier)
    classifier.__setstate__(state)
    return classifier


def open_session(path: str | Path, threads: int | None = None, device: str = "cpu") -> Any:
    """An inference session that leaves the machine to others while it has nothing to do."""
    onnxruntime = import_onnxruntime()
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads or available_threads()
    settings.inter_op_num_threads = 1
    settings.log_severity_level = 3
    # Spinning threads gain 2 % alone, and cost far more as soon as several sessions share the cores.
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    providers = ["CPUExecutionProvider"]
    if device.startswith("cuda"):
        providers.insert(0, "CUDAExecutionProvider")
    try:
        return onnxruntime.InferenceSession(str(path), settings, providers=providers)
    except Exception as error:
        raise ClassifierError(
            f"onnxruntime can't open {Path(path).name}",
            found=str(error).strip().splitlines()[0][:300],
            hint="is it a complete ONNX file, with its external data beside it?",
        ) from error


def image_input(session: Any, name: str) -> Any:
    """The one input, or an error that shows all of them."""
    entries = session.get_inputs()
    entry = entries[0]
    known = entry.type == "tensor(uint8)" or entry.type in _FLOATS
    if len(entries) != 1 or not known or (entry.shape and len(entry.shape) != 4):
        raise ClassifierError(
            f"{name} has another input than one batch of images",
            found="; ".join(f"{e.name}: {e.type} {e.shape}" for e in entries),
            expected="one input, float or uint8, (N, 3, H, W) or (N, H, W, 3)",
        )
    return entry


def import_onnxruntime() -> ModuleType:
    try:
        return importlib.import_module("onnxruntime")
    except ImportError as error:
        raise MissingExtraError("onnxruntime", "onnx", "running an ONNX model") from error


def load_onnx(target: str, options: Options) -> OnnxClassifier:
    """``model.onnx``. The input's shape decides layout and crop unless a preprocessing is given."""
    path = existing_file(target)
    name = options.name or path.stem
    device = onnx_device(options.device)
    session = open_session(path, options.threads, device)
    entry = image_input(session, name)
    preprocessing = options.preprocessing or assumed_preprocessing(name, entry)
    side = preprocessing.geometry.output or (224, 224)

    def make(space: LabelSpace, outputs: Outputs) -> OnnxClassifier:
        return OnnxClassifier(
            path,
            name=name,
            space=space,
            preprocessing=preprocessing,
            outputs=outputs,
            threads=options.threads,
            batch_size=options.batch_size,
            device=device,
        )

    classifier = probed(make, sample_images(4, side), name, options)
    if options.preprocessing is None:
        classifier.facts = assumed_facts(preprocessing)
    return classifier


def probed(
    make: Callable[[LabelSpace, Outputs], OnnxClassifier], images: Pixels, name: str, options: Options
) -> OnnxClassifier:
    """Learn the number and the kind of the outputs by running the graph once."""
    trial = make(LabelSpace("outputs", ("?",)), "logits")
    _ = trial.session
    scores = trial_scores(name, images[: trial.batch_size], trial.padded_forward)
    outputs = options.outputs or ("probabilities" if looks_like_probabilities(scores) else "logits")
    named = options.labels or _named_classes(trial.session, scores.shape[1])
    return make(space_for(name, scores.shape[1], named, options.default_labels), outputs)


def _named_classes(session: Any, outputs: int) -> LabelSpace | None:
    """The classes that the file's metadata names, as exporters write them: a list, or a mapping from index to name."""
    metadata = session.get_modelmeta().custom_metadata_map
    for key in ("names", "classes", "class_names", "labels", "id2label"):
        try:
            value = ast.literal_eval(metadata.get(key, ""))
        except (ValueError, SyntaxError):
            continue
        if isinstance(value, dict) and all(str(index).isdecimal() for index in value):
            value = [value[index] for index in sorted(value, key=int)]
        if isinstance(value, list | tuple) and len(value) == outputs and len(set(value)) == outputs:
            return recognise_names([str(one) for one in value], own=key)[0]
    return None


def assumed_preprocessing(name: str, entry: Any) -> Preprocessing:
    """The usual one at the size the graph asks for; said aloud, since a wrong one silently costs accuracy."""
    shape = list(entry.shape) or [None] * 4
    channels_last = shape[-1] == 3 and shape[1] != 3
    side = shape[1] if channels_last else shape[2]
    crop = side if isinstance(side, int) and side > 0 else 224
    preprocessing = Preprocessing(
        Geometry(resize=round(crop * 256 / 224), crop=crop),
        Normalisation(layout="nhwc" if channels_last else "nchw"),
    )
    warnings.warn(
        f"{name} has no known preprocessing; assuming resize {preprocessing.geometry.resize}, crop "
        f"{crop}, bilinear, and torchvision's ImageNet mean and std. Pass preprocessing=... "
        "(or write a .json beside the file) if it is another.",
        stacklevel=2,
    )
    return preprocessing


def onnx_device(device: str) -> str:
    """ "auto" takes the GPU if this onnxruntime has one."""
    if device != "auto":
        return device
    return "cuda" if "CUDAExecutionProvider" in import_onnxruntime().get_available_providers() else "cpu"
