"""Layers that all families of networks share: convolutions, stages, attention, the classification head.

Attention: Squeeze-and-Excitation (Hu et al. 2018) weighs channels, the Convolutional Block Attention Module (Woo et
al. 2018) channels and locations. Both squeeze the channels 16-fold, here to no fewer than eight: a sixteenth of the 16
channels of a small network would be one number, and so few rectified numbers are often zero for every image, which
leaves a gate that cannot learn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import torch
from msgspec import Meta
from torch import Tensor, nn

from shiftbench.hardening.errors import ArchitectureError

#: The probability of dropping a value; 1 would drop all of them.
Dropout = Annotated[float, Meta(ge=0, lt=1)]
#: Makes one block from its input channels, its output channels and its stride.
MakeBlock = Callable[[int, int, int], nn.Module]


def convolution(inputs: int, outputs: int, size: int = 3, *, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    """Keeps the image's size at stride 1; has no bias, because a batch norm follows or went before."""
    return nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, groups=groups, bias=False)


def stages(make: MakeBlock, inputs: int, widths: tuple[int, ...], blocks: int) -> nn.Sequential:
    """``blocks`` blocks of each width in turn; every stage but the first begins by halving the image."""
    made: list[nn.Module] = []
    for stage, width in enumerate(widths):
        for block in range(blocks):
            made.append(make(inputs, width, 2 if stage > 0 and block == 0 else 1))
            inputs = width
    return nn.Sequential(*made)


class Classification(nn.Module):
    """The mean over all places, then one linear layer: images of any size will do."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.linear(x.mean(dim=(2, 3)))
        return logits


def initialise(network: nn.Module, fan: Literal["fan_in", "fan_out"]) -> None:
    """Normal weights of variance 2 / fan (He et al. 2015); norms begin as the identity, biases at zero.

    He's own networks count the inputs of a filter, those that descend from Facebook's Torch code the outputs.
    """
    for part in network.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode=fan, nonlinearity="relu")
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, nn.BatchNorm2d):
            nn.init.ones_(part.weight)
            nn.init.zeros_(part.bias)
        elif isinstance(part, nn.Linear):
            nn.init.zeros_(part.bias)


def blocks_of(family: str, depth: int, *, layers: int, around: int) -> int:
    """The number of blocks per stage, where one more block in every stage adds ``layers`` to the depth.

    >>> blocks_of("resnet", 20, layers=6, around=2)
    3
    """
    blocks, rest = divmod(depth - around, layers)
    if rest or blocks < 1:
        nearest = [layers * n + around for n in (max(blocks, 1), max(blocks, 1) + 1)]
        raise ArchitectureError(
            f"invalid depth of {family}",
            found=depth,
            expected=f"{layers}n + {around} with n = 1, 2, ...",
            hint=f"depth = {nearest[0]} or {nearest[1]}",
        )
    return blocks


# Attention

Attention = Literal["none", "se", "cbam"]
REDUCTION = 16
FEWEST = 8


def make_attention(kind: Attention, channels: int) -> nn.Module:
    """The module to put behind features with this many channels; the identity for "none"."""
    if kind == "se":
        return SqueezeExcitation(channels)
    return BlockAttention(channels) if kind == "cbam" else nn.Identity()


class ChannelGate(nn.Module):
    """Two layers without biases, as 1x1 convolutions, from (N, C, 1, 1) to as many logits."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        hidden = max(channels // REDUCTION, FEWEST)
        self.squeeze = nn.Conv2d(channels, hidden, 1, bias=False)
        self.excite = nn.Conv2d(hidden, channels, 1, bias=False)

    def forward(self, summary: Tensor) -> Tensor:
        logits: Tensor = self.excite(torch.relu(self.squeeze(summary)))
        return logits


class SqueezeExcitation(nn.Module):
    """Each channel times a factor in (0, 1) that the means of all channels decide."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gate = ChannelGate(channels)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.gate(x.mean(dim=(2, 3), keepdim=True)))


class BlockAttention(nn.Module):
    """Channels first, by their means and maxima through one gate; then places, by a 7x7 filter over both."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gate = ChannelGate(channels)
        self.place = nn.Conv2d(2, 1, 7, padding=3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        means, maxima = x.mean(dim=(2, 3), keepdim=True), x.amax(dim=(2, 3), keepdim=True)
        x = x * torch.sigmoid(self.gate(means) + self.gate(maxima))
        summary = torch.cat([x.amax(dim=1, keepdim=True), x.mean(dim=1, keepdim=True)], dim=1)
        return x * torch.sigmoid(self.place(summary))
