"""The loaders that come with the package, by scheme and extension; each is imported when it is used."""

from __future__ import annotations

import importlib

from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.loading import Loader, classifier_loaders
from shiftbench.classifiers.options import Options

#: Scheme or extension, module of this package, function in it, and what `list classifiers` shows.
LOADERS: tuple[tuple[str, str, str, str], ...] = (
    ("demo", "demo", "load_demo", "A real classifier that registry packages carry: demo:efficientnet-lite0."),
    ("timm", "timm_", "load_timm", "A model of timm: timm:resnet50, or timm:resnet50@weights.pth."),
    ("torchvision", "torchvision_", "load_torchvision", "A model of torchvision, likewise."),
    ("hf", "hf", "load_hf", "A Hugging Face image classifier in a local folder: hf:FOLDER."),
    (".onnx", "onnx_", "load_onnx", "An ONNX model."),
    (".pt", "torch_file", "load_torch_file", "A TorchScript file or a state dict; never unpickled without --trust."),
    (".pth", "torch_file", "load_torch_file", "As .pt."),
    (".pt2", "torch_file", "load_torch_file", "An exported program of torch.export."),
    (".ts", "torch_file", "load_torch_file", "A TorchScript file."),
    (".bin", "torch_file", "load_torch_file", "As .pt."),
    (".safetensors", "torch_file", "load_torch_file", "Weights; they need a model to go into: timm:NAME@FILE."),
    (".pkl", "python_file", "load_pickled_object", "A pickled estimator or module; only with --trust."),
    (".joblib", "python_file", "load_pickled_object", "As .pkl."),
    (".py", "python_file", "load_python_file", "Your own code: model.py, or model.py:factory."),
    (".csv", "recorded", "load_recorded", "Predictions made elsewhere: id, prediction, confidence or scores."),
    (".parquet", "recorded", "load_recorded", "As .csv."),
    (".npz", "recorded", "load_recorded", "As .csv, with arrays ids and top or scores."),
)


def _lazy(module: str, function: str, about: str) -> Loader:
    def load(target: str, options: Options) -> Classifier:
        loader: Loader = getattr(importlib.import_module(f"shiftbench.classifiers.{module}"), function)
        return loader(target, options)

    load.__name__, load.__doc__ = function, about
    return load


for _key, _file, _function, _about in LOADERS:
    classifier_loaders.add(_key, _lazy(_file, _function, _about))
