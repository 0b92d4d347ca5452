"""Densely connected networks: every layer reads all features before it and adds a few of its own.

DenseNet (Huang et al. 2017), and CondenseNet (Huang et al. 2018), which learns while it trains which inputs each group
of a 1x1 layer needs and drops the others.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shiftbench.hardening.architectures.base import (
    Attention,
    Classification,
    Dropout,
    Scheduled,
    architectures,
    blocks_of,
    convolution,
    initialise,
    make_attention,
)
from shiftbench.hardening.errors import ArchitectureError
from shiftbench.io.schema import Count, NonNegative

_BLOCKS = 3
#: Channels of the stem, of the plain network; the BC variant has two growth rates.
_STEM = 16
#: A 1x1 layer gives so many growth rates to the 3x3 layer.
_BOTTLENECK = 4


def preactivated(inputs: int, outputs: int, size: int, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU(), convolution(inputs, outputs, size, groups=groups))


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


class _FeatureNet(nn.Module):
    """Features, normed and rectified, and the head."""

    def __init__(self, parts: list[nn.Module], channels: int, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(*parts, nn.BatchNorm2d(channels), nn.ReLU())
        self.head = Classification(channels, classes)
        initialise(self, "fan_out")

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))
        return logits


@architectures.register("densenet-40")
def densenet(
    *,
    classes: Count,
    depth: Count = 40,
    width: Count = 12,
    bottleneck: bool = False,
    dropout: Dropout = 0.0,
    attention: Attention = "none",
) -> nn.Module:
    """A densely connected network; depth 3n + 4, or 6n + 4 with bottlenecks.

    ``width``: the growth rate k. ``bottleneck``: the BC variant, with 1x1 layers and halved transitions.

    Attention weighs the features of each dense block as a whole, before the transition: the dozen channels that
    one layer adds are too few to choose among.
    """
    layers = blocks_of("densenet", depth, layers=_BLOCKS * (2 if bottleneck else 1), around=_BLOCKS + 1)
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
    return _FeatureNet(parts, channels, classes)


# CondenseNet


class LearnedGroups(Scheduled):
    """A 1x1 layer whose output channels i, i + groups, ... are a group, which ends with 1 / ``condense`` of the inputs.

    In the first half of the training, in ``condense`` - 1 stages, each group loses its weakest inputs.
    The penalty is the published group lasso: of each group and input, the length of the weights.
    """

    mask: Tensor
    stage: Tensor

    def __init__(self, inputs: int, outputs: int, groups: int, condense: int, lasso: float) -> None:
        super().__init__()
        self.groups, self.condense, self.lasso = groups, condense, lasso
        self.norm, self.conv = nn.BatchNorm2d(inputs), convolution(inputs, outputs, 1)
        self.register_buffer("mask", torch.ones(outputs, inputs, 1, 1, dtype=torch.bool))
        self.register_buffer("stage", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.conv2d(torch.relu(self.norm(x)), self.conv.weight * self.mask)

    def progress(self, done: float) -> None:
        stage = min(int(2 * done * (self.condense - 1)), self.condense - 1)
        while int(self.stage) < stage:
            self.stage += 1
            dropped = int(self.stage) * (self.mask.shape[1] // self.condense)
            # Inputs that are gone have weight zero, and so come first.
            order = self._by_group().abs().sum(dim=0).argsort(dim=1, stable=True)[:, :dropped]
            for group, inputs in enumerate(order):
                self.mask[group :: self.groups, inputs] = False

    def penalty(self) -> Tensor:
        return self.lasso * self._by_group().square().sum(dim=0).clamp(min=1e-6).sqrt().sum()

    def _by_group(self) -> Tensor:
        """(outputs of a group, groups, inputs)."""
        return (self.conv.weight * self.mask).view(-1, self.groups, self.mask.shape[1])


class CondensedLayer(nn.Module):
    """What came in, and ``growth`` new channels behind it; both layers have groups."""

    def __init__(
        self, inputs: int, growth: int, groups: int, condense: int, lasso: float, attention: Attention
    ) -> None:
        super().__init__()
        middle = _BOTTLENECK * growth
        self.layers = nn.Sequential(
            LearnedGroups(inputs, middle, groups, condense, lasso),
            preactivated(middle, growth, 3, groups),
            make_attention(attention, growth),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.layers(x)], dim=1)


@architectures.register("condensenet")
def condensenet(
    *,
    classes: Count,
    stages: tuple[Count, ...] = (14, 14, 14),
    growth: tuple[Count, ...] = (8, 16, 32),
    groups: Count = 4,
    condense: Count = 4,
    lasso: NonNegative = 1e-5,
    imagenet: bool = False,
    attention: Attention = "none",
) -> nn.Module:
    """CondenseNet-86: ``stages`` of layers, each stage with its own ``growth``, dense over all of them.

    ``groups`` (G), ``condense`` (C): 4 and 4 in the paper, 8 and 8 in 002's smaller one. ``lasso``: weight of the
    group lasso. ``imagenet``: a stem of stride 2; the published sizes are then stages = [4, 6, 8, 10, 8] and
    growth = [8, 16, 32, 64, 128].
    """
    if len(stages) != len(growth) or any(one % groups for one in growth):
        raise ArchitectureError(
            "the stages of a CondenseNet do not fit",
            found=f"{len(stages)} stages, growth {list(growth)}, {groups} groups",
            expected="one growth per stage, each a multiple of the groups",
        )
    channels = 2 * growth[0]
    parts: list[nn.Module] = [convolution(3, channels, stride=2 if imagenet else 1)]
    for number, (layers, new) in enumerate(zip(stages, growth, strict=True)):
        parts += [nn.AvgPool2d(2)] if number else []
        for _ in range(layers):
            parts.append(CondensedLayer(channels, new, groups, condense, lasso, attention))
            channels += new
    return _FeatureNet(parts, channels, classes)
