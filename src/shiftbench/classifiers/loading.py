"""``load_classifier`` loads every kind of model, from a spec (see ``LOADERS``) or an object.

A ``model.onnx.json`` beside a model file gives its preprocessing, labels, outputs and name; ``shiftbench describe MODEL
--write`` writes it.
"""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from shiftbench.arrays import Pixels
from shiftbench.classifiers.base import Classifier, Outputs
from shiftbench.classifiers.options import Engine, Options, assumed_warning, with_sidecar
from shiftbench.errors import ClassifierError, UnknownNameError, warn_user
from shiftbench.io.downloads import fetched, file_name, is_address
from shiftbench.labels.catalogue import LabelsArgument
from shiftbench.labels.space import LabelSpace
from shiftbench.registry import Registry

#: A function from the text after the colon (or the path, for an extension) and the options to a classifier.
Loader = Callable[[str, Options], Classifier]

#: The loaders by scheme ("timm" for ``timm:resnet50``) and by extension (".onnx"). A third party adds a loader by
#: ``@classifier_loaders.register("mine")``.
classifier_loaders: Registry[Loader] = Registry("classifier loader")

#: The address of a model behind a server that speaks the Open Inference Protocol, of which a plug-in has the loader.
_SERVED_MODEL = re.compile(r"https?://[^/]+/(?:[^?#]*/)?v2/models/[^/?#]+")

#: Scheme or extension, module of this package, function in it, and what `list classifiers` shows.
LOADERS: tuple[tuple[str, str, str, str], ...] = (
    ("demo", "demo", "load_demo", "A real classifier that registry packages carry: demo:efficientnet-lite0."),
    ("timm", "zoo", "load_timm", "A model of timm: timm:resnet50, or timm:resnet50@weights.pth."),
    ("torchvision", "zoo", "load_torchvision", "A model of torchvision, likewise."),
    (
        "hf",
        "zoo",
        "load_hf",
        "A Hugging Face classifier, CLIP or SigLIP: hf:FOLDER, hf:org/name@revision.",
    ),
    ("open_clip", "open_clip_", "load_open_clip", "A zero-shot model: open_clip:ViT-B-32@WEIGHTS."),
    (".onnx", "onnx_", "load_onnx", "An ONNX model."),
    (".xml", "openvino_", "load_openvino", "An OpenVINO model, with model.bin beside it."),
    (".tflite", "litert", "load_litert", "A LiteRT (TensorFlow Lite) model."),
    (".pte", "executorch_", "load_executorch", "An ExecuTorch program."),
    (".keras", "keras_", "load_keras", "A Keras 3 model."),
    (".pt", "weights", "load_torch_file", "A state dict, for a model; TorchScript or a module, only with --trust."),
    (".pth", "weights", "load_torch_file", "As .pt."),
    (".pt2", "weights", "load_torch_file", "An exported program of torch.export; only with --trust."),
    (".ts", "weights", "load_torch_file", "A TorchScript file; only with --trust."),
    (".bin", "weights", "load_torch_file", "As .pt."),
    (".safetensors", "weights", "load_torch_file", "Weights; they need a model to go into: timm:NAME@FILE."),
    (".pkl", "function", "load_pickled_object", "A pickled estimator or module; only with --trust."),
    (".joblib", "function", "load_pickled_object", "As .pkl."),
    (".py", "function", "load_python_file", "Your own code: model.py, or model.py:factory."),
    (".csv", "recorded", "load_recorded", "Predictions made elsewhere: id, prediction, confidence or scores."),
    (".parquet", "recorded", "load_recorded", "As .csv."),
    (".npz", "recorded", "load_recorded", "As .csv, with arrays ids and top or scores."),
)


def _lazy(module: str, function: str, description: str) -> Loader:
    """A loader that imports its module when it is called."""

    def load(target: str, options: Options) -> Classifier:
        loader: Loader = getattr(_module(module), function)
        return loader(target, options)

    load.__name__ = function
    load.__doc__ = description
    return load


for _key, _file, _function, _description in LOADERS:
    classifier_loaders.add(_key, _lazy(_file, _function, _description))


