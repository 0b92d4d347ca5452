"""Losses on logits, each a plain function that can be used alone.

Targets are class indices (N,), probabilities (N, classes) where two images were mixed, and zeros and ones (N, classes)
for multi-label images.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

import torch
from torch.nn import functional

from shiftbench.errors import ShiftbenchError, UnknownNameError

#: AugMix takes the logarithm of the mean distribution no nearer to zero than this.
LEAST_PROBABILITY = 1e-7


class Criterion(Protocol):
    """Logits and targets to one number."""

    def __call__(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor: ...


def soft_cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """-sum_k t_k log softmax(z)_k, the mean over the batch, for both kinds of targets.

    Args:
        logits: (batch, classes).
        targets: (batch, classes) probabilities, or (batch,) class indices.

    Example:
        >>> logits = torch.tensor([[2.0, 0.0]])
        >>> hard = soft_cross_entropy(logits, torch.tensor([0]))
        >>> torch.equal(soft_cross_entropy(logits, torch.tensor([[1.0, 0.0]])), hard)
        True
    """
    return functional.cross_entropy(logits, targets)


def binary_cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """For images with several labels: every class is a question of its own; the mean over all of them."""
    return functional.binary_cross_entropy_with_logits(logits, targets.to(logits.dtype))


def jensen_shannon(*logits: torch.Tensor) -> torch.Tensor:
    """The mean over the views of KL(p_view || M), with M the mean of their distributions (AugMix).

    As published, M is clamped to [1e-7, 1] before its logarithm, and the sum over classes is averaged over the batch.

    Args:
        logits: Logits of the views, one tensor (batch, classes) each.
    """
    views = [functional.softmax(one, dim=1) for one in logits]
    mean = torch.stack(views).mean(dim=0).clamp(LEAST_PROBABILITY, 1).log()
    return torch.stack([functional.kl_div(mean, view, reduction="batchmean") for view in views]).mean()


def stability(clean: torch.Tensor, noisy: torch.Tensor, distance: str = "cross-entropy") -> torch.Tensor:
    """How far a noisy image's answer is from the clean one's.

    002 minimises the cross-entropy from the noisy distribution to the clean one, as the method's authors do for
    classifiers: -sum_k p_k log q_k. ``kl`` takes the clean image's own entropy off, and ``l2`` compares logits.
    """
    if distance == "l2":
        return (clean - noisy).square().sum(dim=1).mean()
    own = functional.softmax(clean, dim=1)
    cross = -(own * functional.log_softmax(noisy, dim=1)).sum(dim=1).mean()
    if distance == "cross-entropy":
        return cross
    if distance == "kl":
        return cross + (own * functional.log_softmax(clean, dim=1)).sum(dim=1).mean()
    raise UnknownNameError("distance of stability training", distance, ("cross-entropy", "kl", "l2"))


def make_criterion(name: str = "cross-entropy", smoothing: float = 0.0) -> Criterion:
    """``cross-entropy`` for one label per image, ``binary`` for several."""
    if not 0 <= smoothing < 1:
        raise ShiftbenchError("no such label smoothing", found=smoothing, expected="0 to below 1")
    if name == "binary":
        if smoothing:
            raise ShiftbenchError("labels are smoothed for one label per image only", hint="leave smoothing out")
        return binary_cross_entropy
    if name != "cross-entropy":
        raise UnknownNameError("loss", name, ("cross-entropy", "binary"))
    if not smoothing:
        return soft_cross_entropy
    return partial(functional.cross_entropy, label_smoothing=smoothing)
