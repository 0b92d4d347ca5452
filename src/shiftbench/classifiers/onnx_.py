"""Classifiers that onnxruntime computes: the user's .onnx files, and the ONNX twins of torch models."""

from __future__ import annotations

import ast
import contextlib
import logging
import mmap
import os
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.classifiers.base import OTHER_INPUTS, BatchedClassifier, Outputs, network_fingerprint, trial_scores
from shiftbench.classifiers.description import FactSource
from shiftbench.classifiers.options import Options, existing_file, known_inputs, settle
from shiftbench.classifiers.preprocessing import Preprocessing, luma
from shiftbench.datasets.manifest import leads_outside
from shiftbench.errors import ClassifierError, UnknownNameError, argument, raising, required
from shiftbench.io.cache import cache_folder
from shiftbench.io.hashing import digest, file_digest
from shiftbench.jobs.threads import worker_count
from shiftbench.labels.guard import recognise_names
from shiftbench.labels.space import LabelSpace, Scores

#: On CPU more images at once are no faster: the working set leaves the cache.
CPU_BATCH = 16
_TYPES = {
    "tensor(uint8)": np.uint8, "tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64,
}  # fmt: skip
#: Two engines agree where no score differs by more than this part of the largest one, and the classes agree.
TOLERANCE = 1e-4
#: Part of every cache key; raise it when the export changes.
EXPORT_VERSION = 1
# Tracing changes global state of torch.
_exporting = threading.Lock()


class OnnxClassifier(BatchedClassifier):
    """A graph with one image input, and scores as its first output or the one that ``output`` names.

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
        self.path = Path(path).absolute()  # a link stays one: weights lie beside the link
        self.name, self.space, self.preprocessing, self.outputs = name, space, preprocessing, outputs
        self.threads, self.device = threads or worker_count(None), device
        self.batch_size, self.engine = batch_size or CPU_BATCH, f"onnxruntime {device}"
        self._weights = weights or onnx_digest(self.path)
        self.self_contained = self._own_file = weights is None
        self._session: object = None

    @property
    def fingerprint(self) -> str:
        weights = self._weights if self.output is None else digest(self._weights, self.output)
        return network_fingerprint(weights, self.preprocessing.normalisation, self.outputs)

    def rows(self) -> int:
        """At least one image per thread, and two.

        With fewer, onnxruntime divides one image's convolutions and products among the threads, or takes the
        kernels for vectors, and the last bits change. A graph of fixed batch size needs all its rows.
        """
        return self._fixed_batch or max(2, self.threads)

    def forward(self, images: Pixels) -> Scores:
        session, normalise = self.session, self.preprocessing.normalisation
        feed: NDArray[np.generic]
        if self._dtype == np.uint8:
            pixels = luma(images) if normalise.colour_order == "grey" else images
            last = (self._layout or normalise.layout) == "nhwc"
            feed = np.ascontiguousarray(pixels if last else pixels.transpose(0, 3, 1, 2))
        else:
            feed = normalise(images).astype(self._dtype, copy=False)
        scores: Scores = session.run([self.output or self._first], {self._input: feed})[0]
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
        if self._own_file and onnx_digest(self.path) != self._weights:
            from shiftbench.classifiers.loading import changed_model

            raise changed_model(self.name, self.path)
        entry = image_input(session, self.name)
        self._input, self._first = entry.name, session.get_outputs()[0].name
        self._dtype = _TYPES[entry.type]
        layouts = {known.normalisation.layout for known in known_inputs(entry.shape)}
        self._layout = layouts.pop() if len(layouts) == 1 else None
        batch = entry.shape[0]
        self._fixed_batch = batch if isinstance(batch, int) and batch > 0 else 0
        self.batch_size = self._fixed_batch or self.batch_size
        self._session = session

    def scores(self, images: Pixels) -> Scores:
        _ = self.session  # the graph may fix the batch size, which must be known before the batch is cut
        return super().scores(images)

    def _shrink(self, size: int) -> None:
        if self._fixed_batch:
            raise ClassifierError(
                f"{self.name} does not fit into memory, and its graph fixes the batch at {self._fixed_batch}",
                hint="export it again with a dynamic batch axis",
            )
        super()._shrink(size)

    def __reduce_ex__(self, protocol: object) -> tuple[object, ...]:
        """By the path of the graph, which is quick; by the spec where another machine lacks the file."""
        return _revive, (self.__getstate__(), self.origin, self.fingerprint)

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "_session": None}


def _revive(state: dict[str, Any], origin: tuple[str, Options] | None, fingerprint: str) -> object:
    if origin is not None and not state["path"].exists():
        from shiftbench.classifiers.loading import reload

        return reload(*origin, state["name"], fingerprint)
    classifier = OnnxClassifier.__new__(OnnxClassifier)
    classifier.__setstate__(state)
    return classifier


def import_onnxruntime() -> Any:
    """The package without its telemetry, which would send data to its vendor."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    return required("onnxruntime", "onnx", "running an ONNX model")


