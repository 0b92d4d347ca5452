"""Networks of timm for pictures of 224 pixels, from nothing or from given weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from shiftbench.classifiers.timm_ import import_timm
from shiftbench.classifiers.weights import fill, load_weights
from shiftbench.errors import UnknownNameError
from shiftbench.hardening.architectures.checks import ArchitectureError, check_flag, check_whole


def timm_network(*, classes: int, model: str, pretrained: bool, weights: str | Path | None) -> nn.Module:
    """``weights``: a file (.safetensors, or tensors that torch saved); of other classes, all but its head is used."""
    check_whole("classes", classes)
    check_flag("pretrained", pretrained)
    if pretrained and weights is not None:
        raise ArchitectureError(
            "weights come from one place", found="pretrained = true and a file", hint="leave one of them out"
        )
    timm = import_timm()
    if not timm.is_model(model):
        raise UnknownNameError("timm model", model, timm.list_models())
    if weights is None:
        network: nn.Module = timm.create_model(model, pretrained=pretrained, num_classes=classes)
        return network
    return _with_weights(timm, model, classes, Path(weights))


def _with_weights(timm: Any, model: str, classes: int, path: Path) -> nn.Module:
    state = load_weights(path)
    network = timm.create_model(model, num_classes=classes)
    trained = _classes_of(state, network.pretrained_cfg.get("classifier"))
    if trained in (None, classes):
        fill(network, state, path.name)
    else:
        network = timm.create_model(model, num_classes=trained)
        fill(network, state, path.name)
        network.reset_classifier(classes)
    made: nn.Module = network
    return made


def _classes_of(state: Mapping[str, Any], heads: str | tuple[str, ...] | None) -> int | None:
    """How many classes the weights were trained for; a few networks have two heads, of as many classes."""
    head = heads if isinstance(heads, str) or not heads else heads[0]
    return next((len(state[name]) for name in state if head and name.endswith(f"{head}.bias")), None)
