"""Erasing: where, how much, with what."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from shiftbench.arrays import Pixels
from shiftbench.classifiers.zoo import import_torchvision
from shiftbench.hardening.augmentations.base import make_image_augmentation, stream
from tests.hardening.augmentations.pictures import flat


def box(out: Pixels, background: int) -> tuple[int, int, int, int]:
    """Top, left, height and width of what was changed; it must be a full rectangle."""
    rows, columns = np.nonzero((out != background).any(axis=2))
    top = rows.min()
    left = columns.min()
    height = np.ptp(rows) + 1
    width = np.ptp(columns) + 1
    assert len(rows) == height * width
    return int(top), int(left), int(height), int(width)


def test_erased_areas_are_distributed_as_those_of_torchvision() -> None:
    """Small boxes always fit, so both draw the area uniformly, whatever the law of the shape."""
    import_torchvision()
    import torch
    from torchvision.transforms import RandomErasing

    torch.manual_seed(0)
    picture = torch.zeros(3, 100, 100)
    theirs = [RandomErasing.get_params(picture, (0.02, 0.1), (0.5, 2.0))[2:4] for _ in range(500)]
    erase = make_image_augmentation("erase", probability=1, area=[0.02, 0.1], aspect=[0.5, 2], fill=255)
    generator = stream(0, "erase")
    ours = [box(erase(flat(0, (100, 100)), generator), 0)[2:] for _ in range(500)]
    areas = [h * w / 1e4 for h, w in ours]
    assert stats.ks_2samp(areas, [h * w / 1e4 for h, w in theirs]).pvalue > 0.001
    assert stats.kstest(areas, stats.uniform(0.02, 0.08).cdf).pvalue > 0.001


def test_the_shape_is_uniform_as_in_the_paper() -> None:
    erase = make_image_augmentation("erase", probability=1, area=[0.05, 0.05], aspect=[0.5, 2], fill=255)
    generator = stream(1, "erase")
    shapes = [h / w for _, _, h, w in (box(erase(flat(0, (160, 160)), generator), 0) for _ in range(400))]
    assert stats.kstest(shapes, stats.uniform(0.5, 1.5).cdf).pvalue > 0.001


def test_half_of_the_pictures_with_random_values() -> None:
    erase = make_image_augmentation("erase")
    generator = stream(2, "erase")
    outs = [erase(flat(77), generator) for _ in range(400)]
    erased = [out[out != 77] for out in outs if (out != 77).any()]
    assert stats.binomtest(len(erased), 400).pvalue > 0.001
    values = np.concatenate(erased)
    assert stats.kstest(values, stats.randint(0, 256).cdf).statistic < 0.02


def test_a_box_that_never_fits_leaves_the_picture() -> None:
    image = flat(9, (1, 40))
    assert np.array_equal(make_image_augmentation("erase", probability=1)(image, stream(0, "x")), image)


def test_cutout_by_brute_force() -> None:
    """Every centre equally often, the square clipped at the edges."""
    cutout = make_image_augmentation("cutout", size=4, fill=255)
    generator = stream(0, "cutout")
    seen: dict[bytes, int] = {}
    for _ in range(2500):
        key = cutout(flat(0, (6, 5)), generator).tobytes()
        seen[key] = seen.get(key, 0) + 1
    expected: dict[bytes, float] = {}
    for y in range(6):
        for x in range(5):
            out = flat(0, (6, 5))
            out[max(0, y - 2) : y + 2, max(0, x - 2) : x + 2] = 255
            expected[out.tobytes()] = expected.get(out.tobytes(), 0) + 2500 / 30
    assert set(seen) == set(expected)
    assert stats.chisquare([seen[key] for key in expected], list(expected.values())).pvalue > 0.001


def test_cutout_fills_with_the_mean_colour_of_cifar() -> None:
    out = make_image_augmentation("cutout")(flat(0), stream(0, "c"))
    changed = out[(out != 0).any(axis=2)]
    assert 64 <= len(changed) <= 256 and (changed == [125, 123, 114]).all()


@pytest.mark.parametrize("size", [7, 100])
def test_odd_and_large_squares(size: int) -> None:
    out = make_image_augmentation("cutout", size=size, fill=1)(flat(0), stream(0, "c"))
    assert 0 < out[:, :, 0].sum() <= min(size, 32) ** 2
