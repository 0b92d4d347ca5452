"""Other libraries' augmentations: theirs, with our random numbers, and nobody else's numbers disturbed."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from shiftbench.errors import ShiftbenchError
from shiftbench.hardening.augmentations.base import make_batch_augmentation, make_image_augmentation
from shiftbench.jobs.threads import on_threads

PHOTO = np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)
CASES: tuple[tuple[str, dict[str, object]], ...] = (
    ("auto-augment", {"policy": "rand-m9-mstd0.5-inc1"}),
    ("auto-augment", {"policy": "original"}),
    ("torchvision", {"transform": "TrivialAugmentWide"}),
    ("torchvision", {"transform": "ColorJitter", "options": {"brightness": 0.4}}),
)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_they_repeat_by_our_generator_and_leave_the_global_ones(name: str, options: dict[str, object]) -> None:
    augment = make_image_augmentation(name, **options)
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # type: ignore[index]  # noqa: NPY002
    found = [augment(PHOTO, np.random.default_rng(seed)) for seed in (1, 1, 2, 3, 4, 5)]
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # type: ignore[index]  # noqa: NPY002
    assert before[:2] == after[:2] and torch.equal(before[2], after[2])
    assert found[0].shape == PHOTO.shape and found[0].dtype == np.uint8
    assert np.array_equal(found[0], found[1])
    assert any(not np.array_equal(found[0], other) for other in found[2:])


def test_the_transform_is_torchvisions() -> None:
    from torchvision.transforms import v2

    pixels = torch.from_numpy(PHOTO.copy()).permute(2, 0, 1)
    ours = make_image_augmentation("torchvision", transform="RandomGrayscale", options={"p": 1.0})
    theirs = v2.RandomGrayscale(p=1.0)(pixels).permute(1, 2, 0).numpy().astype(int)
    assert np.abs(ours(PHOTO, np.random.default_rng(0)).astype(int) - theirs).max() <= 1


def test_unknown_names_and_options_are_refused() -> None:
    with pytest.raises(ShiftbenchError, match="TrivialAugmentWide"):
        make_image_augmentation("torchvision", transform="TrivialAugmentWid")
    with pytest.raises(ShiftbenchError, match="brightnes"):
        make_image_augmentation("torchvision", transform="ColorJitter", options={"brightnes": 1})
    with pytest.raises(ShiftbenchError, match="policy"):
        make_image_augmentation("auto-augment", policy="random")


def test_clahe_spreads_the_lightness_and_keeps_the_hue() -> None:
    dull = np.tile(np.linspace(100, 130, 64).astype(np.uint8)[None, :, None], (48, 1, 3))
    found = make_image_augmentation("clahe")(dull, np.random.default_rng(0))
    assert found.std() > 1.2 * dull.std()
    assert np.ptp(found.astype(int), axis=2).max() <= 3  # grey stays grey
    photo = make_image_augmentation("clahe")(PHOTO, np.random.default_rng(0))
    assert np.array_equal(photo, make_image_augmentation("clahe")(PHOTO, np.random.default_rng(9)))


@pytest.mark.parametrize(("name", "options"), [("clahe", {}), *CASES[:1], *CASES[2:3]])
def test_threads_do_not_disturb_each_other(name: str, options: dict[str, object]) -> None:
    """An object of OpenCV that keeps state was shared, and so were the generators of the process."""
    augment = make_image_augmentation(name, **options)
    images = np.random.default_rng(0)
    photos = [images.integers(0, 256, (256, 256, 3), np.uint8) for _ in range(40)]
    alone = [augment(photo, np.random.default_rng(seed)) for seed, photo in enumerate(photos)]
    together = on_threads(lambda seed: augment(photos[seed], np.random.default_rng(seed)), [*range(40)] * 3, 8)
    assert all(np.array_equal(one, other) for one, other in zip(alone * 3, together, strict=True))


def test_switching_takes_each_kind_as_often_as_said() -> None:
    mix = make_batch_augmentation("mixup-cutmix", switch=0.3)
    images = torch.arange(8.0).view(8, 1, 1, 1).expand(8, 3, 16, 16) / 8
    targets = torch.eye(8)
    kinds = []
    for seed in range(400):
        found, soft = mix(images, targets, torch.Generator().manual_seed(seed))
        assert torch.allclose(soft.sum(dim=1), torch.ones(8))
        # CutMix leaves each pixel one of two values; Mixup makes flat images of values between.
        kinds.append(bool((found.flatten(2).std(dim=2) > 0).any()))
    assert 0.2 < np.mean(kinds) < 0.36


def test_augmix_fills_with_grey_what_it_uncovers() -> None:
    from shiftbench.hardening.augmentations.augmix import GEOMETRIC, OPERATIONS, filled

    white = np.full((32, 32, 3), 255, np.uint8)
    for operation in (OPERATIONS[name] for name in GEOMETRIC):
        black = operation(white, 9.0, 1)
        grey = filled(operation, 128)(white, 9.0, 1)
        assert np.array_equal(grey == 128, black == 0) and (black == 0).any()
    dark = np.zeros((32, 32, 3), np.uint8)
    assert set(np.unique(filled(OPERATIONS[GEOMETRIC[3]], 128)(dark, 9.0, 1))) == {0, 128}
