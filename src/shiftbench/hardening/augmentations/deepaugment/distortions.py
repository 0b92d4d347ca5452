"""DeepAugment's distortions of weights and signals, by name, in the published order; docs/deepaugment.md explains each.

All draws come from one NumPy generator and are moved to the device of the tensor they are for, so that an image's
distortion depends on that generator alone. Counts of the paper (five convolutions of sixteen, 32 filters of 64) are
kept as shares, so that the same table distorts a smaller network as much.

A distortion of weights replaces tensors of a state dict; the tensors themselves belong to the undistorted network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, gelu, relu

from shiftbench.hardening.augmentations.deepaugment.cae import LAYERS, TRANSPOSED


@dataclass(frozen=True)
class Draw:
    """Random choices of a distortion; ``published`` repeats the slips of the published code."""

    generator: np.random.Generator
    published: bool = False

    def uniform(self, like: Tensor) -> Tensor:
        """U(0, 1) in the shape of ``like``."""
        return torch.from_numpy(self.generator.random(tuple(like.shape), dtype=np.float32)).to(like.device)

    def number(self) -> float:
        return float(self.generator.random())

    def happens(self, probability: float) -> bool:
        return self.number() < probability

    def one_of(self, choices: Sequence[int]) -> int:
        return int(choices[int(self.generator.integers(len(choices)))])

    def several(self, count: int, total: int) -> list[int]:
        """``count`` different numbers below ``total``. The published code draws with replacement: some come twice."""
        return [int(i) for i in self.generator.choice(total, count, replace=self.published)]

    def tap(self) -> tuple[int, int]:
        """The row and column of a tap of a 3x3 kernel."""
        row, column = self.generator.integers(3, size=2)
        return int(row), int(column)

    def signs(self, like: Tensor) -> Tensor:
        """+1 or -1, even odds, in the shape of ``like``."""
        return self.uniform(like).round() * 2 - 1


def share(count: int, published_total: int, total: int) -> int:
    """The proportionate number for a network of ``total``, if the paper's has ``count`` of them; at least one.

    >>> share(32, 64, 64), share(32, 64, 24), share(3, 15, 2)
    (32, 12, 1)
    """
    return min(total, max(1, round(count * total / published_total)))


Weights = dict[str, Tensor]
WeightDistortion = Callable[[Weights, Draw], None]
#: A function from a tensor to the distorted tensor.
Change = Callable[[Tensor, Draw], Tensor]

# EDSR's weights

#: The positions of the convolutions in a block.
_FIRST = (0,)
_SECOND = (2,)
_BOTH = (0, 2)


def _name(block: int, convolution: int, part: str = "weight") -> str:
    return f"body.{block}.body.{convolution}.{part}"


def _blocks_but_the_last(weights: Weights) -> Sequence[int]:
    """The numbers of the blocks that are distorted: the published code never touches the last one."""
    blocks = sum(name.endswith(".body.0.weight") for name in weights)
    return range(blocks - 1)


def _blocks_among(blocks: Sequence[int], weights: Weights) -> Sequence[int]:
    """Those of the blocks that the network has; a smaller network has fewer than the paper's."""
    return [block for block in blocks if _name(block, 0) in weights]


def _in_a_block(
    change: Change,
    convolutions: Sequence[int] = _FIRST,
    blocks: Sequence[int] | None = (0, 3, 6, 9),
    parts: Sequence[str] = ("weight",),
) -> WeightDistortion:
    """Distorts convolutions of one of these blocks; None stands for any block but the last."""

    def distort(weights: Weights, draw: Draw) -> None:
        choices = _blocks_but_the_last(weights) if blocks is None else _blocks_among(blocks, weights)
        block = draw.one_of(choices)
        for convolution, part in product(convolutions, parts):
            name = _name(block, convolution, part)
            weights[name] = change(weights[name], draw)

    return distort


def _in_five(change: Change, convolutions: Sequence[int] = _FIRST) -> WeightDistortion:
    """Distorts five convolutions from all blocks but the last, fewer in a smaller network; as published, some twice."""

    def distort(weights: Weights, draw: Draw) -> None:
        blocks = _blocks_but_the_last(weights)
        names = [_name(block, convolution) for block, convolution in product(blocks, convolutions)]
        for index in draw.several(share(5, 15, len(blocks)), len(names)):
            weights[names[index]] = change(weights[names[index]], draw)

    return distort


