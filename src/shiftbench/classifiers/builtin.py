"""The loaders that come with the package, by scheme and extension; each is imported when it is used."""

from __future__ import annotations

import importlib

from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.loading import Loader, classifier_loaders
from shiftbench.classifiers.options import Options

#: Scheme or extension, module of this package, function in it.
LOADERS: tuple[tuple[str, str, str], ...] = (
    ("demo", "demo", "load_demo"),
    ("timm", "timm_", "load_timm"),
    ("torchvision", "torchvision_", "load_torchvision"),
    ("hf", "hf", "load_hf"),
    (".onnx", "onnx_", "load_onnx"),
    (".pt", "torch_file", "load_torch_file"),
    (".pth", "torch_file", "load_torch_file"),
    (".pt2", "torch_file", "load_torch_file"),
    (".ts", "torch_file", "load_torch_file"),
    (".bin", "torch_file", "load_torch_file"),
    (".safetensors", "torch_file", "load_torch_file"),
    (".pkl", "pickled", "load_pickled_object"),
    (".joblib", "pickled", "load_pickled_object"),
    (".py", "python_file", "load_python_file"),
    (".csv", "recorded", "load_recorded"),
    (".parquet", "recorded", "load_recorded"),
    (".npz", "recorded", "load_recorded"),
)


def _lazy(module: str, function: str) -> Loader:
    def load(target: str, options: Options) -> Classifier:
        loader: Loader = getattr(importlib.import_module(f"shiftbench.classifiers.{module}"), function)
        return loader(target, options)

    load.__name__ = function
    return load


for _key, _file, _function in LOADERS:
    classifier_loaders.add(_key, _lazy(_file, _function))
