"""Adversaries of training (003 section 5.1): uniform noise, one step, and several projected steps, each within an
l-infinity ball whose radius is drawn anew for every image, so that the model meets perturbations of all sizes.

They work on pixels in [0, 1]. ``shiftbench.shifts.attacks`` has the attacks for evaluation; these are for training:
few steps, a radius per image, and no search for the worst of several starts.
"""

from __future__ import annotations

import torch
from torch import nn

from shiftbench.classifiers.torch_ import evaluating
from shiftbench.hardening.losses import Criterion

#: The largest radius in 003.
EPSILON = 8 / 255


def random_radii(images: torch.Tensor, largest: float, generator: torch.Generator) -> torch.Tensor:
    """largest * u with u ~ U[0, 1], one for each image."""
    drawn = torch.rand(len(images), 1, 1, 1, generator=generator)
    return largest * drawn.to(images.device)


def uniform_noise(images: torch.Tensor, radii: torch.Tensor | float, generator: torch.Generator) -> torch.Tensor:
    """The adversary of no steps: U(-radius, radius) on every value, clipped to pixels."""
    drawn = torch.rand(images.shape, generator=generator).to(images.device)
    return (images + radii * (2 * drawn - 1)).clamp(0, 1)


def fgsm(
    model: nn.Module, images: torch.Tensor, targets: torch.Tensor, radii: torch.Tensor, criterion: Criterion
) -> torch.Tensor:
    """One step as long as the radius."""
    return pgd(model, images, targets, radii, criterion, steps=1, step_share=1.0)


def pgd(
    model: nn.Module,
    images: torch.Tensor,
    targets: torch.Tensor,
    radii: torch.Tensor,
    criterion: Criterion,
    *,
    steps: int = 10,
    step_share: float | None = None,
) -> torch.Tensor:
    """Steps of ``step_share`` * radius along the sign of the gradient, projected back into the ball and to pixels.

    The share is 1 / sqrt(steps), as in 003, unless said. It starts at the picture itself, as 003 writes it. The
    model stands in eval mode meanwhile: half-made attacks must not move the statistics of its batch norms.
    """
    share = steps**-0.5 if step_share is None else step_share
    moved = images.detach()
    low, high = (images - radii).clamp(min=0), (images + radii).clamp(max=1)
    with evaluating(model), torch.enable_grad():
        for _ in range(steps):
            moved.requires_grad_(True)
            (gradient,) = torch.autograd.grad(criterion(model(moved), targets), moved)
            moved = (moved.detach() + share * radii * gradient.sign()).clamp(low, high)
    return moved.detach()
