"""Networks for 32 pixels: ResNet, ResNeXt, Wide ResNet, Shake-Shake, Multigrid, All-CNN, with their papers' sizes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal

import torch
from msgspec import Meta
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.nn.functional import adaptive_max_pool2d, avg_pool2d, interpolate, max_pool2d, pad

from shiftbench.hardening.architectures.base import (
    Attention,
    Classification,
    Dropout,
    MakeBlock,
    architectures,
    blocks_of,
    convolution,
    filtered,
    imagenet_stem,
    initialise,
    make_attention,
)
from shiftbench.hardening.errors import ArchitectureError
from shiftbench.io.schema import Count

#: Options A and B of He et al., for a block that changes the shape of its input.
Shortcut = Literal["A", "B"]
#: Channels of the first layer of wide networks and of Shake-Shake.
_STEM = 16


class StagedNet(nn.Module):
    """A stem, three stages of ``blocks`` blocks each, and the head; a stage halves the image and doubles the channels.

    ``width``: output channels of the first stage.
    """

    def __init__(
        self,
        stem: nn.Sequential | nn.Conv2d,
        make: MakeBlock,
        inputs: int,
        width: int,
        blocks: int,
        classes: int,
        *,
        fan: Literal["fan_in", "fan_out"] = "fan_out",
        last_norm: bool = False,
    ) -> None:
        super().__init__()
        self.stem = stem
        made: list[nn.Module] = []
        for stage in range(3):
            for block in range(blocks):
                made.append(make(inputs, width * 2**stage, 2 if stage > 0 and block == 0 else 1))
                inputs = width * 2**stage
        self.stages = nn.Sequential(*made)
        self.norm = nn.BatchNorm2d(inputs) if last_norm else nn.Identity()
        self.head = Classification(inputs, classes)
        initialise(self, fan)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.norm(self.stages(self.stem(x)))))  # type: ignore[no-any-return]


def normed(inputs: int, outputs: int) -> list[nn.Module]:
    return [convolution(inputs, outputs), nn.BatchNorm2d(outputs)]


# ResNet (He et al. 2016)


class PaddedIdentity(nn.Module):
    """Option A, which the paper uses at 32 pixels: every second pixel, and zeros for the channels that are new."""

    def __init__(self, new_channels: int, stride: int) -> None:
        super().__init__()
        self.new_channels, self.stride = new_channels, stride

    def forward(self, x: Tensor) -> Tensor:
        return pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.new_channels))


def make_shortcut(kind: Shortcut, inputs: int, outputs: int, stride: int) -> nn.Module:
    """How the input reaches the sum where the block changes its shape: option A or B of the paper."""
    if inputs == outputs and stride == 1:
        return nn.Identity()
    if kind == "A":
        return PaddedIdentity(outputs - inputs, stride)
    return nn.Sequential(convolution(inputs, outputs, 1, stride=stride), nn.BatchNorm2d(outputs))


class BasicBlock(nn.Module):
    """Two 3x3 layers; attention weighs what they add to the input."""

    def __init__(self, inputs: int, outputs: int, stride: int, *, kind: Shortcut, attention: Attention) -> None:
        super().__init__()
        self.conv1, self.norm1 = convolution(inputs, outputs, stride=stride), nn.BatchNorm2d(outputs)
        self.conv2, self.norm2 = convolution(outputs, outputs), nn.BatchNorm2d(outputs)
        self.attention = make_attention(attention, outputs)
        self.shortcut = make_shortcut(kind, inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        branch = torch.relu(self.norm1(self.conv1(x)))
        branch = self.attention(self.norm2(self.conv2(branch)))
        return torch.relu(branch + self.shortcut(x))


@architectures.register("resnet-20")
def resnet(
    *, classes: Count, depth: Count = 20, width: Count = 16, shortcut: Shortcut = "A", attention: Attention = "none"
) -> nn.Module:
    """He et al.'s residual network for 32 pixels; depth 6n + 2.

    ``width``: channels of the first stage, 16 in the paper. ``shortcut``: "A" without parameters, or "B".
    """
    blocks = blocks_of("resnet", depth, layers=6, around=2)
    stem = filtered(3, width)
    make = partial(BasicBlock, kind=shortcut, attention=attention)
    return StagedNet(stem, make, width, width, blocks, classes, fan="fan_in")


architectures.add("resnet-56", partial(resnet, depth=56))

# ResNeXt: a block gives four times the stem's channels


class GroupedBottleneck(nn.Module):
    """1x1, grouped 3x3 and 1x1 layers; shortcuts of another shape are projections (option B)."""

    def __init__(
        self, inputs: int, outputs: int, stride: int, *, middle: int, groups: int, attention: Attention
    ) -> None:
        super().__init__()
        self.conv1, self.norm1 = convolution(inputs, middle, 1), nn.BatchNorm2d(middle)
        self.conv2, self.norm2 = convolution(middle, middle, stride=stride, groups=groups), nn.BatchNorm2d(middle)
        self.conv3, self.norm3 = convolution(middle, outputs, 1), nn.BatchNorm2d(outputs)
        self.attention = make_attention(attention, outputs)
        self.shortcut = make_shortcut("B", inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        branch = torch.relu(self.norm1(self.conv1(x)))
        branch = torch.relu(self.norm2(self.conv2(branch)))
        branch = self.attention(self.norm3(self.conv3(branch)))
        return torch.relu(branch + self.shortcut(x))


@architectures.register("resnext-29")
def resnext(
    *,
    classes: Count,
    depth: Count = 29,
    cardinality: Count = 4,
    width: Count = 32,
    stem: Count = 64,
    attention: Attention = "none",
) -> nn.Module:
    """Grouped bottlenecks (Xie et al. 2017, section 5.2); depth 9n + 2.

    ``cardinality`` groups of ``width`` channels in the first stage, doubled in each later one; "4x32d".

    ``stem``: channels of the first layer, 64 in the paper; a miniature has fewer.
    """
    blocks, first = blocks_of("resnext", depth, layers=9, around=2), 4 * stem

    def block(inputs: int, outputs: int, stride: int) -> nn.Module:
        middle = cardinality * width * (outputs // first)
        return GroupedBottleneck(inputs, outputs, stride, middle=middle, groups=cardinality, attention=attention)

    return StagedNet(filtered(3, stem), block, stem, first, blocks, classes)


# Wide ResNet: norm and rectifier before each convolution


class PreactivatedBlock(nn.Module):
    """Where the shape changes, the shortcut too begins behind the first norm and rectifier."""

    def __init__(self, inputs: int, outputs: int, stride: int, *, dropout: float, attention: Attention) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), convolution(inputs, outputs, stride=stride)
        self.norm2, self.conv2 = nn.BatchNorm2d(outputs), convolution(outputs, outputs)
        self.dropout = nn.Dropout(dropout)
        self.attention = make_attention(attention, outputs)
        self.shortcut = None if inputs == outputs else convolution(inputs, outputs, 1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        active = torch.relu(self.norm1(x))
        branch = self.dropout(torch.relu(self.norm2(self.conv1(active))))
        kept = x if self.shortcut is None else self.shortcut(active)
        return kept + self.attention(self.conv2(branch))  # type: ignore[no-any-return]


@architectures.register("wrn-40-2")
def wide_resnet(
    *, classes: Count, depth: Count = 40, width: Count = 2, dropout: Dropout = 0.0, attention: Attention = "none"
) -> nn.Module:
    """A wide residual network (Zagoruyko and Komodakis 2016), AugMix's main one; depth 6n + 4.

    ``width``: multiple of the stages' 16, 32 and 64 channels.
    """
    blocks = blocks_of("wide resnet", depth, layers=6, around=4)
    make = partial(PreactivatedBlock, dropout=dropout, attention=attention)
    return StagedNet(convolution(3, _STEM), make, _STEM, _STEM * width, blocks, classes, last_norm=True)


architectures.add("wrn-16-4", partial(wide_resnet, depth=16, width=4))

# Shake-Shake: two branches per block, mixed at random, and with other weights in the backward pass

Mixing = Literal["image", "batch", "even"]


class Shake(torch.autograd.Function):
    """alpha * a + (1 - alpha) * b forwards; backwards as if it had been beta."""

    @staticmethod
    def forward(ctx: FunctionCtx, a: Tensor, b: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
        ctx.save_for_backward(beta)
        return alpha * a + (1 - alpha) * b

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (beta,), (gradient,) = ctx.saved_tensors, gradients
        return beta * gradient, (1 - beta) * gradient, None, None


def mix(a: Tensor, b: Tensor, mixing: Mixing) -> Tensor:
    """Both chances are uniform, from torch's own generator, one for each image or one for the whole batch."""
    if mixing == "even":
        return (a + b) / 2
    shape = (len(a) if mixing == "image" else 1, 1, 1, 1)
    alpha, beta = (torch.rand(shape, device=a.device, dtype=a.dtype) for _ in range(2))
    return Shake.apply(a, b, alpha, beta)  # type: ignore[no-any-return, no-untyped-call]