def load_classifier(
    spec: object,
    *,
    labels: LabelsArgument = None,
    default_labels: LabelSpace | None = None,
    preprocessing: object = None,
    name: str | None = None,
    device: str = "auto",
    engine: Engine = "auto",
    trust: bool = False,
    threads: int | None = None,
    batch_size: int | None = None,
    outputs: Outputs | None = None,
    pretrained: bool = True,
    stateful: bool = False,
    check_images: Pixels | None = None,
    image_size: Callable[[], tuple[int, int] | None] | tuple[int, int] | None = None,
) -> Classifier:
    """A classifier from a spec (``timm:resnet50``, ``model.onnx``, ...) or from a Python object.

    What the caller, a sidecar, the model file or its library state about the preprocessing is used, in this order. The
    rest is assumed, by the rules in docs/models.md; one warning reports it, and ``Classifier.assumed`` lists it.
    ``Classifier.facts`` (on the command line, ``shiftbench describe MODEL``) tells where each fact comes from.

    Args:
        spec: What to load; `shiftbench list classifiers` shows the kinds of specs.
        labels: A label space, its name, a file of classes, or a list of classes in the order of the outputs. Needed
            unless the model names its classes or has 1,000 outputs.
        default_labels: Classes of a model that names none and has as many outputs.
        preprocessing: What is known about the preprocessing: a dict such as ``{"size": 32, "mean": 0.5, "std": 0.25}``
            (keys in docs/models.md), the same as text (``"size=32,mean=0.5"``), a TOML or JSON file, a
            ``Preprocessing``, a torchvision or timm transform, a timm data config, or an image processor of
            transformers or its config.
        name: Name in tables and reports (default: after the file, model or class).
        device: "auto", "cpu", "cuda", "cuda:1", ...
        engine: "onnxruntime", "torch", or "auto" for the faster one that agrees.
        trust: Load files that run code of their own.
        threads: Cores for one batch; scores do not depend on it.
        batch_size: Images per forward pass (default: chosen by the loader).
        outputs: "logits" or "probabilities" (default: measured on a few images).
        pretrained: False for random weights, for models of a zoo.
        stateful: The model changes while it runs, or mixes the images of a batch, on purpose (docs/models.md): a torch
            module, or a function that can be reset. It is run as it is, with gradients, on images in random order, and
            reset before each setting.
        check_images: Images on which a faster engine must agree, instead of the built-in ones.
        image_size: (height, width) of the images to be classified if all have the same, or a function that gives it;
            used where the model's input size is unknown.

    Returns:
        The classifier; ``spec`` itself if it is one.

    Raises:
        ClassifierError: The model cannot be loaded, or does not accept images in its preprocessing.

    Example:
        >>> import numpy as np
        >>> def never_dogs(images):
        ...     return np.tile([1.0, 0.0], (len(images), 1))
        >>> cats = load_classifier(never_dogs, labels=["cat", "dog"], preprocessing={"size": 4})
        >>> cats.scores(np.zeros((2, 4, 4, 3), np.uint8)).argmax(axis=1)
        array([0, 0])
    """
    if isinstance(spec, Classifier):
        if preprocessing is not None or name is not None:
            raise ClassifierError(
                f"{spec.name} is loaded already, so its preprocessing and name are settled",
                hint="pass them to load_classifier, or pass the model itself here",
            )
        if stateful:
            _check_stateful(spec)
        return spec
    size_function = (lambda: image_size) if isinstance(image_size, tuple) else image_size
    options = Options.of(
        labels,
        preprocessing,
        default_labels=default_labels,
        name=name,
        device=device,
        engine=engine,
        trust=trust,
        threads=threads,
        batch_size=batch_size,
        outputs=outputs,
        pretrained=pretrained,
        stateful=stateful,
        check_images=check_images,
        image_size=size_function,
    )
    if isinstance(spec, str) and spec.startswith("~"):
        spec = Path(spec).expanduser()
    if isinstance(spec, str | Path):
        classifier = load_spec(str(spec), options)
    else:
        classifier = from_object(spec, options)
    if stateful:
        _check_stateful(classifier)
    if classifier.output is None and any(description.output for description, _ in options.described):
        raise ClassifierError(
            f"{classifier.name} has no outputs with names", expected="output=NAME for ONNX files only"
        )
    warning = assumed_warning(classifier)
    if warning is not None:
        warn_user(warning)
    return classifier


def _check_stateful(classifier: Classifier) -> None:
    if not classifier.stateful:
        raise ClassifierError(
            f"{classifier.name} can't be evaluated as a stateful model",
            found=f"{type(classifier).__name__}, run by {classifier.engine}",
            expected="a torch module, a function, or a spec that loads one, loaded as stateful",
        )


def load_spec(spec: str, options: Options) -> Classifier:
    """Load a model by its scheme or extension; the classifier keeps both arguments, so that it can be pickled."""
    if _SERVED_MODEL.match(spec):
        spec = f"kserve:{spec}"
    if is_address(spec):
        return _load_from_address(spec, options)
    key, target = split_spec(spec)
    is_file = key.startswith(".")
    if is_file:
        options = with_sidecar(target, options)
    classifier = classifier_loaders.get(key)(target, options)
    if is_file:
        spec = str(Path(target).absolute())  # Worker processes may have another working directory.
    if classifier.recorded is None and options.described:
        stated, _ = options.described[-1]
        # Only the loader of a third party may ignore what is stated.
        if stated.over(classifier.preprocessing) != classifier.preprocessing:
            raise ClassifierError(
                f"the loader of {classifier.name} ignores a preprocessing that is stated in part",
                hint="pass preprocessing=Preprocessing(...), which is complete",
            )
    # When it is loaded again elsewhere, it has the same preprocessing, whatever the images are there.
    settled = replace(options, preprocessing=classifier.preprocessing, described=(), sources=classifier.sources)
    classifier.origin = (spec, replace(settled, image_size=None))
    return classifier


