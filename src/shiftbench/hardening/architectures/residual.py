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

from shiftbench.extend.options import Count
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
        modules: list[nn.Module] = []
        for stage in range(3):
            outputs = width * 2**stage
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                modules.append(make(inputs, outputs, stride))
                inputs = outputs
        self.stages = nn.Sequential(*modules)
        self.norm = nn.BatchNorm2d(inputs) if last_norm else nn.Identity()
        self.head = Classification(inputs, classes)
        initialise(self, fan)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.norm(self.stages(self.stem(x)))))  # type: ignore[no-any-return]


def normed(inputs: int, outputs: int) -> list[nn.Module]:
    """A 3x3 convolution and its batch norm."""
    return [convolution(inputs, outputs), nn.BatchNorm2d(outputs)]


# ResNet (He et al. 2016)


class PaddedIdentity(nn.Module):
    """Option A, which the paper uses at 32 pixels: every second pixel, and zeros for the new channels."""

    def __init__(self, new_channels: int, stride: int) -> None:
        super().__init__()
        self.new_channels = new_channels
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        return pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.new_channels))


def make_shortcut(kind: Shortcut, inputs: int, outputs: int, stride: int) -> nn.Module:
    """The layer between a block's input and the sum: option A or B of the paper if the block changes the shape."""
    if inputs == outputs and stride == 1:
        return nn.Identity()
    if kind == "A":
        return PaddedIdentity(outputs - inputs, stride)
    return nn.Sequential(convolution(inputs, outputs, 1, stride=stride), nn.BatchNorm2d(outputs))


class BasicBlock(nn.Module):
    """Two 3x3 layers; attention weighs what they add to the input."""

    def __init__(self, inputs: int, outputs: int, stride: int, *, kind: Shortcut, attention: Attention) -> None:
        super().__init__()
        self.conv1 = convolution(inputs, outputs, stride=stride)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = convolution(outputs, outputs)
        self.norm2 = nn.BatchNorm2d(outputs)
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

# ResNeXt: a block has four times the stem's channels as output


