"""DeepAugment as an augmentation: every image has its own distorted network.

The published code draws new weights with probability 0.05 before each image, so that some twenty neighbours share
a distorted network, and which images are neighbours depends on the order of the work. Here each image draws its
own from the generator that it is given. For one image the law is the same; only the likeness of neighbours is
gone, and with it the dependence on order, workers and shards.
"""

from __future__ import annotations

import copy
import threading
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from shiftbench.arrays import Pixels
from shiftbench.classifiers.torch_ import torch_device
from shiftbench.hardening.augmentations.base import ImageAugmentation, image_augmentations
from shiftbench.hardening.augmentations.deepaugment.cae import STRIDE, CompressiveAutoencoder, uniform_for
from shiftbench.hardening.augmentations.deepaugment.cae_distortions import AFTER_BITS, PUBLISHED, cae_codes, cae_weights
from shiftbench.hardening.augmentations.deepaugment.drawing import Distortion, DistortionTable, Draw, F
from shiftbench.hardening.augmentations.deepaugment.edsr import EDSR
from shiftbench.hardening.augmentations.deepaugment.edsr_distortions import (
    Weights,
    body_signals,
    edsr_weights,
    head_signals,
)
from shiftbench.hardening.augmentations.networks import (
    FedSize,
    ImageNetwork,
    as_pixels,
    as_tensor,
    fed_size,
    load_network,
    missing_network,
    resized,
)

#: How many of the 17 distortions of weights an image's EDSR gets, one after the other.
_EDSR_DISTORTIONS = 3


@image_augmentations.register("deepaugment-edsr")
def deepaugment_edsr(
    network: str | Path | EDSR | None = None, published: bool = False, size: FedSize | None = None, device: str = "cpu"
) -> ImageAugmentation:
    """Through a super-resolution network with three distortions of its weights and one or two of its signals (000).

    ``network``: a file of weights, or the network itself. ``size``: the short side that is fed to it, by default 128
    as published, or what it was trained for. ``published``: with the slips of the published code.
    """
    loaded = _network("deepaugment-edsr", network, EDSR, device)
    return EdsrAugmentation(loaded, published, loaded.fed(size))


@image_augmentations.register("deepaugment-cae")
def deepaugment_cae(
    network: str | Path | CompressiveAutoencoder | None = None,
    published: bool = False,
    size: FedSize | None = None,
    device: str = "cpu",
) -> ImageAugmentation:
    """Through a compressive auto-encoder with a distortion of its weights and one of its code (000).

    ``network``: a file of weights, or the network itself. ``size``: the short side that is fed to it, by default 512
    as published, or what it was trained for. ``published``: with the slips of the published code.
    """
    loaded = _network("deepaugment-cae", network, CompressiveAutoencoder, device)
    return CaeAugmentation(loaded, published, loaded.fed(size))


@image_augmentations.register("deepaugment")
def deepaugment(
    edsr: str | Path | EDSR | None = None,
    cae: str | Path | CompressiveAutoencoder | None = None,
    published: bool = False,
    device: str = "cpu",
) -> ImageAugmentation:
    """Either branch of DeepAugment, even odds; ``edsr`` and ``cae`` are their networks."""
    if edsr is None or cae is None:
        raise missing_network("deepaugment")
    return EitherBranch(
        deepaugment_edsr(edsr, published=published, device=device),
        deepaugment_cae(cae, published=published, device=device),
    )


class EitherBranch:
    """One of two augmentations, even odds."""

    def __init__(self, first: ImageAugmentation, second: ImageAugmentation) -> None:
        self.first, self.second = first, second

    def __call__(self, image: Pixels, generator: np.random.Generator) -> Pixels:
        return (self.first if generator.random() < 0.5 else self.second)(image, generator)


class EdsrAugmentation:
    """The first branch."""

    def __init__(self, network: EDSR, published: bool, size: int) -> None:
        self.distorted, self.published, self.size = Distorted(network), published, size

    def __call__(self, image: Pixels, generator: np.random.Generator) -> Pixels:
        draw = Draw(generator, self.published)
        weights = self.distorted.weights()
        for _ in range(_EDSR_DISTORTIONS):
            _drawn(edsr_weights, draw).apply(weights, draw)
        head, body = _drawn(head_signals, draw).apply, _drawn(body_signals, draw).apply
        pixels = as_tensor(resized(image, *fed_size(image, self.size)))
        enlarged = self.distorted(weights, pixels, lambda x: head(x, draw), lambda blocks, x: body(blocks, x, draw))
        return resized(as_pixels(enlarged), *image.shape[:2])


class CaeAugmentation:
    """The second branch."""

    def __init__(self, network: CompressiveAutoencoder, published: bool, size: int) -> None:
        self.distorted, self.published, self.size = Distorted(network), published, size

    def __call__(self, image: Pixels, generator: np.random.Generator) -> Pixels:
        draw = Draw(generator, self.published)
        weights = self.distorted.weights()
        _drawn(cae_weights, draw, PUBLISHED if self.published else None).apply(weights, draw)
        code = _drawn(cae_codes, draw)

        def change(numbers: Tensor) -> Tensor:
            return code.apply(numbers, draw)

        before, after = (None, change) if code.name == AFTER_BITS else (change, None)
        pixels = as_tensor(resized(image, *fed_size(image, self.size, STRIDE)))
        restored = self.distorted(weights, pixels, uniform_for(pixels, generator), before, after)
        return resized(as_pixels(restored), *image.shape[:2])


class Distorted:
    """Runs a network with other weights than its own.

    Threads may share it: the weights are put into the network while it runs, so each thread has its own copy.
    """

    def __init__(self, network: ImageNetwork) -> None:
        self.network = network
        self._own = dict(network.state_dict())
        self._device = next(network.parameters()).device
        self._local = threading.local()

    def weights(self) -> Weights:
        """The undistorted ones; tensors in it may be replaced, not changed."""
        return dict(self._own)

    def __call__(self, weights: Weights, *inputs: Any) -> Tensor:
        replaced = {name: weight for name, weight in weights.items() if weight is not self._own[name]}
        moved = tuple(part.to(self._device) if isinstance(part, Tensor) else part for part in inputs)
        with torch.inference_mode():
            images: Tensor = functional_call(self._copy(), replaced, moved)
        return images

    def _copy(self) -> ImageNetwork:
        if not hasattr(self._local, "network"):
            self._local.network = copy.deepcopy(self.network)
        network: ImageNetwork = self._local.network
        return network

    def __reduce__(self) -> tuple[type[Distorted], tuple[ImageNetwork]]:
        return (Distorted, (self.network,))


def _drawn(table: DistortionTable[F], draw: Draw, first: int | None = None) -> Distortion[F]:
    """One of the table, or of its first few."""
    return table[draw.one_of(range(first or len(table)))]


def _network(name: str, given: Any, kind: type[Any], device: str) -> Any:
    if given is None:
        raise missing_network(name)
    network = given if isinstance(given, kind) else load_network(given, kind)
    return network.to(torch_device(device))