def _load_from_address(url: str, options: Options) -> Classifier:
    """Load a model file by its URL; a copy is kept in the cache, and worker processes load that copy."""
    split_spec(file_name(url))  # This raises before the download if there is no loader for the file.
    if file_name(url).endswith(".py"):
        raise ClassifierError(
            f"code is not run from an address: {file_name(url)}",
            expected="a model file, such as .onnx",
            hint="download the file, look at it, and name its path",
        )
    download = fetched(url)
    classifier = load_spec(str(download.path), options)
    classifier.downloaded_from = str(download)
    return classifier


def reload(spec: str, options: Options, name: str, fingerprint: str, one_at_a_time: bool = False) -> Classifier:
    """Load a classifier again, when it is unpickled.

    A run may have given it another name meanwhile, or found that it mixes the images of a batch. Raises ClassifierError
    if the model is no longer the one with this fingerprint.
    """
    classifier = load_spec(spec, options)
    classifier.name = name
    classifier.one_at_a_time = one_at_a_time
    if classifier.fingerprint != fingerprint:
        raise changed_model(name, spec)
    return classifier


def changed_model(name: str, source: object) -> ClassifierError:
    """The error about a model whose files are no longer those that it was first loaded from."""
    return ClassifierError(
        f"{name} changed after this run had loaded it",
        found=f"other weights or code in {source}",
        hint="rerun the same command to evaluate it as it is now",
    )


def split_spec(spec: str) -> tuple[str, str]:
    """The loader's key in ``classifier_loaders``, and the loader's argument.

    Raises ClassifierError if there is no loader for the spec.
    """
    scheme, colon, target = spec.partition(":")
    # A scheme of one letter is a drive of Windows.
    has_scheme = bool(colon) and len(scheme) > 1
    if has_scheme and scheme in classifier_loaders:
        return scheme, target
    file = spec
    if ".py:" in spec:
        file = spec.partition(".py:")[0] + ".py"
    suffix = Path(file).suffix.lower()
    if suffix in classifier_loaders:
        return suffix, spec
    if has_scheme and not suffix:
        raise UnknownNameError("kind of model", scheme, [key for key in classifier_loaders.names() if key[0] != "."])
    raise _no_loader(spec, suffix)


def _no_loader(spec: str, suffix: str) -> ClassifierError:
    """The error about a spec without a known scheme or extension, with a hint at what may be meant."""
    hint = None
    if suffix:
        hint = "export it to ONNX, or write a function: model.py:factory (docs/models.md)"
    elif spec and "/" not in spec:
        hint = f"timm:{spec} if it is a model of timm"
    if (Path(spec) / "config.json").is_file():
        hint = f"{shlex.quote(f'hf:{spec}')} for a folder of transformers"
    forms = []
    for key in classifier_loaders.names():
        if key.startswith("."):
            forms.append(f"*{key}")
        else:
            forms.append(f"{key}:...")
    return ClassifierError(
        f"no loader recognises the model {spec!r}",
        found=f"the extension {suffix!r}" if suffix else "neither a scheme nor an extension",
        expected=", ".join(forms),
        hint=hint,
    )


def from_object(model: Any, options: Options) -> Classifier:
    """A torch module, a scikit-learn estimator or any function, distinguished without importing a framework.

    A pipeline of transformers is its model with its image processor.
    """
    if hasattr(model, "model") and hasattr(model, "image_processor"):
        options = options.over(_module("configs").understood(model.image_processor))
        model = model.model
    bases = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(model).__mro__}
    if "keras.src.models.model.Model" in bases:
        return _module("keras_").from_keras(model, options)  # type: ignore[no-any-return]
    if "torch.nn.modules.module.Module" in bases:
        return _module("torch_").from_module(model, options)  # type: ignore[no-any-return]
    if any(hasattr(model, method) for method in ("predict_proba", "decision_function")):
        return _module("sklearn_").from_estimator(model, options)  # type: ignore[no-any-return]
    if callable(model):
        return _module("function").from_function(model, options)  # type: ignore[no-any-return]
    raise ClassifierError(
        "unsupported model object",
        found=f"{type(model).__module__}.{type(model).__qualname__}",
        expected="a spec, a torch module, a scikit-learn estimator, or a function from uint8 images to scores",
        hint="its method predict, if that takes uint8 images" if hasattr(model, "predict") else None,
    )


def _module(name: str) -> Any:
    return importlib.import_module(f"shiftbench.classifiers.{name}")
