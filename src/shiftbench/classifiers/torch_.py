"""Any torch module as a classifier: through onnxruntime on CPU where that agrees, else by torch itself."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from shiftbench.arrays import Pixels
from shiftbench.classifiers.base import BatchedClassifier, Classifier, Outputs, network_fingerprint, trial_scores
from shiftbench.classifiers.configs import from_library
from shiftbench.classifiers.onnx_ import OnnxClassifier, import_onnxruntime, onnx_twin, twin_path
from shiftbench.classifiers.options import KnownInput, Options, settle
from shiftbench.classifiers.preprocessing import LUMA_WEIGHTS, Normalisation, Preprocessing
from shiftbench.errors import ClassifierError, MissingExtraError, argument, required
from shiftbench.io.code_state import module_digest, tensors_of
from shiftbench.io.hashing import digest
from shiftbench.labels.space import LabelSpace, Scores

if TYPE_CHECKING:
    from torch import Tensor, nn

_reloaded: weakref.WeakKeyDictionary[Classifier, Classifier] = weakref.WeakKeyDictionary()
_reloading = threading.Lock()


class TorchClassifier(BatchedClassifier):
    """A module, put into eval mode for each batch: channels_last in float32 on CPU, under autocast on a GPU.

    Torch takes other kernels for other batch sizes, so every batch is filled up to ``batch_size``: scores then
    depend on neither neighbours nor remainder. They may still depend on torch's number of threads.
    """

    #: Why the scores do not come from onnxruntime, where that was tried.
    why_not_onnxruntime: str | None = None
    #: Likely numbers of classes, by which the scores are found among several outputs.
    counts: tuple[int, ...] = ()

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
        self.name, self.space, self.preprocessing, self.outputs = name, space, preprocessing, outputs
        self.device = device
        self.batch_size = batch_size or (16 if device == "cpu" else 128)
        self._weights = weights or module_digest(module)
        self._precision = "float32"
        if device.startswith("cuda"):
            self._precision = "bfloat16" if torch.cuda.is_bf16_supported() else "float16"
        floats = (one.dtype for one in module.parameters() if one.is_floating_point())
        self._input_type = next(floats, torch.float32)  # a module in half or double precision stays so
        self.engine = f"torch {device} {self._precision}"
        self.module = module.to(device)
        with contextlib.suppress(RuntimeError):  # five-dimensional weights have no such layout
            self.module = self.module.to(memory_format=torch.channels_last)

    @property
    def fingerprint(self) -> str:
        return network_fingerprint(self._weights, self.preprocessing.normalisation, self.outputs)

    def rows(self) -> int:
        return self.batch_size

    def forward(self, images: Pixels) -> Scores:
        torch = import_torch()
        normalise = self.preprocessing.normalisation
        here = self.device.startswith("cpu")
        inputs = torch.from_numpy(normalise(images)) if here else normalised_on(self.device, images, normalise)
        inputs = inputs.to(self.device, self._input_type)
        if inputs.ndim == 4 and normalise.layout == "nchw":
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        kind, coarse = self.device.split(":")[0], self._precision != "float32"
        # Modules may keep state between calls; one at a time.
        with (
            self._running,
            evaluating(self.module),
            torch.inference_mode(),
            torch.autocast(kind, dtype=getattr(torch, self._precision), enabled=coarse),
        ):
            # A copy: a module may return one and the same tensor each time, with other values.
            scores: Scores = scores_of(self.module(inputs), self.counts).to("cpu", torch.float32, copy=True).numpy()
        return scores

    def gradient_model(self) -> object:
        """In float32 on every device, for a coarser gradient would make the attack weaker."""
        torch, classifier, normalisation = import_torch(), self, self.preprocessing.normalisation

        class OnPixels(torch.nn.Module):  # type: ignore[misc, name-defined]
            device = torch.device(classifier.device)

            def __init__(self) -> None:
                super().__init__()
                # In a tuple, so that modes and moves of this module do not reach the classifier's own.
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


def normalised_on(device: str, images: Pixels, normalisation: Normalisation) -> Tensor:
    """As ``normalisation`` itself, to the bit; the images travel as bytes, a quarter of the floats."""
    pixels = import_torch().from_numpy(images).to(device).permute(0, 3, 1, 2)
    return _normalised(pixels, normalisation, _factors(normalisation, device))


def _factors(normalisation: Normalisation, device: object, largest: int = 1) -> tuple[Tensor, Tensor]:
    torch = import_torch()
    gain, offset = (
        torch.from_numpy(values).to(device).reshape(1, -1, 1, 1)
        for values in (largest * normalisation.gain, normalisation.offset)
    )
    return gain, offset


def _normalised(pixels: Tensor, normalisation: Normalisation, factors: tuple[Tensor, Tensor]) -> Tensor:
    if normalisation.colour_order == "grey":
        weights = import_torch().tensor(LUMA_WEIGHTS, device=pixels.device).reshape(1, 3, 1, 1)
        weighted = (pixels * weights).sum(1, keepdim=True)  # not rounded where gradients are wanted
        pixels = weighted / 65536 if pixels.is_floating_point() else (weighted + 0x8000) >> 16
    pixels = pixels.flip(1) if normalisation.colour_order == "bgr" else pixels
    inputs = pixels * factors[0] - factors[1]
    return inputs if normalisation.layout == "nchw" else inputs.permute(0, 2, 3, 1).contiguous()


def from_module(
    module: object,
    options: Options,
    *,
    name: str | None = None,
    weights: str | None = None,
    exportable: bool = True,
    known: KnownInput | None = None,
) -> Classifier:
    """The fastest engine that gives the module's own scores.

    ``weights`` is a hash of weights and code; computed from the module if not given. A module that
    is not ``exportable`` has a fixed batch, ``options.batch_size``. ``known`` is what its file says about the input. A
    module in training stays so.
    """
    module = unwrapped(module)
    is_object, own_name = name is None, name or type(module).__name__
    name = options.name or own_name
    # Graphs are exported and compared on CPU, wherever they will run.
    device = "cpu" if options.engine == "onnxruntime" else torch_device(options.device)
    trial = TorchClassifier(
        module,
        name=name,
        space=LabelSpace("outputs", ("?",)),
        preprocessing=Preprocessing(),
        weights=weights,
        batch_size=options.batch_size,
        device=device,
    )

    trial.counts = tuple(len(one) for one in (options.labels, options.default_labels) if one is not None)

    def check_images() -> Pixels:
        """Images on which a faster engine must agree, in the classifier's geometry."""
        images = options.check_images
        if images is None:
            images = options.trial_images(trial.preprocessing)
        return images[: trial.batch_size]

    def try_out(preprocessing: Preprocessing) -> Scores:
        trial.preprocessing = preprocessing
        return trial_scores(name, check_images(), trial.forward if exportable else trial.padded_forward)

    options, library = from_library(module, options, own_name)
    known = known or library
    first = next((part for part in trial.module.modules() if hasattr(part, "in_channels")), None)
    if getattr(first, "in_channels", 3) == 1 and known.normalisation == Normalisation():
        known = known.grey()
    settled, reference = settle(name, options, known, try_out)
    settled.finish(trial, reference)
    if options.engine == "torch" or (options.engine == "auto" and (device != "cpu" or not exportable)):
        return trial
    path = twin_path(trial._weights, trial.preprocessing)
    try:
        import_onnxruntime()
        with evaluating(trial.module):
            scores_only = _scores_only(trial.module, trial.counts)
            onnx_twin(scores_only, path, check_images(), trial.preprocessing, reference)
    except (ClassifierError, MissingExtraError) as error:
        if options.engine == "onnxruntime":
            raise
        trial.why_not_onnxruntime = str(error.found or error.message)  # slower, but right
        return trial
    classifier = OnnxClassifier(
        path,
        name=name,
        space=trial.space,
        preprocessing=trial.preprocessing,
        weights=trial._weights,
        outputs=trial.outputs,
        threads=options.threads,
        batch_size=options.batch_size,
        device=options.device if options.device.startswith("cuda") else "cpu",
    )
    classifier.sources, classifier.single_output = trial.sources, trial.single_output
    if is_object:
        # No spec could load it again when its gradients are asked for.
        classifier.twin = _Kept(trial)
    return classifier


