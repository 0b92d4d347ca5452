"""Densely connected networks: every layer reads all features before it and adds a few of its own.

DenseNet (Huang et al. 2017); CondenseNet (Huang et al. 2018), which learns while it trains which inputs each group of a
1x1 layer needs and drops the others; and MSDNet (Huang et al. 2018), which sees the whole image coarsely from the first
layer on: every layer gives each scale new features from its own past and, by a strided filter, from the next finer
scale. It gives logits at several exits. ``multiscale`` is a variant with one classifier, which reads all scales' means.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any

import torch
from msgspec import Meta
from torch import Tensor, nn

from shiftbench.extend.options import Count, NonNegative
from shiftbench.hardening.architectures.base import (
    Attention,
    Classification,
    Dropout,
    Scheduled,
    architectures,
    blocks_of,
    convolution,
    filtered,
    imagenet_stem,
    initialise,
    make_attention,
)
from shiftbench.hardening.errors import ArchitectureError

_BLOCKS = 3
#: Channels of the plain network's stem; the stem of the BC variant has two growth rates.
_STEM = 16
#: Outputs of a 1x1 layer, in multiples of those of the 3x3 layer after it.
_BOTTLENECK = 4
#: Outputs of the stem of a multiscale network, in multiples of the growth.
_SCALE_STEM = 2
#: Channels of an exit, on small images.
_EXIT = 128
#: The share of the channels that a transition keeps.
Compression = Annotated[float, Meta(gt=0, le=1)]


def preactivated(inputs: int, outputs: int, size: int, groups: int = 1) -> nn.Sequential:
    """A convolution after a batch norm and a rectifier."""
    return nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU(), convolution(inputs, outputs, size, groups=groups))


class DenseLayer(nn.Module):
    """The input, followed by the output of the layers."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.layers(x)], dim=1)


class _FeatureNet(nn.Module):
    """Features with a last norm and rectifier, and the head."""

    def __init__(self, modules: list[nn.Module], channels: int, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(*modules, nn.BatchNorm2d(channels), nn.ReLU())
        self.head = Classification(channels, classes)
        initialise(self, "fan_out")

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))  # type: ignore[no-any-return]


@architectures.register("densenet-40")
def densenet(
    *,
    classes: Count,
    depth: Count = 40,
    width: Count = 12,
    bottleneck: bool = False,
    compression: Compression | None = None,
    dropout: Dropout = 0.0,
    attention: Attention = "none",
) -> nn.Module:
    """A densely connected network; depth 3n + 4, or 6n + 4 with bottlenecks.

    ``width``: the growth rate k. ``bottleneck``: the BC variant, with 1x1 layers and halved transitions.
    ``compression``: the share of the channels that a transition keeps; by default 0.5 with bottlenecks, else 1.

    Attention weighs the features of each dense block as a whole, before the transition: the dozen channels that
    one layer adds are too few to choose among.
    """
    layers_per_step = 2 if bottleneck else 1
    layers = blocks_of("densenet", depth, layers=_BLOCKS * layers_per_step, around=_BLOCKS + 1)
    channels = 2 * width if bottleneck else _STEM
    if compression is None:
        compression = 0.5 if bottleneck else 1.0
    middle = _BOTTLENECK * width
    modules: list[nn.Module] = [convolution(3, channels)]
    for block in range(_BLOCKS):
        if block > 0:
            kept_channels = int(channels * compression)
            modules += [preactivated(channels, kept_channels, 1), nn.Dropout(dropout), nn.AvgPool2d(2)]
            channels = kept_channels
        for _ in range(layers):
            layer: list[nn.Module] = []
            if bottleneck:
                layer += [preactivated(channels, middle, 1), nn.Dropout(dropout), preactivated(middle, width, 3)]
            else:
                layer += [preactivated(channels, width, 3)]
            modules.append(DenseLayer(*layer, nn.Dropout(dropout)))
            channels += width
        modules.append(make_attention(attention, channels))
    return _FeatureNet(modules, channels, classes)


# CondenseNet


