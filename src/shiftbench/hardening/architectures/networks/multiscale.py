"""A multiscale DenseNet after MSDNet (Huang et al. 2018): several scales live side by side through the whole depth.

At each layer every scale gets new features from its own past and, by a strided filter, from the next finer scale, all
joined as in DenseNet; so the whole picture is seen coarsely from the first layer on. Unlike MSDNet, which may answer
early, there is one classifier at the end, and it reads the means of all scales instead of the coarsest alone.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shiftbench.hardening.architectures.checks import check_whole
from shiftbench.hardening.architectures.networks.attention import attention as make_attention
from shiftbench.hardening.architectures.networks.layers import convolution, initialise

#: The 1x1 layer in front of a 3x3 layer gives at most so many times what that one makes.
BOTTLENECK = 4
#: The stem makes so many times the growth.
STEM = 2


class ScaleLayer(nn.Module):
    """The features of all scales in, the same with new ones behind them out."""

    def __init__(self, channels: list[int], growths: list[int], attention: str) -> None:
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


class MultiscaleNet(nn.Module):
    """``scales`` scales, each half as fine and twice as wide as the one before; ``width``: growth of the finest.

    ``depth``: the layers, of which the first makes the scales.
    """

    def __init__(self, *, classes: int, depth: int, width: int, scales: int, attention: str) -> None:
        super().__init__()
        check_whole("depth", depth, least=2)
        width, scales = check_whole("width", width), check_whole("scales", scales)
        growths = [width * 2**scale for scale in range(scales)]
        channels = [STEM * growth for growth in growths]
        self.stem = nn.ModuleList(
            _filter(3 if scale == 0 else channels[scale - 1], channels[scale], 3, stride=1 if scale == 0 else 2)
            for scale in range(scales)
        )
        self.layers = nn.ModuleList()
        for _ in range(depth - 1):
            self.layers.append(ScaleLayer(channels, growths, attention))
            channels = [n + growth for n, growth in zip(channels, growths, strict=True)]
        self.linear = nn.Linear(sum(channels), check_whole("classes", classes))
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
    middle = min(inputs, BOTTLENECK * outputs)
    return nn.Sequential(_filter(inputs, middle, 1, stride=1), _filter(middle, outputs, 3, stride=stride))
