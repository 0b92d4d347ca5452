"""Models of other libraries.

``timm:NAME`` and ``torchvision:NAME`` are loaded by their name, with the preprocessing of their own weights.
``hf:FOLDER`` is an image classifier that ``save_pretrained`` of transformers wrote.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import re
import sys
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from shiftbench.classifiers.base import IMAGENET_21K, Classifier
from shiftbench.classifiers.configs import from_hf, from_timm, from_torchvision, hf_sources
from shiftbench.classifiers.description import FactSource
from shiftbench.classifiers.options import Options
from shiftbench.classifiers.preprocessing import Preprocessing
from shiftbench.classifiers.torch_ import from_module, import_torch
from shiftbench.classifiers.weights import can_read_tensors_safely, classes_in_weights, fill, load_weights, untrusted
from shiftbench.classifiers.zero_shot import split_prompts, transformers_pair
from shiftbench.errors import (
    ClassifierError,
    MissingExtraError,
    UnknownNameError,
    argument,
    check_names,
    listed,
    raising,
    required,
)
from shiftbench.io.atomic import read_json
from shiftbench.io.downloads import fetched, is_address
from shiftbench.io.hub import HubRepository, fetch_snapshot, without_vain_retries

# Torch has one random generator for the whole process, so only one thread at a time may set its seed.
seeding = threading.Lock()
# Operators that a torchvision for CUDA registers fake kernels for at import, before their definition exists.
_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_definitions: list[object] = []
# The files of a model on a hub that hold data; weights as safetensors only.
_HUB_FILES = ("*.json", "*.safetensors", "*.txt", "*.model")
# How timm names a model on a hub.
_TIMM_HUB = "hf-hub:"
# Entries of a configuration, without leading underscores, that may name code on a hub: ``owner/kernel``.
_KERNEL_KEYS = ("attn_implementation", "experts_implementation", "attn_implementation_internal", "kernel_config")


@dataclass(frozen=True)
class ZooTarget:
    """``NAME``, ``NAME@weights.pth`` or ``NAME?checkpoint=weights.pth&num_classes=7&pretrained=false``."""

    model: str
    checkpoint: str | None = None
    pretrained: bool | None = None
    num_classes: int | None = None

    @classmethod
    def parse(cls, target: str) -> ZooTarget:
        stem, _, query = target.partition("?")
        model, _, checkpoint = stem.partition("@")
        arguments = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        if unknown := set(arguments) - {"checkpoint", "pretrained", "num_classes"}:
            raise ClassifierError(
                f"unknown options in {target!r}",
                found=", ".join(sorted(unknown)),
                expected="checkpoint=PATH, num_classes=NUMBER, pretrained=false",
            )
        pretrained = None
        if "pretrained" in arguments:
            pretrained = arguments["pretrained"].lower() not in ("0", "false", "no")
        num_classes = None
        if "num_classes" in arguments:
            text = arguments["num_classes"]
            if not text.isdecimal() or int(text) == 0:
                raise ClassifierError(
                    f"invalid num_classes in {target!r}", found=repr(text), expected="the number of outputs"
                )
            num_classes = int(text)
        return cls(model, checkpoint or arguments.get("checkpoint"), pretrained, num_classes)


def from_zoo(
    zoo: str,
    target: ZooTarget,
    options: Options,
    create: Callable[[bool, int | None], object],
    describe: Callable[[object], Preprocessing],
) -> Classifier:
    """A classifier of a library; ``create(pretrained, classes)`` makes the module, ``describe`` its preprocessing."""
    pretrained = options.pretrained
    if target.pretrained is not None:
        pretrained = target.pretrained
    stated_by: FactSource = "library"
    if target.checkpoint is not None:
        path = Path(target.checkpoint)
        if is_address(target.checkpoint):
            path = fetched(target.checkpoint).path
        name = f"{target.model}@{path.stem}"
        module = _filled(path, target.num_classes, options.trust, partial(create, False))
        # Someone else may have trained the weights, on other inputs than the library's: ImageNet-R's authors evaluate
        # their ResNet-50s at 256 and 224 pixels, bilinear, where timm's own weights of that name take 235, bicubic.
        stated_by = "assumed"
    elif pretrained:
        name = target.model
        module = _pretrained(zoo, target, create)
    else:
        name = f"{target.model} (random weights)"
        classes = target.num_classes
        if classes is None and options.own_labels is not None:
            classes = len(options.own_labels)
        torch = import_torch()
        # The weights are the same in every process, so that runs can be resumed.
        with seeding, torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            module = create(False, classes)
    return from_module(module, options.over(describe(module), stated_by), name=name)


def _filled(path: Path, num_classes: int | None, trust: bool, create: Callable[[int | None], object]) -> object:
    """The module with the weights of a file, which may have another number of classes than is usual."""
    weights = load_weights(path, trust=trust)
    module = create(num_classes)
    if num_classes is None:
        found_classes = classes_in_weights(module, weights)
        if found_classes is not None:
            module = create(found_classes)
    fill(module, weights, path.name)
    return module


def _pretrained(zoo: str, target: ZooTarget, create: Callable[[bool, int | None], object]) -> object:
    """The module with the library's weights, which are downloaded if they are not in its cache."""
    name = target.model
    if target.num_classes is not None:
        raise ClassifierError(
            f"the library's weights of {zoo}:{name} have their own number of classes",
            found=f"num_classes={target.num_classes}",
            hint=f"{zoo}:{name}@weights.pth?num_classes={target.num_classes} for weights on disk",
        )
    try:
        return create(True, None)
    except (OSError, RuntimeError, ValueError) as error:  # no network, or no weights of that name at all
        lines = str(error).strip().splitlines() or [""]
        raise ClassifierError(
            f"cannot download the weights of {zoo}:{name}",
            found=f"{type(error).__name__}: {lines[0][:160]}",
            expected="a network connection, or weights already in the library's cache",
            hint=f"{zoo}:{name}@weights.pth for weights on disk, or {zoo}:{name}?pretrained=false for random ones",
        ) from error


