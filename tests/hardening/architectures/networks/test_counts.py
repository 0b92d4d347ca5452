"""Parameters counted by hand from the papers' tables, and beside the papers' own rounded numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
from torch import nn

from shiftbench.hardening.architectures.base import build

CLASSES = 10


def parameters(network: nn.Module) -> int:
    return sum(part.numel() for part in network.parameters())


def conv(inputs: int, outputs: int, size: int = 3, groups: int = 1) -> int:
    return inputs * outputs * size * size // groups


def norm(channels: int) -> int:
    return 2 * channels


def linear(inputs: int) -> int:
    return (inputs + 1) * CLASSES


def resnet(blocks: int) -> int:
    """Option A: shortcuts cost nothing."""
    total = conv(3, 16) + norm(16)
    inputs = 16
    for width in (16, 32, 64):
        for _ in range(blocks):
            total += conv(inputs, width) + conv(width, width) + 2 * norm(width)
            inputs = width
    return total + linear(64)


def wide_resnet(blocks: int, times: int) -> int:
    total = conv(3, 16)
    inputs = 16
    for width in (16 * times, 32 * times, 64 * times):
        total += conv(inputs, width, 1)  # the first block of each stage projects
        for _ in range(blocks):
            total += norm(inputs) + conv(inputs, width) + norm(width) + conv(width, width)
            inputs = width
    return total + norm(inputs) + linear(inputs)


def densenet(layers: int, growth: int) -> int:
    total = conv(3, 16)
    channels = 16
    for block in range(3):
        if block:
            total += norm(channels) + conv(channels, channels, 1)
        for _ in range(layers):
            total += norm(channels) + conv(channels, growth)
            channels += growth
    return total + norm(channels) + linear(channels)


def uncompressed_densenet(layers: int, growth: int) -> int:
    """With 1x1 layers, and transitions that keep all channels."""
    channels = 2 * growth
    total = conv(3, channels)
    for block in range(3):
        if block:
            total += norm(channels) + conv(channels, channels, 1)
        for _ in range(layers):
            total += norm(channels) + conv(channels, 4 * growth, 1) + norm(4 * growth) + conv(4 * growth, growth)
            channels += growth
    return total + norm(channels) + linear(channels)


def resnext(cardinality: int, width: int) -> int:
    total = conv(3, 64) + norm(64)
    inputs = 64
    for stage in range(3):
        middle = cardinality * width * 2**stage
        outputs = 256 * 2**stage
        total += conv(inputs, outputs, 1) + norm(outputs)
        for _ in range(3):
            total += conv(inputs, middle, 1) + conv(middle, middle, 3, cardinality) + conv(middle, outputs, 1)
            total += 2 * norm(middle) + norm(outputs)
            inputs = outputs
    return total + linear(1024)


def shake_shake(width: int) -> int:
    total = conv(3, 16) + norm(16)
    inputs = 16
    for stage in range(3):
        outputs = width * 2**stage
        total += conv(inputs, outputs, 1) + norm(outputs)  # two halves of 1x1 together
        for _ in range(4):
            total += 2 * (conv(inputs, outputs) + conv(outputs, outputs) + 2 * norm(outputs))
            inputs = outputs
    return total + linear(4 * width)


def multiscale(depth: int, growth: int, scales: int) -> int:
    growths = [growth * 2**scale for scale in range(scales)]
    channels = [2 * g for g in growths]
    total = sum(conv(n, m) + norm(m) for n, m in zip([3, *channels], channels, strict=False))
    for _ in range(depth - 1):
        for scale in range(scales):
            sources = (
                [(scale, growths[scale])] if scale == 0 else [(s, growths[scale] // 2) for s in (scale, scale - 1)]
            )
            for source, made in sources:
                middle = min(channels[source], 4 * made)
                total += conv(channels[source], middle, 1) + norm(middle) + conv(middle, made) + norm(made)
        channels = [n + g for n, g in zip(channels, growths, strict=True)]
    return total + linear(sum(channels))


def multigrid(stages: list[tuple[int, list[int], list[int]]], stem: int = 3) -> int:
    """Blocks, inputs and outputs of each stage; images of each scale have a stem of their own."""

    def layer(inputs: list[int], outputs: list[int]) -> int:
        near = [sum(inputs[max(grid - 1, 0) : grid + 2]) for grid in range(len(inputs))]
        return sum(conv(n, m) + norm(m) for n, m in zip(near, outputs, strict=True))

    total = sum(conv(3, n, stem) + norm(n) for n in stages[0][1])
    for count, inputs, outputs in stages:
        total += layer(inputs, outputs) + (2 * count - 1) * layer(outputs, outputs)
    return total + linear(sum(stages[-1][2]))


def msdnet(exits: int, base: int, step: int, growth: int, factors: tuple[int, ...], stem: int) -> int:
    """As in models/MSDNet_Layer.lua of the authors: bottlenecks of 1, 2 and 4 times the outputs, by scale."""

    def made(scale: int, outputs: int, channels: int) -> int:
        middle = min(channels * factors[scale], factors[scale] * outputs)
        return conv(channels * factors[scale], middle, 1) + norm(middle) + conv(middle, outputs) + norm(outputs)

    layers = base + step * (exits - 1)
    scales = len(factors)
    total = sum(
        conv(n, stem * f) + norm(stem * f) for n, f in zip((3, *(stem * f for f in factors)), factors, strict=False)
    )
    dropped = 0
    channels = stem
    for number in range(layers):
        now = number // math.ceil(layers / scales)
        for scale in range(now, scales):
            new = growth * factors[scale]
            halves = [scale - 1, scale] if scale > dropped else [scale]
            total += sum(made(source, new // len(halves), channels) for source in halves)
        channels += growth
        if now > dropped:
            dropped = now
            half = channels // 2
            total += sum(conv(channels * f, half * f, 1) + norm(half * f) for f in factors[now:])
            channels = half
        if number >= base - 1 and (number - base + 1) % step == 0:
            total += conv(channels * factors[-1], 128) + conv(128, 128) + 2 * norm(128) + linear(128)
    return total


#: models/ilsvrc/rnmg.lua of the authors, at depth 34.
R_MG_34 = [
    (3, [64, 32, 16], [64, 32, 16]),
    (4, [64, 32, 16], [128, 64, 32]),
    (6, [128, 64 + 32], [256, 128]),
    (3, [256 + 128], [512]),
]
MULTIGRID = [
    (3, [64, 32, 16], [64, 32, 16]),
    (3, [64, 32, 16], [128, 64, 32]),
    (3, [128, 64, 32], [256, 128, 64]),
]


def condensenet(stages: tuple[int, ...], growths: tuple[int, ...]) -> int:
    """As trained; three quarters of the 1x1 layers' weights are zero in the end."""
    channels = 2 * growths[0]
    total = conv(3, channels)
    for layers, growth in zip(stages, growths, strict=True):
        for _ in range(layers):
            total += norm(channels) + conv(channels, 4 * growth, 1) + norm(4 * growth) + conv(4 * growth, growth) // 4
            channels += growth
    return total + norm(channels) + linear(channels)


