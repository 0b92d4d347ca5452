"""Files of torch: weights, TorchScript, exported programs, pickled modules; no code that hides in them is run."""

from __future__ import annotations

import pickle
import re
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.options import Options, existing_file
from shiftbench.classifiers.policy import KnownInput
from shiftbench.classifiers.preprocessing import Layout, Normalisation
from shiftbench.classifiers.torch_ import from_module, import_torch
from shiftbench.errors import ClassifierError, argument, required
from shiftbench.io.hashing import digest, file_digest

# Where training scripts put the weights inside a checkpoint, the best first.
_SHELLS = ("state_dict_ema", "model_ema", "state_dict", "model_state_dict", "model", "net", "params")
# What wrappers for parallel, compiled and averaged training put before each name.
_PREFIXES = ("module.", "_orig_mod.", "model.")
# TorchScript is a language without imports, but it can read and write files by these.
_FILE_OPERATORS = re.compile(rb"\b(?:torch|ops\.aten)\.(save|from_file)\b")


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
    library = required("safetensors.torch", "timm", "reading .safetensors")
    try:
        weights: dict[str, Any] = library.load_file(path)
    except Exception as error:
        raise ClassifierError(f"{path.name} cannot be read as safetensors", found=error) from error
    return weights


def _offender(error: pickle.UnpicklingError) -> str:
    """The line of torch's long message that names what the pickle asked for."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if "GLOBAL" in line or "Unsupported" in line]
    return (named or lines or ["pickled code"])[0][:300]


def load_torch_file(target: str, options: Options) -> Classifier:
    """TorchScript as it is; exported programs and pickled modules where trusted; bare weights need a model."""
    path = existing_file(target)
    if path.suffix == ".safetensors":
        load_weights(path)
        raise _only_weights(path)
    if is_torchscript(path):
        return _from_torchscript(path, options)
    if is_exported_program(path):
        return _from_exported_program(path, options)
    content = load_pickled(path, trust=options.trust)
    if isinstance(content, import_torch().nn.Module):
        return from_module(content, options, name=path.stem)
    raise _only_weights(path)


def _from_torchscript(path: Path, options: Options) -> Classifier:
    if not options.trust:
        _refuse_file_operators(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # there is no other reader of such files
            module = import_torch().jit.load(str(path), map_location="cpu")
    except RuntimeError as error:
        raise ClassifierError(
            f"{path.name} cannot be read as TorchScript", found=str(error).strip().splitlines()[0][:200]
        ) from error
    return from_module(module, options, name=path.stem, weights=digest("torchscript", file_digest(path)))


def _refuse_file_operators(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            if member.endswith(".py") and (found := _FILE_OPERATORS.search(archive.read(member))):
                raise untrusted(path, f"its code calls {found.group().decode()}")


def _from_exported_program(path: Path, options: Options) -> Classifier:
    if not options.trust:
        # torch.export.load unpickles constants and evaluates the expressions of shapes.
        raise untrusted(path, "an exported program, whose loading can run code")
    torch = import_torch()
    try:
        program = torch.export.load(str(path))
    except Exception as error:
        raise ClassifierError(f"{path.name} cannot be read as an exported program", found=error) from error
    shape = _input_shape(program)
    batch = shape[0] if shape and isinstance(shape[0], int) else None
    if batch is not None:
        options = replace(options, batch_size=batch)
    weights = digest("exported", file_digest(path))
    module = program.module()
    # It knows one mode only, and would refuse to be put into it.
    module.train = module.eval = lambda *mode: module
    # A program without a dynamic batch axis can't be given one.
    known = _known_input(shape)
    return from_module(module, options, name=path.stem, weights=weights, exportable=batch is None, known=known)


def _known_input(shape: Sequence[object]) -> KnownInput | None:
    """The size that the program was exported for, unless it is dynamic."""
    if len(shape) != 4:
        return None
    layout: Layout = "nhwc" if shape[3] == 3 and shape[1] != 3 else "nchw"
    sides = shape[1:3] if layout == "nhwc" else shape[2:]
    size = tuple(side for side in sides if isinstance(side, int))
    return KnownInput((size[0], size[1]) if len(size) == 2 else None, Normalisation(layout=layout))


def _input_shape(program: Any) -> Sequence[object]:
    """The shape of its input; dynamic axes are symbols."""
    names = set(program.graph_signature.user_inputs)
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in names:
            return tuple(node.meta["val"].shape)
    return ()


def _only_weights(path: Path) -> ClassifierError:
    return ClassifierError(
        f"{path.name} holds weights without the model they belong to",
        hint=f"name the model: timm:resnet50@{path.name}, torchvision:..., or a file.py with a factory",
    )
