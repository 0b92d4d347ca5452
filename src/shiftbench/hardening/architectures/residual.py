"""Residual networks for 32 pixels: ResNet, ResNeXt, Wide ResNet and Shake-Shake, with the sizes of their papers."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

import torch
from msgspec import Meta
from torch import Tensor, nn
from torch.nn.functional import pad

from shiftbench.hardening.architectures.base import architectures
from shiftbench.hardening.architectures.layers import (
    Attention,
    Classification,
    Dropout,
    blocks_of,
    convolution,
    initialise,
    make_attention,
    stages,
)
from shiftbench.io.schema import Count

# ResNet (He et al. 2016)

#: Options A and B of the paper, for a block that changes the shape of its input.
Shortcut = Literal["A", "B"]


class PaddedIdentity(nn.Module):
    """Option A, which the paper uses at 32 pixels: every second pixel, and zeros for the channels that are new."""

    def __init__(self, new_channels: int, stride: int) -> None:
        super().__init__()
        self.new_channels, self.stride = new_channels, stride

    def forward(self, x: Tensor) -> Tensor:
        return pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.new_channels))


def shortcut(kind: Shortcut, inputs: int, outputs: int, stride: int) -> nn.Module:
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
        self.shortcut = shortcut(kind, inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        branch = torch.relu(self.norm1(self.conv1(x)))
        branch = self.attention(self.norm2(self.conv2(branch)))
        return torch.relu(branch + self.shortcut(x))


@architectures.register("resnet-20")
class ResNet(nn.Module):
    """He et al.'s residual network for 32 pixels; depth 6n + 2.

    ``width``: channels of the first stage, 16 in the paper. ``shortcut``: "A" without parameters, or "B".
    """

    def __init__(
        self,
        *,
        classes: Count,
        depth: Count = 20,
        width: Count = 16,
        shortcut: Shortcut = "A",
        attention: Attention = "none",
    ) -> None:
        super().__init__()
        blocks = blocks_of("resnet", depth, layers=6, around=2)

        def block(inputs: int, outputs: int, stride: int) -> nn.Module:
            return BasicBlock(inputs, outputs, stride, kind=shortcut, attention=attention)

        self.stem = nn.Sequential(convolution(3, width), nn.BatchNorm2d(width), nn.ReLU())
        self.stages = stages(block, width, (width, 2 * width, 4 * width), blocks)
        self.head = Classification(4 * width, classes)
        initialise(self, "fan_in")

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.stages(self.stem(x)))
        return logits


architectures.add("resnet-56", partial(ResNet, depth=56))

# ResNeXt

#: A block gives so many times the stem's channels.
_EXPANSION = 4


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
        self.shortcut = shortcut("B", inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        branch = torch.relu(self.norm1(self.conv1(x)))
        branch = torch.relu(self.norm2(self.conv2(branch)))
        branch = self.attention(self.norm3(self.conv3(branch)))
        return torch.relu(branch + self.shortcut(x))


@architectures.register("resnext-29")
class ResNeXt(nn.Module):
    """Grouped bottlenecks (Xie et al. 2017, section 5.2); depth 9n + 2.

    ``cardinality`` groups of ``width`` channels in the first stage, doubled in each later one; "4x32d".

    ``stem``: channels of the first layer, 64 in the paper; a miniature has fewer.
    """

    def __init__(
        self,
        *,
        classes: Count,
        depth: Count = 29,
        cardinality: Count = 4,
        width: Count = 32,
        stem: Count = 64,
        attention: Attention = "none",
    ) -> None:
        super().__init__()
        blocks = blocks_of("resnext", depth, layers=9, around=2)
        first, middle = _EXPANSION * stem, cardinality * width

        def block(inputs: int, outputs: int, stride: int) -> nn.Module:
            wide = middle * (outputs // first)
            return GroupedBottleneck(inputs, outputs, stride, middle=wide, groups=cardinality, attention=attention)

        self.stem = nn.Sequential(convolution(3, stem), nn.BatchNorm2d(stem), nn.ReLU())
        self.stages = stages(block, stem, (first, 2 * first, 4 * first), blocks)
        self.head = Classification(4 * first, classes)
        initialise(self, "fan_out")

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.stages(self.stem(x)))
        return logits


# Wide ResNet: norm and rectifier before each convolution

#: Channels of the stem and, times the width, of the first stage.
_BASE = 16


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
        summed: Tensor = kept + self.attention(self.conv2(branch))
        return summed


@architectures.register("wrn-40-2")
class WideResNet(nn.Module):
    """A wide residual network (Zagoruyko and Komodakis 2016), AugMix's main one; depth 6n + 4.

    ``width``: multiple of the stages' 16, 32 and 64 channels.
    """

    def __init__(
        self,
        *,
        classes: Count,
        depth: Count = 40,
        width: Count = 2,
        dropout: Dropout = 0.0,
        attention: Attention = "none",
    ) -> None:
        super().__init__()
        blocks = blocks_of("wide resnet", depth, layers=6, around=4)
        first = _BASE * width

        def block(inputs: int, outputs: int, stride: int) -> nn.Module:
            return PreactivatedBlock(inputs, outputs, stride, dropout=dropout, attention=attention)

        self.stem = convolution(3, _BASE)
        self.stages = stages(block, _BASE, (first, 2 * first, 4 * first), blocks)
        self.norm = nn.BatchNorm2d(4 * first)
        self.head = Classification(4 * first, classes)
        initialise(self, "fan_out")

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.relu(self.norm(self.stages(self.stem(x)))))
        return logits


architectures.add("wrn-16-4", partial(WideResNet, depth=16, width=4))

# Shake-Shake: two branches per block, mixed at random, and with other weights in the backward pass

#: Channels of the first layer.
_SHAKE_STEM = 16
Mixing = Literal["image", "batch", "even"]


class Shake(torch.autograd.Function):
    """alpha * a + (1 - alpha) * b forwards; backwards as if it had been beta."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
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
    mixed: Tensor = Shake.apply(a, b, alpha, beta)  # type: ignore[no-untyped-call]
    return mixed


