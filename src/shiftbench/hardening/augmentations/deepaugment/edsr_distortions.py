"""DeepAugment's distortions of EDSR: 17 of its weights in the published order, and those of its signals.

``weights`` is a state dict in which a function may replace tensors; the tensors themselves belong to the undistorted
network. Which blocks are chosen is as published, as far as a smaller network has them. Signals are distorted right
after the head and within the body; one of each list is drawn for an image, and each list ends in "none", as published.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, gelu, relu

from shiftbench.hardening.augmentations.deepaugment.drawing import DistortionTable, Draw, share

# Weights

Weights = dict[str, Tensor]
WeightDistortion = Callable[[Weights, Draw], None]

edsr_weights: DistortionTable[WeightDistortion] = DistortionTable()

_FIRST, _SECOND = 0, 2
_LAPLACIAN = torch.tensor([[0.0, 1, 0], [1, -4, 1], [0, 1, 0]])
_LAPLACIAN_WITH_DIAGONALS = torch.tensor([[-1.0, -1, -1], [-1, 8, -1], [-1, -1, -1]])


@edsr_weights.add("flip-filters")
def flip_filters(weights: Weights, draw: Draw) -> None:
    """The filters of both convolutions of a block, and their biases, in reverse order."""
    block = draw.one_of(_blocks(weights, 0, 3, 6, 9))
    for convolution in (_FIRST, _SECOND):
        for part in ("weight", "bias"):
            name = _name(block, convolution, part)
            weights[name] = weights[name].flip(0)


@edsr_weights.add("negate-convolution")
def negate_convolution(weights: Weights, draw: Draw) -> None:
    """The first convolution of a block negated."""
    block = draw.one_of(_blocks(weights, 1, 4, 7))
    for part in ("weight", "bias"):
        weights[_name(block, _FIRST, part)] = -weights[_name(block, _FIRST, part)]


@edsr_weights.add("zero-convolution")
def zero_convolution(weights: Weights, draw: Draw) -> None:
    """The first convolution of a block all zeros: the block adds no more than a constant."""
    block = draw.one_of(_blocks(weights, 0, 3, 6, 9))
    for part in ("weight", "bias"):
        weights[_name(block, _FIRST, part)] = torch.zeros_like(weights[_name(block, _FIRST, part)])


@edsr_weights.add("negative-gelu")
def negative_gelu(weights: Weights, draw: Draw) -> None:
    """-GELU(w) in both convolutions of a block: what was negative nearly vanishes, what was positive is negated."""
    block = draw.one_of(_blocks(weights, 0, 3, 6, 9))
    for convolution in (_FIRST, _SECOND):
        name = _name(block, convolution)
        weights[name] = -gelu(weights[name])


@edsr_weights.add("laplacian")
def laplacian(weights: Weights, draw: Draw) -> None:
    """Each kernel of a block's first convolution times the Laplacian of four neighbours, tap by tap."""
    _multiply_kernels(weights, draw, _LAPLACIAN)


@edsr_weights.add("laplacian-with-diagonals")
def laplacian_with_diagonals(weights: Weights, draw: Draw) -> None:
    """Each kernel of a block's first convolution times the negative Laplacian of eight neighbours, tap by tap."""
    _multiply_kernels(weights, draw, _LAPLACIAN_WITH_DIAGONALS)


def _multiply_kernels(weights: Weights, draw: Draw, kernel: Tensor) -> None:
    name = _name(draw.one_of(_blocks(weights, 0, 3, 6, 9)), _FIRST)
    weights[name] = weights[name] * kernel.to(weights[name].device)


@edsr_weights.add("amplify")
def amplify(weights: Weights, draw: Draw) -> None:
    """Each weight of a block's second convolution times its own number from 1 up to at most 5."""
    name = _name(draw.one_of(_blocks(weights, 0, 3, 6, 9)), _SECOND)
    weights[name] = weights[name] * (1 + 2 * draw.number() * 2 * draw.uniform(weights[name]))


@edsr_weights.add("mirror-and-negate")
def mirror_and_negate(weights: Weights, draw: Draw) -> None:
    """The kernels of a block's first convolution mirrored left to right, its second convolution's negated."""
    block = draw.one_of(_blocks(weights, 0, 3, 6, 9))
    weights[_name(block, _FIRST)] = weights[_name(block, _FIRST)].flip(-1)
    weights[_name(block, _SECOND)] = -weights[_name(block, _SECOND)]


