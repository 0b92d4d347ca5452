"""The nine ways in which DeepAugment distorts the weights of the compressive auto-encoder, in the published order.

They act on layers in the middle of the 21. The published code never draws the ninth, and takes the first axis of a
weight for its filters, also in the transposed convolution, where it is that of the inputs.

The nine ways in which DeepAugment distorts the code of the compressive auto-encoder, in the published order.

All but the first act on the code in [-1, 1] before its bits are drawn; the first on the bits.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import conv2d, gelu

from shiftbench.hardening.augmentations.deepaugment.cae import LAYERS, TRANSPOSED
from shiftbench.hardening.augmentations.deepaugment.drawing import DistortionTable, Draw, share
from shiftbench.hardening.augmentations.deepaugment.edsr_distortions import Weights, only_largest_tap

# Weights

WeightDistortion = Callable[[Weights, Draw], None]

cae_weights: DistortionTable[WeightDistortion] = DistortionTable()
#: How many of them the published code draws from.
PUBLISHED = 8

_MIDDLE = LAYERS[8:14]
_WIDTH = 128


@cae_weights.add("flip-filters")
def flip_filters(weights: Weights, draw: Draw) -> None:
    """The filters of two layers, and their biases, in reverse order. As published, of one: the other is turned back."""
    for layer in _two(draw, LAYERS[11:16])[: 1 if draw.published else 2]:
        weights[f"{layer}.weight"] = weights[f"{layer}.weight"].flip(_axis(layer, draw))
        weights[f"{layer}.bias"] = weights[f"{layer}.bias"].flip(0)


@cae_weights.add("negate-filters")
def negate_filters(weights: Weights, draw: Draw) -> None:
    """Twelve filters of a layer negated. As published some are drawn twice, and so turned back."""
    _change_filters(weights, draw, _MIDDLE, 12, lambda filters: -filters)


@cae_weights.add("zero-filters")
def zero_filters(weights: Weights, draw: Draw) -> None:
    """25 filters of a layer zeroed."""
    _change_filters(weights, draw, _MIDDLE, 25, torch.zeros_like)


@cae_weights.add("negative-gelu")
def negative_gelu(weights: Weights, draw: Draw) -> None:
    """-GELU(w) in 25 filters of a layer."""
    _change_filters(weights, draw, LAYERS[10:14], 25, lambda filters: -gelu(filters))


@cae_weights.add("amplify")
def amplify(weights: Weights, draw: Draw) -> None:
    """Each weight of two layers times its own number from 1 up to at most 9."""
    for layer in _two(draw, _MIDDLE):
        weight = weights[f"{layer}.weight"]
        weights[f"{layer}.weight"] = weight * (1 + 2 * draw.number() * 4 * draw.uniform(weight))


@cae_weights.add("random-mask")
def random_mask(weights: Weights, draw: Draw) -> None:
    """Each weight of a layer zeroed with even odds, or each negated with even odds."""
    name = f"{_one(draw, _MIDDLE)}.weight"
    zeroing = draw.happens(0.5)
    weights[name] = weights[name] * (draw.uniform(weights[name]).round() if zeroing else draw.signs(weights[name]))


@cae_weights.add("rotate")
def rotate(weights: Weights, draw: Draw) -> None:
    """Each kernel of a layer turned by 90, 180 or 270 degrees."""
    name = f"{_one(draw, _MIDDLE)}.weight"
    weights[name] = torch.rot90(weights[name], draw.one_of((1, 2, 3)), (2, 3))


@cae_weights.add("negate-a-fifth")
def negate_a_fifth(weights: Weights, draw: Draw) -> None:
    """A fifth of a layer's filters negated, their biases left; a little fewer as published, which draws some twice."""
    layer = _one(draw, _MIDDLE)
    weight = weights[f"{layer}.weight"]
    axis = _axis(layer, draw)
    filters = weight.shape[axis]
    chosen = sorted(set(draw.several(filters // 5, filters)))
    weights[f"{layer}.weight"] = _changed(weight, axis, chosen, lambda part: -part)


@cae_weights.add("largest-tap")
def largest_tap(weights: Weights, draw: Draw) -> None:
    """Of each kernel of a layer only its largest tap. Never drawn as published."""
    name = f"{_one(draw, _MIDDLE)}.weight"
    weights[name] = only_largest_tap(weights[name])


def _change_filters(
    weights: Weights, draw: Draw, layers: tuple[str, ...], count: int, change: Callable[[Tensor], Tensor]
) -> None:
    """``count`` filters of the paper's 128, one after the other, with their biases."""
    layer = _one(draw, layers)
    weight, bias = weights[f"{layer}.weight"], weights[f"{layer}.bias"]
    axis = _axis(layer, draw)
    filters = weight.shape[axis]
    # The paper's numbers hold for layers of 32, 64 and 128 filters alike; a narrower network has fewer of each.
    wanted = min(filters, share(count, _WIDTH, weights["e_conv_2.1.bias"].numel()))
    for chosen in draw.several(wanted, filters):
        weight = _changed(weight, axis, [chosen], change)
        bias = _changed(bias, 0, [chosen], change)
    weights[f"{layer}.weight"], weights[f"{layer}.bias"] = weight, bias


def _changed(tensor: Tensor, axis: int, chosen: list[int], change: Callable[[Tensor], Tensor]) -> Tensor:
    places = torch.tensor(chosen, device=tensor.device)
    return tensor.index_copy(axis, places, change(tensor.index_select(axis, places)))


def _one(draw: Draw, layers: tuple[str, ...]) -> str:
    return layers[draw.one_of(range(len(layers)))]


def _two(draw: Draw, layers: tuple[str, ...]) -> list[str]:
    return [layers[index] for index in draw.several(2, len(layers))]


def _axis(layer: str, draw: Draw) -> int:
    """Where a weight has its filters."""
    return 1 if layer in TRANSPOSED and not draw.published else 0


# Codes

CodeDistortion = Callable[[Tensor, Draw], Tensor]

cae_codes: DistortionTable[CodeDistortion] = DistortionTable()
#: The one that acts on the bits.
AFTER_BITS = "scale-bits"
_PERMUTED = 10
_FLIPPED = 5


@cae_codes.add(AFTER_BITS)
def scale_bits(bits: Tensor, draw: Draw) -> Tensor:
    """Each bit times its own number from 3 up to at most 7."""
    return bits * (3 + 2 * draw.number() * 2 * draw.uniform(bits))


@cae_codes.add("zero-positions")
def zero_positions(code: Tensor, draw: Draw) -> Tensor:
    """Each place zeroed in all channels with probability 0.2; its bits are then any."""
    return code * (draw.uniform(code[:1, :1]) > 0.2)


@cae_codes.add("negate-positions")
def negate_positions(code: Tensor, draw: Draw) -> Tensor:
    """Each place negated in all channels with probability 0.1."""
    return code * ((draw.uniform(code[:1, :1]) > 0.1) * 2 - 1)


@cae_codes.add("permute-channels")
def permute_channels(code: Tensor, draw: Draw) -> Tensor:
    """The first ten channels in any order."""
    order = [*draw.generator.permutation(_PERMUTED).tolist(), *range(_PERMUTED, code.shape[1])]
    return code[:, order]


@cae_codes.add("flip-some-channels")
def flip_some_channels(code: Tensor, draw: Draw) -> Tensor:
    """Five channels flipped in height, width or both. As published some are drawn twice, and so turned back."""
    axes = _axes(draw)
    for channel in draw.several(_FLIPPED, code.shape[1]):
        flipped = code[:, channel : channel + 1].flip(axes)
        code = torch.cat([code[:, :channel], flipped, code[:, channel + 1 :]], dim=1)
    return code


@cae_codes.add("flip-channels")
def flip_channels(code: Tensor, draw: Draw) -> Tensor:
    """All channels flipped in height, width or both."""
    return code.flip(_axes(draw))


@cae_codes.add("noisy-convolution")
def noisy_convolution(code: Tensor, draw: Draw) -> Tensor:
    """A 3x3 convolution that is the identity but for noise from -0.1 to 0.1 on every tap."""
    kernels = _identity(code)
    return conv2d(code, kernels + (draw.uniform(kernels) - 0.5) * 0.2, padding=1)


@cae_codes.add("extra-taps")
def extra_taps(code: Tensor, draw: Draw) -> Tensor:
    """Each channel gets, with even odds, a channel added to it, moved by up to a place."""
    kernels = _identity(code)
    channels = code.shape[1]
    for channel in range(channels):
        if draw.happens(0.5):
            row, column = draw.generator.integers(3, size=2)
            kernels[channel, draw.one_of(range(channels)), row, column] = 1
    return conv2d(code, kernels, padding=1)


@cae_codes.add("shift")
def shift(code: Tensor, draw: Draw) -> Tensor:
    """Channels moved by up to a place; neighbours move alike, and one in five changes the direction."""
    kernels = torch.zeros_like(_identity(code))
    row, column = draw.generator.integers(3, size=2)
    for channel in range(code.shape[1]):
        if draw.happens(0.2):
            row, column = draw.generator.integers(3, size=2)
        kernels[channel, channel, row, column] = 1
    return conv2d(code, kernels, padding=1)


def _axes(draw: Draw) -> tuple[int, ...]:
    # The published code draws two of (batch, height, width), and its batch is one image.
    return ((2,), (3,), (2, 3))[draw.one_of(range(3))]


def _identity(code: Tensor) -> Tensor:
    channels = code.shape[1]
    kernels = torch.zeros(channels, channels, 3, 3, device=code.device)
    kernels[range(channels), range(channels), 1, 1] = 1
    return kernels
