"""Any torch module as a classifier: through onnxruntime on CPU where that agrees, else by torch itself."""

from __future__ import annotations

import contextlib
import copy
import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.classifiers.base import (
    STATEFUL_BATCH,
    BatchedClassifier,
    Classifier,
    Outputs,
    network_fingerprint,
    trial_scores,
)
from shiftbench.classifiers.configs import from_library
from shiftbench.classifiers.onnx_ import OnnxClassifier, import_onnxruntime, onnx_twin, twin_path
from shiftbench.classifiers.options import KnownInput, Options, settle, several_outputs
from shiftbench.classifiers.preprocessing import LUMA_WEIGHTS, Normalisation, Preprocessing
from shiftbench.errors import ClassifierError, MissingExtraError, ResultWarning, argument, required, warn_user
from shiftbench.io.code_state import module_digest, tensors_of
from shiftbench.io.hashing import digest
from shiftbench.labels.space import LabelSpace, Scores

if TYPE_CHECKING:
    from torch import Tensor, nn

#: The output of these names holds the scores.
SCORE_NAMES = ("logits", "scores")
_reloaded: weakref.WeakKeyDictionary[Classifier, Classifier] = weakref.WeakKeyDictionary()
_reloading = threading.Lock()


class TorchClassifier(BatchedClassifier):
    """A module, run without gradients: channels_last in float32 on CPU, under autocast on a GPU.

    A module in training is put into eval mode for each batch. In a module in eval mode, parts that are in training mode
    are meant to be: batch normalisation by the statistics of the batch adapts a model to its images. They stay so, and
    count as part of the weights; the statistics that they collect are put back after each batch.

    Torch takes other kernels for other batch sizes, so every batch is filled up to ``batch_size``: scores then
    depend on neither neighbours nor remainder. They may still depend on torch's number of threads.
    """

    #: Why the scores do not come from onnxruntime, where that was tried.
    why_not_onnxruntime: str | None = None
    #: Likely numbers of classes, by which the scores are found among several outputs.
    counts: tuple[int, ...] = ()
    #: How many of the module's outputs could hold the scores.
    candidates = 1
    #: Whether the module takes batches of ``batch_size`` images only.
    has_fixed_batch = False

    def __init__(
        self,
        module: Any,
        *,
        name: str,
        space: LabelSpace,
        preprocessing: Preprocessing,
        weights: str | None = None,
        outputs: Outputs = "logits",
        batch_size: int | None = None,
        device: str = "cpu",
    ) -> None:
        super().__init__()
        torch = import_torch()
        self.name = name
        self.space = space
        self.preprocessing = preprocessing
        self.outputs = outputs
        self.device = device
        default_batch_size = 16 if device == "cpu" else 128
        self.batch_size = batch_size or default_batch_size
        #: Names of the parts that stay in training mode.
        self.parts_in_training = parts_in_training(module)
        self._weights = weights or module_digest(module)
        if self.parts_in_training:
            self._weights = digest(self._weights, "parts in training mode", list(self.parts_in_training))
        self._precision = "float32"
        if device.startswith("cuda"):
            self._precision = "bfloat16" if torch.cuda.is_bf16_supported() else "float16"
        floats = (parameter.dtype for parameter in module.parameters() if parameter.is_floating_point())
        # A module in half or double precision gets its inputs in that precision.
        self._input_type = next(floats, torch.float32)
        self.engine = f"torch {device} {self._precision}"
        self.module = self._placed(module)

    def _placed(self, module: Any) -> Any:
        """The module on the device, in the layout in which convolutions are fastest."""
        module = module.to(self.device)
        with contextlib.suppress(RuntimeError):  # Weights of five dimensions have no such layout.
            module = module.to(memory_format=import_torch().channels_last)
        return module

    @property
    def fingerprint(self) -> str:
        return network_fingerprint(self._weights, self.preprocessing.normalisation, self.outputs)

    def rows(self) -> int:
        # Further images would enter the statistics of a batch.
        if self.parts_in_training:
            return 1
        # A model that gets one image at a time always runs the same kernels.
        if self.one_at_a_time and not self.has_fixed_batch:
            return 1
        return self.batch_size

    def forward(self, images: Pixels) -> Scores:
        torch = import_torch()
        inputs = self._inputs(images)
        # Modules may keep state between calls, so the lock allows one call at a time.
        try:
            with self._running, evaluating(self.module), torch.inference_mode(), self._autocast():
                return self._scores(inputs)
        except RuntimeError as error:
            if not _is_about_gradients(error):
                raise
            raise ClassifierError(
                f"{self.name} computes gradients when it is run, and models are run without",
                found=str(error).strip().splitlines()[0][:200],
                hint=f"{argument('stateful', True)} if it adapts to the images that it classifies",
            ) from error

    def _inputs(self, images: Pixels) -> Tensor:
        torch = import_torch()
        normalise = self.preprocessing.normalisation
        inputs: Tensor
        if self.device.startswith("cpu"):
            inputs = torch.from_numpy(normalise(images))
        else:
            inputs = normalised_on(self.device, images, normalise)
        inputs = inputs.to(self.device, self._input_type)
        if inputs.ndim == 4 and normalise.layout == "nchw":
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        return inputs

    def _autocast(self) -> contextlib.AbstractContextManager[None]:
        torch = import_torch()
        kind = self.device.split(":")[0]
        coarse = self._precision != "float32"
        context: contextlib.AbstractContextManager[None] = torch.autocast(
            kind, dtype=getattr(torch, self._precision), enabled=coarse
        )
        return context

    def _scores(self, inputs: Tensor) -> Scores:
        torch = import_torch()
        module_outputs = self.module(inputs)
        self.candidates = candidate_tables(module_outputs, self.counts)
        outputs = scores_of(module_outputs, self.counts)
        # The scores are copied because a module may return the same tensor each time, with other values.
        scores: Scores = outputs.detach().to("cpu", torch.float32, copy=True).numpy()
        return scores

    def gradient_model(self) -> object:
        """The network as a torch module; it runs in float32 on every device, since coarser gradients weaken attacks."""
        torch = import_torch()
        classifier = self
        normalisation = self.preprocessing.normalisation

        class OnPixels(torch.nn.Module):  # type: ignore[misc, name-defined]
            device = torch.device(classifier.device)

            def __init__(self) -> None:
                super().__init__()
                # The module is kept in a tuple, so that changes of this module's mode or device do not reach it.
                self.inner = (classifier.module,)
                self.factors = _factors(normalisation, self.device, 255)

            def forward(self, pixels: Tensor) -> object:
                inputs = _normalised(pixels, normalisation, self.factors)
                if normalisation.layout == "nchw":
                    inputs = inputs.contiguous(memory_format=torch.channels_last)
                with classifier._running, evaluating(classifier.module):
                    scores = scores_of(self.inner[0](inputs), classifier.counts)
                if not classifier.single_output:
                    return scores
                second = scores.reshape(-1, 1)
                first = 1 - second if classifier.outputs == "probabilities" else torch.zeros_like(second)
                return torch.cat([first, second], dim=1)

        return OnPixels()


