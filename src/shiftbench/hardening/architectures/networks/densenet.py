"""DenseNet for 32 pixels (Huang et al. 2017): every layer reads all features before it and adds a few of its own."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shiftbench.hardening.architectures.checks import blocks_of, check_flag, check_share, check_whole
from shiftbench.hardening.architectures.networks.attention import attention as make_attention
from shiftbench.hardening.architectures.networks.layers import Classification, convolution, initialise

BLOCKS = 3
#: Channels of the stem, of the plain network; the BC variant has two growth rates.
STEM = 16
#: The 1x1 layer of the BC variant gives so many growth rates to the 3x3 layer.
BOTTLENECK = 4


def preactivated(inputs: int, outputs: int, size: int) -> nn.Sequential:
    return nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU(), convolution(inputs, outputs, size))


class DenseLayer(nn.Module):
    """What came in, and ``growth`` new channels behind it."""

    def __init__(self, inputs: int, growth: int, *, bottleneck: bool, dropout: float) -> None:
        super().__init__()
        middle = BOTTLENECK * growth
        self.layers = nn.Sequential(
            *([preactivated(inputs, middle, 1), nn.Dropout(dropout)] if bottleneck else []),
            preactivated(middle if bottleneck else inputs, growth, 3),
            nn.Dropout(dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.layers(x)], dim=1)


class DenseNet(nn.Module):
    """``width``: the growth rate k. ``bottleneck``: the BC variant, with 1x1 layers and halved transitions.

    Attention weighs the features of each dense block as a whole, before the transition: the dozen channels that
    one layer adds are too few to choose among.
    """

    def __init__(
        self, *, classes: int, depth: int, width: int, bottleneck: bool, dropout: float, attention: str
    ) -> None:
        super().__init__()
        convolutions = 2 if bottleneck else 1
        layers = blocks_of("densenet", depth, layers=BLOCKS * convolutions, around=BLOCKS + 1)
        growth = check_whole("width", width)
        check_share("dropout", dropout)
        check_flag("bottleneck", bottleneck)
        channels = 2 * growth if bottleneck else STEM
        parts: list[nn.Module] = [convolution(3, channels)]
        for block in range(BLOCKS):
            if block > 0:
                kept = channels // 2 if bottleneck else channels
                parts += [preactivated(channels, kept, 1), nn.Dropout(dropout), nn.AvgPool2d(2)]
                channels = kept
            for _ in range(layers):
                parts.append(DenseLayer(channels, growth, bottleneck=bottleneck, dropout=dropout))
                channels += growth
            parts.append(make_attention(attention, channels))
        self.features = nn.Sequential(*parts, nn.BatchNorm2d(channels), nn.ReLU())
        self.head = Classification(channels, classes)
        initialise(self, "fan_out")

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))
        return logits