@edsr_weights.add("shift-kernels")
def shift_kernels(weights: Weights, draw: Draw) -> None:
    """The kernels of each input channel moved by up to a tap and negated with even odds, in a first convolution.

    As published, all channels are summed into one, which every channel then gets.
    """
    name = _name(draw.one_of(_blocks(weights, 1, 5, 9)), _FIRST)
    channels = weights[name].shape[1]
    shifts = torch.zeros(channels, 1, 3, 3, device=weights[name].device)
    for channel in range(channels):
        row, column = draw.generator.integers(3, size=2)
        shifts[channel, 0, row, column] = draw.one_of((1, -1))
    if draw.published:
        summed = shifts.transpose(0, 1).expand(channels, -1, -1, -1)
        weights[name] = conv2d(weights[name], summed, padding=1)
    else:
        weights[name] = conv2d(weights[name], shifts, padding=1, groups=channels)


@edsr_weights.add("convolve-with-noise")
def convolve_with_noise(weights: Weights, draw: Draw) -> None:
    """A first convolution's kernels convolved with noise from -1/6 up to at most 1/6, which mixes its channels."""
    name = _name(draw.one_of(_blocks(weights, 0, 3, 6, 9)), _FIRST)
    noise = (2 * draw.uniform(weights[name]) * draw.number() - 1) / 6
    weights[name] = conv2d(weights[name], noise, padding=1)


@edsr_weights.add("convolve-with-dirichlet")
def convolve_with_dirichlet(weights: Weights, draw: Draw) -> None:
    """A second convolution's kernels convolved with kernels that sum to one, most of it in a tap or two."""
    name = _name(draw.one_of(_blocks(weights, 1, 5, 9)), _SECOND)
    channels = weights[name].shape[:2]
    kernels = torch.from_numpy(draw.generator.dirichlet([0.1] * 9, channels)).float().view(*channels, 3, 3)
    weights[name] = conv2d(weights[name], kernels.to(weights[name].device), padding=1)


@edsr_weights.add("add-noise")
def add_noise(weights: Weights, draw: Draw) -> None:
    """Noise from -1/2 to 1/2 on every weight of a block's second convolution."""
    name = _name(draw.one_of(_but_the_last(weights)), _SECOND)
    weights[name] = weights[name] + draw.uniform(weights[name]) - 0.5


@edsr_weights.add("rotate")
def rotate(weights: Weights, draw: Draw) -> None:
    """Five convolutions turned by 90, 180 or 270 degrees: each kernel, or the matrix of outputs by inputs."""
    for name in _several(weights, draw, (_FIRST, _SECOND)):
        axes = (2, 3) if draw.happens(0.5) else (0, 1)
        weights[name] = torch.rot90(weights[name], draw.one_of((1, 2, 3)), axes)


@edsr_weights.add("random-signs")
def random_signs(weights: Weights, draw: Draw) -> None:
    """Each weight of five first convolutions negated with even odds."""
    for name in _several(weights, draw, (_FIRST,)):
        weights[name] = weights[name] * draw.signs(weights[name])


@edsr_weights.add("random-zeros")
def random_zeros(weights: Weights, draw: Draw) -> None:
    """Each weight of five first convolutions zeroed with even odds."""
    for name in _several(weights, draw, (_FIRST,)):
        weights[name] = weights[name] * draw.uniform(weights[name]).round()


@edsr_weights.add("negate-filters")
def negate_filters(weights: Weights, draw: Draw) -> None:
    """Half of the filters of five first convolutions negated; about two fifths as published, which draws some twice."""
    for name in _several(weights, draw, (_FIRST,)):
        filters = len(weights[name])
        factors = torch.ones(filters, 1, 1, 1, device=weights[name].device)
        factors[draw.several(share(32, 64, filters), filters)] = -1
        weights[name] = weights[name] * factors


@edsr_weights.add("largest-tap")
def largest_tap(weights: Weights, draw: Draw) -> None:
    """Of each kernel of five convolutions only the largest of its nine taps."""
    for name in _several(weights, draw, (_FIRST, _SECOND)):
        weights[name] = only_largest_tap(weights[name])