class ShiftedShortcut(nn.Module):
    """Half the new channels read every second pixel, the other half those one step further down and right."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.conv1 = convolution(inputs, outputs // 2, 1)
        self.conv2 = convolution(inputs, outputs - outputs // 2, 1)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        x, step = torch.relu(x), self.stride
        shifted = pad(x, (-1, 1, -1, 1))
        halves = [self.conv1(x[:, :, ::step, ::step]), self.conv2(shifted[:, :, ::step, ::step])]
        return self.norm(torch.cat(halves, dim=1))  # type: ignore[no-any-return]


class ShakeBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, *, mixing: Mixing, attention: Attention) -> None:
        super().__init__()
        self.mixing = mixing
        self.branch1, self.branch2 = (
            nn.Sequential(
                nn.ReLU(),
                convolution(inputs, outputs, stride=stride),
                nn.BatchNorm2d(outputs),
                nn.ReLU(),
                *normed(outputs, outputs),
                make_attention(attention, outputs),
            )
            for _ in range(2)
        )
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else ShiftedShortcut(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        mixed = mix(self.branch1(x), self.branch2(x), self.mixing if self.training else "even")
        kept: Tensor = self.shortcut(x)
        return kept + mixed


@architectures.register("shake-shake")
def shake_shake(
    *,
    classes: Count,
    depth: Count = 26,
    width: Annotated[int, Meta(ge=2)] = 32,
    mixing: Mixing = "image",
    attention: Attention = "none",
) -> nn.Module:
    """Two branches per block, mixed at random in training (Gastaldi 2017); depth 6n + 2.

    ``width``: channels of the first stage, 32 in "26 2x32d".
    ``mixing``: "image" (the paper's best, Shake-Shake-Image), "batch", or "even" for the same network unshaken.
    """
    blocks = blocks_of("shake-shake", depth, layers=6, around=2)
    make = partial(ShakeBlock, mixing=mixing, attention=attention)
    return StagedNet(nn.Sequential(*normed(3, _STEM)), make, _STEM, width, blocks, classes)


# Multigrid (Ke, Maire and Yu 2017): every layer is a pyramid of grids; each reads its finer and coarser neighbour


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

    ``grids`` grids, each half as fine and half as wide as the one before; ``width``: channels of the finest. Before
    each of the last ``merge`` stages the coarsest grid joins the next finer one, which is halved; the head reads what
    is left. ``imagenet``: stems of stride 4; the published network of 34 layers has blocks = [3, 4, 6, 3], merge = 2.
    """

    def __init__(
        self,
        *,
        classes: Count,
        blocks: tuple[Count, ...] = (3, 3, 3),
        width: Annotated[int, Meta(ge=4)] = 64,
        grids: Annotated[int, Meta(ge=1, le=3)] = 3,
        merge: Annotated[int, Meta(ge=0)] = 0,
        imagenet: bool = False,
        attention: Attention = "none",
    ) -> None:
        super().__init__()
        if merge and merge >= min(grids, len(blocks)):
            found = f"merge = {merge}, {grids} grids, {len(blocks)} stages"
            raise ArchitectureError("too many grids are merged", found=found, expected="fewer merges than both")
        self.first_merge, outputs = len(blocks) - merge, [width // 2**grid for grid in range(grids)]
        self.stems = nn.ModuleList(imagenet_stem(n) if imagenet else filtered(3, n) for n in outputs)
        self.stages = nn.ModuleList()
        for stage, count in enumerate(blocks):
            inputs, kept = outputs, outputs
            if stage >= self.first_merge:
                inputs, kept = [*outputs[:-2], sum(outputs[-2:])], outputs[:-1]
            outputs = [n * (2 if stage else 1) for n in kept]
            each = [GridBlock(outputs if block else inputs, outputs, attention) for block in range(count)]
            self.stages.append(nn.Sequential(*each))
        self.linear = nn.Linear(sum(outputs), classes)
        initialise(self, "fan_in")

    def forward(self, x: Tensor) -> Tensor:
        grids = [stem(avg_pool2d(x, 2**n) if n else x) for n, stem in enumerate(self.stems)]
        for number, stage in enumerate(self.stages):
            if number >= self.first_merge:
                *finer, last, coarsest = grids
                joined = torch.cat([adaptive_max_pool2d(last, coarsest.shape[2:]), coarsest], dim=1)
                grids = [*(max_pool2d(x, 2, ceil_mode=True) for x in finer), joined]
            elif number:
                grids = [max_pool2d(x, 2, ceil_mode=True) for x in grids]
            grids = stage(grids)
        return self.linear(torch.cat([x.mean(dim=(2, 3)) for x in grids], dim=1))  # type: ignore[no-any-return]


# All-CNN-C (Springenberg et al. 2015)


@architectures.register("all-conv")
class AllConv(nn.Module):
    """2n + 3 layers: twice n of 3x3, the last of them strided instead of a pool; then one of 3x3 and two of 1x1.

    ``width``: channels of the first n layers, 96 in the paper; all later ones have twice as many. The published
    network has no batch norm (``batch_norm=False``) and diverges at the learning rates of the others; with one after
    each layer, as in AugMix's experiments, one recipe fits all.
    """

    def __init__(
        self,
        *,
        classes: Count,
        depth: Count = 9,
        width: Count = 96,
        dropout: Dropout = 0.5,
        batch_norm: bool = True,
        attention: Attention = "none",
    ) -> None:
        super().__init__()
        each = blocks_of("all-conv", depth, layers=2, around=3)
        parts: list[nn.Module] = []
        inputs = 3

        def layer(outputs: int, size: int, stride: int = 1) -> None:
            nonlocal inputs
            parts.append(nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=not batch_norm))
            parts.extend([nn.BatchNorm2d(outputs), nn.ReLU()] if batch_norm else [nn.ReLU()])
            inputs = outputs

        for outputs in (width, 2 * width):
            for number in range(each):
                layer(outputs, 3, 2 if number == each - 1 else 1)
            parts += [make_attention(attention, outputs), nn.Dropout(dropout)]
        layer(inputs, 3)
        layer(inputs, 1)
        self.features = nn.Sequential(*parts)
        self.scores = nn.Conv2d(inputs, classes, 1)
        initialise(self, "fan_in")

    def forward(self, x: Tensor) -> Tensor:
        places: Tensor = self.scores(self.features(x))
        return places.mean(dim=(2, 3))
