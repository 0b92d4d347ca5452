"""Every loss against plain NumPy, written from its formula."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax
from scipy.stats import entropy

from shiftbench.errors import ShiftbenchError
from shiftbench.hardening.training_schemes import (
    LEAST_PROBABILITY,
    binary_cross_entropy,
    jensen_shannon,
    make_criterion,
    soft_cross_entropy,
    stability,
)
from tests.raised import raises

Floats = NDArray[np.float64]


def logits_of(seed: int, scale: float = 3.0) -> Floats:
    return np.random.default_rng(seed).normal(0, scale, (7, 5))


def tensor(values: Floats) -> torch.Tensor:
    return torch.from_numpy(values)


def test_soft_cross_entropy_is_the_mean_over_the_batch() -> None:
    logits = logits_of(0)
    targets = np.random.default_rng(1).dirichlet(np.ones(5), 7)
    by_hand = np.mean(
        [
            -sum(t * z for t, z in zip(row, log_softmax(one), strict=True))
            for row, one in zip(targets, logits, strict=True)
        ]
    )
    assert float(soft_cross_entropy(tensor(logits), tensor(targets))) == pytest.approx(by_hand)


def test_soft_cross_entropy_of_hard_targets_is_the_usual_one() -> None:
    logits = tensor(logits_of(2))
    classes = torch.tensor([0, 4, 2, 1, 3, 3, 0])
    hard = torch.nn.functional.one_hot(classes, 5).double()
    assert torch.allclose(soft_cross_entropy(logits, hard), torch.nn.functional.cross_entropy(logits, classes))


def test_label_smoothing_is_that_of_torch() -> None:
    logits = tensor(logits_of(3))
    classes = torch.tensor([0, 4, 2, 1, 3, 3, 0])
    ours = make_criterion("cross-entropy", 0.1)(logits, torch.nn.functional.one_hot(classes, 5).double())
    assert torch.allclose(ours, torch.nn.functional.cross_entropy(logits, classes, label_smoothing=0.1))
    assert torch.allclose(make_criterion("cross-entropy", 0.1)(logits, classes), ours)


def test_binary_cross_entropy_asks_every_class() -> None:
    logits = logits_of(4)
    targets = np.random.default_rng(5).integers(0, 2, (7, 5)).astype(float)
    chance = 1 / (1 + np.exp(-logits))
    by_hand = -(targets * np.log(chance) + (1 - targets) * np.log(1 - chance)).mean()
    assert float(binary_cross_entropy(tensor(logits), tensor(targets))) == pytest.approx(by_hand)


def divergence_by_hand(*views: Floats) -> float:
    """The published code's arithmetic, one image and one view at a time."""
    chances = [softmax(view, axis=1) for view in views]
    mean = np.clip(sum(chances) / len(chances), LEAST_PROBABILITY, 1)
    total = 0.0
    for chance in chances:
        for p, m in zip(chance, mean, strict=True):
            total += sum(a * (np.log(a) - np.log(b)) for a, b in zip(p, m, strict=True) if a > 0)
    return total / len(views[0]) / len(views)


@pytest.mark.parametrize("scale", [0.1, 3.0, 60.0])
def test_jensen_shannon_is_the_mean_divergence_from_the_mean(scale: float) -> None:
    views = [logits_of(seed, scale) for seed in (6, 7, 8)]
    assert float(jensen_shannon(*map(tensor, views))) == pytest.approx(divergence_by_hand(*views), abs=1e-9)


def test_jensen_shannon_of_two_is_scipys() -> None:
    first = logits_of(9)
    second = logits_of(10)
    p = softmax(first, axis=1)
    q = softmax(second, axis=1)
    middle = (p + q) / 2
    by_scipy = np.mean([(entropy(a, m) + entropy(b, m)) / 2 for a, b, m in zip(p, q, middle, strict=True)])
    assert float(jensen_shannon(tensor(first), tensor(second))) == pytest.approx(by_scipy)


def test_jensen_shannon_of_equal_views_is_nothing_and_never_more_than_the_logarithm_of_their_number() -> None:
    same = tensor(logits_of(11))
    assert float(jensen_shannon(same, same, same)) == pytest.approx(0, abs=1e-12)
    apart = [tensor(1000 * np.eye(5)[[k] * 4]).requires_grad_() for k in range(3)]
    divergence = jensen_shannon(*apart)
    assert divergence.item() == pytest.approx(np.log(3))
    # Probabilities that are zero in floating point: torch's kl_div has no gradient there.
    assert all(torch.isfinite(gradient).all() for gradient in torch.autograd.grad(divergence, apart))


def test_stability_by_hand() -> None:
    clean = logits_of(12)
    noisy = logits_of(13)
    p = softmax(clean, axis=1)
    q = softmax(noisy, axis=1)
    by_hand = np.mean([-(a * np.log(b)).sum() for a, b in zip(p, q, strict=True)])
    assert float(stability(tensor(clean), tensor(noisy))) == pytest.approx(by_hand)


def test_words_that_mean_nothing_are_refused() -> None:
    with raises(ShiftbenchError, name="crossentropy"):
        make_criterion("crossentropy")
    with pytest.raises(ShiftbenchError, match="smoothing"):
        make_criterion("cross-entropy", 1.0)