class StatefulTorchClassifier(TorchClassifier):
    """A module that changes while it runs, or mixes the images of a batch, on purpose.

    Examples are batch normalisation by the statistics of the batch, and a gradient step in ``forward``.

    It is run as it is: all its parts keep their modes, gradients can be computed, no image is added to a batch. What
    runs is a copy; ``reset`` makes a new one, so that the module itself never changes. An optimizer that the module
    holds is copied with it.
    """

    stateful = True

    def __init__(self, module: Any, *, batch_size: int | None = None, **options: Any) -> None:
        self._original = module
        super().__init__(_copied(module), batch_size=batch_size or STATEFUL_BATCH, **options)
        in_training = [name for name, submodule in module.named_modules() if submodule.training]
        self._weights = digest(self._weights, "stateful", in_training)

    def rows(self) -> int:
        return 1

    def reset(self) -> None:
        self.module = self._placed(_copied(self._original))

    def forward(self, images: Pixels) -> Scores:
        torch = import_torch()
        inputs = self._inputs(images)
        with self._running, torch.enable_grad(), self._autocast():
            return self._scores(inputs)


def _copied(module: Any) -> Any:
    try:
        return copy.deepcopy(module)
    except Exception as error:  # The module's attributes may be anything, and may raise anything.
        raise ClassifierError(
            f"{type(module).__name__} can't be copied, so it can't be reset before each setting",
            found=f"{type(error).__name__}: {error}",
            hint="keep open files, locks and loggers out of the module's attributes, or define __deepcopy__",
        ) from error


