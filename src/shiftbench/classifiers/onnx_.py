"""Classifiers that onnxruntime computes: the user's .onnx files, and the ONNX twins of torch models."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.classifiers.base import Outputs
from shiftbench.classifiers.batching import BatchedClassifier, network_fingerprint, trial_scores
from shiftbench.classifiers.description import NORMALISATION_FACTS, FactSource
from shiftbench.classifiers.onnx_files import onnx_digest
from shiftbench.classifiers.options import Options, available_threads, existing_file
from shiftbench.classifiers.policy import KnownInput, settle
from shiftbench.classifiers.preprocessing import Layout, Normalisation, Preprocessing
from shiftbench.classifiers.samples import sample_images
from shiftbench.errors import ClassifierError, required
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
        self._weights = weights or onnx_digest(self.path)
        self.self_contained = weights is None
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
        layouts = {known.normalisation.layout for known in known_inputs(entry)}
        self._layout = layouts.pop() if len(layouts) == 1 else None
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
            last = self.preprocessing.normalisation.layout == "nhwc" if self._layout is None else self._layout == "nhwc"
            return np.ascontiguousarray(images if last else images.transpose(0, 3, 1, 2))
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
    settings.log_severity_level = 4  # errors are raised anyway
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
    channels = [side for side in (entry.shape[1:2] + entry.shape[3:4]) if isinstance(side, int)]
    grey = len(channels) == 2 and 1 in channels and 3 not in channels
    if len(entries) != 1 or not known or (entry.shape and len(entry.shape) != 4) or grey:
        raise ClassifierError(
            f"{name} has another input than one batch of images",
            found="; ".join(f"{e.name}: {e.type} {e.shape}" for e in entries),
            expected="one input, float or uint8, (N, 3, H, W) or (N, H, W, 3)",
        )
    return entry


def import_onnxruntime() -> ModuleType:
    module: ModuleType = required("onnxruntime", "onnx", "running an ONNX model")
    return module


def load_onnx(target: str, options: Options) -> OnnxClassifier:
    """``model.onnx``. The graph's input states size, layout and whether it takes pixels."""
    path = existing_file(target)
    name = options.name or path.stem
    device = onnx_device(options.device)
    entry = image_input(open_session(path, options.threads, device), name)
    classifier = OnnxClassifier(
        path,
        name=name,
        space=LabelSpace("outputs", ("?",)),
        preprocessing=Preprocessing(),
        threads=options.threads,
        batch_size=options.batch_size,
        device=device,
    )
    _ = classifier.session
    failures: list[ClassifierError] = []
    for known in known_inputs(entry):
        try:
            return settled_onnx(classifier, options, known)
        except ClassifierError as error:
            failures.append(error)
    raise failures[0]


def settled_onnx(classifier: OnnxClassifier, options: Options, known: KnownInput) -> OnnxClassifier:
    """Learn the number and the kind of the outputs by running the graph once."""
    classifier.takes_pixels = known.pixels

    def trial(preprocessing: Preprocessing) -> Scores:
        classifier.preprocessing = preprocessing
        images = sample_images(4, preprocessing.geometry.output or (224, 224))
        return trial_scores(classifier.name, images[: classifier.batch_size], classifier.padded_forward)

    settled, scores = settle(classifier.name, options, known, trial)
    named = _named_classes(classifier.session, scores.shape[1])
    if settled.labels is None and named is not None:
        settled = replace(settled, labels=named, sources={**settled.sources, "labels": "file"})
    return settled.finish(classifier, scores)


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


def known_inputs(entry: Any) -> list[KnownInput]:
    """What the graph's input says; two possibilities where it leaves the place of the channels open."""
    shape = [side if isinstance(side, int) and side > 0 else None for side in entry.shape] or [None] * 4
    layouts: list[Layout] = ["nchw"] if shape[1] == 3 else ["nhwc"] if shape[3] == 3 else ["nchw", "nhwc"]
    pixels = entry.type == "tensor(uint8)"
    found = []
    for layout in layouts:
        height, width = shape[2:] if layout == "nchw" else shape[1:3]
        size = (height, width) if height is not None and width is not None else None
        normalisation = Normalisation(layout=layout)
        source: FactSource = "file" if len(layouts) == 1 else "measured"
        found.append(KnownInput(size, normalisation, () if pixels else NORMALISATION_FACTS, source, pixels))
    return found


def onnx_device(device: str) -> str:
    """ "auto" takes the GPU if this onnxruntime has one."""
    if device != "auto":
        return device
    return "cuda" if "CUDAExecutionProvider" in import_onnxruntime().get_available_providers() else "cpu"