def _multiplied(kernel: Sequence[Sequence[float]]) -> Change:
    return lambda weight, draw: weight * torch.tensor(kernel, device=weight.device)


def _mirror_and_negate(weights: Weights, draw: Draw) -> None:
    block = draw.one_of(_blocks_among((0, 3, 6, 9), weights))
    weights[_name(block, 0)] = weights[_name(block, 0)].flip(-1)
    weights[_name(block, 2)] = -weights[_name(block, 2)]


def _shifted_kernels(weight: Tensor, draw: Draw) -> Tensor:
    channels = weight.shape[1]
    shifts = torch.zeros(channels, 1, 3, 3, device=weight.device)
    for channel in range(channels):
        row, column = draw.tap()
        shifts[channel, 0, row, column] = draw.one_of((1, -1))
    if draw.published:
        return conv2d(weight, shifts.transpose(0, 1).expand(channels, -1, -1, -1), padding=1)
    return conv2d(weight, shifts, padding=1, groups=channels)


def _convolved_with_dirichlet(weight: Tensor, draw: Draw) -> Tensor:
    kernels = torch.from_numpy(draw.generator.dirichlet([0.1] * 9, weight.shape[:2])).float()
    return conv2d(weight, kernels.view(*weight.shape[:2], 3, 3).to(weight.device), padding=1)


def _convolved_with_noise(weight: Tensor, draw: Draw) -> Tensor:
    return conv2d(weight, (2 * draw.uniform(weight) * draw.number() - 1) / 6, padding=1)


def _rotated(weight: Tensor, draw: Draw) -> Tensor:
    """Rotates each kernel, or the matrix of outputs by inputs."""
    axes = (2, 3) if draw.happens(0.5) else (0, 1)
    return torch.rot90(weight, draw.one_of((1, 2, 3)), axes)


def _half_negated(weight: Tensor, draw: Draw) -> Tensor:
    factors = torch.ones(len(weight), 1, 1, 1, device=weight.device)
    factors[draw.several(share(32, 64, len(weight)), len(weight))] = -1
    return weight * factors


def _only_largest_tap(weight: Tensor, draw: Draw) -> Tensor:
    taps = weight.flatten(2)
    largest = taps.argmax(dim=2, keepdim=True)
    return torch.zeros_like(taps).scatter(2, largest, taps.gather(2, largest)).view_as(weight)


edsr_weights: dict[str, WeightDistortion] = {
    "flip-filters": _in_a_block(lambda weight, draw: weight.flip(0), _BOTH, parts=("weight", "bias")),
    "negate-convolution": _in_a_block(lambda weight, draw: -weight, blocks=(1, 4, 7), parts=("weight", "bias")),
    "zero-convolution": _in_a_block(lambda weight, draw: torch.zeros_like(weight), parts=("weight", "bias")),
    "negative-gelu": _in_a_block(lambda weight, draw: -gelu(weight), _BOTH),
    "laplacian": _in_a_block(_multiplied([[0.0, 1, 0], [1, -4, 1], [0, 1, 0]])),
    "laplacian-with-diagonals": _in_a_block(_multiplied([[-1.0, -1, -1], [-1, 8, -1], [-1, -1, -1]])),
    "amplify": _in_a_block(lambda w, draw: w * (1 + 2 * draw.number() * 2 * draw.uniform(w)), _SECOND),
    "mirror-and-negate": _mirror_and_negate,
    "shift-kernels": _in_a_block(_shifted_kernels, blocks=(1, 5, 9)),
    "convolve-with-noise": _in_a_block(_convolved_with_noise),
    "convolve-with-dirichlet": _in_a_block(_convolved_with_dirichlet, _SECOND, (1, 5, 9)),
    "add-noise": _in_a_block(lambda weight, draw: weight + draw.uniform(weight) - 0.5, _SECOND, blocks=None),
    "rotate": _in_five(_rotated, _BOTH),
    "random-signs": _in_five(lambda weight, draw: weight * draw.signs(weight)),
    "random-zeros": _in_five(lambda weight, draw: weight * draw.uniform(weight).round()),
    "negate-filters": _in_five(_half_negated),
    "largest-tap": _in_five(_only_largest_tap, _BOTH),
}

# EDSR's signals: for each image, a distortion after the head and one within the body are drawn

BodyDistortion = Callable[[nn.Sequential, Tensor, Draw], Tensor]


