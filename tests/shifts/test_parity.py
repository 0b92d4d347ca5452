"""With a RandomState, every corruption equals the published one: at most a grey level apart, 99.9 % equal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.random import RandomState

from shiftbench.arrays import Pixels
from shiftbench.shifts.corruptions import corrupt, corruptions
from tests.shifts.pictures import cut_out, landscape, patches, ramps
from tests.shifts.published import published

ALL = corruptions("all")
EXACT = [name for name in ALL if name != "impulse_noise"]  # its published numbers cannot be seeded
DRAWN = [name for name in EXACT if name != "frost"]


def check(ours: Pixels, theirs: Pixels) -> None:
    difference = np.abs(ours.astype(int) - theirs.astype(int))
    assert difference.max() <= 1
    assert (difference == 0).mean() >= 0.999


def options(name: str, reference: Path) -> dict[str, Any]:
    return {"frost_textures": reference / "frost"} if name == "frost" else {}


@pytest.mark.parametrize("severity", (2, 4))
@pytest.mark.parametrize("name", EXACT)
def test_golden_224(name: str, severity: int, reference_data: Path) -> None:
    golden = np.load(reference_data / "golden" / "imagenet_c_224_astronaut.npz")
    rng = RandomState(1000 * ALL.index(name) + severity)
    ours = corrupt(golden["input"], name, severity, rng=rng, **options(name, reference_data))
    check(ours, golden[f"{name}.{severity}"])


@pytest.mark.parametrize("severity", range(1, 6))
@pytest.mark.parametrize("name", EXACT)
def test_golden_32(name: str, severity: int, reference_data: Path) -> None:
    golden = np.load(reference_data / "golden" / "cifar_c_32.npz")
    for i, image in enumerate(golden["input"]):
        rng = RandomState(1000 * ALL.index(name) + 10 * severity + i)
        ours = corrupt(image, name, severity, rng=rng, **options(name, reference_data))
        check(ours, golden[f"{name}.{severity}"][i])


def test_golden_impulse_noise_in_distribution(reference_data: Path) -> None:
    golden = np.load(reference_data / "golden" / "imagenet_c_224_astronaut.npz")
    image = golden["input"]
    inner = (image > 0) & (image < 255)
    for severity, amount in ((2, 0.06), (4, 0.17)):
        for result in (golden[f"impulse_noise.{severity}"], corrupt(image, "impulse_noise", severity)):
            changed = result[inner] != image[inner]
            assert set(np.unique(result[inner][changed])) == {0, 255}
            spread = 5 * np.sqrt(amount * (1 - amount) / inner.sum())
            assert abs(changed.mean() - amount) < spread
            assert abs((result[inner][changed] == 255).mean() - 0.5) < 5 * 0.5 / np.sqrt(changed.sum())


@pytest.mark.parametrize("picture", (landscape, cut_out, patches, ramps))
@pytest.mark.parametrize("side", (32, 64))
@pytest.mark.parametrize("name", DRAWN)
def test_plain_definitions_on_small_pictures(name: str, side: int, picture: object) -> None:
    image: Pixels = picture(side)  # type: ignore[operator]
    for severity in range(1, 6):
        ours = corrupt(image, name, severity, rng=RandomState(severity))
        check(ours, published(name, image, severity, RandomState(severity)))


@pytest.mark.parametrize("severity", (1, 3, 5))
@pytest.mark.parametrize("name", [name for name in DRAWN if name != "glass_blur"])
def test_plain_definitions_at_224(name: str, severity: int) -> None:
    image = cut_out(224)
    check(
        corrupt(image, name, severity, rng=RandomState(severity)),
        published(name, image, severity, RandomState(severity)),
    )


@pytest.mark.parametrize("name", [name for name in DRAWN if name not in ("glass_blur", "elastic_transform")])
def test_plain_definitions_at_299(name: str) -> None:
    image = landscape(299)
    check(corrupt(image, name, 4, rng=RandomState(4)), published(name, image, 4, RandomState(4)))


@pytest.mark.parametrize("side", (32, 64, 224, 299))
def test_original_frost_pictures(side: int, reference_data: Path) -> None:
    image, folder = landscape(side), reference_data / "frost"
    for severity in range(1, 6):
        ours = corrupt(image, "frost", severity, rng=RandomState(severity), frost_textures=folder)
        check(ours, published("frost", image, severity, RandomState(severity), folder))


def test_a_batch_draws_image_after_image() -> None:
    batch = np.stack([landscape(32), cut_out(32)])
    rng = RandomState(3)
    single = np.stack([corrupt(image, "snow", 2, rng=rng) for image in batch])
    assert (corrupt(batch, "snow", 2, rng=RandomState(3)) == single).all()


def test_glass_blur_copies_unless_told_to_swap() -> None:
    image = landscape(64)
    copied = corrupt(image, "glass_blur", 5, seed=1)
    swapped = corrupt(image, "glass_blur", 5, seed=1, true_swap=True)
    assert (copied != swapped).any()
    assert (corrupt(image, "glass_blur", 5, seed=1, true_swap=False) == copied).all()