ALL_CNN_C = 2688 + 2 * 83_040 + 166_080 + 3 * 331_968 + 37_056 + 1_930

COUNTS: list[tuple[str, dict[str, Any], int, float | None]] = [
    # name, options, by hand, millions as published
    ("resnet-20", {}, resnet(3), 0.27),
    ("resnet-56", {}, resnet(9), 0.85),
    ("resnet-20", {"depth": 110}, resnet(18), 1.7),
    ("wrn-40-2", {}, wide_resnet(6, 2), 2.2),
    ("wrn-16-4", {}, wide_resnet(2, 4), 2.7),
    ("wrn-40-2", {"depth": 40, "width": 4}, wide_resnet(6, 4), 8.9),
    ("densenet-40", {}, densenet(12, 12), 1.0),
    ("densenet-40", {"depth": 100, "bottleneck": True}, 769_162, 0.8),
    ("densenet-40", {"width": 24, "bottleneck": True, "compression": 1.0}, uncompressed_densenet(6, 24), None),
    ("resnext-29", {"cardinality": 8, "width": 64}, resnext(8, 64), 34.4),
    ("resnext-29", {"cardinality": 8, "width": 32}, resnext(8, 32), None),  # that of Icons-50
    ("resnext-29", {}, resnext(4, 32), None),  # that of AugMix
    ("shake-shake", {}, shake_shake(32), 2.9),
    ("shake-shake", {"width": 64}, shake_shake(64), 11.7),
    ("multiscale", {}, multiscale(16, 6, 3), None),
    ("multigrid", {}, multigrid(MULTIGRID), None),
    ("multigrid", {"imagenet": True, "blocks": [3, 4, 6, 3], "merge": 2}, multigrid(R_MG_34, stem=7), None),
    ("msdnet", {}, msdnet(7, 4, 2, 6, (1, 2, 4), 16), None),
    ("condensenet", {}, condensenet((14, 14, 14), (8, 16, 32)), None),
    ("all-conv", {"batch_norm": False}, ALL_CNN_C, 1.4),
]


@pytest.mark.parametrize(("name", "options", "by_hand", "millions"), COUNTS)
def test_parameters(name: str, options: dict[str, Any], by_hand: int, millions: float | None) -> None:
    found = parameters(build(name, classes=CLASSES, **options))
    assert found == by_hand
    assert millions is None or abs(found / 1e6 - millions) < 0.06


def test_projections_of_resnet_cost_two_filters_and_norms() -> None:
    plain, projected = (parameters(build("resnet-20", classes=CLASSES, shortcut=kind)) for kind in "AB")
    assert projected - plain == conv(16, 32, 1) + norm(32) + conv(32, 64, 1) + norm(64)


def squeezed(channels: int) -> int:
    return 2 * channels * max(channels // 16, 8)


#: The channels behind which attention stands.
PLACES: dict[str, list[int]] = {
    "resnet-20": 3 * [16] + 3 * [32] + 3 * [64],
    "resnet-56": 9 * [16] + 9 * [32] + 9 * [64],
    "wrn-40-2": 6 * [32] + 6 * [64] + 6 * [128],
    "wrn-16-4": 2 * [64] + 2 * [128] + 2 * [256],
    "densenet-40": [160, 304, 448],
    "resnext-29": 3 * [256] + 3 * [512] + 3 * [1024],
    "shake-shake": 8 * [32] + 8 * [64] + 8 * [128],
    "multiscale": 15 * [6, 12, 24],
    "all-conv": [96, 192],
    "condensenet": 14 * [8] + 14 * [16] + 14 * [32],
    "multigrid": 3 * [64, 32, 16, 128, 64, 32, 256, 128, 64],
    "msdnet": 6 * [6, 12, 24] + 6 * [12, 24] + 4 * [24],
}


@pytest.mark.parametrize(("name", "places"), PLACES.items())
def test_attention_costs_what_its_gates_cost(name: str, places: list[int]) -> None:
    plain, se, cbam = (parameters(build(name, classes=CLASSES, attention=kind)) for kind in ("none", "se", "cbam"))
    assert se - plain == sum(squeezed(channels) for channels in places)
    assert cbam - se == len(places) * 2 * 7 * 7
