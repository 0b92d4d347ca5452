"""``torchvision:NAME``: torchvision's classification models, with the preprocessing of their weights."""

from __future__ import annotations

from typing import Any

from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.configs import from_torchvision
from shiftbench.classifiers.options import Options
from shiftbench.classifiers.preprocessing import Preprocessing
from shiftbench.classifiers.torchvision_import import import_torchvision
from shiftbench.classifiers.zoo import ZooTarget, from_zoo
from shiftbench.errors import UnknownNameError


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

    def create(pretrained: bool, classes: int | None) -> Any:
        if pretrained:
            return models.get_model(name, weights=weights)
        extra = {} if classes is None else {"num_classes": classes}
        return models.get_model(name, weights=None, **extra)

    def describe(module: Any) -> Preprocessing:
        return from_torchvision(weights.transforms())

    return from_zoo("torchvision", parsed, options, create, describe)
