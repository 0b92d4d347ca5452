"""With a RandomState, every corruption equals the published one: at most a grey level apart, 99.9 % equal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.random import RandomState

from shiftbench.arrays import Pixels
from shiftbench.shifts.corruptions.api import corrupt
from shiftbench.shifts.corruptions.catalogue import corruptions
from tests.shifts.goldens import golden, key, rows, seed
from tests.shifts.pictures import cut_out, landscape, patches, ramps, write_frost_textures
from tests.shifts.published import published

ALL = corruptions("all")
EXACT = [name for name in ALL if name != "impulse_noise"]  # its published numbers cannot be seeded
DRAWN = [name for name in EXACT if name != "frost"]


def check(ours: Pixels, theirs: Pixels) -> None:
    difference = np.abs(ours.astype(int) - theirs.astype(int))
    assert difference.max() <= 1
    assert (difference == 0).mean() >= 0.999


@pytest.fixture(scope="module")
def textures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("frost")
    write_frost_textures(folder)
    return folder


def options(name: str, textures: Path) -> dict[str, Any]:
    return {"frost_textures": textures} if name == "frost" else {}


@pytest.mark.parametrize("side", (32, 224))
@pytest.mark.parametrize("name", EXACT)
def test_published_outputs(name: str, side: int, textures: Path) -> None:
    for severity in range(1, 6):
        outputs = golden(key(side, name, severity))
        for i, image in enumerate(golden(f"input.{side}")):
            rng = RandomState(seed(name, severity, i))
            ours = corrupt(image, name, severity, rng=rng, **options(name, textures))
            check(ours[rows(side, severity)], outputs[i])


@pytest.mark.parametrize(("side", "severity", "amount"), ((224, 2, 0.06), (224, 4, 0.17), (32, 5, 0.07)))
def test_published_impulse_noise_in_distribution(side: int, severity: int, amount: float) -> None:
    image = golden(f"input.{side}")[0]
    kept = rows(side, severity)
    inner = (image[kept] > 0) & (image[kept] < 255)
    for result in (golden(key(side, "impulse_noise", severity))[0], corrupt(image, "impulse_noise", severity)[kept]):
        changed = result[inner] != image[kept][inner]
        assert set(np.unique(result[inner][changed])) == {0, 255}
        assert abs(changed.mean() - amount) < 5 * np.sqrt(amount * (1 - amount) / inner.sum())
        assert abs((result[inner][changed] == 255).mean() - 0.5) < 5 * 0.5 / np.sqrt(changed.sum())


def test_other_published_outputs(reference_data: Path) -> None:
    """Real frost photographs and CIFAR-10 images, in files made independently of ours."""
    large = np.load(reference_data / "golden" / "imagenet_c_224_astronaut.npz")
    small = np.load(reference_data / "golden" / "cifar_c_32.npz")
    for k, name in enumerate(ALL):
        if name not in EXACT:
            continue
        more = options(name, reference_data / "frost")
        for severity in (2, 4):
            ours = corrupt(large["input"], name, severity, rng=RandomState(1000 * k + severity), **more)
            check(ours, large[f"{name}.{severity}"])
        for severity in range(1, 6):
            for i, image in enumerate(small["input"]):
                ours = corrupt(image, name, severity, rng=RandomState(1000 * k + 10 * severity + i), **more)
                check(ours, small[f"{name}.{severity}"][i])


@pytest.mark.parametrize("side", (32, 64))
@pytest.mark.parametrize("name", DRAWN)
def test_plain_definitions_on_small_images(name: str, side: int) -> None:
    for make in (landscape, cut_out, patches, ramps):
        for severity in range(1, 6):
            ours = corrupt(make(side), name, severity, rng=RandomState(severity))
            check(ours, published(name, make(side), severity, RandomState(severity)))


@pytest.mark.parametrize("name", [name for name in DRAWN if name != "glass_blur"])
def test_plain_definitions_at_224(name: str) -> None:
    image = cut_out(224)
    for severity in (1, 3, 5):
        ours = corrupt(image, name, severity, rng=RandomState(severity))
        check(ours, published(name, image, severity, RandomState(severity)))


@pytest.mark.parametrize("name", [name for name in DRAWN if name not in ("glass_blur", "elastic_transform")])
def test_plain_definitions_at_299(name: str) -> None:
    image = landscape(299)
    check(corrupt(image, name, 4, rng=RandomState(4)), published(name, image, 4, RandomState(4)))


@pytest.mark.parametrize("side", (32, 64, 224))
def test_plain_definition_of_frost(side: int, textures: Path) -> None:
    image = landscape(side)
    for severity in range(1, 6):
        ours = corrupt(image, "frost", severity, rng=RandomState(severity), frost_textures=textures)
        check(ours, published("frost", image, severity, RandomState(severity), textures))


def test_original_frost_photographs(reference_data: Path) -> None:
    image = landscape(299)
    folder = reference_data / "frost"
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
