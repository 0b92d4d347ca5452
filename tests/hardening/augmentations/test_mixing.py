"""Mixup and CutMix: images and labels are mixed by the same share."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from shiftbench.classifiers.zoo import import_torchvision
from shiftbench.hardening.augmentations.base import BatchAugmentation, make_batch_augmentation
from shiftbench.hardening.augmentations.mixing import on_device
from shiftbench.hardening.errors import AugmentationError


def batch(count: int = 8, height: int = 12, width: int = 10) -> tuple[torch.Tensor, torch.Tensor]:
    """Image i is of the value i / count all over, and of class i."""
    values = torch.arange(count) / count
    return values.view(-1, 1, 1, 1).expand(count, 3, height, width).clone(), torch.eye(count)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("name", ["mixup", "cutmix"])
def test_targets_stay_probabilities_and_the_input_is_left_alone(name: str) -> None:
    images, targets = batch()
    before = images.clone(), targets.clone()
    augment = make_batch_augmentation(name, probability=1)
    for seed in range(20):
        mixed, soft = augment(images, targets, seeded(seed))
        assert torch.allclose(soft.sum(dim=1), torch.ones(len(soft))) and (soft >= 0).all()
        assert mixed.shape == images.shape and mixed.min() >= 0 and mixed.max() <= 1
        again = augment(images, targets, seeded(seed))
        assert torch.equal(mixed, again[0]) and torch.equal(soft, again[1])
    assert torch.equal(images, before[0]) and torch.equal(targets, before[1])


def test_mixup_is_a_weighted_mean_with_a_permutation() -> None:
    images, targets = batch()
    for seed in range(30):
        mixed, soft = make_batch_augmentation("mixup")(images, targets, seeded(seed))
        for i in range(len(images)):
            classes = soft[i].nonzero().flatten().tolist()
            expected = sum(float(soft[i, c]) * images[c] for c in classes)
            assert torch.allclose(mixed[i], expected, atol=1e-6)  # type: ignore[arg-type]
        assert torch.allclose(soft.sum(dim=0), torch.ones(len(soft)), atol=1e-6)  # every image is used once


@pytest.mark.parametrize("alpha", [0.2, 1.0])
def test_mixups_share_is_beta(alpha: float) -> None:
    """Two images: whenever they are swapped, the diagonal of the targets is the share."""
    images, targets = batch(2, 1, 1)
    augment = make_batch_augmentation("mixup", alpha=alpha)
    generator = seeded(0)
    soft = [augment(images, targets, generator)[1] for _ in range(3000)]
    shares = [float(one[0, 0]) for one in soft if float(one[0, 0]) != 1]
    assert 1300 < len(shares) < 1700  # half of the permutations of two
    assert stats.kstest(shares, stats.beta(alpha, alpha).cdf).pvalue > 0.001


def pasted(augment: BatchAugmentation, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    return augment(*batch(), seeded(seed))


def test_cutmix_counts_the_pixels_that_are_seen() -> None:
    augment = make_batch_augmentation("cutmix", probability=1)
    images, _ = batch()
    for seed in range(15):
        mixed, soft = pasted(augment, seed)
        for i in range(len(images)):
            seen = torch.stack([(mixed[i, 0] == images[c, 0, 0, 0]).float().mean() for c in range(len(images))])
            assert torch.allclose(soft[i], seen, atol=1e-6)
            foreign = (mixed[i, 0] != images[i, 0, 0, 0]).nonzero()
            if len(foreign):
                box = foreign.max(dim=0).values - foreign.min(dim=0).values + 1
                assert int(box.prod()) == len(foreign)  # one rectangle


def test_cutmix_boxes_are_distributed_as_those_of_timm() -> None:
    import_torchvision()
    from timm.data.mixup import rand_bbox

    images, targets = batch(2, 40, 30)
    augment = make_batch_augmentation("cutmix", probability=1)
    generator = seeded(0)
    soft = [augment(images, targets, generator)[1] for _ in range(1200)]
    ours = [float(one[0, 0]) for one in soft]
    np.random.seed(0)  # noqa: NPY002 - timm reads the global generator
    theirs = []
    for _ in range(1200):
        top, bottom, left, right = rand_bbox((2, 3, 40, 30), np.random.beta(1, 1))  # type: ignore[no-untyped-call] # noqa: NPY002
        theirs.append(1 - (bottom - top) * (right - left) / 1200 if np.random.rand() < 0.5 else 1.0)  # noqa: NPY002
    assert stats.ks_2samp(ours, theirs).pvalue > 0.001


@pytest.mark.parametrize("name", ["mixup", "cutmix"])
def test_the_probability_is_that_of_a_batch(name: str) -> None:
    images, targets = batch()
    augment = make_batch_augmentation(name, probability=0.3)
    generator = seeded(0)
    changed = sum(not torch.equal(augment(images, targets, generator)[1], targets) for _ in range(400))
    assert 80 < changed < 160
    untouched = make_batch_augmentation(name, probability=0)(images, targets, generator)
    assert torch.equal(untouched[0], images) and torch.equal(untouched[1], targets)


@pytest.mark.parametrize("name", ["mixup", "cutmix"])
def test_a_batch_of_one_and_soft_targets(name: str) -> None:
    image = torch.rand(1, 3, 5, 5)
    target = torch.tensor([[0.3, 0.7]])
    mixed, soft = make_batch_augmentation(name, probability=1)(image, target, seeded(0))
    assert torch.allclose(mixed, image) and torch.allclose(soft, target)


@pytest.mark.parametrize("options", [{"alpha": 0}, {"alpha": -1}, {"alpha": "one"}, {"probability": 2}])
@pytest.mark.parametrize("name", ["mixup", "cutmix"])
def test_impossible_options_are_refused(name: str, options: dict[str, object]) -> None:
    with pytest.raises(AugmentationError):
        make_batch_augmentation(name, **options)


def test_numbers_are_drawn_where_they_are_needed() -> None:
    """On a CPU by the generator itself, elsewhere by one of that device, which the generator seeds."""
    generator = torch.Generator().manual_seed(1)
    state = generator.get_state()
    assert on_device(generator, torch.device("cpu")) is generator
    assert torch.equal(generator.get_state(), state)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_numbers_of_a_gpu_repeat() -> None:
    drawn = []
    for _ in range(2):
        local = on_device(torch.Generator().manual_seed(1), torch.device("cuda"))
        assert local.device.type == "cuda"
        drawn.append(torch.rand(5, generator=local, device="cuda").tolist())
    assert drawn[0] == drawn[1]