def load_timm(target: str, options: Options) -> Classifier:
    """Load ``timm:resnet50``, ``timm:resnet50@weights.pth?num_classes=7`` or ``timm:resnet50?pretrained=false``.

    ``timm:hf-hub:org/name@revision`` is a model of timm on a hub.
    """
    timm = import_timm()
    if target.startswith(_TIMM_HUB):
        return _load_timm_from_hub(timm, target.removeprefix(_TIMM_HUB), options)
    parsed = ZooTarget.parse(target)
    if ":" not in parsed.model and not timm.is_model(parsed.model):
        raise UnknownNameError("timm model", parsed.model, timm.list_models())
    if ":" in parsed.model and not options.trust and not _timm_reads_only_tensors(timm):
        raise untrusted(Path(target), "weights of a hub or folder, which these versions of timm and torch may unpickle")

    def create(pretrained: bool, classes: int | None) -> object:
        if not pretrained:
            return timm.create_model(parsed.model, pretrained=False, **_classes_argument(classes))
        with without_vain_retries():
            return timm.create_model(parsed.model, pretrained=True)

    classifier = from_zoo("timm", parsed, options, create, lambda m: from_timm(timm.data.resolve_model_data_config(m)))
    if parsed.checkpoint is None and parsed.pretrained and saw_imagenet_21k(parsed.model):
        classifier.trained_with = (IMAGENET_21K,)
    return classifier


def _load_timm_from_hub(timm: ModuleType, target: str, options: Options) -> Classifier:
    """Load a model from the files of one commit, with the preprocessing that they state."""
    repository = HubRepository.parse(target)
    if repository is None:
        raise ClassifierError(
            "not a model of timm on a hub",
            found=f"{_TIMM_HUB}{target}",
            expected=f"timm:{_TIMM_HUB}ORG/NAME[@REVISION]",
        )
    patterns = [*_HUB_FILES, "*.bin"] if options.trust else _HUB_FILES
    snapshot = fetch_snapshot(repository, "model", patterns, ClassifierError)

    def create(pretrained: bool, classes: int | None) -> object:
        return timm.create_model(f"local-dir:{snapshot.folder}", pretrained=pretrained, **_classes_argument(classes))

    parsed = ZooTarget(f"{_TIMM_HUB}{repository.name}")
    classifier = from_zoo("timm", parsed, options, create, lambda m: from_timm(timm.data.resolve_model_data_config(m)))
    classifier.downloaded_from = str(snapshot)
    return classifier


def saw_imagenet_21k(model: str) -> bool:
    """Whether timm's weights of this name were trained on ImageNet-21K or -22K, or the 12K most common classes of it.

    >>> saw_imagenet_21k("resnetv2_50x1_bit.goog_in21k_ft_in1k"), saw_imagenet_21k("resnet50.a1_in1k")
    (True, False)
    """
    if ":" in model:  # weights of a hub or a folder, whose training nobody states
        return False
    config = import_timm().models.get_pretrained_cfg(model, allow_unregistered=True)
    tag = "" if config is None else str(config.tag)
    return re.search(r"in(12|21|22)k", tag) is not None


