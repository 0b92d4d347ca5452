"""Densely connected networks: every layer reads all features before it and adds a few of its own.

DenseNet (Huang et al. 2017); CondenseNet (Huang et al. 2018), which learns while it trains which inputs each group of a
1x1 layer needs and drops the others; and MSDNet (Huang et al. 2018), which sees the whole image coarsely from the first
layer on: every layer gives each scale new features from its own past and, by a strided filter, from the next finer
scale. It answers at several exits. ``multiscale`` is a variant with one classifier, which reads all scales' means.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any

import torch
from msgspec import Meta
from torch import Tensor, nn

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
from shiftbench.io.schema import Count, NonNegative

_BLOCKS = 3
#: Channels of the stem, of the plain network; the BC variant has two growth rates.
_STEM = 16
#: Outputs of a 1x1 layer, in multiples of those of the 3x3 layer after it.
_BOTTLENECK = 4
#: Outputs of the stem of a multiscale network, in multiples of the growth.
_SCALE_STEM = 2
#: Channels of an exit, on small images.
_EXIT = 128


def preactivated(inputs: int, outputs: int, size: int, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU(), convolution(inputs, outputs, size, groups=groups))


class DenseLayer(nn.Module):
    """What came in, and behind it what the layers make of it."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

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
        return self.head(self.features(x))  # type: ignore[no-any-return]


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
    channels, middle = 2 * width if bottleneck else _STEM, _BOTTLENECK * width
    parts: list[nn.Module] = [convolution(3, channels)]
    for block in range(_BLOCKS):
        if block > 0:
            kept = channels // 2 if bottleneck else channels
            parts += [preactivated(channels, kept, 1), nn.Dropout(dropout), nn.AvgPool2d(2)]
            channels = kept
        for _ in range(layers):
            narrow = [preactivated(channels, middle, 1), nn.Dropout(dropout)] if bottleneck else []
            last = preactivated(middle if bottleneck else channels, width, 3)
            parts.append(DenseLayer(*narrow, last, nn.Dropout(dropout)))
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
    group lasso, which the released commands leave at 0. ``imagenet``: a stem of stride 2; the published sizes are then
    stages = [4, 6, 8, 10, 8] and growth = [8, 16, 32, 64, 128].
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
            narrow = LearnedGroups(channels, _BOTTLENECK * new, groups, condense, lasso)
            wide = preactivated(_BOTTLENECK * new, new, 3, groups)
            parts.append(DenseLayer(narrow, wide, make_attention(attention, new)))
            channels += new
    return _FeatureNet(parts, channels, classes)


# Scales


def _narrow(inputs: int, outputs: int, bottleneck: int, *, stride: int) -> nn.Sequential:
    """A 1x1 layer that makes a growing input small, then the 3x3 layer."""
    middle = min(inputs, bottleneck * outputs)
    return nn.Sequential(filtered(inputs, middle, 1), filtered(middle, outputs, 3, stride=stride))


def _in_turn(layers: nn.ModuleList, x: Tensor) -> list[Tensor]:
    """What each layer makes of the one before it."""
    found = []
    for layer in layers:
        x = layer(x)
        found.append(x)
    return found


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
        # The finest scale has only its own past; the others get half of what is new from the next finer one.
        finer = [growth // 2 if scale else 0 for scale, growth in enumerate(growths)]
        own = [growth - half for growth, half in zip(growths, finer, strict=True)]
        kept = list(zip(channels, own, bottlenecks, strict=True))[self.first :]
        self.own = nn.ModuleList(_narrow(*one, stride=1) for one in kept)
        read = zip(channels[:-1], finer[1:], bottlenecks[:-1], strict=True)
        self.finer = nn.ModuleList(_narrow(*one, stride=2) for one in read)
        self.attention = nn.ModuleList(make_attention(attention, growth) for growth in growths[self.first :])

    def forward(self, scales: list[Tensor]) -> list[Tensor]:
        grown = []
        for number, (own, attend) in enumerate(zip(self.own, self.attention, strict=True), start=self.first):
            new = own(scales[number])
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
        self.stem = nn.ModuleList(
            filtered(3 if scale == 0 else channels[scale - 1], channels[scale], 3, stride=1 if scale == 0 else 2)
            for scale in range(scales)
        )
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
        first = imagenet_stem(stem * factors[0]) if imagenet else filtered(3, stem * factors[0], 3)
        coarser = [filtered(stem * n, stem * m, 3, stride=2) for n, m in pairwise(factors)]
        self.stem = nn.ModuleList([first, *coarser])
        self.layers, self.halved, self.exits = nn.ModuleList(), nn.ModuleDict(), nn.ModuleDict()
        total, scales, channels = base + step * (exits - 1), factors, stem  # channels: in multiples of the factors
        for layer in range(total):
            drop = layer // math.ceil(total / len(factors)) > len(factors) - len(scales)
            inputs, growths = [channels * one for one in scales], [width * one for one in scales]
            # The published bottlenecks are the factors of the growth.
            self.layers.append(ScaleLayer(inputs, growths, scales, attention, drop=drop))
            channels += width
            if drop:
                scales, half = scales[1:], channels // 2
                self.halved[str(layer)] = nn.ModuleList(filtered(channels * n, half * n, 1) for n in scales)
                channels = half
            if layer >= base - 1 and (layer - base + 1) % step == 0:
                coarsest = channels * scales[-1]
                middle = coarsest if imagenet else _EXIT
                self.exits[str(layer)] = nn.Sequential(
                    filtered(coarsest, middle, 3, stride=2),
                    filtered(middle, middle, 3, stride=2),
                    Classification(middle, classes),
                )
        initialise(self, "fan_out")

    def forward(self, x: Tensor) -> Tensor:
        scales, answers = _in_turn(self.stem, x), list[Tensor]()
        for number, layer in enumerate(self.layers):
            scales = layer(scales)
            if (key := str(number)) in self.halved:
                halves: Any = self.halved[key]
                scales = [half(x) for half, x in zip(halves, scales, strict=True)]
            if key in self.exits:
                answers.append(self.exits[key](scales[-1]))
                if not self.training and len(answers) == self.exit:
                    return answers[-1]
        return torch.stack(answers)