def open_session(path: str | Path, threads: int | None = None, device: str = "cpu") -> Any:
    """An inference session that leaves the machine to others while it has nothing to do."""
    onnxruntime = import_onnxruntime()
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads or worker_count(None)
    settings.inter_op_num_threads = 1
    settings.log_severity_level = 4  # errors are raised anyway
    # Spinning threads gain 2 % alone, and cost far more as soon as several sessions share the cores.
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    providers: list[object] = ["CPUExecutionProvider"]
    kind, _, number = device.partition(":")
    if kind != "cpu":
        # Without this check onnxruntime would run on the CPU, with a warning at most.
        if kind != "cuda" or "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
            raise ClassifierError(
                f"onnxruntime can't run on the device {device!r} here",
                expected="cpu, or cuda with the package onnxruntime-gpu",
                hint=argument("device", "cpu"),
            )
        providers.insert(0, ("CUDAExecutionProvider", {"device_id": int(number or 0)}))
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
    if len(entries) != 1 or entry.type not in _TYPES or (entry.shape and len(entry.shape) != 4):
        raise ClassifierError(
            f"the input of {name} is not one batch of images",
            found="; ".join(f"{e.name}: {e.type} {e.shape}" for e in entries),
            expected="one input, float or uint8: (N, C, H, W) or (N, H, W, C), C = 3 or 1",
            hint=OTHER_INPUTS,
        )
    return entry


def load_onnx(target: str, options: Options) -> OnnxClassifier:
    """``model.onnx``. The graph's input states size, layout and whether it takes pixels."""
    path = existing_file(target)
    name, device = options.name or path.stem, options.device
    if device == "auto":
        available = import_onnxruntime().get_available_providers()
        device = "cuda" if "CUDAExecutionProvider" in available else "cpu"
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
    classifier.output, source = _scores_output(classifier.session, options, name)
    if classifier.output is not None:
        options = replace(options, sources={**options.sources, "output": source})

    def trial(preprocessing: Preprocessing) -> Scores:
        classifier.preprocessing = preprocessing
        images = options.trial_images(preprocessing)[: classifier.batch_size]
        scores = trial_scores(classifier.name, images, classifier.padded_forward)
        # A graph that was exported in training mode mixes the images of a batch: a run probes it and warns.
        again = classifier.padded_forward(images[1:]).reshape(scores[1:].shape)
        if not np.allclose(scores[1:], again, 1e-3, 1e-4):
            classifier.self_contained = False
        return scores

    failures: list[ClassifierError] = []
    for known in known_inputs(entry.shape, entry.type == "tensor(uint8)"):
        classifier.takes_pixels = known.pixels
        try:
            settled, scores = settle(classifier.name, options, known, trial)
            count = scores.shape[1]
            named = _named_classes(classifier.session, count)
            if settled.labels is None and named is not None:
                settled = replace(settled, labels=named, sources={**settled.sources, "labels": "file"})
            return settled.finish(classifier, scores)
        except ClassifierError as error:
            failures.append(error)
    raise failures[0]


