"""Networks that see the whole image coarsely from the first layer on, beside its details.

MSDNet (Huang et al. 2018) is densely connected: every layer gives each scale new features from its own past and, by a
strided filter, from the next finer scale. It answers at several exits. ``multiscale`` is a variant with one classifier,
which reads the means of all scales. In Multigrid networks (Ke, Maire and Yu 2017) every layer is a pyramid of grids;
each grid reads its finer and its coarser neighbour.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any

import torch
from msgspec import Meta
from torch import Tensor, nn
from torch.nn.functional import adaptive_max_pool2d, interpolate, max_pool2d

from shiftbench.hardening.architectures.base import (
    Attention,
    Classification,
    architectures,
    convolution,
    initialise,
    make_attention,
)
from shiftbench.hardening.architectures.residual import PaddedIdentity, normed
from shiftbench.hardening.errors import ArchitectureError
from shiftbench.io.schema import Count

#: The stem makes so many times the growth.
_SCALE_STEM = 2
#: A 1x1 layer gives so many times the outputs to the 3x3 layer.
_BOTTLENECK = 4
#: Channels of an exit, on small images.
_EXIT = 128


def _filter(inputs: int, outputs: int, size: int, *, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(convolution(inputs, outputs, size, stride=stride), nn.BatchNorm2d(outputs), nn.ReLU())


def _narrow(inputs: int, outputs: int, *, stride: int) -> nn.Sequential:
    """A 1x1 layer that makes a growing input small, then the 3x3 layer."""
    middle = min(inputs, _BOTTLENECK * outputs)
    return nn.Sequential(_filter(inputs, middle, 1), _filter(middle, outputs, 3, stride=stride))


def _imagenet_stem(width: int) -> nn.Sequential:
    return nn.Sequential(_filter(3, width, 7, stride=2), nn.MaxPool2d(3, stride=2, padding=1))


def _in_turn(layers: nn.ModuleList, x: Tensor) -> list[Tensor]:
    """What each layer makes of the one before it."""
    found = []
    for layer in layers:
        x = layer(x)
        found.append(x)
    return found


class ScaleLayer(nn.Module):
    """The features of all scales in, the same with new ones behind them out; with ``drop`` without the finest scale."""

    def __init__(
        self, channels: Sequence[int], growths: Sequence[int], attention: Attention, *, drop: bool = False
    ) -> None:
        super().__init__()
        self.first = int(drop)
        # The finest scale has only its own past; the others get half of what is new from the next finer one.
        finer = [growth // 2 if scale else 0 for scale, growth in enumerate(growths)]
        own = [growth - half for growth, half in zip(growths, finer, strict=True)]
        pairs = list(zip(channels, own, strict=True))[self.first :]
        self.own = nn.ModuleList(_narrow(n, g, stride=1) for n, g in pairs)
        self.finer = nn.ModuleList(_narrow(n, g, stride=2) for n, g in zip(channels[:-1], finer[1:], strict=True))
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
            raise ArchitectureError("no such exit", found=exit, expected=f"0 to {exits}")
        self.exit = exit or exits
        growths, channels = [width * one for one in factors], [stem * one for one in factors]
        first = _imagenet_stem(channels[0]) if imagenet else _filter(3, channels[0], 3)
        coarser = [_filter(n, m, 3, stride=2) for n, m in pairwise(channels)]
        self.stem = nn.ModuleList([first, *coarser])
        self.layers, self.halved, self.exits = nn.ModuleList(), nn.ModuleDict(), nn.ModuleDict()
        total = base + step * (exits - 1)
        for layer in range(total):
            drop = layer // math.ceil(total / len(factors)) > len(factors) - len(channels)
            self.layers.append(ScaleLayer(channels, growths, attention, drop=drop))
            channels = [n + growth for n, growth in zip(channels, growths, strict=True)]
            if drop:
                channels, growths = channels[1:], growths[1:]
                self.halved[str(layer)] = nn.ModuleList(_filter(n, n // 2, 1) for n in channels)
                channels = [n // 2 for n in channels]
            if layer >= base - 1 and (layer - base + 1) % step == 0:
                middle = channels[-1] if imagenet else _EXIT
                self.exits[str(layer)] = nn.Sequential(
                    _filter(channels[-1], middle, 3, stride=2),
                    _filter(middle, middle, 3, stride=2),
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


# Multigrid


class GridLayer(nn.Module):
    """Each grid: a 3x3 filter over itself, the next finer grid's maxima and the next coarser grid, enlarged."""

    def __init__(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        super().__init__()
        near = [sum(inputs[max(grid - 1, 0) : grid + 2]) for grid in range(len(inputs))]
        self.filters = nn.ModuleList(nn.Sequential(*normed(n, m)) for n, m in zip(near, outputs, strict=True))

    def forward(self, grids: list[Tensor]) -> list[Tensor]:
        made = []
        for number, (x, filters) in enumerate(zip(grids, self.filters, strict=True)):
            finer = [adaptive_max_pool2d(grids[number - 1], x.shape[2:])] if number else []
            coarser = [interpolate(one, x.shape[2:]) for one in grids[number + 1 : number + 2]]
            made.append(filters(torch.cat([*finer, x, *coarser], dim=1)))
        return made


class GridBlock(nn.Module):
    """The residual block of a pyramid: two layers, added to the input of each grid; new channels begin as zeros."""

    def __init__(self, inputs: Sequence[int], outputs: Sequence[int], attention: Attention) -> None:
        super().__init__()
        self.first, self.second = GridLayer(inputs, outputs), GridLayer(outputs, outputs)
        self.attention = nn.ModuleList(make_attention(attention, n) for n in outputs)
        self.shortcuts = nn.ModuleList(PaddedIdentity(m - n, 1) for n, m in zip(inputs, outputs, strict=True))

    def forward(self, grids: list[Tensor]) -> list[Tensor]:
        made = self.second([torch.relu(x) for x in self.first(grids)])
        parts = zip(self.attention, made, self.shortcuts, grids, strict=True)
        return [torch.relu(attend(new) + kept(x)) for attend, new, kept, x in parts]


@architectures.register("multigrid")
class MultigridNet(nn.Module):
    """A residual multigrid network: ``blocks`` of each stage; a stage halves all grids and doubles their channels.

    ``grids`` grids, each half as fine and half as wide as the one before; ``width``: channels of the finest.
    ``imagenet``: a stem of stride 4; blocks = [3, 4, 6, 3] are then 34 layers. Unlike the published network, whose
    last layers merge the grids, the head reads the means of all of them.
    """

    def __init__(
        self,
        *,
        classes: Count,
        blocks: tuple[Count, ...] = (3, 3, 3),
        width: Annotated[int, Meta(ge=4)] = 64,
        grids: Annotated[int, Meta(ge=1, le=3)] = 3,
        imagenet: bool = False,
        attention: Attention = "none",
    ) -> None:
        super().__init__()
        channels = [width // 2**grid for grid in range(grids)]
        self.stem = _imagenet_stem(width) if imagenet else _filter(3, width, 3)
        self.grids = nn.ModuleList(_filter(width, n, 3) for n in channels[1:])
        self.stages = nn.ModuleList()
        for stage, count in enumerate(blocks):
            wide = [n * 2**stage for n in channels]
            first = [n // 2 for n in wide] if stage else wide
            each = [GridBlock(wide if block else first, wide, attention) for block in range(count)]
            self.stages.append(nn.Sequential(*each))
        self.linear = nn.Linear(sum(wide), classes)
        initialise(self, "fan_in")

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        grids = [x, *(make(max_pool2d(x, 2 ** (n + 1), ceil_mode=True)) for n, make in enumerate(self.grids))]
        for number, stage in enumerate(self.stages):
            grids = stage([max_pool2d(x, 2, ceil_mode=True) for x in grids] if number else grids)
        logits: Tensor = self.linear(torch.cat([x.mean(dim=(2, 3)) for x in grids], dim=1))
        return logits