class _Kept:
    """A torch classifier that is not pickled: modules defined in a function can't be, their ONNX twins can."""

    def __init__(self, classifier: TorchClassifier | None) -> None:
        self.classifier = classifier
        self.exported = self.tensors()  #: As they were when its twin was made.

    def tensors(self) -> str:
        return "" if self.classifier is None else digest(*tensors_of(self.classifier.module.state_dict()))

    def __reduce__(self) -> tuple[object, ...]:
        return _Kept, (None,)


def torch_twin(classifier: Classifier) -> TorchClassifier:
    """The classifier as torch runs it: itself, what it was made from, or what its spec gives with torch's engine."""
    found: Classifier | None = classifier
    if isinstance(classifier.twin, _Kept) and classifier.twin.classifier is not None:
        found = classifier.twin.classifier
    elif classifier.origin is not None and not isinstance(classifier, TorchClassifier):
        from shiftbench.classifiers.loading import load_spec

        with _reloading:
            if classifier not in _reloaded:
                spec, options = classifier.origin
                _reloaded[classifier] = load_spec(spec, replace(options, engine="torch"))
            found = _reloaded[classifier]
    if isinstance(found, TorchClassifier):
        return found
    raise ClassifierError(
        f"{classifier.name} gives no gradients, which attacks need",
        found=f"{type(classifier).__name__}, run by {classifier.engine}",
        expected="a torch module, or a spec that loads one: demo:, timm:, torchvision:, hf:, model.pt, file.py",
        hint="give the torch model instead of its export"
        if classifier.twin is None
        else "a module can't follow into worker processes: use threads, or a spec that loads it",
    )