def _scores_output(session: Any, options: Options, name: str) -> tuple[str | None, FactSource]:
    """Of several outputs the stated one, else the only one that has a score per class, else the first such one.

    None for a graph whose only output it is: then there is nothing to choose, and nothing in the model's fingerprint.
    """
    outputs = session.get_outputs()
    for description, source in reversed(options.described):
        if description.output is not None:
            if description.output not in (known := [one.name for one in outputs]):
                raise UnknownNameError(f"output of {name}", description.output, known)
            return description.output, source if "output" in description.stated else "assumed"
    # An output of unknown shape may be of any.
    tables = [one for one in outputs if one.type in _TYPES and (len(one.shape) in (0, 2) or one.shape[2:] == [1, 1])]
    counts = [len(space) for space in (options.labels, options.default_labels) if space is not None]
    counts += [one.shape[1] for one in tables if one.shape]
    fitting = next((found for n in counts if (found := [one for one in tables if one.shape[1:2] == [n]])), tables)
    if len(outputs) == 1 or not fitting:
        return None, "file"
    chosen = fitting[0].name
    if len(fitting) > 1:
        return chosen, "assumed"
    return (None if chosen == outputs[0].name else chosen), "file"


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


# -- what an ONNX model consists of: its file, and the files beside it that hold large weights -----------------------

# The package onnx is not needed to run a model, so the few messages on the way to a tensor are read here: Protocol
# Buffers write a message as fields, each a key (number and wire type) and a value. All other fields are skipped unread.
#: By message: the numbers of the fields on the way to tensors, with their messages (onnx.proto).
_FIELDS: Mapping[str, Mapping[int, str]] = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
}
_DEEPEST = 100


def onnx_digest(path: Path) -> str:
    """A hash of a model's file and of all files that it reads its weights from."""
    beside = [value for name in external_files(path) for value in (name, file_digest(path.parent / name))]
    return digest("onnx", file_digest(path), *beside)


def external_files(path: Path) -> list[str]:
    """The files that hold weights of a model, relative to its folder; an error if one is outside or missing."""
    with path.open("rb") as stream:
        if not path.stat().st_size:
            return []
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            problems = (IndexError, ValueError, RecursionError)
            with raising(ClassifierError, f"{path.name} is not a complete ONNX file", *problems):
                names = sorted(set(_locations(data, 0, len(data), "model")))
    for name in names:
        file = path.parent / name
        if leads_outside(name) or not file.is_file():
            raise ClassifierError(
                f"{path.name} reads weights from a file that is not beside it",
                found=name,
                expected=f"an existing file below {path.parent}",
                hint="move the file there, or export the model again",
            )
    return names


def _locations(data: mmap.mmap, start: int, stop: int, message: str, depth: int = 0) -> Iterator[str]:
    """The values of the entries "location" below a message."""
    if depth > _DEEPEST:
        raise ValueError("messages are nested too deeply")
    for number, first, last in _fields(data, start, stop):
        inside = _FIELDS[message].get(number)
        if inside == "entry":
            entry = {key: data[a:b] for key, a, b in _fields(data, first, last)}
            if entry.get(1) == b"location":
                yield entry.get(2, b"").decode()
        elif inside is not None:
            yield from _locations(data, first, last, inside, depth + 1)