class ShiftedShortcut(nn.Module):
    """Half the new channels read every second pixel, the other half those one step further down and right."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.conv1 = convolution(inputs, outputs // 2, 1)
        self.conv2 = convolution(inputs, outputs - outputs // 2, 1)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(x)
        shifted = pad(x, (-1, 1, -1, 1))
        step = self.stride
        halves = [self.conv1(x[:, :, ::step, ::step]), self.conv2(shifted[:, :, ::step, ::step])]
        normed: Tensor = self.norm(torch.cat(halves, dim=1))
        return normed


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
                convolution(outputs, outputs),
                nn.BatchNorm2d(outputs),
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
class ShakeShake(nn.Module):
    """Two branches per block, mixed at random in training (Gastaldi 2017); depth 6n + 2.

    ``width``: channels of the first stage, 32 in "26 2x32d".

    ``mixing``: "image" (the paper's best, Shake-Shake-Image), "batch", or "even" for the same network unshaken.
    """

    def __init__(
        self,
        *,
        classes: Count,
        depth: Count = 26,
        width: Annotated[int, Meta(ge=2)] = 32,
        mixing: Mixing = "image",
        attention: Attention = "none",
    ) -> None:
        super().__init__()
        blocks = blocks_of("shake-shake", depth, layers=6, around=2)

        def block(inputs: int, outputs: int, stride: int) -> nn.Module:
            return ShakeBlock(inputs, outputs, stride, mixing=mixing, attention=attention)

        self.stem = nn.Sequential(convolution(3, _SHAKE_STEM), nn.BatchNorm2d(_SHAKE_STEM))
        self.stages = stages(block, _SHAKE_STEM, (width, 2 * width, 4 * width), blocks)
        self.head = Classification(4 * width, classes)
        initialise(self, "fan_out")

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.relu(self.stages(self.stem(x))))
        return logits
