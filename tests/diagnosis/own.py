"""Networks and images on which nothing of the doctor was tuned, and ways to miswire them.

A network trained here on CIFAR-10's training images 0 to 39,999 (the doctor gets images from 40,000 on, its fix is
evaluated on others), one of scikit-learn's handwritten digits, which are grey, and the photographs of the demo.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx.helper import make_node
from onnx.numpy_helper import from_array
from PIL import Image

from shiftbench.arrays import Pixels
from shiftbench.classifiers.description import parse_description, read_description
from shiftbench.classifiers.preprocessing import Normalisation, Preprocessing

#: How both networks are trained.
PLAIN = "mean=0,std=1,scale=1/255"


def train(images: Pixels, labels: NDArray[Any], path: Path, epochs: int, widths: Sequence[int], mirror: bool) -> Path:
    """A small convolutional network on pixels from 0 to 1, as an ONNX file for any batch and input size."""
    import torch
    from torch import nn

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers: list[nn.Module] = []
        for i, (before, width) in enumerate(zip((3, *widths), widths, strict=False)):
            layers += [nn.Conv2d(before, width, 3, 2 - i % 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        head = nn.Linear(widths[-1], int(labels.max()) + 1)
        network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)
        inputs = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
        targets = torch.from_numpy(labels.astype(np.int64))
        optimiser = torch.optim.SGD(network.parameters(), 0.2, 0.9, nesterov=True, weight_decay=5e-4)
        batches = len(images) // 128
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.2, epochs * batches)
        for step in range(epochs * batches):
            if step % batches == 0:
                order = torch.randperm(len(images))
            rows = order[step % batches * 128 :][:128]
            batch = inputs[rows].float() / 255
            batch = batch.flip(3) if mirror and step % 2 else batch
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(batch), targets[rows]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
    torch.onnx.export(
        network.eval(),
        (torch.zeros(2, 3, *images.shape[1:3]),),
        str(path),
        dynamo=False,
        input_names=["images"],
        output_names=["scores"],
        dynamic_axes={"images": {0: "n", 2: "height", 3: "width"}, "scores": {0: "n"}},
    )
    return path


def digits() -> tuple[Pixels, NDArray[Any]]:
    """1,797 grey digits, 28 x 28 pixels."""
    from sklearn.datasets import load_digits

    found = load_digits()
    small = [Image.fromarray((image * 255 / 16).astype(np.uint8)) for image in found.images]
    grey = np.stack([np.asarray(one.resize((28, 28), Image.Resampling.BICUBIC)) for one in small])
    return np.ascontiguousarray(grey[..., None].repeat(3, axis=3)), found.target


def stated(text: str) -> Preprocessing:
    """A preprocessing as the command line reads it."""
    return read_description(parse_description(text)).over(Preprocessing())


def made_for(
    source: Path, target: Path, right: str, *, native: str = PLAIN, turn: str = "", gamma: float = 1.0
) -> Path:
    """The network as if it had been trained with the preprocessing ``right`` (values, colours and layout).

    Args:
        source: Network in NCHW and RGB.
        target: The new file.
        right: What the new file's input is.
        native: What the input of ``source`` is.
        turn: "transposed" or "upside down": how its training images were.
        gamma: Exponent of its training images.
    """
    wanted = stated(right).normalisation
    own = stated(native).normalisation
    model = onnx.load(source)
    entry = model.graph.input[0]
    was = entry.name
    entry.name = "fed"
    channels = [2, 1, 0] if wanted.colour_order == "bgr" else [0, 1, 2]
    constants = _affine(wanted, own, channels)
    nodes: list[tuple[str, list[str], dict[str, Any]]] = []
    if wanted.layout == "nhwc":
        nodes.append(("Transpose", [], {"perm": [0, 3, 1, 2]}))
        sides = entry.type.tensor_type.shape.dim
        for place, name in ((1, "height"), (2, "width")):
            sides[place].Clear()
            sides[place].dim_param = name
        sides[3].Clear()
        sides[3].dim_value = 3
    nodes += [("Gather", ["channels"], {"axis": 1}), ("Mul", ["gain"], {}), ("Add", ["offset"], {})]
    if gamma != 1:
        constants["floor"], constants["gamma"] = np.array(0, np.float32), np.array(gamma, np.float32)
        nodes += [("Max", ["floor"], {}), ("Pow", ["gamma"], {})]
    if turn == "transposed":
        nodes.append(("Transpose", [], {"perm": [0, 1, 3, 2]}))
    elif turn:
        constants |= {
            "first": np.array([-1]),
            "last": np.array([-(2**31)]),
            "axis": np.array([2]),
            "step": np.array([-1]),
        }
        nodes.append(("Slice", ["first", "last", "axis", "step"], {}))
    names = ["fed", *(f"fed{i}" for i in range(1, len(nodes))), was]
    for i, (kind, others, options) in enumerate(nodes):
        model.graph.node.insert(i, make_node(kind, [names[i], *others], [names[i + 1]], **options))
    model.graph.initializer.extend(from_array(value, name) for name, value in constants.items())
    onnx.save(model, target)
    return target


def _affine(wanted: Normalisation, own: Normalisation, channels: list[int]) -> dict[str, NDArray[Any]]:
    """y = gain p - offset of the new input as the old one; planes are put into the order R, G, B first."""
    gain, offset = (np.asarray(one, np.float64)[channels] for one in (wanted.gain, wanted.offset))
    scale = own.gain / gain
    shape = (3, 1, 1)
    return {
        "channels": np.array(channels),
        "gain": scale.astype(np.float32).reshape(shape),
        "offset": (offset * scale - own.offset).astype(np.float32).reshape(shape),
    }


def write_folder(folder: Path, images: Sequence[Pixels], labels: NDArray[Any], names: Sequence[str]) -> Path:
    """One folder per class, PNG files."""
    for i, (image, label) in enumerate(zip(images, labels, strict=True)):
        path = folder / names[label] / f"{i:05}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path, compress_level=1)
    return folder
