"""The architectures that come with the package, with the sizes of their papers as defaults.

Every option that makes a network smaller (``depth``, ``width``) is free, so that an experiment can run in miniature.
"""

from __future__ import annotations

from torch import nn

from shiftbench.hardening.architectures.base import architectures
from shiftbench.hardening.architectures.networks.all_conv import AllConv
from shiftbench.hardening.architectures.networks.densenet import DenseNet
from shiftbench.hardening.architectures.networks.multiscale import MultiscaleNet
from shiftbench.hardening.architectures.networks.resnet import ResNet
from shiftbench.hardening.architectures.networks.resnext import ResNeXt
from shiftbench.hardening.architectures.networks.shake_shake import ShakeShake
from shiftbench.hardening.architectures.networks.timm_networks import timm_network
from shiftbench.hardening.architectures.networks.wide_resnet import WideResNet


@architectures.register("resnet-20")
def resnet_20(
    *, classes: int, depth: int = 20, width: int = 16, shortcut: str = "A", attention: str = "none"
) -> nn.Module:
    """He et al.'s residual network for 32 pixels; depth 6n + 2, width = channels of the first stage."""
    return ResNet(classes=classes, depth=depth, width=width, shortcut=shortcut, attention=attention)


@architectures.register("resnet-56")
def resnet_56(
    *, classes: int, depth: int = 56, width: int = 16, shortcut: str = "A", attention: str = "none"
) -> nn.Module:
    """As resnet-20, deeper."""
    return ResNet(classes=classes, depth=depth, width=width, shortcut=shortcut, attention=attention)


@architectures.register("wrn-40-2")
def wrn_40_2(
    *, classes: int, depth: int = 40, width: int = 2, dropout: float = 0.0, attention: str = "none"
) -> nn.Module:
    """A wide residual network, AugMix's main one; depth 6n + 4, width = times 16, 32 and 64 channels."""
    return WideResNet(classes=classes, depth=depth, width=width, dropout=dropout, attention=attention)


@architectures.register("wrn-16-4")
def wrn_16_4(
    *, classes: int, depth: int = 16, width: int = 4, dropout: float = 0.0, attention: str = "none"
) -> nn.Module:
    """As wrn-40-2, shallower and wider."""
    return WideResNet(classes=classes, depth=depth, width=width, dropout=dropout, attention=attention)


@architectures.register("densenet-40")
def densenet_40(
    *,
    classes: int,
    depth: int = 40,
    width: int = 12,
    bottleneck: bool = False,
    dropout: float = 0.0,
    attention: str = "none",
) -> nn.Module:
    """A densely connected network; depth 3n + 4 (6n + 4 with bottlenecks), width = growth rate."""
    return DenseNet(
        classes=classes, depth=depth, width=width, bottleneck=bottleneck, dropout=dropout, attention=attention
    )


@architectures.register("resnext-29")
def resnext_29(
    *,
    classes: int,
    depth: int = 29,
    cardinality: int = 4,
    width: int = 32,
    stem: int = 64,
    attention: str = "none",
) -> nn.Module:
    """Grouped bottlenecks, here 4x32d; depth 9n + 2, width = channels of a group in the first stage."""
    return ResNeXt(classes=classes, depth=depth, cardinality=cardinality, width=width, stem=stem, attention=attention)


@architectures.register("shake-shake")
def shake_shake(
    *, classes: int, depth: int = 26, width: int = 32, mixing: str = "image", attention: str = "none"
) -> nn.Module:
    """Two branches a block, mixed by chance while it trains; 26 2x32d; depth 6n + 2."""
    return ShakeShake(classes=classes, depth=depth, width=width, mixing=mixing, attention=attention)


@architectures.register("multiscale")
def multiscale(*, classes: int, depth: int = 16, width: int = 6, scales: int = 3, attention: str = "none") -> nn.Module:
    """Several scales side by side through the whole depth, densely joined; width = growth of the finest."""
    return MultiscaleNet(classes=classes, depth=depth, width=width, scales=scales, attention=attention)


@architectures.register("all-conv")
def all_conv(
    *,
    classes: int,
    depth: int = 9,
    width: int = 96,
    dropout: float = 0.5,
    batch_norm: bool = True,
    attention: str = "none",
) -> nn.Module:
    """Convolutions alone; depth 2n + 3, width = channels of the first n layers."""
    return AllConv(
        classes=classes, depth=depth, width=width, dropout=dropout, batch_norm=batch_norm, attention=attention
    )


@architectures.register("timm")
def timm(*, classes: int, model: str = "resnet50", pretrained: bool = False, weights: str | None = None) -> nn.Module:
    """Any network of timm, for pictures of 224 pixels; with random weights unless others are asked for."""
    return timm_network(classes=classes, model=model, pretrained=pretrained, weights=weights)