class LearnedGroups(Scheduled):
    """A 1x1 layer whose output channels i, i + groups, ... are a group, which ends with 1 / ``condense`` of the inputs.

    In the first half of the training, in ``condense`` - 1 stages, each group loses its weakest inputs.
    The penalty is the published group lasso: of each group and input, the length of the weights. As published, it ends
    with the last stage, when no further inputs are dropped.
    """

    mask: Tensor
    stage: Tensor

    def __init__(self, inputs: int, outputs: int, groups: int, condense: int, lasso: float) -> None:
        super().__init__()
        self.groups = groups
        self.condense = condense
        self.lasso = lasso
        self.norm = nn.BatchNorm2d(inputs)
        self.conv = convolution(inputs, outputs, 1)
        self.register_buffer("mask", torch.ones(outputs, inputs, 1, 1, dtype=torch.bool))
        self.register_buffer("stage", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.conv2d(torch.relu(self.norm(x)), self.conv.weight * self.mask)

    def progress(self, done: float) -> None:
        stage = min(int(2 * done * (self.condense - 1)), self.condense - 1)
        while int(self.stage) < stage:
            self.stage += 1
            dropped = int(self.stage) * (self.mask.shape[1] // self.condense)
            # Inputs that were dropped before have weight zero, and so come first.
            order = self._by_group().abs().sum(dim=0).argsort(dim=1, stable=True)[:, :dropped]
            for group, inputs in enumerate(order):
                self.mask[group :: self.groups, inputs] = False

    def penalty(self) -> Tensor:
        if not self.lasso or int(self.stage) >= self.condense - 1:
            return self.conv.weight.new_zeros(())
        return self.lasso * self._by_group().square().sum(dim=0).clamp(min=1e-6).sqrt().sum()

    def _by_group(self) -> Tensor:
        """The weights as (outputs of a group, groups, inputs)."""
        return (self.conv.weight * self.mask).view(-1, self.groups, self.mask.shape[1])


@architectures.register("condensenet")
def condensenet(
    *,
    classes: Count,
    stages: tuple[Count, ...] = (14, 14, 14),
    growth: tuple[Count, ...] = (8, 16, 32),
    groups: Count = 4,
    condense: Count = 4,
    lasso: NonNegative = 0.0,
    imagenet: bool = False,
    attention: Attention = "none",
) -> nn.Module:
    """CondenseNet-86: ``stages`` of layers, each stage with its own ``growth``, dense over all of them.

    ``groups`` (G), ``condense`` (C): 4 and 4 in the paper, 8 and 8 in 002's smaller one. ``lasso``: weight of the
    group lasso, 1e-5 in the released command for ImageNet and 0 in that for CIFAR. ``imagenet``: a stem of stride 2;
    the published sizes are then stages = [4, 6, 8, 10, 8] and growth = [8, 16, 32, 64, 128].
    """
    if len(stages) != len(growth) or any(new_channels % groups for new_channels in growth):
        raise ArchitectureError(
            "the stages of a CondenseNet do not fit",
            found=f"{len(stages)} stages, growth {list(growth)}, {groups} groups",
            expected="one growth per stage, each a multiple of the groups",
        )
    channels = 2 * growth[0]
    modules: list[nn.Module] = [convolution(3, channels, stride=2 if imagenet else 1)]
    for stage, (layers, new_channels) in enumerate(zip(stages, growth, strict=True)):
        if stage > 0:
            modules.append(nn.AvgPool2d(2))
        for _ in range(layers):
            narrow = LearnedGroups(channels, _BOTTLENECK * new_channels, groups, condense, lasso)
            wide = preactivated(_BOTTLENECK * new_channels, new_channels, 3, groups)
            modules.append(DenseLayer(narrow, wide, make_attention(attention, new_channels)))
            channels += new_channels
    return _FeatureNet(modules, channels, classes)


# Scales


def _narrow(inputs: int, outputs: int, bottleneck: int, *, stride: int) -> nn.Sequential:
    """A 1x1 layer that makes a growing input small, then the 3x3 layer."""
    middle = min(inputs, bottleneck * outputs)
    return nn.Sequential(filtered(inputs, middle, 1), filtered(middle, outputs, 3, stride=stride))


def _in_turn(layers: nn.ModuleList, x: Tensor) -> list[Tensor]:
    """The outputs of layers that follow each other."""
    outputs = []
    for layer in layers:
        x = layer(x)
        outputs.append(x)
    return outputs


class ScaleLayer(nn.Module):
    """The features of all scales in, the same with new ones behind them out; with ``drop`` without the finest scale.

    ``bottlenecks``: of each scale, the outputs of the 1x1 layer that reads it, in multiples of the 3x3 layer's.
    """

    def __init__(
        self,
        channels: Sequence[int],
        growths: Sequence[int],
        bottlenecks: Sequence[int],
        attention: Attention,
        *,
        drop: bool = False,
    ) -> None:
        super().__init__()
        self.first = int(drop)
        # The finest scale reads only its own features; the others get half of the new ones from the next finer scale.
        from_finer = [0, *(growth // 2 for growth in growths[1:])]
        from_own = [growth - half for growth, half in zip(growths, from_finer, strict=True)]
        own_layers = list(zip(channels, from_own, bottlenecks, strict=True))[self.first :]
        self.own = nn.ModuleList(_narrow(*sizes, stride=1) for sizes in own_layers)
        finer_layers = zip(channels[:-1], from_finer[1:], bottlenecks[:-1], strict=True)
        self.finer = nn.ModuleList(_narrow(*sizes, stride=2) for sizes in finer_layers)
        self.attention = nn.ModuleList(make_attention(attention, growth) for growth in growths[self.first :])

    def forward(self, scales: list[Tensor]) -> list[Tensor]:
        grown = []
        for number, (layer, attend) in enumerate(zip(self.own, self.attention, strict=True), start=self.first):
            new = layer(scales[number])
            if number > 0:
                new = torch.cat([new, self.finer[number - 1](scales[number - 1])], dim=1)
            grown.append(torch.cat([scales[number], attend(new)], dim=1))
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
        finest = filtered(3, channels[0], 3)
        coarser = [filtered(inputs, outputs, 3, stride=2) for inputs, outputs in pairwise(channels)]
        self.stem = nn.ModuleList([finest, *coarser])
        self.layers = nn.ModuleList()
        for _ in range(depth - 1):
            self.layers.append(ScaleLayer(channels, growths, [_BOTTLENECK] * scales, attention))
            channels = [n + growth for n, growth in zip(channels, growths, strict=True)]
        self.linear = nn.Linear(sum(channels), classes)
        initialise(self, "fan_out")

    def forward(self, x: Tensor) -> Tensor:
        scales = _in_turn(self.stem, x)
        for layer in self.layers:
            scales = layer(scales)
        logits: Tensor = self.linear(torch.cat([features.mean(dim=(2, 3)) for features in scales], dim=1))
        return logits


@architectures.register("msdnet")
class MsdNet(nn.Module):
    """MSDNet with early exits: in training (exits, N, classes) of logits, in evaluation those of one exit.

    ``exits`` classifiers on the coarsest scale, the first behind ``base`` layers and the others every ``step`` layers.
    ``factors``: growth of each scale as a multiple of ``width``, that of the finest. After each 1 / scales of the
    layers the finest scale is dropped and the channels of the others are halved. ``stem``: channels of the finest
    scale. ``exit``: which exit answers in evaluation, 1 for the first; 0: the last. ``imagenet``: a stem of stride 4;
    the published sizes are then exits = 5, base = 4, step = 4, width = 16, factors = [1, 2, 4, 4] and stem = 32.
    """

    #: Only the scheme that sums the losses of all exits can train it.
    scheme = "standard"

    def __init__(
        self,
        *,
        classes: Count,
        exits: Count = 7,
        base: Count = 4,
        step: Count = 2,
        width: Count = 6,
        factors: tuple[Count, ...] = (1, 2, 4),
        stem: Count = 16,
        exit: Annotated[int, Meta(ge=0)] = 0,
        imagenet: bool = False,
        attention: Attention = "none",
    ) -> None:
        super().__init__()
        if exit > exits:
            raise ArchitectureError("invalid exit", found=exit, expected=f"0 to {exits}")
        self.exit = exit or exits
        if imagenet:
            first = imagenet_stem(stem * factors[0])
        else:
            first = filtered(3, stem * factors[0], 3)
        coarser = [filtered(stem * n, stem * m, 3, stride=2) for n, m in pairwise(factors)]
        self.stem = nn.ModuleList([first, *coarser])
        self.layers = nn.ModuleList()
        self.halved = nn.ModuleDict()
        self.exits = nn.ModuleDict()
        total = base + step * (exits - 1)
        scales = factors
        # The channels of each scale are this multiple of its factor.
        channels = stem
        for layer in range(total):
            drop = layer // math.ceil(total / len(factors)) > len(factors) - len(scales)
            inputs = [channels * factor for factor in scales]
            growths = [width * factor for factor in scales]
            # The published bottlenecks are the factors of the growth.
            self.layers.append(ScaleLayer(inputs, growths, scales, attention, drop=drop))
            channels += width
            if drop:
                scales = scales[1:]
                half = channels // 2
                self.halved[str(layer)] = nn.ModuleList(filtered(channels * n, half * n, 1) for n in scales)
                channels = half
            if layer >= base - 1 and (layer - base + 1) % step == 0:
                coarsest = channels * scales[-1]
                self.exits[str(layer)] = _exit(coarsest, coarsest if imagenet else _EXIT, classes)
        initialise(self, "fan_out")

    def forward(self, x: Tensor) -> Tensor:
        scales = _in_turn(self.stem, x)
        exit_logits: list[Tensor] = []
        for number, layer in enumerate(self.layers):
            key = str(number)
            scales = layer(scales)
            if key in self.halved:
                halves: Any = self.halved[key]
                scales = [half(features) for half, features in zip(halves, scales, strict=True)]
            if key in self.exits:
                exit_logits.append(self.exits[key](scales[-1]))
                if not self.training and len(exit_logits) == self.exit:
                    return exit_logits[-1]
        return torch.stack(exit_logits)


def _exit(inputs: int, middle: int, classes: int) -> nn.Sequential:
    """An early exit: two layers that reduce the features, and a classifier."""
    return nn.Sequential(
        filtered(inputs, middle, 3, stride=2),
        filtered(middle, middle, 3, stride=2),
        Classification(middle, classes),
    )
