"""Flips and crops against torchvision and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from scipy import stats

from shiftbench.arrays import Pixels
from shiftbench.classifiers.zoo import import_torchvision
from shiftbench.hardening.augmentations.base import make_image_augmentation, stream
from shiftbench.hardening.augmentations.simple import random_window
from tests.hardening.augmentations.pictures import coloured


def test_half_are_flipped_and_flipped_twice_is_the_picture() -> None:
    image = coloured((8, 9))
    flip = make_image_augmentation("flip")
    generator = stream(0, "flip")
    outs = [flip(image, generator) for _ in range(400)]
    mirrored = sum(np.array_equal(out, image[:, ::-1]) for out in outs)
    assert mirrored + sum(np.array_equal(out, image) for out in outs) == 400
    assert stats.binomtest(mirrored, 400).pvalue > 0.001
    always = make_image_augmentation("flip", probability=1)
    assert np.array_equal(always(always(image, generator), generator), image)


def test_crops_are_all_windows_of_the_padded_picture_alike() -> None:
    image = coloured((6, 7))
    padded = np.pad(image, ((2, 2), (2, 2), (0, 0)))
    windows = {padded[y : y + 6, x : x + 7].tobytes(): 0 for y in range(5) for x in range(5)}
    crop = make_image_augmentation("crop", padding=2)
    generator = stream(0, "crop")
    for _ in range(2500):
        windows[crop(image, generator).tobytes()] += 1
    assert len(windows) == 25
    assert stats.chisquare(list(windows.values())).pvalue > 0.001


def measures(windows: NDArray[np.int64]) -> list[NDArray[np.float64]]:
    """Top, left, area and shape."""
    top, left, height, width = windows.T.astype(float)
    return [top, left, height * width, width / height]


@pytest.mark.parametrize("size", [(60, 100), (300, 40)])
def test_windows_are_distributed_as_those_of_torchvision(size: tuple[int, int]) -> None:
    import_torchvision()
    import torch
    from torchvision.transforms import RandomResizedCrop

    height, width = size
    torch.manual_seed(0)
    tensor = torch.zeros(3, height, width)
    theirs = np.array([RandomResizedCrop.get_params(tensor, (0.08, 1.0), (3 / 4, 4 / 3)) for _ in range(1500)])
    generator = stream(0, "windows")
    ours = np.array([random_window(height, width, (0.08, 1.0), (3 / 4, 4 / 3), generator) for _ in range(1500)])
    for mine, other in zip(measures(ours), measures(theirs), strict=True):
        assert stats.ks_2samp(mine, other).pvalue > 0.001
    assert (ours[:, 0] + ours[:, 2] <= height).all() and (ours[:, 1] + ours[:, 3] <= width).all()


def test_the_window_is_resized_as_pillow_does() -> None:
    image = coloured((50, 70))
    for seed in range(5):
        top, left, rows, columns = random_window(50, 70, (0.08, 1.0), (3 / 4, 4 / 3), stream(seed, "w"))
        expected = Image.fromarray(image).crop((left, top, left + columns, top + rows))
        found = make_image_augmentation("resized-crop")(image, stream(seed, "w"))
        assert np.array_equal(found, np.array(expected.resize((70, 50), Image.Resampling.BILINEAR)))


def test_a_size_may_be_asked_for() -> None:
    out: Pixels = make_image_augmentation("resized-crop", size=24)(coloured((50, 70)), stream(0, "s"))
    assert out.shape == (24, 24, 3)


def test_the_whole_picture_when_all_is_asked_for() -> None:
    image = coloured((40, 40))
    whole = make_image_augmentation("resized-crop", scale=[1, 1], ratio=[1, 1])
    assert np.array_equal(whole(image, stream(0, "all")), image)
