"""Files of torch: weights, TorchScript, exported programs, pickled modules.

Only tensors are read from a file that is not trusted. All other contents are refused as a whole: TorchScript runs code
while it is loaded (``__setstate__``) and can write files, pickles can call anything, and exported programs contain
pickles. No search of the code could prove that it is harmless.
"""

from __future__ import annotations

import pickle
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.options import Options, existing_file, known_inputs
from shiftbench.classifiers.torch_ import from_module, import_torch
from shiftbench.errors import ClassifierError, argument, listed, raising, required
from shiftbench.io.hashing import digest, file_digest

T = TypeVar("T")
# The keys under which training scripts put the weights into a checkpoint, the best weights first.
_SHELLS = ("state_dict_ema", "model_ema", "state_dict", "model_state_dict", "model", "net", "params")
# The prefixes that wrappers for parallel, compiled and averaged training put before each name.
_PREFIXES = ("module.", "_orig_mod.", "model.")
# Earlier versions of torch run the TorchScript in a file that is to be loaded with ``weights_only`` (CVE-2025-32434).
_FIRST_SAFE_TORCH = (2, 6)


def load_weights(path: str | Path, *, trust: bool = False) -> dict[str, Any]:
    """A state dict from .safetensors or a torch checkpoint, without what training wrapped around it.

    Raises ClassifierError if there is none, or if the file contains pickled code and is not trusted.
    """
    path = existing_file(path)
    if path.suffix == ".safetensors":
        library = required("safetensors.torch", "timm", "reading .safetensors")
        with raising(ClassifierError, f"{path.name} cannot be read as safetensors", Exception):
            return dict(library.load_file(path))
    content = load_pickled(path, trust=trust)
    while isinstance(content, Mapping) and not _is_state_dict(content):
        shell = next((name for name in _SHELLS if isinstance(content.get(name), Mapping)), None)
        if shell is None:
            break
        content = content[shell]
    if isinstance(content, Mapping) and _is_state_dict(content):
        return dict(content)
    description = type(content).__name__
    if isinstance(content, Mapping):
        description = listed(map(str, content), 6)
    raise ClassifierError(
        f"{path.name} holds no state dict",
        found=description,
        expected="names and tensors, or a checkpoint with one inside",
    )


def _is_state_dict(content: Mapping[Any, object]) -> bool:
    tensor = import_torch().Tensor
    return bool(content) and all(isinstance(key, str) and isinstance(content[key], tensor) for key in content)


def load_pickled(path: Path, *, trust: bool = False) -> object:
    """What ``torch.save`` wrote: tensors and plain containers, and anything else only if the file is trusted."""
    torch = import_torch()
    if not trust and not can_read_tensors_safely():
        raise ClassifierError(
            f"{path.name} was not loaded: this version of torch may run code while it reads tensors",
            found=f"torch {torch.__version__}",
            expected="torch 2.6 or later",
            hint=f"pip install 'torch>=2.6', or pass {argument('trust', True)} if you trust its author",
        )
    try:
        return torch.load(path, map_location="cpu", weights_only=not trust)
    except pickle.UnpicklingError as error:
        raise untrusted(path, _pickled_code(error)) from error
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        raise ClassifierError(
            f"{path.name} cannot be read as a file of torch",
            found=f"{type(error).__name__}: {lines[0][:200]}",
            expected="a checkpoint of tensors, TorchScript, an exported program or .safetensors",
        ) from error


def can_read_tensors_safely() -> bool:
    """Whether this version of torch runs no code from a file while it reads the tensors in it."""
    # The version may end with a suffix such as ``+cpu``.
    major, minor = str(import_torch().__version__).split(".")[:2]
    return (int(major), int(minor)) >= _FIRST_SAFE_TORCH