def _timm_reads_only_tensors(timm: ModuleType) -> bool:
    """Whether timm loads weights of strangers (``hf-hub:NAME``, ``local-dir:FOLDER``) without unpickling them."""
    parameters = inspect.signature(timm.models.load_state_dict).parameters
    reads_only_tensors = "weights_only" in parameters and parameters["weights_only"].default is True
    return reads_only_tensors and can_read_tensors_safely()


def _classes_argument(classes: int | None) -> dict[str, int]:
    """The argument that states the number of classes; none if the library is to choose it."""
    if classes is None:
        return {}
    return {"num_classes": classes}


def import_timm() -> ModuleType:
    import_torchvision("timm")
    module: ModuleType = required("timm", "timm", "a model of timm")
    return module


def load_torchvision(target: str, options: Options) -> Classifier:
    """Load ``torchvision:resnet50`` (its best weights), ``torchvision:resnet50.IMAGENET1K_V1``, ``...@weights.pth``."""
    models = import_torchvision().models
    parsed = ZooTarget.parse(target)
    # No name of a model has a dot, so the weights may be named after one.
    name, _, version = parsed.model.partition(".")
    check_names("torchvision model", [name], models.list_models(module=models))
    choices = models.get_model_weights(name)
    if version and version not in choices.__members__:
        raise UnknownNameError(f"weights of {name}", version, list(choices.__members__))
    weights = choices[version or "DEFAULT"]

    def create(pretrained: bool, classes: int | None) -> object:
        if pretrained:
            return models.get_model(name, weights=weights)
        return models.get_model(name, weights=None, **_classes_argument(classes))

    return from_zoo("torchvision", parsed, options, create, lambda _: from_torchvision(weights.transforms()))


def import_torchvision(extra: str = "torchvision") -> ModuleType:
    """The module; timm and transformers import it too, so call this before them.

    A torchvision built for CUDA beside a torch built for CPU fails with "operator torchvision::nms does not
    exist", though transforms and classification models need no such operator. After that very error, and only
    then, the missing schemas are defined and the import is done again.
    """
    try:
        return importlib.import_module("torchvision")
    except ImportError as error:
        raise MissingExtraError("torchvision", extra, "this classifier") from error
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
    torch = import_torch()
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]
    if not _definitions:
        library = torch.library.Library("torchvision", "DEF")
        for schema in _SCHEMAS:
            library.define(schema)
        _definitions.append(library)  # The schemas exist only as long as this object.
    return importlib.import_module("torchvision")


def load_hf(target: str, options: Options) -> Classifier:
    """Load ``hf:FOLDER``, or ``hf:org/name@revision`` from a hub or the cache of its library."""
    stem, _, query = target.partition("?")
    repository = HubRepository.parse(stem)
    if repository is None or Path(stem).exists():
        return _load_hf_folder(target, options)
    patterns = [*_HUB_FILES, "*.bin", "*.py"] if options.trust else _HUB_FILES
    snapshot = fetch_snapshot(repository, "model", patterns, ClassifierError)
    folder = f"{snapshot.folder}?{query}" if query else str(snapshot.folder)
    name = options.name or repository.name.partition("/")[2]
    classifier = _load_hf_folder(folder, replace(options, name=name))
    classifier.downloaded_from = str(snapshot)
    return classifier


def _load_hf_folder(target: str, options: Options) -> Classifier:
    """Load a model, its image processor as a preprocessing, and its ``id2label`` as a label space.

    A pair of an image and a text encoder becomes a zero-shot model: ``hf:FOLDER?prompts=clip-80``.
    """
    stem, _, query = target.partition("?")
    folder = Path(stem)
    if not (folder / "config.json").is_file():
        raise ClassifierError(
            f"{stem} is not a folder of a transformers model",
            found="no config.json" if folder.is_dir() else "no such folder",
            hint="hf:PATH for a folder with the files of a model, hf:ORG/NAME for a model on a hub",
        )
    with raising(ClassifierError, f"config.json of {folder.name} cannot be read", OSError, ValueError):
        config = read_json(folder / "config.json")
    is_pair = _is_pair_of_encoders(config)
    if query and not is_pair:
        raise ClassifierError(f"{folder.name} has outputs for classes, so it takes no prompts", found=f"?{query}")
    if not options.trust:
        _refuse_code_from_hub(folder, config)
    # Transformers imports torchvision if it is installed, and works without it.
    if importlib.util.find_spec("torchvision") is not None:
        import_torchvision("hf")
    transformers = required("transformers", "hf", "a model of transformers")
    has_safetensors = any(folder.glob("*.safetensors"))
    if not options.trust and not has_safetensors:
        # transformers may load .bin files by pickle; ask ourselves first whether they hold only tensors.
        for file in sorted(folder.glob("*.bin")):
            load_weights(file)
    transformers.utils.logging.disable_progress_bar()  # Only our own progress bar is shown.
    automatic = "AutoModel" if is_pair else "AutoModelForImageClassification"
    module = _load_hf_module(
        transformers, automatic, folder, options.trust, only_safetensors=has_safetensors and not options.trust
    )
    options = _with_image_processor(transformers, folder, options)
    name = folder.resolve().name
    if not is_pair:
        return from_module(module, options, name=name)
    _, prompts = split_prompts(target)
    return transformers_pair(transformers, module.eval(), folder, options.trust).classifier(options, prompts, name)


