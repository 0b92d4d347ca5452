"""Keras 3: ``model.keras``, run by Keras on torch.

Only layers, initializers and the like of Keras itself are loaded from a file that is not trusted: its configuration can
name functions of any module, and some layers run code that the file contains.
"""

from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.model_files import not_one_image_input
from shiftbench.classifiers.options import KnownInput, Options, existing_file, known_inputs
from shiftbench.classifiers.torch_ import from_module, import_torch
from shiftbench.classifiers.weights import untrusted
from shiftbench.errors import ClassifierError, raising, required
from shiftbench.io.atomic import parse_json
from shiftbench.io.hashing import file_digest

if TYPE_CHECKING:
    import keras

#: Modules of Keras whose classes are plain layers, numbers and rules, and those of the models themselves.
_SAFE_MODULES = (
    "keras",
    "keras.layers",
    "keras.initializers",
    "keras.regularizers",
    "keras.constraints",
    "keras.activations",
    "keras.dtype_policies",
    "keras.models",
    "keras.src.models.functional",
    "keras.src.models.sequential",
)
#: Modules of the operations that a model uses outside of layers.
_OPERATIONS = "keras.src.ops."
#: Values that are no layers: tensors, bytes, slices.
_PLAIN_VALUES = ("__keras_tensor__", "__tensor__", "__numpy__", "__bytes__", "__ellipsis__", "__slice__")
#: Layers that run code from the file, or of another framework, or read other files.
_UNSAFE_CLASSES = (
    "Lambda",
    "TFSMLayer",
    "TorchModuleWrapper",
    "JaxLayer",
    "FlaxLayer",
    "StringLookup",
    "IntegerLookup",
    "TextVectorization",
)
#: The largest configuration that is read.
_MAX_CONFIG_BYTES = 1 << 26


def load_keras(target: str, options: Options) -> Classifier:
    """Load ``model.keras``. The file states its size, channels and layout."""
    path = existing_file(target)
    if not options.trust:
        _check_safe(path)
    library = _import_keras()
    with raising(ClassifierError, f"Keras can't load {path.name}", Exception):
        model = library.models.load_model(path, compile=False, safe_mode=not options.trust)
    return from_module(
        model,
        options,
        name=path.stem,
        weights=file_digest(path),
        known_input=_known_input(model, path.stem),
    )


def from_keras(model: keras.Model, options: Options) -> Classifier:
    """A model object of Keras on torch; its input states size, channels and layout."""
    _import_keras()
    return from_module(model, options, known_input=_known_input(model, options.name or type(model).__name__))


def _import_keras() -> ModuleType:
    """Keras on torch: the backend must be chosen before it is imported."""
    import_torch()
    if "keras" not in sys.modules:
        os.environ.setdefault("KERAS_BACKEND", "torch")
    library: ModuleType = required("keras", "keras", "a Keras model")
    backend = library.backend.backend()
    if backend != "torch":
        raise ClassifierError(
            "Keras models are run by Keras on torch",
            found=f"Keras on {backend}",
            hint="set KERAS_BACKEND=torch in the environment; or evaluate a Python function that calls the model",
        )
    return library


def _known_input(model: keras.Model, name: str) -> KnownInput:
    """What the shape of the input says; Keras files have channels last unless the shape shows otherwise."""
    shapes = [tuple(entry.shape) for entry in model.inputs]
    if len(shapes) != 1 or len(shapes[0]) != 4:
        raise not_one_image_input(name, "; ".join(map(str, shapes)))
    inputs = known_inputs(shapes[0])
    for known_input in inputs:
        if known_input.normalisation.layout == "nhwc":
            return known_input
    return inputs[0]


def _check_safe(path: Path) -> None:
    """Raise ClassifierError if the file's configuration names anything but plain parts of Keras.

    How the model was trained (its loss and optimizer) is not loaded, and may be anything; within a layer it would be.
    """
    with raising(ClassifierError, f"{path.name} is not a Keras 3 file", zipfile.BadZipFile, KeyError, ValueError):
        config = _configuration(path)
    if isinstance(config, Mapping):
        config = {key: value for key, value in config.items() if key != "compile_config"}
    for entry in _named_parts(config):
        if not _is_plain(entry):
            raise untrusted(path, f"{entry.get('module')}.{entry['class_name']}, which may run code")


def _configuration(path: Path) -> object:
    """The configuration of a model file."""
    with zipfile.ZipFile(path) as archive:
        size = archive.getinfo("config.json").file_size
        if size > _MAX_CONFIG_BYTES:
            raise ValueError(f"a configuration of {size} bytes")
        return parse_json(archive.read("config.json").decode())


def _is_plain(entry: Mapping[str, object]) -> bool:
    """Whether Keras finds a part of a configuration among its own layers, rules, operations and built-in functions.

    Keras would follow a name with dots, such as ``layers.Lambda``, from one module into another.
    """
    module = str(entry.get("module"))
    class_name = str(entry["class_name"])
    if class_name == "function":
        return module == "builtins" and str(entry.get("config")).isidentifier()
    if not class_name.isidentifier():
        return False
    if class_name in _PLAIN_VALUES:
        return True
    is_known = module in _SAFE_MODULES or module.startswith(_OPERATIONS)
    return is_known and class_name not in _UNSAFE_CLASSES


def _named_parts(config: object) -> Iterator[Mapping[str, object]]:
    """Everything in a configuration that Keras would look up by its module and name."""
    pending = [config]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += value
        elif isinstance(value, Mapping):
            if "class_name" in value:
                yield value
            pending += value.values()