def parts_in_training(module: Any) -> tuple[str, ...]:
    """Names of the parts that are in training mode in a module that as a whole is in eval mode."""
    if module.training:
        return ()
    return tuple(name for name, submodule in module.named_modules() if submodule.training)


def _is_about_gradients(error: RuntimeError) -> bool:
    """Whether an error is about missing gradients; torch has no exception class for these."""
    text = str(error)
    return "nference tensor" in text or "does not require grad" in text or "inference mode" in text.lower()


def normalised_on(device: str, images: Pixels, normalisation: Normalisation) -> Tensor:
    """The same as ``normalisation(images)``, to the bit, but computed on the device.

    The images are sent to the device as bytes, which takes a quarter of the time of floats.
    """
    pixels = import_torch().from_numpy(images).to(device).permute(0, 3, 1, 2)
    return _normalised(pixels, normalisation, _factors(normalisation, device))


def _factors(normalisation: Normalisation, device: object, largest: int = 1) -> tuple[Tensor, Tensor]:
    """Gain and offset of each channel, for pixels that were divided by ``largest``."""

    def per_channel(values: NDArray[np.float32]) -> Tensor:
        tensor: Tensor = import_torch().from_numpy(values).to(device).reshape(1, -1, 1, 1)
        return tensor

    return per_channel(largest * normalisation.gain), per_channel(normalisation.offset)


def _normalised(pixels: Tensor, normalisation: Normalisation, factors: tuple[Tensor, Tensor]) -> Tensor:
    """The inputs of a network for pixels (n, 3, height, width); ``factors`` are gain and offset, from ``_factors``."""
    if normalisation.colour_order == "grey":
        # The weights of the colours are whole numbers that sum to 2 ** 16.
        weights = import_torch().tensor(LUMA_WEIGHTS, device=pixels.device).reshape(1, 3, 1, 1)
        weighted = (pixels * weights).sum(1, keepdim=True)
        if pixels.is_floating_point():
            pixels = weighted / 65536  # This is not rounded, because rounding has no gradient.
        else:
            pixels = (weighted + 0x8000) >> 16
    if normalisation.colour_order == "bgr":
        pixels = pixels.flip(1)
    gain, offset = factors
    inputs = pixels * gain - offset
    if normalisation.layout == "nhwc":
        inputs = inputs.permute(0, 2, 3, 1).contiguous()
    return inputs


def from_module(
    module: object,
    options: Options,
    *,
    name: str | None = None,
    weights: str | None = None,
    exportable: bool = True,
    known_input: KnownInput | None = None,
) -> Classifier:
    """A classifier that runs a module by the fastest engine that gives the module's own scores.

    ``weights`` is a hash of weights and code; it is computed from the module if it is not given. A module that is not
    ``exportable`` has a fixed batch, ``options.batch_size``. ``known_input`` is what the module's file says about its
    input. A module in training mode stays in that mode.
    """
    module = unwrapped(module)
    is_object = name is None
    own_name = name or type(module).__name__
    name = options.name or own_name
    trial = _unsettled(module, name, weights, options)
    trial.has_fixed_batch = not exportable

    def try_out(preprocessing: Preprocessing) -> Scores:
        trial.preprocessing = preprocessing
        forward = trial.forward if exportable else trial.padded_forward
        return trial_scores(name, _check_images(trial, options), forward)

    options, library_input = from_library(module, options, own_name)
    known_input = known_input or library_input
    if known_input.normalisation == Normalisation() and _takes_one_channel(trial.module):
        known_input = known_input.grey()
    settled, reference = settle(name, options, known_input, try_out)
    settled.finish(trial, reference)
    if trial.candidates > 1:
        warn_user(several_outputs(name, trial.candidates))
    trial.reset()
    if is_object and not trial.stateful and _forgot_eval_mode(module):
        text = f"{name} is in training mode, and is evaluated in eval mode: call its method eval() to confirm this"
        warn_user(ResultWarning(text, "training-mode"))
    if trial.stateful or trial.parts_in_training:
        return _only_by_torch(trial, options.engine)
    classifier = _fastest(trial, reference, options, exportable)
    if is_object and classifier is not trial:
        # No spec could load the module again when its gradients are asked for.
        classifier.twin = _Kept(trial)
    return classifier


def _check_images(classifier: TorchClassifier, options: Options) -> Pixels:
    """Images on which a faster engine must agree, in the classifier's geometry."""
    images = options.check_images
    if images is None:
        images = options.trial_images(classifier.preprocessing)
    return images[: classifier.batch_size]