def _with_image_processor(transformers: ModuleType, folder: Path, options: Options) -> Options:
    """The options with the preprocessing that the folder states, if it does."""
    path = folder / "preprocessor_config.json"
    if path.is_file():
        # The processor's complete settings are read, if it can be loaded: files of early versions leave defaults out.
        try:
            processors = transformers.AutoImageProcessor
            # Without a stated value, transformers would ask at the terminal whether to run the folder's code.
            loaded = processors.from_pretrained(folder, local_files_only=True, trust_remote_code=options.trust)
            complete = loaded.to_dict()
        except (OSError, ValueError, ImportError):
            complete = {}
        # Keys without a value are left out, so that they take their default.
        with raising(ClassifierError, f"{path.name} of {folder.name} cannot be read", OSError, ValueError):
            written = {**complete, **read_json(path)}
        processor = {key: value for key, value in written.items() if value is not None}
        return options.over(from_hf(processor), hf_sources(processor, "file"))
    return options


def _refuse_code_from_hub(folder: Path, config: Mapping[str, object]) -> None:
    """Raise ClassifierError if a configuration asks for kernels from a hub, which transformers would fetch and run."""
    pending: list[object] = [config]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += value
        if not isinstance(value, dict):
            continue
        for key, entry in value.items():
            if key.strip("_") in _KERNEL_KEYS and "/" in json.dumps(entry):
                raise untrusted(folder, f"{key} = {entry!r} in config.json, which names code on a hub")
            pending.append(entry)


def _is_pair_of_encoders(config: Mapping[str, Any]) -> bool:
    """Whether a model compares images with texts, such as CLIP and SigLIP, and has no outputs for classes."""
    architectures = [str(name) for name in config.get("architectures") or ()]
    if any(name.endswith("ForImageClassification") for name in architectures):
        return False
    return "text_config" in config and "vision_config" in config


def _load_hf_module(
    transformers: ModuleType, automatic: str, folder: Path, trust: bool, *, only_safetensors: bool
) -> Any:
    """The module with all its weights; a ClassifierError if some are missing.

    Transformers itself would fill missing weights with random numbers.
    """
    arguments: dict[str, Any] = {"local_files_only": True, "trust_remote_code": trust}
    if only_safetensors:
        # Otherwise any file of this kind in the folder would let its pickles in unchecked.
        arguments["use_safetensors"] = True
    # Tensors of another size are then reported, too, not raised as an error with advice that does not apply here.
    arguments |= {"output_loading_info": True, "ignore_mismatched_sizes": True}
    before = transformers.utils.logging.get_verbosity()
    transformers.utils.logging.set_verbosity_error()  # Our error replaces its warning.
    try:
        module, loading = getattr(transformers, automatic).from_pretrained(folder, **arguments)
    except (OSError, ValueError, RuntimeError) as error:
        raise ClassifierError(
            f"transformers failed to load {folder.name}",
            found=str(error).strip().splitlines()[0][:300],
            hint=f"models with code of their own need {argument('trust', True)}",
        ) from error
    finally:
        transformers.utils.logging.set_verbosity(before)
    tensors = module.state_dict()
    missing = []
    for name in sorted(loading["missing_keys"]):
        # Whole numbers are counters and positions, which the code computes.
        if name not in tensors or tensors[name].is_floating_point():
            missing.append(name)
    mismatched = sorted(str(entry[0]) for entry in loading["mismatched_keys"])
    if not missing and not mismatched:
        return module
    parts = []
    if missing:
        parts.append(f"without {listed(missing, 4)}")
    if mismatched:
        parts.append(f"with another size of {listed(mismatched, 4)}")
    if loading["unexpected_keys"]:
        parts.append(f"and with {listed(sorted(loading['unexpected_keys']), 4)}, which the model does not have")
    raise ClassifierError(
        f"{folder.name} does not have all weights of {type(module).__name__}",
        found=f"weights {', '.join(parts)}",
        expected="all weights of the model: a random layer would give random predictions",
        hint="save the trained classifier with save_pretrained (AutoModelForImageClassification, not AutoModel), and "
        "keep architectures and id2label of its config.json; or give the model as file.py with a factory",
    )
