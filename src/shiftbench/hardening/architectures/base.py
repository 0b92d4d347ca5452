"""Architectures by name: ``build("wrn-40-2", classes=10, attention="se")``.

A network takes normalised pixels (N, 3, H, W) and gives logits (N, classes). ``Normalised`` puts the normalisation
inside, so that losses, attacks and mixing all work on pixels in [0, 1].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from shiftbench.hardening.errors import ArchitectureError
from shiftbench.io.schema import check_options
from shiftbench.registry import Registry

#: Factories: ``classes`` and the options of a recipe's [architecture] table are their keyword arguments.
architectures: Registry[Callable[..., nn.Module]] = Registry(
    "architecture",
    builtin=(
        "shiftbench.hardening.architectures.residual",
        "shiftbench.hardening.architectures.dense",
        "shiftbench.hardening.architectures.all_conv",
        "shiftbench.hardening.architectures.timm_networks",
    ),
)


def build(name: str, *, classes: int, **options: object) -> nn.Module:
    """The network of this name; options that make it smaller are free, for miniature experiments."""
    factory = architectures.get(name)
    given = {"classes": classes, **options}
    return factory(**check_options(given, factory, f"the architecture {name!r}", ArchitectureError))


class Normalised(nn.Module):
    """A network that sees pixels in [0, 1]."""

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self, network: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.network((pixels - self.mean) / self.std)
        return logits