def _fields(data: mmap.mmap, place: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """(number, start, end) of the fields that have a length: texts and messages."""
    while place < stop:
        key, place = _varint(data, place)
        wire = key & 7
        if wire == 0:
            _, place = _varint(data, place)
        elif wire in (1, 5):
            place += 8 if wire == 1 else 4
        elif wire == 2:
            length, place = _varint(data, place)
            if place + length > stop:
                raise ValueError("a field is longer than its message")
            yield key >> 3, place, place + length
            place += length
        else:
            raise ValueError(f"unknown wire type {wire}")


def _varint(data: mmap.mmap, place: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
    raise ValueError("a number is longer than ten bytes")


# -- the ONNX twin of a torch module: exported once, kept in a cache, used only where it agrees ----------------------


def twin_path(weights: str, preprocessing: Preprocessing) -> Path:
    """Where the twin of these weights is kept; the input size is part of a traced graph, so it counts too."""
    key = digest(EXPORT_VERSION, weights, preprocessing.geometry.output, preprocessing.normalisation.layout)
    return cache_folder("onnx") / f"{key}.onnx"


def disagreement(reference: Scores, candidate: Scores) -> str | None:
    """Why two score tables are not equivalent, or None if they are."""
    if reference.shape != candidate.shape:
        return f"shapes differ: {reference.shape} and {candidate.shape}"
    if not (np.isfinite(reference).all() and np.isfinite(candidate).all()):
        return "some scores are not finite"
    largest = float(np.abs(reference).max(initial=0))
    worst = float(np.abs(reference - candidate).max(initial=0))
    if worst > TOLERANCE * largest:
        return f"scores differ by {worst:.3g}, more than {TOLERANCE} of the largest, {largest:.3g}"
    # Two classes may change places only where they are as good as tied.
    gap = reference.max(axis=1) - reference[np.arange(len(reference)), candidate.argmax(axis=1)]
    return "the best classes differ" if (gap > 2 * TOLERANCE * largest).any() else None


def onnx_twin(module: object, path: Path, images: Pixels, preprocessing: Preprocessing, reference: Scores) -> None:
    """Make sure that ``path`` holds a graph that gives ``reference`` on ``images``.

    A twin in the cache is checked again, for the weights' hash does not know the code of every forward pass.
    Raises ClassifierError with the reasons when no exporter succeeds.
    """
    inputs = preprocessing.normalisation(images)

    def fault(graph: Path) -> str | None:
        """Other batch sizes than the exported one are tried too: a trace may have fixed it by accident."""
        try:
            session = open_session(graph)
            whole, first = (session.run(None, {session.get_inputs()[0].name: x})[0] for x in (inputs, inputs[:1]))
            return disagreement(reference, whole) or disagreement(reference[:1], first)
        except Exception as error:
            return f"{type(error).__name__}: {str(error)[:200]}"

    reasons = []
    if path.exists():
        if (reason := fault(path)) is None:
            return
        reasons.append(f"cached: {reason}")
    # The tracing exporter takes one second where the newer one takes twelve; both are checked the same way.
    for title in ("tracing", "dynamo"):
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".export-") as folder:
            draft = Path(folder) / "model.onnx"
            try:
                with _exporting, _quiet():
                    _export(module, inputs[:2], draft, preprocessing.geometry.output is None, title == "dynamo")
                reason = fault(draft)
                if reason is None and len(list(Path(folder).iterdir())) > 1:
                    reason = "the graph is too large for one file"
            except Exception as error:
                reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200] if str(error) else ''}"
            if reason is None:
                draft.replace(path)  # atomic, so that concurrent processes see no half-written graph
                return
        reasons.append(f"{title}: {reason}")
    raise ClassifierError("the model can't be run through onnxruntime", found="; ".join(reasons))


def _export(module: Any, inputs: NDArray[np.generic], path: Path, any_size: bool, dynamo: bool) -> None:
    import torch

    axes = {0: "batch", 2: "height", 3: "width"} if any_size else {0: "batch"}
    how: dict[str, Any] = {"opset_version": 17, "dynamic_axes": {"images": axes, "scores": {0: "batch"}}}
    if dynamo:
        sides = {axis: torch.export.Dim(name) for axis, name in axes.items()}
        how = {"verbose": False, "external_data": False, "dynamic_shapes": (sides,)}
    how |= {"input_names": ["images"], "output_names": ["scores"]}
    torch.onnx.export(module, (torch.from_numpy(inputs),), str(path), dynamo=dynamo, **how)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporters' many warnings; a failure comes as an exception all the same."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
