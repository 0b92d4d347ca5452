"""Wide ResNet (Zagoruyko and Komodakis 2016): WRN-depth-width, norm and rectifier before each convolution."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shiftbench.hardening.architectures.checks import blocks_of, check_share, check_whole
from shiftbench.hardening.architectures.networks.attention import attention as make_attention
from shiftbench.hardening.architectures.networks.layers import Classification, convolution, initialise, stages

#: Channels of the stem and, times the width, of the first stage.
BASE = 16


class PreactivatedBlock(nn.Module):
    """Where the shape changes, the shortcut too begins behind the first norm and rectifier."""

    def __init__(self, inputs: int, outputs: int, stride: int, *, dropout: float, attention: str) -> None:
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


class WideResNet(nn.Module):
    """``width``: how many times as wide as the stages of 16, 32 and 64 channels."""

    def __init__(self, *, classes: int, depth: int, width: int, dropout: float, attention: str) -> None:
        super().__init__()
        blocks = blocks_of("wide resnet", depth, layers=6, around=4)
        first = BASE * check_whole("width", width)
        check_share("dropout", dropout)

        def block(inputs: int, outputs: int, stride: int) -> nn.Module:
            return PreactivatedBlock(inputs, outputs, stride, dropout=dropout, attention=attention)

        self.stem = convolution(3, BASE)
        self.stages = stages(block, BASE, (first, 2 * first, 4 * first), blocks)
        self.norm = nn.BatchNorm2d(4 * first)
        self.head = Classification(4 * first, classes)
        initialise(self, "fan_out")

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.relu(self.norm(self.stages(self.stem(x)))))
        return logits
