"""ResNeXt for 32 pixels (Xie et al. 2017, section 5.2): bottlenecks whose 3x3 layer is split into groups."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shiftbench.hardening.architectures.checks import blocks_of, check_whole
from shiftbench.hardening.architectures.networks.attention import attention as make_attention
from shiftbench.hardening.architectures.networks.layers import Classification, convolution, initialise, stages
from shiftbench.hardening.architectures.networks.resnet import shortcut

#: A block gives so many times the stem's channels.
EXPANSION = 4


class GroupedBottleneck(nn.Module):
    """1x1, grouped 3x3 and 1x1 layers; shortcuts of another shape are projections (option B)."""

    def __init__(self, inputs: int, outputs: int, stride: int, *, middle: int, groups: int, attention: str) -> None:
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


class ResNeXt(nn.Module):
    """``cardinality`` groups of ``width`` channels in the first stage, doubled in each later one; "4x32d".

    ``stem``: channels of the first layer, 64 in the paper; a miniature has fewer.
    """

    def __init__(self, *, classes: int, depth: int, cardinality: int, width: int, stem: int, attention: str) -> None:
        super().__init__()
        blocks = blocks_of("resnext", depth, layers=9, around=2)
        groups, first = check_whole("cardinality", cardinality), EXPANSION * check_whole("stem", stem)
        middle = groups * check_whole("width", width)

        def block(inputs: int, outputs: int, stride: int) -> nn.Module:
            wide = middle * (outputs // first)
            return GroupedBottleneck(inputs, outputs, stride, middle=wide, groups=groups, attention=attention)

        self.stem = nn.Sequential(convolution(3, stem), nn.BatchNorm2d(stem), nn.ReLU())
        self.stages = stages(block, stem, (first, 2 * first, 4 * first), blocks)
        self.head = Classification(4 * first, classes)
        initialise(self, "fan_out")

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.stages(self.stem(x)))
        return logits
