"""Architectures by name (``build("wrn-40-2", classes=10, attention="se")``), the layers they share, and timm's.

A network takes normalised pixels (N, 3, H, W) and gives logits (N, classes). ``Normalised`` puts the normalisation
inside, so that losses, attacks and mixing all work on pixels in [0, 1].

Attention: Squeeze-and-Excitation (Hu et al. 2018) weighs channels, the Convolutional Block Attention Module (Woo et
al. 2018) channels and locations. Both squeeze the channels 16-fold, here to no fewer than eight: a sixteenth of the 16
channels of a small network would be one number, and so few rectified numbers are often zero for every image, which
leaves a gate that cannot learn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import torch
from msgspec import Meta
from torch import Tensor, nn

from shiftbench.errors import UnknownNameError
from shiftbench.extend.classifiers import import_timm
from shiftbench.extend.options import Count, check_options
from shiftbench.extend.registration import Registry
from shiftbench.hardening.errors import ArchitectureError

#: Factories of networks: ``classes`` and the options of a recipe's [architecture] table are their keyword arguments.
architectures: Registry[Callable[..., nn.Module]] = Registry(
    "architecture",
    builtin=(
        "shiftbench.hardening.architectures.residual",
        "shiftbench.hardening.architectures.dense",
        "shiftbench.hardening.architectures.own",
    ),
)


def build(name: str, *, classes: int, **options: object) -> nn.Module:
    """The network of this name; options that make it smaller allow miniature experiments."""
    factory = architectures.get(name)
    arguments = {"classes": classes, **options}
    return factory(**check_options(arguments, factory, f"the architecture {name!r}", ArchitectureError))


class Normalised(nn.Module):
    """A network that sees pixels in [0, 1]."""

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1))

    def forward(self, pixels: Tensor) -> Tensor:
        return self.network((pixels - self.mean) / self.std)  # type: ignore[no-any-return]


class Scheduled(nn.Module, ABC):
    """A part of a network that changes with the training's progress, or adds to the loss."""

    @abstractmethod
    def progress(self, done: float) -> None:
        """Called before every step with the share of the training that is over."""

    @abstractmethod
    def penalty(self) -> Tensor:
        """A term that is added to the loss of every step."""


# Layers

#: The probability of dropping a value; 1 would drop all of them.
Dropout = Annotated[float, Meta(ge=0, lt=1)]
#: A function that makes a block from its input channels, its output channels and its stride.
MakeBlock = Callable[[int, int, int], nn.Module]


def filtered(inputs: int, outputs: int, size: int = 3, *, stride: int = 1) -> nn.Sequential:
    """A convolution with a batch norm and a rectifier."""
    return nn.Sequential(convolution(inputs, outputs, size, stride=stride), nn.BatchNorm2d(outputs), nn.ReLU())


def imagenet_stem(width: int) -> nn.Sequential:
    """The first layers for images of 224 pixels, which reduce their sides four-fold."""
    return nn.Sequential(filtered(3, width, 7, stride=2), nn.MaxPool2d(3, stride=2, padding=1))


def convolution(inputs: int, outputs: int, size: int = 3, *, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    """A convolution that keeps the image's size at stride 1. A batch norm follows or precedes, so it has no bias."""
    return nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, groups=groups, bias=False)


class Classification(nn.Module):
    """The mean over all positions, then one linear layer, so that images may have any size."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.mean(dim=(2, 3)))  # type: ignore[no-any-return]


def initialise(network: nn.Module, fan: Literal["fan_in", "fan_out"]) -> None:
    """Normal weights of variance 2 / fan (He et al. 2015); norms begin as the identity, biases at zero.

    He's own networks count the inputs of a filter; those that descend from Facebook's Torch code count the outputs.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode=fan, nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)


def blocks_of(family: str, depth: int, *, layers: int, around: int) -> int:
    """The number of blocks per stage, where one more block in every stage adds ``layers`` to the depth.

    >>> blocks_of("resnet", 20, layers=6, around=2)
    3
    """
    blocks, remainder = divmod(depth - around, layers)
    if remainder or blocks < 1:
        lower = layers * max(blocks, 1) + around
        raise ArchitectureError(
            f"invalid depth of {family}",
            found=depth,
            expected=f"{layers}n + {around} with n = 1, 2, ...",
            hint=f"depth = {lower} or {lower + layers}",
        )
    return blocks


# Attention

Attention = Literal["none", "se", "cbam"]
#: The factor by which a gate squeezes the channels.
REDUCTION = 16
#: The smallest number of squeezed channels.
FEWEST = 8


def make_attention(kind: Attention, channels: int) -> nn.Module:
    """The module to put behind features with this many channels; the identity for "none"."""
    if kind == "se":
        return SqueezeExcitation(channels)
    if kind == "cbam":
        return BlockAttention(channels)
    return nn.Identity()


class ChannelGate(nn.Module):
    """Two layers without biases, as 1x1 convolutions, from (N, C, 1, 1) to as many logits."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        hidden = max(channels // REDUCTION, FEWEST)
        self.squeeze = nn.Conv2d(channels, hidden, 1, bias=False)
        self.excite = nn.Conv2d(hidden, channels, 1, bias=False)

    def forward(self, summary: Tensor) -> Tensor:
        return self.excite(torch.relu(self.squeeze(summary)))  # type: ignore[no-any-return]


class SqueezeExcitation(nn.Module):
    """Each channel times a factor in (0, 1) that the means of all channels decide."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gate = ChannelGate(channels)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.gate(x.mean(dim=(2, 3), keepdim=True)))


class BlockAttention(nn.Module):
    """Weighs channels, by their means and maxima through one gate, and then positions, by a 7x7 filter over both."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gate = ChannelGate(channels)
        self.place = nn.Conv2d(2, 1, 7, padding=3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        means = x.mean(dim=(2, 3), keepdim=True)
        maxima = x.amax(dim=(2, 3), keepdim=True)
        x = x * torch.sigmoid(self.gate(means) + self.gate(maxima))
        summary = torch.cat([x.amax(dim=1, keepdim=True), x.mean(dim=1, keepdim=True)], dim=1)
        return x * torch.sigmoid(self.place(summary))


# timm


@architectures.register("timm")
def timm_network(
    *,
    classes: Count,
    model: str = "resnet50",
    pretrained: bool = False,
    options: dict[str, Any] | None = None,
) -> nn.Module:
    """Any network of timm, for images of 224 pixels; with random weights unless others are requested.

    ``options``: keyword arguments of timm's ``create_model``, such as ``drop_path_rate``.
    """
    timm = import_timm()
    if not timm.is_model(model):
        raise UnknownNameError("timm model", model, timm.list_models())
    try:
        network: nn.Module = timm.create_model(model, pretrained=pretrained, num_classes=classes, **(options or {}))
    except TypeError as error:
        raise ArchitectureError(f"invalid architecture.options of {model!r}", found=error) from error
    return network