class GroupedBottleneck(nn.Module):
    """1x1, grouped 3x3 and 1x1 layers; shortcuts of another shape are projections (option B)."""

    def __init__(
        self, inputs: int, outputs: int, stride: int, *, middle: int, groups: int, attention: Attention
    ) -> None:
        super().__init__()
        self.conv1 = convolution(inputs, middle, 1)
        self.norm1 = nn.BatchNorm2d(middle)
        self.conv2 = convolution(middle, middle, stride=stride, groups=groups)
        self.norm2 = nn.BatchNorm2d(middle)
        self.conv3 = convolution(middle, outputs, 1)
        self.norm3 = nn.BatchNorm2d(outputs)
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
    blocks = blocks_of("resnext", depth, layers=9, around=2)
    first_outputs = 4 * stem

    def block(inputs: int, outputs: int, stride: int) -> nn.Module:
        middle = cardinality * width * (outputs // first_outputs)
        return GroupedBottleneck(inputs, outputs, stride, middle=middle, groups=cardinality, attention=attention)

    return StagedNet(filtered(3, stem), block, stem, first_outputs, blocks, classes)


# Wide ResNet: norm and rectifier before each convolution


class PreactivatedBlock(nn.Module):
    """A block whose shortcut, if the shape changes, also begins after the first norm and rectifier."""

    def __init__(self, inputs: int, outputs: int, stride: int, *, dropout: float, attention: Attention) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = convolution(inputs, outputs, stride=stride)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.conv2 = convolution(outputs, outputs)
        self.dropout = nn.Dropout(dropout)
        self.attention = make_attention(attention, outputs)
        self.shortcut = None if inputs == outputs else convolution(inputs, outputs, 1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        active = torch.relu(self.norm1(x))
        branch = self.dropout(torch.relu(self.norm2(self.conv1(active))))
        shortcut = x if self.shortcut is None else self.shortcut(active)
        return shortcut + self.attention(self.conv2(branch))  # type: ignore[no-any-return]


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
    """alpha * a + (1 - alpha) * b in the forward pass; the backward pass takes beta in place of alpha."""

    @staticmethod
    def forward(ctx: FunctionCtx, a: Tensor, b: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
        ctx.save_for_backward(beta)
        return alpha * a + (1 - alpha) * b

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (beta,) = ctx.saved_tensors
        (gradient,) = gradients
        return beta * gradient, (1 - beta) * gradient, None, None


def mix(a: Tensor, b: Tensor, mixing: Mixing) -> Tensor:
    """Both shares are uniform, from torch's own generator, one for each image or one for the whole batch."""
    if mixing == "even":
        return (a + b) / 2
    count = len(a) if mixing == "image" else 1
    alpha = torch.rand((count, 1, 1, 1), device=a.device, dtype=a.dtype)
    beta = torch.rand((count, 1, 1, 1), device=a.device, dtype=a.dtype)
    return Shake.apply(a, b, alpha, beta)  # type: ignore[no-any-return, no-untyped-call]


class ShiftedShortcut(nn.Module):
    """Half of the new channels read every second pixel, the other half the pixels one step further down and right."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.conv1 = convolution(inputs, outputs // 2, 1)
        self.conv2 = convolution(inputs, outputs - outputs // 2, 1)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(x)
        step = self.stride
        shifted = pad(x, (-1, 1, -1, 1))
        halves = [self.conv1(x[:, :, ::step, ::step]), self.conv2(shifted[:, :, ::step, ::step])]
        return self.norm(torch.cat(halves, dim=1))  # type: ignore[no-any-return]


class ShakeBlock(nn.Module):
    """Two branches, which are mixed at random in training and evenly in evaluation."""

    def __init__(self, inputs: int, outputs: int, stride: int, *, mixing: Mixing, attention: Attention) -> None:
        super().__init__()
        self.mixing = mixing
        self.branch1 = _branch(inputs, outputs, stride, attention)
        self.branch2 = _branch(inputs, outputs, stride, attention)
        if inputs == outputs and stride == 1:
            self.shortcut: nn.Module = nn.Identity()
        else:
            self.shortcut = ShiftedShortcut(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        mixed = mix(self.branch1(x), self.branch2(x), self.mixing if self.training else "even")
        shortcut: Tensor = self.shortcut(x)
        return shortcut + mixed


def _branch(inputs: int, outputs: int, stride: int, attention: Attention) -> nn.Sequential:
    return nn.Sequential(
        nn.ReLU(),
        convolution(inputs, outputs, stride=stride),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        *normed(outputs, outputs),
        make_attention(attention, outputs),
    )


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
    """Each grid gets a 3x3 filter over itself, the next finer grid's maxima and the next coarser grid, enlarged."""

    def __init__(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        super().__init__()
        # A filter reads its own grid and its neighbours.
        channels = [sum(inputs[max(grid - 1, 0) : grid + 2]) for grid in range(len(inputs))]
        self.filters = nn.ModuleList(nn.Sequential(*normed(n, m)) for n, m in zip(channels, outputs, strict=True))

    def forward(self, grids: list[Tensor]) -> list[Tensor]:
        results = []
        for number, (x, filters) in enumerate(zip(grids, self.filters, strict=True)):
            neighbourhood = [x]
            if number > 0:
                neighbourhood.insert(0, adaptive_max_pool2d(grids[number - 1], x.shape[2:]))
            if number + 1 < len(grids):
                neighbourhood.append(interpolate(grids[number + 1], x.shape[2:]))
            results.append(filters(torch.cat(neighbourhood, dim=1)))
        return results


class GridBlock(nn.Module):
    """The residual block of a pyramid: two layers, added to the input of each grid; new channels begin as zeros."""

    def __init__(self, inputs: Sequence[int], outputs: Sequence[int], attention: Attention) -> None:
        super().__init__()
        self.first = GridLayer(inputs, outputs)
        self.second = GridLayer(outputs, outputs)
        self.attention = nn.ModuleList(make_attention(attention, n) for n in outputs)
        self.shortcuts = nn.ModuleList(PaddedIdentity(m - n, 1) for n, m in zip(inputs, outputs, strict=True))

    def forward(self, grids: list[Tensor]) -> list[Tensor]:
        changes = self.second([torch.relu(x) for x in self.first(grids)])
        results = []
        for attend, change, shortcut, x in zip(self.attention, changes, self.shortcuts, grids, strict=True):
            results.append(torch.relu(attend(change) + shortcut(x)))
        return results


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
        self.first_merge = len(blocks) - merge
        outputs = [width // 2**grid for grid in range(grids)]
        self.stems = nn.ModuleList(imagenet_stem(n) if imagenet else filtered(3, n) for n in outputs)
        self.stages = nn.ModuleList()
        for stage, count in enumerate(blocks):
            inputs = outputs
            if stage >= self.first_merge:
                inputs = [*outputs[:-2], sum(outputs[-2:])]
                outputs = outputs[:-1]
            if stage > 0:
                outputs = [2 * n for n in outputs]
            stage_blocks = [GridBlock(inputs, outputs, attention)]
            stage_blocks += [GridBlock(outputs, outputs, attention) for _ in range(count - 1)]
            self.stages.append(nn.Sequential(*stage_blocks))
        self.linear = nn.Linear(sum(outputs), classes)
        initialise(self, "fan_in")

    def forward(self, x: Tensor) -> Tensor:
        grids = []
        for number, stem in enumerate(self.stems):
            grids.append(stem(avg_pool2d(x, 2**number) if number > 0 else x))
        for number, stage in enumerate(self.stages):
            # Between stages every grid is pooled to half its side. From the first merge on, the two coarsest become one
            # grid instead.
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
        layers_per_width = blocks_of("all-conv", depth, layers=2, around=3)
        modules: list[nn.Module] = []
        inputs = 3

        def add_layer(outputs: int, size: int, stride: int = 1) -> None:
            nonlocal inputs
            modules.append(nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=not batch_norm))
            if batch_norm:
                modules.append(nn.BatchNorm2d(outputs))
            modules.append(nn.ReLU())
            inputs = outputs

        for outputs in (width, 2 * width):
            for _ in range(layers_per_width - 1):
                add_layer(outputs, 3)
            add_layer(outputs, 3, stride=2)
            modules += [make_attention(attention, outputs), nn.Dropout(dropout)]
        add_layer(inputs, 3)
        add_layer(inputs, 1)
        self.features = nn.Sequential(*modules)
        self.scores = nn.Conv2d(inputs, classes, 1)
        initialise(self, "fan_in")

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.scores(self.features(x))
        return scores.mean(dim=(2, 3))