def only_largest_tap(kernels: Tensor) -> Tensor:
    taps = kernels.flatten(2)
    place = taps.argmax(dim=2, keepdim=True)
    return torch.zeros_like(taps).scatter(2, place, taps.gather(2, place)).view_as(kernels)


def _several(weights: Weights, draw: Draw, convolutions: Sequence[int]) -> list[str]:
    """The names of five convolutions from all blocks but the last; fewer in a smaller network.

    As published some may be drawn twice, and so be turned back or distorted twice.
    """
    blocks = _but_the_last(weights)
    choices = [_name(block, convolution) for block in blocks for convolution in convolutions]
    return [choices[index] for index in draw.several(share(5, 15, len(blocks)), len(choices))]


def _name(block: int, convolution: int, part: str = "weight") -> str:
    return f"body.{block}.body.{convolution}.{part}"


def _blocks(weights: Weights, *published: int) -> list[int]:
    return [block for block in published if _name(block, _FIRST) in weights]


def _but_the_last(weights: Weights) -> list[int]:
    # The published code never touches the last block.
    count = sum(name.endswith(".body.0.weight") for name in weights)
    return list(range(count - 1))


# Signals

HeadDistortion = Callable[[Tensor, Draw], Tensor]
BodyDistortion = Callable[[nn.Sequential, Tensor, Draw], Tensor]

head_signals: DistortionTable[HeadDistortion] = DistortionTable()
body_signals: DistortionTable[BodyDistortion] = DistortionTable()


@head_signals.add("swap-channels")
def swap_channels(x: Tensor, draw: Draw) -> Tensor:
    """Five random pairs of channels swapped. As published, one of each pair is overwritten by the other."""
    order = list(range(x.shape[1]))
    for _ in range(share(5, 64, len(order))):
        first, second = (int(i) for i in draw.generator.integers(len(order), size=2))
        if draw.published:
            order[first] = order[second]
        else:
            order[first], order[second] = order[second], order[first]
    return x[:, order]


@head_signals.add("zero-elements")
def zero_elements(x: Tensor, draw: Draw) -> Tensor:
    """Each number zeroed with probability 0.05."""
    return x * (draw.uniform(x) >= 0.05)


@head_signals.add("negate-elements")
def negate_elements(x: Tensor, draw: Draw) -> Tensor:
    """Each number negated with probability 0.025."""
    return x * ((draw.uniform(x) >= 0.025) * 2 - 1)


@head_signals.add("none")
def leave_head(x: Tensor, draw: Draw) -> Tensor:
    """Left as it is."""
    return x


@body_signals.add("negate-midway")
def negate_midway(body: nn.Sequential, x: Tensor, draw: Draw) -> Tensor:
    """Negated after five of the sixteen blocks."""
    return _midway(body, x, lambda features: -features)


@body_signals.add("activate-midway")
def activate_midway(body: nn.Sequential, x: Tensor, draw: Draw) -> Tensor:
    """ReLU (one time in three) or GELU after five of the sixteen blocks."""
    return _midway(body, x, relu if draw.happens(1 / 3) else gelu)


@body_signals.add("flip-midway")
def flip_midway(body: nn.Sequential, x: Tensor, draw: Draw) -> Tensor:
    """The channels reversed, and the image upside down (one time in three) or left to right, after five blocks."""
    axes = (1, 2) if draw.happens(1 / 3) else (1, 3)
    return _midway(body, x, lambda features: features.flip(axes))


@body_signals.add("skip-blocks")
def skip_blocks(body: nn.Sequential, x: Tensor, draw: Draw) -> Tensor:
    """Three of the blocks after the second left out.

    As published, each block is fed the body's input, so that only the last one that is not left out counts.
    """
    later = len(body) - 2
    skipped = {2 + i for i in draw.several(share(3, 15, later), later)}
    kept = [part for index, part in enumerate(body) if index not in skipped]
    if draw.published:
        return kept[-1](x)  # type: ignore[no-any-return]
    for part in kept:
        x = part(x)
    return x


@body_signals.add("none")
def leave_body(body: nn.Sequential, x: Tensor, draw: Draw) -> Tensor:
    """Left as it is."""
    return body(x)  # type: ignore[no-any-return]


def _midway(body: nn.Sequential, x: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    cut = share(5, 16, len(body) - 1)
    return body[cut:](change(body[:cut](x)))  # type: ignore[no-any-return]
