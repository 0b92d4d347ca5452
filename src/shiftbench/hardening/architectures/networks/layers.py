"""The few layers that all families share, and how their weights begin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from shiftbench.hardening.architectures.checks import check_whole

#: Makes one block from its input channels, its output channels and its stride.
MakeBlock = Callable[[int, int, int], nn.Module]


def convolution(inputs: int, outputs: int, size: int = 3, *, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    """Keeps the picture's size at stride 1; has no bias, because a batch norm follows or went before."""
    return nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, groups=groups, bias=False)


def stages(make: MakeBlock, inputs: int, widths: tuple[int, ...], blocks: int) -> nn.Sequential:
    """``blocks`` blocks of each width in turn; every stage but the first begins by halving the picture."""
    made: list[nn.Module] = []
    for stage, width in enumerate(widths):
        for block in range(blocks):
            made.append(make(inputs, width, 2 if stage > 0 and block == 0 else 1))
            inputs = width
    return nn.Sequential(*made)


class Classification(nn.Module):
    """The mean over all places, then one linear layer: pictures of any size will do."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(channels, check_whole("classes", classes))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.linear(x.mean(dim=(2, 3)))
        return logits


def initialise(network: nn.Module, fan: Literal["fan_in", "fan_out"]) -> None:
    """Normal weights of variance 2 / fan (He et al. 2015); norms begin as the identity, biases at zero.

    He's own networks count the inputs of a filter, those that descend from Facebook's Torch code the outputs.
    """
    for part in network.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode=fan, nonlinearity="relu")
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, nn.BatchNorm2d):
            nn.init.ones_(part.weight)
            nn.init.zeros_(part.bias)
        elif isinstance(part, nn.Linear):
            nn.init.zeros_(part.bias)
