"""DeepAugment as an augmentation: every image has its own distorted network.

The published code draws new weights with probability 0.05 before each image, so that about twenty neighbours share a
distorted network, and which images are neighbours depends on the order of the work. Here each image draws its own from
its generator. For one image the law is the same; only the likeness of neighbours is gone, and with it the dependence
on order, workers and shards.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from shiftbench.extend.classifiers import torch_device
from shiftbench.extend.types import Pixels
from shiftbench.hardening.augmentations.base import ImageAugmentation, image_augmentations
from shiftbench.hardening.augmentations.deepaugment import distortions
from shiftbench.hardening.augmentations.deepaugment.cae import STRIDE, CompressiveAutoencoder, uniform_for
from shiftbench.hardening.augmentations.deepaugment.edsr import EDSR
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

T = TypeVar("T")
#: Number of distortions of weights, of the 17, that an image's EDSR gets one after the other.
_EDSR_DISTORTIONS = 3


@image_augmentations.register("deepaugment-edsr")
def deepaugment_edsr(
    network: str | Path | EDSR | None = None, published: bool = False, size: FedSize | None = None, device: str = "cpu"
) -> ImageAugmentation:
    """Through a super-resolution network with three distortions of its weights and one or two of its signals (000).

    ``network``: a file of weights, or the network itself. ``size``: the short side that is fed to it, by default 128
    as published, or what it was trained for. ``published``: with the slips of the published code.
    """
    return _EdsrAugmentation("deepaugment-edsr", network, EDSR, published, size, device)


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
    return _CaeAugmentation("deepaugment-cae", network, CompressiveAutoencoder, published, size, device)


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
    first = deepaugment_edsr(edsr, published=published, device=device)
    second = deepaugment_cae(cae, published=published, device=device)

    def either(image: Pixels, generator: np.random.Generator) -> Pixels:
        augment = first if generator.random() < 0.5 else second
        return augment(image, generator)

    return either


class _Distorted:
    """A network that runs with other weights than its own.

    Threads may share it: the weights are put into the network while it runs, so each thread has its own copy.
    """

    def __init__(
        self, name: str, source: Any, kind: type[ImageNetwork], published: bool, size: int | None, device: str
    ) -> None:
        if source is None:
            raise missing_network(name)
        network = source if isinstance(source, kind) else load_network(source, kind)
        self.network = network.to(torch_device(device))
        self.published = published
        self.size = network.size if size is None else size
        self._undistorted = dict(network.state_dict())
        self._local = threading.local()

    def run(self, weights: distortions.Weights, image: Pixels, pixels: Tensor, *inputs: Any) -> Pixels:
        """The network's output with these weights, in the size of the image."""
        if not hasattr(self._local, "network"):
            self._local.network = copy.deepcopy(self.network)
        replaced = {name: weight for name, weight in weights.items() if weight is not self._undistorted[name]}
        device = next(self.network.parameters()).device
        moved = tuple(value.to(device) if isinstance(value, Tensor) else value for value in (pixels, *inputs))
        with torch.inference_mode():
            output: Tensor = functional_call(self._local.network, replaced, moved)
        return resized(as_pixels(output), *image.shape[:2])


class _EdsrAugmentation(_Distorted):
    def __call__(self, image: Pixels, generator: np.random.Generator) -> Pixels:
        draw = distortions.Draw(generator, self.published)
        weights = dict(self._undistorted)
        for _ in range(_EDSR_DISTORTIONS):
            _, distort = _drawn(distortions.edsr_weights, draw)
            distort(weights, draw)
        _, distort_head = _drawn(distortions.head_signals, draw)
        _, distort_body = _drawn(distortions.body_signals, draw)
        pixels = as_tensor(resized(image, *fed_size(image, self.size)))
        return self.run(
            weights,
            image,
            pixels,
            lambda x: distort_head(x, draw),
            lambda blocks, x: distort_body(blocks, x, draw),
        )


class _CaeAugmentation(_Distorted):
    def __call__(self, image: Pixels, generator: np.random.Generator) -> Pixels:
        draw = distortions.Draw(generator, self.published)
        weights = dict(self._undistorted)
        _, distort_weights = _drawn(distortions.cae_weights, draw, distortions.PUBLISHED if self.published else None)
        distort_weights(weights, draw)
        name, distort_code = _drawn(distortions.cae_codes, draw)

        def change(code: Tensor) -> Tensor:
            return distort_code(code, draw)

        after_bits = name == distortions.AFTER_BITS
        pixels = as_tensor(resized(image, *fed_size(image, self.size, STRIDE)))
        return self.run(
            weights,
            image,
            pixels,
            uniform_for(pixels, generator),
            None if after_bits else change,
            change if after_bits else None,
        )


def _drawn(table: Mapping[str, T], draw: distortions.Draw, first: int | None = None) -> tuple[str, T]:
    """A random entry of the table, or of its first few."""
    entries = list(table.items())
    return entries[draw.one_of(range(first or len(table)))]
