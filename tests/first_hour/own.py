"""A stranger's own classes, images of 32 pixels, and small models of them whose true accuracy is known.

The images are gratings: the class is the direction, the colours are unlike ImageNet's, and the noise keeps every model
short of 100 %. The network normalises by the mean and std of its own training images, which no file of it contains.
Imports only NumPy and Pillow, and torch or scikit-learn where they are asked for: the soak test runs it in an
environment that has nothing else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

CLASSES = ("across", "rising", "upright")
SIZE = 32


def make_images(count: int, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """``count`` images of each class: uint8 (N, 32, 32, 3), and their labels."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[0:SIZE, 0:SIZE]
    labels = np.repeat(np.arange(len(CLASSES)), count)
    images = np.empty((len(labels), SIZE, SIZE, 3), np.uint8)
    for i, label in enumerate(labels):
        angle = np.pi / 4 * label + rng.normal(0, 0.28)
        wave = np.sin((np.cos(angle) * rows + np.sin(angle) * columns) * rng.uniform(0.9, 1.3) + rng.uniform(0, 6))
        tilt = 3 * (label - 1) * columns / SIZE  # for models of pixels
        light = (60, 40, 10) + wave[..., None] * (6, 11, 16) + tilt[..., None]
        images[i] = np.clip(light + rng.normal(0, 12, (SIZE, SIZE, 3)), 0, 255)
    return images, labels


def write_folder(folder: Path, images: NDArray[np.uint8], labels: NDArray[np.int64]) -> Path:
    """One folder per class, PNG files."""
    for i, (image, label) in enumerate(zip(images, labels, strict=True)):
        path = folder / CLASSES[label] / f"{i:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    return folder


def statistics(images: NDArray[np.uint8]) -> tuple[list[float], list[float]]:
    """Mean and std per channel of pixels in [0, 1], rounded as a paper would print them."""
    pixels = images.reshape(-1, 3) / 255
    return [round(float(v), 4) for v in pixels.mean(axis=0)], [round(float(v), 4) for v in pixels.std(axis=0)]


def train_network(images: NDArray[np.uint8], labels: NDArray[np.int64]) -> tuple[Any, list[float], list[float]]:
    """A convolutional network that accepts any size, so that a wrong one goes unnoticed; its mean and std."""
    import torch
    from torch import nn

    mean, std = statistics(images)
    inputs = torch.from_numpy(((images / 255 - mean) / std).astype(np.float32)).permute(0, 3, 1, 2)
    targets = torch.from_numpy(labels)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = nn.Sequential(
            *(nn.Conv2d(3, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 12, 3, stride=2), nn.ReLU()),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, len(CLASSES))),
        )
        optimiser = torch.optim.Adam(network.parameters(), 0.01)
        for _ in range(80):
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(inputs), targets).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    return network.eval(), mean, std


def network_scores(network: Any, mean: list[float], std: list[float], images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """What the training script of the stranger computes."""
    import torch

    with torch.inference_mode():
        inputs = torch.from_numpy(((images / 255 - mean) / std).astype(np.float32)).permute(0, 3, 1, 2)
        scores: NDArray[np.float32] = network(inputs).numpy()
    return scores


def export(network: Any, path: Path, *, dynamic: bool = False, nhwc: bool = False, half: bool = False) -> Path:
    """ONNX with a dynamic batch; ``dynamic``: any size; ``nhwc``: channels last; ``half``: float16."""
    import copy

    import torch

    class ChannelsLast(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network

        def forward(self, images: Any) -> Any:
            return self.inner(images.permute(0, 3, 1, 2))

    module = ChannelsLast() if nhwc else copy.deepcopy(network)
    example = torch.zeros((2, SIZE, SIZE, 3) if nhwc else (2, 3, SIZE, SIZE))
    if half:
        module = module.half()
        example = example.half()
    axes = {0: "batch", 2: "height", 3: "width"} if dynamic else {0: "batch"}
    torch.onnx.export(
        module.eval(),
        (example,),
        str(path),
        dynamo=False,
        input_names=["images"],
        dynamic_axes={"images": axes},
    )
    return path
