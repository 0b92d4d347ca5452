"""Shake-Shake (Gastaldi 2017): two branches a block, mixed by chance, and by another chance on the way back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from shiftbench.hardening.architectures.checks import blocks_of, check_choice, check_whole
from shiftbench.hardening.architectures.networks.attention import attention as make_attention
from shiftbench.hardening.architectures.networks.layers import Classification, convolution, initialise, stages

#: Channels of the first layer.
STEM = 16
MIXINGS = ("image", "batch", "even")


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


def mix(a: Tensor, b: Tensor, mixing: str) -> Tensor:
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
    def __init__(self, inputs: int, outputs: int, stride: int, *, mixing: str, attention: str) -> None:
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


class ShakeShake(nn.Module):
    """``width``: channels of the first stage, 32 in "26 2x32d".

    ``mixing``: "image" (the paper's best, Shake-Shake-Image), "batch", or "even" for the same network unshaken.
    """

    def __init__(self, *, classes: int, depth: int, width: int, mixing: str, attention: str) -> None:
        super().__init__()
        check_choice("mixing", mixing, MIXINGS)
        blocks = blocks_of("shake-shake", depth, layers=6, around=2)
        width = check_whole("width", width, least=2)

        def block(inputs: int, outputs: int, stride: int) -> nn.Module:
            return ShakeBlock(inputs, outputs, stride, mixing=mixing, attention=attention)

        self.stem = nn.Sequential(convolution(3, STEM), nn.BatchNorm2d(STEM))
        self.stages = stages(block, STEM, (width, 2 * width, 4 * width), blocks)
        self.head = Classification(4 * width, classes)
        initialise(self, "fan_out")

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.relu(self.stages(self.stem(x))))
        return logits