def _scores_only(module: Any, counts: Sequence[int]) -> object:
    """Exporters want one tensor as the output."""
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
    """Eval mode for a while; every part gets its own mode back."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            if part.training != mode:
                part.training = mode


def unwrapped(module: Any) -> object:
    """The model inside of what ``torch.compile`` and data-parallel training put around it."""
    while type(module).__name__ in ("OptimizedModule", "DataParallel", "DistributedDataParallel"):
        module = getattr(module, "_orig_mod", None) or module.module
    return module


def scores_of(output: object, counts: Sequence[int] = ()) -> Any:
    """The score tensor among what modules return: a tensor, ``.logits``, a dictionary or a tuple.

    Among several, the first with as many columns as there are classes, by one of the ``counts``.
    """
    for part in ("logits", "scores"):
        if hasattr(output, part):
            return getattr(output, part)
        if isinstance(output, dict) and part in output:
            return output[part]
    if not isinstance(output, dict | tuple | list):
        return output
    parts = list(output.values()) if isinstance(output, dict) else list(output)
    tables = [one for one in parts if getattr(one, "ndim", 0) == 2]
    fitting = [one for count in counts for one in tables if one.shape[1] == count]
    if fitting or not isinstance(output, dict):
        return (fitting or parts)[0]
    if len(tables) == 1:
        return tables[0]
    raise ClassifierError(
        "none of the model's outputs is known to hold the scores",
        found=", ".join(f"{key} {tuple(getattr(one, 'shape', ()))}" for key, one in output.items()),
        expected="an output logits or scores, or a single table (N, classes)",
    )


def torch_device(device: str) -> str:
    torch = import_torch()
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # builds without CUDA assert
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
