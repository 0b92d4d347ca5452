"""Classifiers that onnxruntime computes: the user's .onnx files, and the ONNX twins of torch models."""

from __future__ import annotations

import ast
import contextlib
import logging
import os
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.classifiers.base import OTHER_INPUTS, BatchedClassifier, Outputs, network_fingerprint, trial_scores
from shiftbench.classifiers.batches import depends_on_neighbours, is_repeatable, scores_alone, with_dark_images
from shiftbench.classifiers.description import Description, FactSource
from shiftbench.classifiers.onnx_graph import mixes_images, onnx_digest
from shiftbench.classifiers.onnx_metadata import description_in, own_entry
from shiftbench.classifiers.options import Options, existing_file, known_inputs, settle
from shiftbench.classifiers.preprocessing import Preprocessing, in_colour_order
from shiftbench.errors import ClassifierError, UnknownNameError, argument, required
from shiftbench.io.cache import cache_folder
from shiftbench.io.hashing import digest
from shiftbench.jobs.threads import worker_count
from shiftbench.labels.catalogue import label_space
from shiftbench.labels.guard import recognise_names
from shiftbench.labels.space import LabelSpace, Scores

#: On CPU more images at once are no faster: the working set leaves the cache.
CPU_BATCH = 16
#: The element types of images and scores, by their names in onnxruntime.
_TYPES = {
    "tensor(uint8)": np.uint8,
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
}
#: The name of a label space that the metadata of a file lists.
OUR_LABELS = "labels"
#: Two engines agree if no score differs by more than this fraction of the largest score, and the best classes agree.
TOLERANCE = 1e-4
#: This number is part of every cache key; raise it when the export changes.
EXPORT_VERSION = 1
# Tracing changes global state of torch, so only one export runs at a time.
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
        # A symbolic link is not resolved, since external weights are looked for beside the link.
        self.path = Path(path).absolute()
        self.name = name
        self.space = space
        self.preprocessing = preprocessing
        self.outputs = outputs
        self.threads = threads or worker_count(None)
        self.device = device
        self.batch_size = batch_size or CPU_BATCH
        self.engine = f"onnxruntime {device}"
        self._weights = weights or onnx_digest(self.path)
        # Without ``weights``, the hash is that of the user's file, which covers everything that decides the scores.
        self._hashes_file = weights is None
        self.self_contained = self._hashes_file
        self._session: object = None

    @property
    def fingerprint(self) -> str:
        weights = self._weights
        if self.output is not None:
            weights = digest(self._weights, self.output)
        return network_fingerprint(weights, self.preprocessing.normalisation, self.outputs)

    def rows(self) -> int:
        """A piece needs at least one image per thread, and at least two images.

        With fewer, onnxruntime divides one image's convolutions and products among the threads, or takes the
        kernels for vectors, and the last bits change. A graph of fixed batch size needs all its rows. A graph that
        mixes the images of a batch gets its one image alone.
        """
        if self._fixed_batch:
            return self._fixed_batch
        if self.one_at_a_time:
            return 1
        return max(2, self.threads)

    def forward(self, images: Pixels) -> Scores:
        session = self.session  # opening the session sets what the following lines read
        feed: NDArray[np.generic]
        if self._dtype == np.uint8:
            feed = self._arranged_pixels(images)
        else:
            feed = self.preprocessing.normalisation(images).astype(self._dtype, copy=False)
        scores: Scores = session.run([self.output or self._first_output], {self._input: feed})[0]
        if scores.ndim > 2:
            return scores.reshape(len(images), -1)
        return scores

    def _arranged_pixels(self, images: Pixels) -> Pixels:
        """The pixels of RGB images in the channels and the layout that the graph takes."""
        normalisation = self.preprocessing.normalisation
        images = in_colour_order(images, normalisation.colour_order)
        layout = self._layout or normalisation.layout
        if layout == "nchw":
            images = images.transpose(0, 3, 1, 2)
        return np.ascontiguousarray(images)

    @property
    def session(self) -> Any:
        """The inference session, which is opened when it is needed first."""
        if self._session is None:
            with self._running:
                if self._session is None:
                    self._open()
        return self._session

    def _open(self) -> None:
        session = open_session(self.path, self.threads, self.device)
        if self._hashes_file and onnx_digest(self.path) != self._weights:
            from shiftbench.classifiers.loading import changed_model

            raise changed_model(self.name, self.path)
        entry = image_input(session, self.name)
        self._input = entry.name
        self._first_output = session.get_outputs()[0].name
        self._dtype = _TYPES[entry.type]
        # The graph decides the layout only if its input has a shape that fits one layout alone.
        layouts = {known_input.normalisation.layout for known_input in known_inputs(entry.shape)}
        self._layout = layouts.pop() if len(layouts) == 1 else None
        batch = entry.shape[0]
        self._fixed_batch = batch if isinstance(batch, int) and batch > 0 else 0
        self.batch_size = self._fixed_batch or self.batch_size
        self._session = session

    def scores(self, images: Pixels) -> Scores:
        _ = self.session  # The graph may fix the batch size, which must be known before the images are divided.
        return super().scores(images)

    def _shrink(self, size: int) -> None:
        if self._fixed_batch:
            raise ClassifierError(
                f"{self.name} does not fit into memory, and its graph fixes the batch at {self._fixed_batch}",
                hint="export it again with a dynamic batch axis",
            )
        super()._shrink(size)

    def __reduce_ex__(self, protocol: object) -> tuple[object, ...]:
        """A copy opens the same file, which is quick; on a machine that lacks the file, the spec is loaded again."""
        return _revive, (self.__getstate__(), self.origin, self.fingerprint)

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "_session": None}


