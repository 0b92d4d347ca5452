"""ResNet for 32 pixels (He et al. 2016, section 4.2): 6n + 2 layers of 16, 32 and 64 channels."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from shiftbench.hardening.architectures.checks import blocks_of, check_choice, check_whole
from shiftbench.hardening.architectures.networks.attention import attention as make_attention
from shiftbench.hardening.architectures.networks.layers import Classification, convolution, initialise, stages


class PaddedIdentity(nn.Module):
    """Option A, which the paper uses at 32 pixels: every second pixel, and zeros for the channels that are new."""

    def __init__(self, new_channels: int, stride: int) -> None:
        super().__init__()
        self.new_channels, self.stride = new_channels, stride

    def forward(self, x: Tensor) -> Tensor:
        return pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.new_channels))


def shortcut(kind: str, inputs: int, outputs: int, stride: int) -> nn.Module:
    """How the input reaches the sum where the block changes its shape: option A or B of the paper."""
    if inputs == outputs and stride == 1:
        return nn.Identity()
    if kind == "A":
        return PaddedIdentity(outputs - inputs, stride)
    return nn.Sequential(convolution(inputs, outputs, 1, stride=stride), nn.BatchNorm2d(outputs))


class BasicBlock(nn.Module):
    """Two 3x3 layers; attention weighs what they add to the input."""

    def __init__(self, inputs: int, outputs: int, stride: int, *, kind: str, attention: str) -> None:
        super().__init__()
        self.conv1, self.norm1 = convolution(inputs, outputs, stride=stride), nn.BatchNorm2d(outputs)
        self.conv2, self.norm2 = convolution(outputs, outputs), nn.BatchNorm2d(outputs)
        self.attention = make_attention(attention, outputs)
        self.shortcut = shortcut(kind, inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        branch = torch.relu(self.norm1(self.conv1(x)))
        branch = self.attention(self.norm2(self.conv2(branch)))
        return torch.relu(branch + self.shortcut(x))


class ResNet(nn.Module):
    """``width``: channels of the first stage, 16 in the paper. ``shortcut``: "A" without parameters, or "B"."""

    def __init__(self, *, classes: int, depth: int, width: int, shortcut: str, attention: str) -> None:
        super().__init__()
        check_choice("shortcut", shortcut, ("A", "B"))
        blocks = blocks_of("resnet", depth, layers=6, around=2)
        width = check_whole("width", width)

        def block(inputs: int, outputs: int, stride: int) -> nn.Module:
            return BasicBlock(inputs, outputs, stride, kind=shortcut, attention=attention)

        self.stem = nn.Sequential(convolution(3, width), nn.BatchNorm2d(width), nn.ReLU())
        self.stages = stages(block, width, (width, 2 * width, 4 * width), blocks)
        self.head = Classification(4 * width, classes)
        initialise(self, "fan_in")

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.stages(self.stem(x)))
        return logits
