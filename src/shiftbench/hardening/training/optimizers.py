"""The optimizer of a recipe, its learning rate, and the running mean of the weights."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from shiftbench.hardening.recipe import Optimizer


def make_optimizer(model: nn.Module, chosen: Optimizer) -> torch.optim.Optimizer:
    """All weights in one group; with a ``backbone_factor``, the last linear layer in a group of its own."""
    groups = [{"params": list(model.parameters()), "factor": 1.0}]
    if chosen.backbone_factor != 1:
        head = [part for part in model.modules() if isinstance(part, nn.Linear)][-1:]
        own = {id(one) for part in head for one in part.parameters()}
        groups = [
            {"params": [p for p in model.parameters() if id(p) not in own], "factor": chosen.backbone_factor},
            {"params": [p for p in model.parameters() if id(p) in own], "factor": 1.0},
        ]
    if chosen.name == "sgd":
        nesterov = chosen.nesterov and chosen.momentum > 0
        return torch.optim.SGD(
            groups, chosen.lr, momentum=chosen.momentum, nesterov=nesterov, weight_decay=chosen.weight_decay
        )
    kind = torch.optim.Adam if chosen.name == "adam" else torch.optim.AdamW
    return kind(groups, chosen.lr, weight_decay=chosen.weight_decay)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate * group["factor"]


def make_mean(model: nn.Module, decay: float) -> AveragedModel | None:
    """The running mean of weights and statistics; None where the recipe wants none."""
    if not decay:
        return None
    average = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
    return AveragedModel(model, multi_avg_fn=average, use_buffers=True)