def _revive(state: dict[str, Any], origin: tuple[str, Options] | None, fingerprint: str) -> object:
    if origin is not None and not state["path"].exists():
        from shiftbench.classifiers.loading import reload

        return reload(*origin, state["name"], fingerprint, state.get("one_at_a_time", False))
    classifier = OnnxClassifier.__new__(OnnxClassifier)
    classifier.__setstate__(state)
    return classifier


def import_onnxruntime() -> Any:
    """Import onnxruntime without its telemetry, which would send data to its vendor."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    return required("onnxruntime", "onnx", "running an ONNX model")


def open_session(path: str | Path, threads: int | None = None, device: str = "cpu") -> Any:
    """Open an inference session whose threads use no processor time while they wait.

    Raises ClassifierError if the device is not available or the file cannot be opened.
    """
    onnxruntime = import_onnxruntime()
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads or worker_count(None)
    settings.inter_op_num_threads = 1
    settings.log_severity_level = 4  # errors are raised anyway
    # Spinning threads gain 2 % if a session runs alone, and cost far more if several sessions share the cores.
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    providers = _providers(onnxruntime, device)
    try:
        return onnxruntime.InferenceSession(str(path), settings, providers=providers)
    except Exception as error:
        raise ClassifierError(
            f"onnxruntime can't open {Path(path).name}",
            found=str(error).strip().splitlines()[0][:300],
            hint="is it a complete ONNX file, with its external data beside it?",
        ) from error


def _providers(onnxruntime: Any, device: str) -> list[object]:
    """What onnxruntime calls a device: its execution providers, the preferred one first."""
    kind, _, number = device.partition(":")
    if kind == "cpu":
        return ["CPUExecutionProvider"]
    # Without this check onnxruntime would run on the CPU, with a warning at most.
    if kind != "cuda" or "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        raise ClassifierError(
            f"onnxruntime can't run on the device {device!r} here",
            expected="cpu, or cuda with the package onnxruntime-gpu",
            hint=argument("device", "cpu"),
        )
    return [("CUDAExecutionProvider", {"device_id": int(number or 0)}), "CPUExecutionProvider"]


def image_input(session: Any, name: str) -> Any:
    """The graph's only input; a ClassifierError shows all inputs if there are several or it takes no images."""
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
    """Load ``model.onnx``. The graph's input states size, layout and whether it takes pixels."""
    path = existing_file(target)
    device = options.device
    if device == "auto":
        available = import_onnxruntime().get_available_providers()
        device = "cuda" if "CUDAExecutionProvider" in available else "cpu"
    session = open_session(path, options.threads, device)
    metadata = session.get_modelmeta().custom_metadata_map
    stated_name = own_entry(metadata, path.name).get("name")
    name = options.name or str(stated_name or path.stem)
    entry = image_input(session, name)
    options = _with_metadata(options, description_in(metadata, name, pixels=entry.type == "tensor(uint8)"))
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

    graph_mixes_images = mixes_images(path)

    def trial(preprocessing: Preprocessing) -> Scores:
        classifier.preprocessing = preprocessing
        images = options.trial_images(preprocessing)[: classifier.batch_size]
        scores = trial_scores(classifier.name, images, classifier.padded_forward)
        _observe(classifier, images, graph_mixes_images)
        return scores

    # An input may fit several layouts; the first one with which the graph runs is taken.
    failures: list[ClassifierError] = []
    for known_input in known_inputs(entry.shape, entry.type == "tensor(uint8)"):
        classifier.takes_pixels = known_input.pixels
        try:
            settled, scores = settle(classifier.name, options, known_input, trial)
            named_space = _named_classes(metadata, name, scores.shape[1])
            if settled.labels is None and named_space is not None:
                settled = replace(settled, labels=named_space, sources={**settled.sources, "labels": "file"})
            return settled.finish(classifier, scores)
        except ClassifierError as error:
            failures.append(error)
    raise failures[0]