def _swapped_channels(x: Tensor, draw: Draw) -> Tensor:
    order = list(range(x.shape[1]))
    for _ in range(share(5, 64, len(order))):
        first, second = (int(i) for i in draw.generator.integers(len(order), size=2))
        if draw.published:
            # As published, one of each pair is overwritten by the other.
            order[first] = order[second]
        else:
            order[first], order[second] = order[second], order[first]
    return x[:, order]


def _midway(change: Change) -> BodyDistortion:
    """A change after five of the sixteen blocks."""

    def run(body: nn.Sequential, x: Tensor, draw: Draw) -> Tensor:
        cut = share(5, 16, len(body) - 1)
        return body[cut:](change(body[:cut](x), draw))  # type: ignore[no-any-return]

    return run


def _skip_blocks(body: nn.Sequential, x: Tensor, draw: Draw) -> Tensor:
    skippable = len(body) - 2
    skipped = {2 + i for i in draw.several(share(3, 15, skippable), skippable)}
    kept = [module for index, module in enumerate(body) if index not in skipped]
    if draw.published:
        # As published, each block is fed the body's input, so that only the last one that is not left out counts.
        kept = kept[-1:]
    for module in kept:
        x = module(x)
    return x


head_signals: dict[str, Change] = {
    "swap-channels": _swapped_channels,
    "zero-elements": lambda x, draw: x * (draw.uniform(x) >= 0.05),
    "negate-elements": lambda x, draw: x * ((draw.uniform(x) >= 0.025) * 2 - 1),
    "none": lambda x, draw: x,
}
body_signals: dict[str, BodyDistortion] = {
    "negate-midway": _midway(lambda x, draw: -x),
    "activate-midway": _midway(lambda x, draw: relu(x) if draw.happens(1 / 3) else gelu(x)),
    "flip-midway": _midway(lambda x, draw: x.flip((1, 2) if draw.happens(1 / 3) else (1, 3))),
    "skip-blocks": _skip_blocks,
    "none": lambda body, x, draw: body(x),
}

# The auto-encoder's weights, in layers in the middle of the 21

#: Number of these distortions that the published code draws from.
PUBLISHED = 8
_MIDDLE = LAYERS[8:14]


def _axis(layer: str, draw: Draw) -> int:
    """The axis of a weight's filters. As published, it is the first also in a transposed layer, that of its inputs."""
    return 1 if layer in TRANSPOSED and not draw.published else 0


def _changed(tensor: Tensor, axis: int, filters: list[int], change: Callable[[Tensor], Tensor]) -> Tensor:
    """The tensor with a change of some of its filters."""
    indices = torch.tensor(filters, device=tensor.device)
    return tensor.index_copy(axis, indices, change(tensor.index_select(axis, indices)))


def _in_a_layer(change: Change) -> WeightDistortion:
    def distort(weights: Weights, draw: Draw) -> None:
        name = f"{_MIDDLE[draw.one_of(range(len(_MIDDLE)))]}.weight"
        weights[name] = change(weights[name], draw)

    return distort


def _in_filters(change: Callable[[Tensor], Tensor], count: int, layers: Sequence[str] = _MIDDLE) -> WeightDistortion:
    """Distorts ``count`` filters of the paper's 128, one by one, with their biases; as published, some twice."""

    def distort(weights: Weights, draw: Draw) -> None:
        layer = layers[draw.one_of(range(len(layers)))]
        weight = weights[f"{layer}.weight"]
        bias = weights[f"{layer}.bias"]
        axis = _axis(layer, draw)
        filters = weight.shape[axis]
        # The paper's numbers hold for layers of 32, 64 and 128 filters alike; a narrower network has fewer of each.
        features = weights["e_conv_2.1.bias"].numel()
        for number in draw.several(min(filters, share(count, 128, features)), filters):
            weight = _changed(weight, axis, [number], change)
            bias = _changed(bias, 0, [number], change)
        weights[f"{layer}.weight"] = weight
        weights[f"{layer}.bias"] = bias

    return distort


def _flip_filters(weights: Weights, draw: Draw) -> None:
    # The published code draws two layers, and turns one of them back.
    count = 1 if draw.published else 2
    for index in draw.several(2, 5)[:count]:
        layer = LAYERS[11 + index]
        weights[f"{layer}.weight"] = weights[f"{layer}.weight"].flip(_axis(layer, draw))
        weights[f"{layer}.bias"] = weights[f"{layer}.bias"].flip(0)


