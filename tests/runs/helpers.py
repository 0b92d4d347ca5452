"""Small real pieces for run tests: pictures on disk and classifiers that are plain functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from shiftbench.arrays import Pixels
from shiftbench.labels.space import LabelSpace
from shiftbench.shifts.base import Shift

COLOURS = LabelSpace("colours", ("red", "green", "blue"))


def colour_folder(root: Path, per_class: int = 20, size: int = 40, seed: int = 0) -> Path:
    """Noisy red, green and blue pictures; the classes are told apart by their brightest channel."""
    rng = np.random.default_rng(seed)
    for channel, name in enumerate(COLOURS.keys):
        (root / name).mkdir(parents=True)
        for i in range(per_class):
            pixels = rng.integers(0, 120, (size, size + i % 7, 3))
            pixels[..., channel] += rng.integers(10, 100)
            Image.fromarray(pixels.astype(np.uint8)).save(root / name / f"{i:03d}.png")
    return root


def brightest_channel(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """A classifier: the mean of each channel as its score."""
    means: NDArray[np.float32] = images.mean(axis=(1, 2)).astype(np.float32) / 20
    return means


def write_onnx_model(path: Path) -> None:
    """The mean of each channel of (N, 3, 32, 32), in the order of the class folders: blue, green, red."""
    import onnx
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("GlobalAveragePool", ["images"], ["means"]),
        helper.make_node("Flatten", ["means"], ["flat"]),
        helper.make_node("Gather", ["flat", "order"], ["scores"], axis=1),
    ]
    order = helper.make_tensor("order", TensorProto.INT64, [3], [2, 1, 0])
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["N", 3, 32, 32])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", 3])
    graph = helper.make_graph(nodes, "light", [images], [scores], [order])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)


def darkest_channel(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    return -brightest_channel(images)


class Broken(Shift):
    """A shift that fails on every picture."""

    name = "broken"

    def __call__(self, image: Pixels, *, image_id: str, seed: int) -> Pixels:
        raise ValueError("a leak in the roof")

    def describe(self) -> dict[str, Any]:
        return {"shift": "broken"}