def _with_metadata(options: Options, description: Description) -> Options:
    """The options with what the metadata of the file states; a sidecar and the caller prevail."""
    if not description.keys:
        return options
    options = replace(options, described=((description, "file"), *options.described))
    if description.outputs is None or options.outputs is not None:
        return options
    source: FactSource = "file" if "outputs" in description.stated else "assumed"
    return replace(options, outputs=description.outputs, sources={**options.sources, "outputs": source})


def _observe(classifier: OnnxClassifier, images: Pixels, graph_mixes_images: bool) -> None:
    """Note whether images have the same scores each time, and other scores in a batch than alone.

    A graph that was exported in training mode may draw random numbers, and takes means over the batch.
    """
    images = with_dark_images(images[::2])
    forward = classifier.padded_forward
    classifier.one_at_a_time = True
    alone = scores_alone(forward, images)
    classifier.repeatable = is_repeatable(forward, images, alone)
    classifier.one_at_a_time = graph_mixes_images
    if classifier.repeatable and not graph_mixes_images:
        classifier.one_at_a_time = depends_on_neighbours(forward, images, alone, classifier.batch_size)


def _scores_output(session: Any, options: Options, name: str) -> tuple[str | None, FactSource]:
    """The name of the output that holds the scores, and the source of that fact.

    This is the stated output, else the only one that has a score per class, else the first of those. The name is None
    if the scores are the graph's first output and no other could be meant; it is then no part of the fingerprint.
    """
    outputs = session.get_outputs()
    for description, source in reversed(options.described):
        if description.output is not None:
            output_names = [output.name for output in outputs]
            if description.output not in output_names:
                raise UnknownNameError(f"output of {name}", description.output, output_names)
            if "output" not in description.stated:
                source = "assumed"
            return description.output, source
    candidates = _fitting_outputs(outputs, options)
    if len(outputs) == 1 or not candidates:
        return None, "file"
    first_name = candidates[0].name
    if len(candidates) > 1:
        return first_name, "assumed"
    if first_name == outputs[0].name:
        return None, "file"
    return first_name, "file"


def _fitting_outputs(outputs: Sequence[Any], options: Options) -> list[Any]:
    """The outputs that have one score for each class of the label space, or else of the first table of scores."""
    tables = [output for output in outputs if _may_hold_scores(output)]
    counts = [len(space) for space in (options.labels, options.default_labels) if space is not None]
    counts += [table.shape[1] for table in tables if table.shape]
    for count in counts:
        fitting = [table for table in tables if table.shape[1:2] == [count]]
        if fitting:
            return fitting
    return tables


def _may_hold_scores(output: Any) -> bool:
    """Whether an output has the shape of a table; an output without a declared shape is accepted."""
    is_table = len(output.shape) in (0, 2) or output.shape[2:] == [1, 1]
    return output.type in _TYPES and is_table