def _fastest(trial: TorchClassifier, reference: Scores, options: Options, exportable: bool) -> Classifier:
    """The classifier itself, or its ONNX twin if that is asked for, or faster and equivalent."""
    torch_is_better = trial.device != "cpu" or not exportable
    if options.engine == "torch" or (options.engine == "auto" and torch_is_better):
        return trial
    try:
        return _exported(trial, _check_images(trial, options), reference, options)
    except (ClassifierError, MissingExtraError) as error:
        if options.engine == "onnxruntime":
            raise
        trial.why_not_onnxruntime = str(error.found or error.message)
        return trial


def _unsettled(module: object, name: str, weights: str | None, options: Options) -> TorchClassifier:
    """A classifier to try the module with, before its preprocessing and its classes are known."""
    # Graphs are exported and compared on CPU, wherever they will run.
    device = "cpu" if options.engine == "onnxruntime" else torch_device(options.device)
    kind = StatefulTorchClassifier if options.stateful else TorchClassifier
    classifier = kind(
        module,
        name=name,
        space=LabelSpace("outputs", ("?",)),
        preprocessing=Preprocessing(),
        weights=weights,
        batch_size=options.batch_size,
        device=device,
    )
    label_spaces = [space for space in (options.labels, options.default_labels) if space is not None]
    classifier.counts = tuple(len(space) for space in label_spaces)
    return classifier


def _takes_one_channel(module: Any) -> bool:
    """Whether the first layer that states its channels takes grey images."""
    first = next((submodule for submodule in module.modules() if hasattr(submodule, "in_channels")), None)
    return getattr(first, "in_channels", 3) == 1


def _exported(trial: TorchClassifier, images: Pixels, reference: Scores, options: Options) -> OnnxClassifier:
    """The module's ONNX twin, which gives the same scores; ClassifierError if there is none."""
    path = twin_path(trial._weights, trial.preprocessing)
    import_onnxruntime()
    with evaluating(trial.module):
        scores_only = _scores_only(trial.module, trial.counts)
        onnx_twin(scores_only, path, images, trial.preprocessing, reference)
    classifier = OnnxClassifier(
        path,
        name=trial.name,
        space=trial.space,
        preprocessing=trial.preprocessing,
        weights=trial._weights,
        outputs=trial.outputs,
        threads=options.threads,
        batch_size=options.batch_size,
        device=options.device if options.device.startswith("cuda") else "cpu",
    )
    classifier.sources = trial.sources
    classifier.single_output = trial.single_output
    return classifier


def _only_by_torch(classifier: TorchClassifier, engine: str) -> TorchClassifier:
    """The classifier, with the reason why it has no ONNX twin.

    A model that mixes the images of a batch or computes gradients would differ from its export. Raises ClassifierError
    if onnxruntime is asked for.
    """
    reason = "it is stateful" if classifier.stateful else "parts of it are in training mode"
    if engine == "onnxruntime":
        raise ClassifierError(f"{classifier.name} can't be run through onnxruntime", found=reason)
    classifier.why_not_onnxruntime = reason
    return classifier


def _forgot_eval_mode(module: Any) -> bool:
    """Whether a module is in training mode and has parts that behave otherwise in it."""
    if not module.training:
        return False
    affected = {"_NormBase", "_DropoutNd", "DropPath", "StochasticDepth"}
    for submodule in module.modules():
        kinds = {kind.__name__ for kind in type(submodule).__mro__}
        if kinds & affected:
            return True
    return False


class _Kept:
    """A torch classifier that is not pickled: modules defined in a function can't be, their ONNX twins can."""

    def __init__(self, classifier: TorchClassifier | None) -> None:
        self.classifier = classifier
        self.exported = self.tensors()  #: As they were when its twin was made.

    def tensors(self) -> str:
        """A hash of the classifier's present weights."""
        if self.classifier is None:
            return ""
        return digest(*tensors_of(self.classifier.module.state_dict()))

    def __reduce__(self) -> tuple[object, ...]:
        return _Kept, (None,)


