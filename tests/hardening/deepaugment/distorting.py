"""One distortion of weights, and what it changed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from shiftbench.hardening.augmentations.deepaugment.distortions import Draw

Weights = dict[str, Tensor]


def distorted(
    network: nn.Module, distort: Callable[[Weights, Draw], None], seed: int = 0, published: bool = False
) -> tuple[Weights, Weights, list[str]]:
    """Weights before, weights after, and the names of those that differ."""
    before = {name: weight.clone() for name, weight in network.state_dict().items()}
    after = dict(network.state_dict())
    distort(after, Draw(np.random.default_rng(seed), published))
    for name, weight in network.state_dict().items():
        assert torch.equal(weight, before[name]), f"the network's own {name} was changed"
        assert after[name].shape == weight.shape
    return before, after, [name for name in before if not torch.equal(before[name], after[name])]


def block_and_convolution(name: str) -> tuple[int, int]:
    _, block, _, convolution, _ = name.split(".")
    return int(block), int(convolution)
