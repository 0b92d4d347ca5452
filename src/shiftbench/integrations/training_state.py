"""Access to a model in training without side effects."""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from shiftbench.classifiers.torch_ import unwrapped
from shiftbench.errors import ClassifierError


def is_module(model: object) -> bool:
    """Whether a model is a torch module; torch is not imported to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def copied(module: Any) -> object:
    """A copy of what ``torch.compile`` and data-parallel wrappers hold, on the same device and without gradients.

    The original is only read: its mode, memory format, buffers and hooks' state stay as they are.
    """
    import torch

    module = unwrapped(module)
    # Old-style weight norm leaves computed tensors among the attributes, which torch refuses to copy. Copies that its
    # second argument holds, by the id of the original, are not made by ``deepcopy``.
    copies: dict[int, Any] = {}
    for submodule in module.modules():
        for value in vars(submodule).values():
            if isinstance(value, torch.Tensor) and not value.is_leaf:
                copies[id(value)] = value.detach().clone()
    try:
        duplicate = copy.deepcopy(module, copies)
    except Exception as error:
        raise ClassifierError(
            f"{type(module).__name__} can't be copied, so it can't be evaluated without touching the training",
            found=f"{type(error).__name__}: {error}",
            hint="keep open files, locks and loggers out of the module's attributes, or define __deepcopy__",
        ) from error
    if duplicate.training:
        duplicate.eval()
    return duplicate


@contextmanager
def kept_random_state() -> Iterator[None]:
    """The global generators of Python, NumPy and torch (on all CUDA devices in use) are restored afterwards."""
    python_state = random.getstate()
    numpy_state = np.random.get_state()  # noqa: NPY002
    torch = sys.modules.get("torch")
    try:
        if torch is None:
            yield
        else:
            devices: Sequence[int] = ()
            if torch.cuda.is_initialized():
                devices = range(torch.cuda.device_count())
            with torch.random.fork_rng(devices=devices):
                yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