def torch_twin(classifier: Classifier) -> TorchClassifier:
    """The classifier as torch runs it: itself, what it was made from, or what its spec gives with torch's engine.

    Raises ClassifierError if there is no torch module behind it.
    """
    twin: Classifier = classifier
    if isinstance(classifier.twin, _Kept) and classifier.twin.classifier is not None:
        twin = classifier.twin.classifier
    elif classifier.origin is not None and not isinstance(classifier, TorchClassifier):
        from shiftbench.classifiers.loading import load_spec

        with _reloading:
            if classifier not in _reloaded:
                spec, options = classifier.origin
                _reloaded[classifier] = load_spec(spec, replace(options, engine="torch"))
            twin = _reloaded[classifier]
    if isinstance(twin, TorchClassifier):
        return twin
    hint = "a module can't follow into worker processes: use threads, or a spec that loads it"
    if classifier.twin is None:
        hint = "give the torch model instead of its export"
    raise ClassifierError(
        f"{classifier.name} gives no gradients, which attacks need",
        found=f"{type(classifier).__name__}, run by {classifier.engine}",
        expected="a torch module, or a spec that loads one: demo:, timm:, torchvision:, hf:, model.pt, file.py",
        hint=hint,
    )


def _scores_only(module: Any, counts: Sequence[int]) -> object:
    """A module that returns the scores alone, because exporters require one tensor as the output."""
    torch = import_torch()

    class Scores(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, images: object) -> object:
            return scores_of(self.module(images), counts)

    twin = Scores()
    twin.training = False
    return twin


@contextlib.contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put a module that is in training mode into eval mode for a while; every part gets its own mode back.

    A module that is in eval mode stays as it is, parts in training mode included. What these write into their buffers
    is undone.
    """
    if not module.training:
        buffers = list(module.buffers()) if parts_in_training(module) else []
        before = [buffer.clone() for buffer in buffers]
        try:
            yield
        finally:
            for buffer, values in zip(buffers, before, strict=True):
                buffer.copy_(values)
        return
    modes = [(submodule, submodule.training) for submodule in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for submodule, mode in modes:
            if submodule.training != mode:
                submodule.training = mode


def unwrapped(module: Any) -> object:
    """The model inside of what ``torch.compile`` and data-parallel training put around it."""
    while type(module).__name__ in ("OptimizedModule", "DataParallel", "DistributedDataParallel"):
        module = getattr(module, "_orig_mod", None) or module.module
    return module


def candidate_tables(output: object, counts: Sequence[int] = ()) -> int:
    """How many tensors among what a module returned have the shape of the one that ``scores_of`` takes."""
    is_named = any(hasattr(output, name) or (isinstance(output, dict) and name in output) for name in SCORE_NAMES)
    if is_named or not isinstance(output, dict | tuple | list):
        return 1
    shape = getattr(scores_of(output, counts), "shape", None)
    tensors = output.values() if isinstance(output, dict) else output
    return sum(getattr(tensor, "shape", ()) == shape for tensor in tensors)


def scores_of(output: object, counts: Sequence[int] = ()) -> Any:
    """The score tensor among what modules return: a tensor, ``.logits``, a dictionary or a tuple.

    Among several tensors, it is the first with as many columns as there are classes, by one of the ``counts``. Raises
    ClassifierError if a dictionary does not show which of its tensors holds the scores.
    """
    for name in SCORE_NAMES:
        if hasattr(output, name):
            return getattr(output, name)
        if isinstance(output, dict) and name in output:
            return output[name]
    if not isinstance(output, dict | tuple | list):
        return output
    tensors = list(output.values()) if isinstance(output, dict) else list(output)
    tables = [tensor for tensor in tensors if getattr(tensor, "ndim", 0) == 2]
    for count in counts:
        for table in tables:
            if table.shape[1] == count:
                return table
    if not isinstance(output, dict):
        return tensors[0]
    if len(tables) == 1:
        return tables[0]
    shapes = [f"{key} {tuple(getattr(tensor, 'shape', ()))}" for key, tensor in output.items()]
    raise ClassifierError(
        "none of the model's outputs is known to hold the scores",
        found=", ".join(shapes),
        expected="an output logits or scores, or a single table (N, classes)",
    )


def torch_device(device: str) -> str:
    """The device that torch uses: a GPU if there is one, for "auto". A ClassifierError if it is not available."""
    torch = import_torch()
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # Torch without CUDA raises AssertionError.
        raise ClassifierError(
            f"torch can't run on the device {device!r} here",
            found=str(error).splitlines()[0][:200],
            expected="auto, cpu, cuda, cuda:1 or mps",
            hint=argument("device", "cpu"),
        ) from error
    return device


def import_torch() -> ModuleType:
    module: ModuleType = required("torch", "torch", "running a torch model")
    return module
