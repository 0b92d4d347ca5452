"""``model.pt``, ``model.pt2`` and their kin: what a file of torch holds decides how it is loaded."""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.options import Options, existing_file
from shiftbench.classifiers.policy import KnownInput
from shiftbench.classifiers.preprocessing import Layout, Normalisation
from shiftbench.classifiers.torch_ import from_module, import_torch
from shiftbench.classifiers.weights import is_exported_program, is_torchscript, load_pickled, load_weights, untrusted
from shiftbench.errors import ClassifierError
from shiftbench.io.hashing import digest, file_digest

# TorchScript is a language without imports, but it can read and write files by these.
_FILE_OPERATORS = re.compile(rb"\b(?:torch|ops\.aten)\.(save|from_file)\b")


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