def _amplify(weights: Weights, draw: Draw) -> None:
    for index in draw.several(2, len(_MIDDLE)):
        weight = weights[f"{_MIDDLE[index]}.weight"]
        weights[f"{_MIDDLE[index]}.weight"] = weight * (1 + 2 * draw.number() * 4 * draw.uniform(weight))


def _negate_a_fifth(weights: Weights, draw: Draw) -> None:
    layer = _MIDDLE[draw.one_of(range(len(_MIDDLE)))]
    weight = weights[f"{layer}.weight"]
    axis = _axis(layer, draw)
    filters = sorted(set(draw.several(weight.shape[axis] // 5, weight.shape[axis])))
    weights[f"{layer}.weight"] = _changed(weight, axis, filters, torch.neg)


def _randomly_masked(weight: Tensor, draw: Draw) -> Tensor:
    """Random weights become zero, or change their sign."""
    if draw.happens(0.5):
        return weight * draw.uniform(weight).round()
    return weight * draw.signs(weight)


cae_weights: dict[str, WeightDistortion] = {
    "flip-filters": _flip_filters,
    "negate-filters": _in_filters(lambda filters: -filters, 12),
    "zero-filters": _in_filters(torch.zeros_like, 25),
    "negative-gelu": _in_filters(lambda filters: -gelu(filters), 25, LAYERS[10:14]),
    "amplify": _amplify,
    "random-mask": _in_a_layer(_randomly_masked),
    "rotate": _in_a_layer(lambda weight, draw: torch.rot90(weight, draw.one_of((1, 2, 3)), (2, 3))),
    "negate-a-fifth": _negate_a_fifth,
    "largest-tap": _in_a_layer(_only_largest_tap),
}

# The auto-encoder's code in [-1, 1], before its bits are drawn; only the first distortion acts on the bits

AFTER_BITS = "scale-bits"


def _flipping_axes(draw: Draw) -> tuple[int, ...]:
    # The published code draws two of (batch, height, width), and its batch is one image.
    return ((2,), (3,), (2, 3))[draw.one_of(range(3))]


def _identity(code: Tensor) -> Tensor:
    """The kernels of a convolution that leaves the code as it is."""
    channels = code.shape[1]
    kernels = torch.zeros(channels, channels, 3, 3, device=code.device)
    kernels[range(channels), range(channels), 1, 1] = 1
    return kernels


def _permute_channels(code: Tensor, draw: Draw) -> Tensor:
    order = [*draw.generator.permutation(10).tolist(), *range(10, code.shape[1])]
    return code[:, order]


def _flip_some_channels(code: Tensor, draw: Draw) -> Tensor:
    axes = _flipping_axes(draw)
    code = code.clone()
    for channel in draw.several(5, code.shape[1]):
        code[:, channel : channel + 1] = code[:, channel : channel + 1].flip(axes)
    return code


def _noisy_convolution(code: Tensor, draw: Draw) -> Tensor:
    kernels = _identity(code)
    return conv2d(code, kernels + (draw.uniform(kernels) - 0.5) * 0.2, padding=1)


def _extra_taps(code: Tensor, draw: Draw) -> Tensor:
    kernels = _identity(code)
    channels = code.shape[1]
    for channel in range(channels):
        if draw.happens(0.5):
            row, column = draw.tap()
            kernels[channel, draw.one_of(range(channels)), row, column] = 1
    return conv2d(code, kernels, padding=1)


def _shift(code: Tensor, draw: Draw) -> Tensor:
    """Shifts the channels. Neighbouring channels move alike, and one in five changes the direction."""
    kernels = torch.zeros_like(_identity(code))
    row, column = draw.tap()
    for channel in range(code.shape[1]):
        if draw.happens(0.2):
            row, column = draw.tap()
        kernels[channel, channel, row, column] = 1
    return conv2d(code, kernels, padding=1)


cae_codes: dict[str, Change] = {
    AFTER_BITS: lambda bits, draw: bits * (3 + 2 * draw.number() * 2 * draw.uniform(bits)),
    "zero-positions": lambda code, draw: code * (draw.uniform(code[:1, :1]) > 0.2),
    "negate-positions": lambda code, draw: code * ((draw.uniform(code[:1, :1]) > 0.1) * 2 - 1),
    "permute-channels": _permute_channels,
    "flip-some-channels": _flip_some_channels,
    "flip-channels": lambda code, draw: code.flip(_flipping_axes(draw)),
    "noisy-convolution": _noisy_convolution,
    "extra-taps": _extra_taps,
    "shift": _shift,
}
