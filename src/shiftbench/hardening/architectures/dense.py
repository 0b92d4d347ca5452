"""Densely connected networks for 32 pixels: DenseNet (Huang et al. 2017) and a multiscale one after MSDNet (2018).

Every layer reads all features before it and adds a few of its own. In the multiscale network, every layer gives each
scale new features from its own past and, by a strided filter, from the next finer scale, so that the whole image is
seen coarsely from the first layer on. Unlike MSDNet, which has early exits, it has one classifier at the end, which
reads the means of all scales instead of the coarsest alone.
"""

from __future__ import annotations

from typing import Annotated

import torch
from msgspec import Meta
from torch import Tensor, nn

from shiftbench.hardening.architectures.base import architectures
from shiftbench.hardening.architectures.layers import (
    Attention,
    Classification,
    Dropout,
    blocks_of,
    convolution,
    initialise,
    make_attention,
)
from shiftbench.io.schema import Count

_BLOCKS = 3
#: Channels of the stem, of the plain network; the BC variant has two growth rates.
_STEM = 16
#: The 1x1 layer of the BC variant gives so many growth rates to the 3x3 layer.
_BOTTLENECK = 4


def preactivated(inputs: int, outputs: int, size: int) -> nn.Sequential:
    return nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU(), convolution(inputs, outputs, size))


class DenseLayer(nn.Module):
    """What came in, and ``growth`` new channels behind it."""

    def __init__(self, inputs: int, growth: int, *, bottleneck: bool, dropout: float) -> None:
        super().__init__()
        middle = _BOTTLENECK * growth
        self.layers = nn.Sequential(
            *([preactivated(inputs, middle, 1), nn.Dropout(dropout)] if bottleneck else []),
            preactivated(middle if bottleneck else inputs, growth, 3),
            nn.Dropout(dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.layers(x)], dim=1)


@architectures.register("densenet-40")
class DenseNet(nn.Module):
    """A densely connected network; depth 3n + 4, or 6n + 4 with bottlenecks.

    ``width``: the growth rate k. ``bottleneck``: the BC variant, with 1x1 layers and halved transitions.

    Attention weighs the features of each dense block as a whole, before the transition: the dozen channels that
    one layer adds are too few to choose among.
    """

    def __init__(
        self,
        *,
        classes: Count,
        depth: Count = 40,
        width: Count = 12,
        bottleneck: bool = False,
        dropout: Dropout = 0.0,
        attention: Attention = "none",
    ) -> None:
        super().__init__()
        convolutions = 2 if bottleneck else 1
        layers = blocks_of("densenet", depth, layers=_BLOCKS * convolutions, around=_BLOCKS + 1)
        channels = 2 * width if bottleneck else _STEM
        parts: list[nn.Module] = [convolution(3, channels)]
        for block in range(_BLOCKS):
            if block > 0:
                kept = channels // 2 if bottleneck else channels
                parts += [preactivated(channels, kept, 1), nn.Dropout(dropout), nn.AvgPool2d(2)]
                channels = kept
            for _ in range(layers):
                parts.append(DenseLayer(channels, width, bottleneck=bottleneck, dropout=dropout))
                channels += width
            parts.append(make_attention(attention, channels))
        self.features = nn.Sequential(*parts, nn.BatchNorm2d(channels), nn.ReLU())
        self.head = Classification(channels, classes)
        initialise(self, "fan_out")

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))
        return logits


#: The stem makes so many times the growth.
_SCALE_STEM = 2


class ScaleLayer(nn.Module):
    """The features of all scales in, the same with new ones behind them out."""

    def __init__(self, channels: list[int], growths: list[int], attention: Attention) -> None:
        super().__init__()
        own = [_shares(growth, scale)[0] for scale, growth in enumerate(growths)]
        finer = [_shares(growth, scale)[1] for scale, growth in enumerate(growths)]
        self.own = nn.ModuleList(_narrow(n, g, stride=1) for n, g in zip(channels, own, strict=True))
        self.finer = nn.ModuleList(_narrow(n, g, stride=2) for n, g in zip(channels[:-1], finer[1:], strict=True))
        self.attention = nn.ModuleList(make_attention(attention, growth) for growth in growths)

    def forward(self, scales: list[Tensor]) -> list[Tensor]:
        grown = []
        for number, x in enumerate(scales):
            new = self.own[number](x)
            if number > 0:
                new = torch.cat([new, self.finer[number - 1](scales[number - 1])], dim=1)
            grown.append(torch.cat([x, self.attention[number](new)], dim=1))
        return grown


@architectures.register("multiscale")
class MultiscaleNet(nn.Module):
    """``scales`` scales, each half as fine and twice as wide as the one before; ``width``: growth of the finest.

    ``depth``: the layers, of which the first makes the scales.
    """

    def __init__(
        self,
        *,
        classes: Count,
        depth: Annotated[int, Meta(ge=2)] = 16,
        width: Count = 6,
        scales: Count = 3,
        attention: Attention = "none",
    ) -> None:
        super().__init__()
        growths = [width * 2**scale for scale in range(scales)]
        channels = [_SCALE_STEM * growth for growth in growths]
        self.stem = nn.ModuleList(
            _filter(3 if scale == 0 else channels[scale - 1], channels[scale], 3, stride=1 if scale == 0 else 2)
            for scale in range(scales)
        )
        self.layers = nn.ModuleList()
        for _ in range(depth - 1):
            self.layers.append(ScaleLayer(channels, growths, attention))
            channels = [n + growth for n, growth in zip(channels, growths, strict=True)]
        self.linear = nn.Linear(sum(channels), classes)
        initialise(self, "fan_out")

    def forward(self, x: Tensor) -> Tensor:
        scales: list[Tensor] = []
        for stem in self.stem:
            x = stem(x)
            scales.append(x)
        for layer in self.layers:
            scales = layer(scales)
        logits: Tensor = self.linear(torch.cat([features.mean(dim=(2, 3)) for features in scales], dim=1))
        return logits


def _shares(growth: int, scale: int) -> tuple[int, int]:
    """New channels from the scale's own past and from the finer scale; the finest has only its own."""
    return (growth, 0) if scale == 0 else (growth - growth // 2, growth // 2)


def _filter(inputs: int, outputs: int, size: int, *, stride: int) -> nn.Sequential:
    return nn.Sequential(convolution(inputs, outputs, size, stride=stride), nn.BatchNorm2d(outputs), nn.ReLU())


def _narrow(inputs: int, outputs: int, *, stride: int) -> nn.Sequential:
    """A 1x1 layer that makes a growing input small, then the 3x3 layer."""
    middle = min(inputs, _BOTTLENECK * outputs)
    return nn.Sequential(_filter(inputs, middle, 1, stride=1), _filter(middle, outputs, 3, stride=stride))
