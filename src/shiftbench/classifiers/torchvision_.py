"""``torchvision:NAME``: torchvision's classification models, with the preprocessing of their weights."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.configs import from_torchvision
from shiftbench.classifiers.options import Options
from shiftbench.classifiers.preprocessing import Preprocessing
from shiftbench.classifiers.torch_ import import_torch
from shiftbench.classifiers.zoo import ZooTarget, from_zoo
from shiftbench.errors import MissingExtraError, UnknownNameError

# Operators that such a torchvision registers fake kernels for at import, before their definition exists.
_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_definitions: list[object] = []


def load_torchvision(target: str, options: Options) -> Classifier:
    """``torchvision:resnet50`` (its best weights), ``torchvision:resnet50.IMAGENET1K_V1``, ``...@weights.pth``."""
    models = import_torchvision().models
    parsed = ZooTarget.parse(target)
    # "inception_v3" has no dot: what follows one names the weights
    name, _, version = parsed.model.partition(".")
    known = models.list_models(module=models)
    if name not in known:
        raise UnknownNameError("torchvision model", name, known)
    choices = models.get_model_weights(name)
    if version and version not in choices.__members__:
        raise UnknownNameError(f"weights of {name}", version, list(choices.__members__))
    weights = choices[version or "DEFAULT"]

    def create(pretrained: bool, classes: int | None) -> object:
        if pretrained:
            return models.get_model(name, weights=weights)
        extra = {} if classes is None else {"num_classes": classes}
        return models.get_model(name, weights=None, **extra)

    def describe(module: object) -> Preprocessing:
        return from_torchvision(weights.transforms())

    return from_zoo("torchvision", parsed, options, create, describe)


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
        _definitions.append(library)  # the schemas vanish with it
    return importlib.import_module("torchvision")
