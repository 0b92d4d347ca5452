"""The nine ways in which DeepAugment distorts the code of the compressive auto-encoder, in the published order.

All but the first act on the code in [-1, 1] before its bits are drawn; the first on the bits.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import conv2d

from shiftbench.hardening.augmentations.deepaugment.drawing import Draw, Table

CodeDistortion = Callable[[Tensor, Draw], Tensor]

cae_codes: Table[CodeDistortion] = Table()
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
    # The published code draws two of (batch, height, width), and its batch is one picture.
    return ((2,), (3,), (2, 3))[draw.one_of(range(3))]


def _identity(code: Tensor) -> Tensor:
    channels = code.shape[1]
    kernels = torch.zeros(channels, channels, 3, 3, device=code.device)
    kernels[range(channels), range(channels), 1, 1] = 1
    return kernels