def _named_classes(metadata: Mapping[str, str], model: str, outputs: int) -> LabelSpace | None:
    """The classes that the file's metadata names, as exporters write them: a list, or a mapping from index to name.

    Those that `describe --write --embed` wrote come first: a list, or the name of a label space.

    None if the metadata does not name exactly ``outputs`` different classes.
    """
    written = own_entry(metadata, model).get("labels")
    if isinstance(written, str):
        space = label_space(written)
        return space if len(space) == outputs else None
    if isinstance(written, list) and len(written) == outputs == len(set(map(str, written))):
        return recognise_names([str(class_name) for class_name in written], own=OUR_LABELS)[0]
    for key in ("names", "classes", "class_names", "labels", "id2label"):
        try:
            value = ast.literal_eval(metadata.get(key, ""))
        except (ValueError, SyntaxError):
            continue
        if isinstance(value, dict) and all(str(index).isdecimal() for index in value):
            value = [value[index] for index in sorted(value, key=int)]
        if isinstance(value, list | tuple) and len(value) == outputs and len(set(value)) == outputs:
            return recognise_names([str(class_name) for class_name in value], own=key)[0]
    return None


# -- the ONNX twin of a torch module: exported once, kept in a cache, used only where it agrees ----------------------


def twin_path(weights: str, preprocessing: Preprocessing) -> Path:
    """The file that holds the twin of these weights.

    Its name depends on the input size and layout too, since these are part of a traced graph.
    """
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
    if (gap > 2 * TOLERANCE * largest).any():
        return "the best classes differ"
    return None


def onnx_twin(module: object, path: Path, images: Pixels, preprocessing: Preprocessing, reference: Scores) -> None:
    """Make sure that ``path`` holds a graph that gives ``reference`` on ``images``.

    A twin in the cache is checked again, because the hash of the weights does not cover the code of the forward pass.
    Raises ClassifierError with the reasons when no exporter succeeds.
    """
    inputs = preprocessing.normalisation(images)
    any_size = preprocessing.geometry.output is None
    reasons = []
    if path.exists():
        reason = _fault(path, inputs, reference)
        if reason is None:
            return
        reasons.append(f"cached: {reason}")
    # The tracing exporter takes one second where the newer one takes twelve; both are checked the same way.
    for exporter in ("tracing", "dynamo"):
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".export-") as folder:
            draft = Path(folder) / "model.onnx"
            try:
                with _exporting, _quiet():
                    _export(module, inputs[:2], draft, any_size, exporter == "dynamo")
                reason = _fault(draft, inputs, reference)
                if reason is None and len(list(Path(folder).iterdir())) > 1:
                    reason = "the graph is too large for one file"
            except Exception as error:
                first_line = str(error).strip().splitlines()[0] if str(error) else ""
                reason = f"{type(error).__name__}: {first_line[:200]}"
            if reason is None:
                draft.replace(path)  # This is atomic, so that concurrent processes see no half-written graph.
                return
        reasons.append(f"{exporter}: {reason}")
    raise ClassifierError("the model can't be run through onnxruntime", found="; ".join(reasons))


def _fault(graph: Path, inputs: NDArray[np.float32], reference: Scores) -> str | None:
    """Why a graph does not give ``reference`` on ``inputs``, or None if it does.

    The first image is also run alone, because a trace may have fixed the batch size by accident.
    """
    try:
        session = open_session(graph)
        input_name = session.get_inputs()[0].name
        batch_scores = session.run(None, {input_name: inputs})[0]
        first_scores = session.run(None, {input_name: inputs[:1]})[0]
        return disagreement(reference, batch_scores) or disagreement(reference[:1], first_scores)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"


def _export(module: Any, inputs: NDArray[np.generic], path: Path, any_size: bool, dynamo: bool) -> None:
    """Write a graph for batches of any size, and with ``any_size`` for images of any size."""
    import torch

    axes = {0: "batch"}
    if any_size:
        axes |= {2: "height", 3: "width"}
    settings: dict[str, Any]
    if dynamo:
        dimensions = {axis: torch.export.Dim(name) for axis, name in axes.items()}
        settings = {"verbose": False, "external_data": False, "dynamic_shapes": (dimensions,)}
    else:
        settings = {"opset_version": 17, "dynamic_axes": {"images": axes, "scores": {0: "batch"}}}
    torch.onnx.export(
        module,
        (torch.from_numpy(inputs),),
        str(path),
        dynamo=dynamo,
        input_names=["images"],
        output_names=["scores"],
        **settings,
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporters' many warnings and log messages; a failure still raises an exception."""
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
