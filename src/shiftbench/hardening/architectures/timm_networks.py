"""Networks of timm for images of 224 pixels, with random or given weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from shiftbench.classifiers.timm_ import import_timm
from shiftbench.classifiers.weights import fill, load_weights
from shiftbench.errors import UnknownNameError
from shiftbench.hardening.architectures.base import architectures
from shiftbench.hardening.errors import ArchitectureError
from shiftbench.io.schema import Count


@architectures.register("timm")
def timm_network(
    *,
    classes: Count,
    model: str = "resnet50",
    pretrained: bool = False,
    weights: str | None = None,
    options: dict[str, Any] | None = None,
) -> nn.Module:
    """Any network of timm, for images of 224 pixels; with random weights unless others are requested.

    ``weights``: a file (.safetensors, or tensors saved by torch); of other classes, all but its head is used.
    ``options``: keyword arguments of timm's ``create_model``, such as ``drop_path_rate``.
    """
    if pretrained and weights is not None:
        raise ArchitectureError(
            "pretrained weights and a file of weights exclude each other",
            found="pretrained = true and a file",
            hint="leave one of them out",
        )
    timm = import_timm()
    if not timm.is_model(model):
        raise UnknownNameError("timm model", model, timm.list_models())
    given = options or {}
    if weights is None:
        network: nn.Module = timm.create_model(model, pretrained=pretrained, num_classes=classes, **given)
        return network
    return _with_weights(timm, model, classes, Path(weights), given)


def _with_weights(timm: ModuleType, model: str, classes: int, path: Path, given: Mapping[str, Any]) -> nn.Module:
    state = load_weights(path)
    network = timm.create_model(model, num_classes=classes, **given)
    trained = _classes_of(state, network.pretrained_cfg.get("classifier"))
    if trained in (None, classes):
        fill(network, state, path.name)
    else:
        network = timm.create_model(model, num_classes=trained, **given)
        fill(network, state, path.name)
        network.reset_classifier(classes)
    made: nn.Module = network
    return made


def _classes_of(state: Mapping[str, Any], heads: str | tuple[str, ...] | None) -> int | None:
    """How many classes the weights were trained for; a few networks have two heads, of as many classes."""
    head = heads if isinstance(heads, str) or not heads else heads[0]
    return next((len(state[name]) for name in state if head and name.endswith(f"{head}.bias")), None)
