"""Adversaries stay within their ball and raise the loss; schemes are the sums that they say they are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax
from torch import nn

from shiftbench.errors import ShiftbenchError
from shiftbench.hardening.errors import RecipeError
from shiftbench.hardening.recipe import load_recipe
from shiftbench.hardening.recipe_check import check_recipe
from shiftbench.hardening.training_schemes import (
    EPSILON,
    Distillation,
    binary_cross_entropy,
    jensen_shannon,
    make_scheme,
    pgd,
    random_radii,
    schemes,
    soft_cross_entropy,
    stability,
    uniform_noise,
)
from tests.raised import raises


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 4)
    )


@pytest.fixture
def images() -> torch.Tensor:
    return torch.rand(16, 3, 8, 8, generator=seeded(1))


@pytest.fixture
def targets() -> torch.Tensor:
    return torch.eye(4)[torch.arange(16) % 4]


def test_radii_are_drawn_for_every_image() -> None:
    radii = random_radii(torch.zeros(4000, 3, 2, 2), EPSILON, seeded())
    assert radii.shape == (4000, 1, 1, 1)
    assert 0 <= float(radii.min()) < 0.01 * EPSILON * 10 and float(radii.max()) <= EPSILON
    assert float(radii.mean()) == pytest.approx(EPSILON / 2, rel=0.05)


def test_noise_fills_its_ball_and_keeps_to_pixels(images: torch.Tensor) -> None:
    radii = random_radii(images, EPSILON, seeded())
    noisy = uniform_noise(images, radii, seeded(2))
    assert ((noisy - images).abs() <= radii + 1e-6).all()
    assert noisy.min() >= 0 and noisy.max() <= 1
    grey = torch.full((2000, 1, 4, 4), 0.5)
    moved = uniform_noise(grey, 0.1, seeded(3)) - 0.5
    assert float(moved.std()) == pytest.approx(0.2 / math.sqrt(12), rel=0.03)


@pytest.mark.parametrize("steps", [1, 3, 10])
def test_pgd_stays_in_the_ball_and_raises_the_loss(
    model: nn.Module, images: torch.Tensor, targets: torch.Tensor, steps: int
) -> None:
    radii = random_radii(images, EPSILON, seeded())
    moved = pgd(model, images, targets, radii, soft_cross_entropy, steps=steps)
    assert ((moved - images).abs() <= radii + 1e-6).all()
    assert moved.min() >= 0 and moved.max() <= 1
    model.eval()
    assert soft_cross_entropy(model(moved), targets) > soft_cross_entropy(model(images), targets)


def test_more_steps_find_worse_images(model: nn.Module, images: torch.Tensor, targets: torch.Tensor) -> None:
    radii = torch.full((16, 1, 1, 1), 0.1)
    model.eval()
    attacked = [pgd(model, images, targets, radii, soft_cross_entropy, steps=n) for n in (1, 10)]
    found = [float(soft_cross_entropy(model(one), targets).detach()) for one in attacked]
    assert found[1] > found[0] - 1e-4


def test_a_pgd_step_is_the_radius_over_the_root_of_the_steps(
    model: nn.Module, images: torch.Tensor, targets: torch.Tensor
) -> None:
    """The first of ten steps, by the formula: sign of the gradient times radius / sqrt(10)."""
    radii = torch.full((16, 1, 1, 1), 0.02)
    model.eval()
    start = images.clone().requires_grad_(True)
    soft_cross_entropy(model(start), targets).backward()  # type: ignore[no-untyped-call]
    assert start.grad is not None
    by_hand = (images + 0.02 / math.sqrt(10) * start.grad.sign()).clamp(0, 1)
    ours = pgd(model, images, targets, radii / math.sqrt(10), soft_cross_entropy, steps=1, step_share=1.0)
    assert torch.allclose(ours, by_hand)
    whole = pgd(model, images, targets, radii, soft_cross_entropy, steps=1, step_share=1.0)
    assert torch.allclose(whole, (images + 0.02 * start.grad.sign()).clamp(0, 1))


def test_an_attack_leaves_the_model_as_it_was(model: nn.Module, images: torch.Tensor, targets: torch.Tensor) -> None:
    model.train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    pgd(model, images, targets, torch.full((16, 1, 1, 1), 0.1), soft_cross_entropy, steps=2)
    assert model.training
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())


def test_jsd_is_the_clean_loss_and_twelve_divergences(
    model: nn.Module, images: torch.Tensor, targets: torch.Tensor
) -> None:
    model.eval()
    views = [images, images.flip(3), images * 0.5]
    loss, logits = make_scheme("jsd")(model, views, targets, seeded())
    each = [model(view) for view in views]
    expected = soft_cross_entropy(each[0], targets) + 12 * jensen_shannon(*each)
    assert torch.allclose(loss, expected, atol=1e-5) and torch.allclose(logits, each[0], atol=1e-5)


def test_stability_is_the_clean_loss_and_the_move(
    model: nn.Module, images: torch.Tensor, targets: torch.Tensor
) -> None:
    model.eval()
    loss, _ = make_scheme("stability", weight=0.5, noise=0.1)(model, [images], targets, seeded(5))
    noisy = uniform_noise(images, 0.1, seeded(5))
    expected = soft_cross_entropy(model(images), targets) + 0.5 * stability(model(images), model(noisy))
    assert torch.allclose(loss, expected, atol=1e-5)


def test_distillation_is_the_loss_and_the_divergence_from_the_teacher(
    model: nn.Module, images: torch.Tensor, targets: torch.Tensor
) -> None:
    model.eval()
    teacher = nn.Sequential(nn.Flatten(), nn.Linear(192, 4))
    scheme = Distillation(teacher="none", weight=0.3, temperature=2.0)
    scheme.loaded.append(teacher)
    loss, _ = scheme(model, [images], targets, seeded())
    # By the definition of the divergence, in NumPy.
    student = softmax(model(images).detach().double().numpy() / 2, axis=1)
    expected = softmax(teacher(images).detach().double().numpy() / 2, axis=1)
    divergence = float((expected * np.log(expected / student)).sum(axis=1).mean())
    by_hand = 0.7 * float(soft_cross_entropy(model(images), targets)) + 0.3 * 4 * divergence
    assert float(loss) == pytest.approx(by_hand, abs=1e-5)
    # A student that is its own teacher has nothing to learn from it, and the teacher learns nothing.
    own = Distillation(teacher="none", weight=1.0)
    own.loaded.append(model)
    assert float(own(model, [images], targets, seeded()).loss) == pytest.approx(0, abs=1e-5)
    loss.backward()  # type: ignore[no-untyped-call]
    assert teacher[1].weight.grad is None
    with pytest.raises(ShiftbenchError, match="one label"):
        Distillation(binary_cross_entropy, teacher="none")


@pytest.mark.parametrize("name", [name for name, _ in schemes])
def test_every_scheme_has_a_gradient_and_repeats_itself(
    name: str, model: nn.Module, images: torch.Tensor, targets: torch.Tensor
) -> None:
    model.eval()
    options: dict[str, Any] = {}
    if name == "distillation":
        options["teacher"] = "none"
    scheme = make_scheme(name, **options)
    if isinstance(scheme, Distillation):
        scheme.loaded.append(nn.Sequential(nn.Flatten(), nn.Linear(192, 4)))
    views = [images * (1 - 0.1 * i) for i in range(scheme.views)]
    loss, logits = scheme(model, views, targets, seeded(3))
    loss.backward()  # type: ignore[no-untyped-call]
    assert logits.shape == (16, 4)
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in model.parameters())
    again, _ = scheme(model, views, targets, seeded(3))
    assert torch.equal(loss, again)


def test_impossible_adversaries_are_refused() -> None:
    for recipe, change in (("cifar-fgsm", "scheme.epsilon=0.0"), ("cifar-pgd", "scheme.steps=0")):
        with pytest.raises(RecipeError, match=change.split("=")[0].split(".")[1]):
            check_recipe(load_recipe(recipe, [change]))
    with raises(ShiftbenchError, name="pgdd"):
        make_scheme("pgdd")


def test_wong_starts_at_random_and_stays_within_one_radius(
    model: nn.Module, images: torch.Tensor, targets: torch.Tensor
) -> None:
    epsilon = 4 / 255
    wong = schemes.get("fgsm")(epsilon=epsilon, step=1.25, random_radius=False, random_start=True)
    moved = wong.moved(model, images, targets, seeded(2))
    assert ((moved - images).abs() <= epsilon + 1e-6).all() and moved.min() >= 0 and moved.max() <= 1
    # By hand: a step of 5/255 from the start, projected.
    model.eval()
    start = uniform_noise(images, torch.full((16, 1, 1, 1), epsilon), seeded(2)).requires_grad_(True)
    soft_cross_entropy(model(start), targets).backward()  # type: ignore[no-untyped-call]
    assert start.grad is not None
    stepped = start.detach() + 1.25 * epsilon * start.grad.sign()
    by_hand = torch.maximum(torch.minimum(stepped, images + epsilon), images - epsilon).clamp(0, 1)
    assert torch.allclose(moved, by_hand, atol=1e-6)


@pytest.mark.parametrize("per_batch", [False, True])
def test_either_counts_one_view_of_each_image_or_batch_by_even_odds(
    per_batch: bool, model: nn.Module, images: torch.Tensor, targets: torch.Tensor
) -> None:
    model.eval()
    views = [images, images.flip(3)]
    logits = [model(view).detach() for view in views]
    clean = []
    for seed in range(200):
        loss, taken = make_scheme("either", per_batch=per_batch)(model, views, targets, seeded(seed))
        first, second = (torch.isclose(taken, logit, atol=1e-6).all(dim=1) for logit in logits)
        assert bool((first ^ second).all()) and torch.isclose(loss, soft_cross_entropy(taken, targets))
        clean.append(float(first.float().mean()))
    assert 0.35 < sum(clean) / 200 < 0.65 and (set(clean) == {0.0, 1.0}) is per_batch
