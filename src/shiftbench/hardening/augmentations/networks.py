"""Image-to-image networks: one file each, which carries a description of how its weights came to be.

The weights are given (our own files, or the published ones of EDSR and the compressive auto-encoder) or trained on
the user's images in minutes (``network_training.py``).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

import cv2
import numpy as np
import torch
from msgspec import Meta
from torch import Tensor, nn

from shiftbench.arrays import Pixels
from shiftbench.classifiers.weights import fill, load_weights
from shiftbench.errors import ClassifierError, MissingExtraError
from shiftbench.hardening.errors import NetworkError
from shiftbench.io.atomic import write_atomically
from shiftbench.registry import Registry

#: The short side of an image that is fed to a network; the strides leave nothing of a smaller one.
FedSize = Annotated[int, Meta(ge=16, le=4096)]
_METADATA = "shiftbench"


class ImageNetwork(nn.Module, ABC):
    """Pixels in, pixels out; knows its own options, how it is trained and the size of image that it is fed."""

    kind: ClassVar[str]
    #: The short side of an image that is fed to it.
    size: int
    #: The side of the squares that it is trained on.
    crop: ClassVar[int]
    #: How often, by default.
    steps: ClassVar[int]
    #: Of Adam, at its highest.
    rate: ClassVar[float]

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options
        #: How its weights came to be; nothing is known of published ones.
        self.description: dict[str, Any] = {}

    @classmethod
    @abstractmethod
    def options_of(cls, weights: Mapping[str, Tensor]) -> dict[str, object] | None:
        """The options with which weights of such names and shapes fit; None if they are of another kind."""

    @classmethod
    @abstractmethod
    def suited(cls, side: int) -> tuple[dict[str, object], int]:
        """Options of a network that minutes can train, and its size, for images with a short side of ``side``."""

    @abstractmethod
    def training_side(self, size: int, side: int) -> int:
        """To which short side images (of a short side of ``side``) are brought for the training."""

    @abstractmethod
    def loss(self, pictures: Tensor, generator: np.random.Generator) -> Tensor:
        """What training lowers, for a batch of squares in [0, 1]."""

    @abstractmethod
    def measure(self, pictures: Tensor, generator: np.random.Generator) -> dict[str, float]:
        """How well it works undistorted; "psnr" is among the measures."""

    def fed(self, size: int | None) -> int:
        """The size asked for, else its own."""
        return self.size if size is None else size

    def prepare(self, pictures: Tensor) -> None:
        """Called once before the training, with some of its images."""

    def finish(self, pictures: Tensor) -> None:
        """Called once after the training, with some of its images."""


#: The kinds, by the name that files and options use.
image_networks: Registry[type[ImageNetwork]] = Registry(
    "image-to-image network",
    builtin=(
        "shiftbench.hardening.augmentations.deepaugment.edsr",
        "shiftbench.hardening.augmentations.deepaugment.cae",
        "shiftbench.hardening.augmentations.stylize",
    ),
)

N = TypeVar("N", bound=ImageNetwork)


def save_network(network: ImageNetwork, path: str | Path) -> Path:
    """As safetensors, all of it or nothing."""
    try:
        from safetensors.torch import save_file
    except ImportError as error:
        raise MissingExtraError("safetensors", "hardening", "writing .safetensors") from error
    path = Path(path)
    if path.suffix != ".safetensors":
        raise NetworkError(f"a network cannot be saved as {path.name}", expected="a name that ends in .safetensors")
    about = json.dumps({"kind": network.kind, "size": network.size, "description": network.description})
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}
    write_atomically(path, lambda temporary: save_file(weights, temporary, metadata={_METADATA: about}))
    return path


def load_network(path: str | Path, expected: type[N]) -> N:
    """From our own file or the published weights; no code that a file brings is run."""
    path = Path(path).expanduser()
    try:
        weights = load_weights(path)
    except ClassifierError as error:
        raise NetworkError(
            f"{path.name} holds no network: {error.message}",
            found=error.found,
            expected=f"weights of {expected.kind}: .safetensors, or a state dict of torch with nothing but tensors",
            hint="train one on your own images: network_for(...) or `shiftbench harden augment --train-network`",
        ) from error
    options = expected.options_of(weights)
    if options is None:
        raise _other_kind(path, weights, expected)
    network = expected(**options)
    try:
        fill(network, weights, path.name)
    except ClassifierError as error:
        raise NetworkError(error.message, found=error.found, expected=f"{expected.kind} with {options}") from error
    about = _about(path)
    network.size = int(about.get("size", expected.size))
    network.description = about.get("description", {})
    return network.eval().requires_grad_(False)


def describe_network(path: str | Path) -> dict[str, object]:
    """What a file of ours says about its network, without loading it."""
    description: dict[str, object] = _about(Path(path)).get("description", {})
    return description


def _about(path: Path) -> dict[str, Any]:
    if path.suffix != ".safetensors":
        return {}
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        text = (file.metadata() or {}).get(_METADATA, "{}")
    try:
        about = json.loads(text)
        if int(about.get("size", 1)) < 1 or not isinstance(about.get("description", {}), dict):
            raise ValueError("impossible values")
    except (ValueError, TypeError, AttributeError) as error:
        raise NetworkError(f"the description in {path.name} cannot be read", found=text[:120]) from error
    return dict(about)


def _other_kind(path: Path, weights: Mapping[str, Tensor], expected: type[ImageNetwork]) -> NetworkError:
    kinds = [name for name, kind in image_networks if kind.options_of(weights) is not None]
    return NetworkError(
        f"{path.name} is no {expected.kind} network",
        found=f"a network of the kind {kinds[0]!r}" if kinds else f"weights named {', '.join(list(weights)[:4])}, ...",
        expected=f"weights of the kind {expected.kind!r}",
    )


def psnr(restored: Tensor, pictures: Tensor) -> float:
    """Peak signal-to-noise ratio in decibels over pixels in [0, 1], of each image and then the mean."""
    errors = (restored.clamp(0, 1) - pictures).square().flatten(1).mean(dim=1)
    return float((-10 * errors.clamp(min=1e-10).log10()).mean())


def as_tensor(image: Pixels) -> Tensor:
    """(1, 3, H, W) in [0, 1]."""
    return torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1).unsqueeze(0).float() / 255


def as_pixels(pictures: Tensor) -> Pixels:
    """The first image, rounded; numbers that are none become black, as a distorted network may overflow."""
    rounded = pictures[0].nan_to_num(0, 1, 0).clamp(0, 1).mul(255).round().byte()
    pixels: Pixels = rounded.permute(1, 2, 0).cpu().contiguous().numpy()
    return pixels


def resized(image: Pixels, height: int, width: int) -> Pixels:
    """By areas where it gets smaller, by cubics where it gets larger."""
    if image.shape[:2] == (height, width):
        return image
    method = cv2.INTER_AREA if height * width < image.shape[0] * image.shape[1] else cv2.INTER_CUBIC
    return np.asarray(cv2.resize(image, (width, height), interpolation=method), np.uint8)


def fed_size(image: Pixels, size: int, multiple: int = 1) -> tuple[int, int]:
    """Height and width with a short side of ``size``, both rounded to multiples.

    >>> fed_size(np.zeros((300, 401, 3), np.uint8), 128), fed_size(np.zeros((300, 401, 3), np.uint8), 128, 4)
    ((128, 171), (128, 172))
    """
    height, width = image.shape[:2]
    factor = size / min(height, width)
    near = [max(1, round(side * factor / multiple)) * multiple for side in (height, width)]
    return near[0], near[1]
