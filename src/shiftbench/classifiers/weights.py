"""Weights from files, without running code that hides in them."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shiftbench.classifiers.options import existing_file
from shiftbench.classifiers.torch_ import import_torch
from shiftbench.errors import ClassifierError, MissingExtraError, argument

# Where training scripts put the weights inside a checkpoint, the best first.
_SHELLS = ("state_dict_ema", "model_ema", "state_dict", "model_state_dict", "model", "net", "params")
# What wrappers for parallel, compiled and averaged training put before each name.
_PREFIXES = ("module.", "_orig_mod.", "model.")


def load_weights(path: str | Path, *, trust: bool = False) -> dict[str, Any]:
    """A state dict from .safetensors or a torch checkpoint; pickled code is refused unless trusted."""
    path = existing_file(path)
    if path.suffix == ".safetensors":
        return _load_safetensors(path)
    return state_dict_in(load_pickled(path, trust=trust), path)


def load_pickled(path: Path, *, trust: bool = False) -> object:
    """What ``torch.save`` wrote: tensors and plain containers; anything else only where trusted."""
    torch = import_torch()
    try:
        return torch.load(path, map_location="cpu", weights_only=not trust)
    except pickle.UnpicklingError as error:
        raise untrusted(path, _offender(error)) from error
    except Exception as error:
        raise ClassifierError(
            f"{path.name} cannot be read as a file of torch",
            found=f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200] if str(error) else ''}",
            expected="a checkpoint of tensors, TorchScript, an exported program or .safetensors",
        ) from error


def untrusted(path: Path, found: str) -> ClassifierError:
    return ClassifierError(
        f"{path.name} would run code of its own while it is loaded, so it was not loaded",
        found=found,
        expected="tensors only",
        hint="save it as .safetensors, a state dict, ONNX or an exported program; or, if you trust whoever made it, "
        f"pass {argument('trust', True)}",
    )


def state_dict_in(content: object, path: Path) -> dict[str, object]:
    """The weights inside a checkpoint, without what training wrapped around them."""
    while isinstance(content, Mapping) and not _is_state_dict(content):
        shell = next((name for name in _SHELLS if isinstance(content.get(name), Mapping)), None)
        if shell is None:
            break
        content = content[shell]
    if not isinstance(content, Mapping) or not _is_state_dict(content):
        keys = ", ".join(map(str, list(content)[:6])) if isinstance(content, Mapping) else type(content).__name__
        raise ClassifierError(
            f"{path.name} holds no state dict",
            found=keys,
            expected="names and tensors, or a checkpoint with one inside",
        )
    return dict(content)


def fill(module: Any, weights: Mapping[str, object], source: str) -> None:
    """Load weights into a module; every tensor must find its place."""
    try:
        module.load_state_dict(_renamed(weights, set(module.state_dict())))
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines()[1:]]
        raise ClassifierError(
            f"the weights of {source} do not fit {type(module).__name__}",
            found="; ".join(line[:160] for line in lines[:3]),
            hint="is it the same architecture, with the same number of classes?",
        ) from error


def _renamed(weights: Mapping[str, object], wanted: set[str]) -> dict[str, object]:
    names = dict(weights)
    for prefix in _PREFIXES:
        if names and not wanted & set(names) and all(name.startswith(prefix) for name in names):
            names = {name.removeprefix(prefix): value for name, value in names.items()}
    return names


def is_torchscript(path: Path) -> bool:
    """Archives of TorchScript carry their code as text beside the tensors."""
    return _has_member(path, "constants.pkl") and _has_member(path, "code/")


def is_exported_program(path: Path) -> bool:
    return _has_member(path, "archive_format") or _has_member(path, "serialized_exported_program.json")


def _has_member(path: Path, name: str) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            # everything lies in one top folder, whose name is free
            return any(f"/{name}" in f"/{member}" for member in archive.namelist())
    except (zipfile.BadZipFile, OSError):
        return False


def _is_state_dict(content: Mapping[object, object]) -> bool:
    torch = import_torch()
    return bool(content) and all(
        isinstance(key, str) and isinstance(value, torch.Tensor) for key, value in content.items()
    )


def _load_safetensors(path: Path) -> dict[str, object]:
    try:
        from safetensors.torch import load_file
    except ImportError as error:
        raise MissingExtraError("safetensors", "timm", "reading .safetensors") from error
    try:
        weights: dict[str, Any] = load_file(path)
    except Exception as error:
        raise ClassifierError(f"{path.name} cannot be read as safetensors", found=error) from error
    return weights


def _offender(error: pickle.UnpicklingError) -> str:
    """The line of torch's long message that names what the pickle asked for."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if "GLOBAL" in line or "Unsupported" in line]
    return (named or lines or ["pickled code"])[0][:300]
