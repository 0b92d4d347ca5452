"""torchvision, also where its build expects a GPU that torch does not have."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from shiftbench.classifiers.torch_ import import_torch
from shiftbench.errors import MissingExtraError

# Operators that such a torchvision registers fake kernels for at import, before their definition exists.
_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_definitions: list[Any] = []


def import_torchvision(extra: str = "torchvision") -> Any:
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