def _pickled_code(error: pickle.UnpicklingError) -> str:
    """The line of torch's long message that names what the pickle asked for."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if "GLOBAL" in line or "Unsupported" in line]
    line = (named or lines or ["pickled code"])[0]
    return line.partition(". Please use")[0][:300]


def untrusted(path: Path, content: str) -> ClassifierError:
    """The error about a file whose ``content`` could run code."""
    return ClassifierError(
        f"{path.name} was not loaded: loading it can run code that it contains",
        found=content,
        expected="tensors only",
        hint=f"pass {argument('trust', True)} if you trust its author; otherwise ask for the model as ONNX (its author "
        "exports it by torch.onnx.export), or for its weights as .safetensors: these contain no code",
    )


def classes_in_weights(module: Any, weights: Mapping[str, Any]) -> int | None:
    """The number of classes that weights were trained for, where that is clear and not the module's own number.

    It is clear if the weights fit the module but for tensors whose number of rows differs, and all of these have the
    same number: the last layer's, and those of auxiliary classifiers.
    """
    tensors = module.state_dict()
    weights = _without_prefixes(weights, set(tensors))
    if set(weights) != set(tensors):
        return None
    rows: set[int] = set()
    for name, tensor in weights.items():
        expected = tuple(tensors[name].shape)
        shape = tuple(tensor.shape)
        if shape == expected:
            continue
        if not shape or len(shape) != len(expected) or shape[1:] != expected[1:]:
            return None
        rows.add(shape[0])
    if len(rows) != 1:
        return None
    return rows.pop()


def fill(module: Any, weights: Mapping[str, object], source: str) -> None:
    """Load weights into a module; a ClassifierError if their names or shapes differ from those of the module."""
    tensors = _without_prefixes(weights, set(module.state_dict()))
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines()[1:]]
        raise ClassifierError(
            f"the weights of {source} do not fit {type(module).__name__}",
            found="; ".join(line[:160] for line in lines[:3]),
            hint="is it the same architecture, with the same number of classes (?num_classes=NUMBER behind the file)? "
            "For layers with other names, give the model as file.py with a factory",
        ) from error


def _without_prefixes(weights: Mapping[str, T], expected: set[str]) -> dict[str, T]:
    """Weights under the names that a module expects, without what wrappers put before all of them."""
    tensors = dict(weights)
    for prefix in _PREFIXES:
        if tensors and not expected & set(tensors) and all(name.startswith(prefix) for name in tensors):
            tensors = {name.removeprefix(prefix): value for name, value in tensors.items()}
    return tensors


def load_torch_file(target: str, options: Options) -> Classifier:
    """Load TorchScript, an exported program or a pickled module if the file is trusted; weights alone are refused."""
    path = existing_file(target)
    members = _members(path)
    if path.suffix == ".safetensors":
        load_weights(path)  # This reports a damaged file before the missing model is reported.
    elif _has(members, "constants.pkl") and _has(members, "code/"):
        # TorchScript carries its code as text beside the tensors.
        return _from_torchscript(path, options)
    elif _has(members, "archive_format") or _has(members, "serialized_exported_program.json"):
        return _from_exported_program(path, options)
    else:
        content = load_pickled(path, trust=options.trust)
        if isinstance(content, import_torch().nn.Module):
            return from_module(content, options, name=path.stem)
    raise ClassifierError(
        f"{path.name} holds weights without the model they belong to",
        hint=f"name the model: timm:resnet50@{path.name}, torchvision:..., or a file.py with a factory",
    )


def _members(path: Path) -> list[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (zipfile.BadZipFile, OSError):
        return []


def _has(members: Sequence[str], name: str) -> bool:
    """Whether an archive has a file or folder of this name in its top folder, which may have any name."""
    return any(f"/{name}" in f"/{member}" for member in members)


def _from_torchscript(path: Path, options: Options) -> Classifier:
    if not options.trust:
        raise untrusted(path, "TorchScript, whose code runs when it is loaded and can write files")
    torch = import_torch()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # There is no other reader of these files.
            module = torch.jit.load(str(path), map_location="cpu")
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0][:200]
        raise ClassifierError(f"{path.name} cannot be read as TorchScript", found=reason) from error
    return from_module(module, options, name=path.stem, weights=digest("torchscript", file_digest(path)))


def _from_exported_program(path: Path, options: Options) -> Classifier:
    if not options.trust:
        # torch.export.load unpickles constants and evaluates the expressions of shapes.
        raise untrusted(path, "an exported program, whose loading can run code")
    torch = import_torch()
    with raising(ClassifierError, f"{path.name} cannot be read as an exported program", Exception):
        program = torch.export.load(str(path))
    # Weights are placeholders of the graph as well; the user's inputs are those that the signature names.
    inputs = set(program.graph_signature.user_inputs)
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    input_nodes = [node for node in placeholders if node.name in inputs]
    shape = tuple(input_nodes[0].meta["val"].shape) if input_nodes else ()
    # A dynamic axis is a symbol; a program whose batch axis is a number can't be given a dynamic one.
    has_fixed_batch = bool(shape) and isinstance(shape[0], int)
    if has_fixed_batch:
        options = replace(options, batch_size=shape[0])
    known_input = known_inputs(shape)[0] if len(shape) == 4 else None
    module = program.module()
    # An exported program has only one mode, and its methods train and eval raise an error.
    module.train = module.eval = lambda *mode: module
    return from_module(
        module,
        options,
        name=path.stem,
        weights=digest("exported", file_digest(path)),
        exportable=not has_fixed_batch,
        known_input=known_input,
    )
