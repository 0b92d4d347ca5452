"""``timm:NAME``: any of timm's models, with the preprocessing of its own configuration."""

from __future__ import annotations

import contextlib
import os
import socket
import urllib.parse
from collections.abc import Iterator
from types import ModuleType

from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.configs import from_timm
from shiftbench.classifiers.options import Options
from shiftbench.classifiers.preprocessing import Preprocessing
from shiftbench.classifiers.torchvision_ import import_torchvision
from shiftbench.classifiers.zoo import ZooTarget, from_zoo
from shiftbench.errors import UnknownNameError, required


def load_timm(target: str, options: Options) -> Classifier:
    """``timm:resnet50``, ``timm:resnet50@weights.pth``, ``timm:resnet50?pretrained=false``."""
    timm = import_timm()
    parsed = ZooTarget.parse(target)
    if ":" not in parsed.model and not timm.is_model(parsed.model):
        raise UnknownNameError("timm model", parsed.model, timm.list_models())

    def create(pretrained: bool, classes: int | None) -> object:
        extra = {} if classes is None else {"num_classes": classes}
        if not pretrained:
            return timm.create_model(parsed.model, pretrained=False, **extra)
        with _no_vain_retries():
            return timm.create_model(parsed.model, pretrained=True)

    def describe(module: object) -> Preprocessing:
        return from_timm(timm.data.resolve_model_data_config(module))

    return from_zoo("timm", parsed, options, create, describe)


def import_timm() -> ModuleType:
    import_torchvision("timm")
    module: ModuleType = required("timm", "timm", "a model of timm")
    return module


@contextlib.contextmanager
def _no_vain_retries() -> Iterator[None]:
    """Without a network the hub is asked a dozen times, for most of a minute; look only into the cache then."""
    try:
        from huggingface_hub import constants
    except ImportError:
        yield
        return
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not _reachable(constants.ENDPOINT)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _reachable(address: str) -> bool:
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return True  # the proxy resolves names for us
    parts = urllib.parse.urlsplit(address)
    try:
        socket.getaddrinfo(parts.hostname, parts.port or 443)
    except OSError:
        return False
    return True
