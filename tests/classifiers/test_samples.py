"""Built-in pictures look like photographs to a network, and are the same everywhere."""

from __future__ import annotations

import hashlib

import numpy as np

from shiftbench.datasets.samples import sample_images


def test_they_never_change() -> None:
    assert np.array_equal(sample_images(2), sample_images(3)[:2])
    assert sample_images(1, (17, 31)).shape == (1, 17, 31, 3)
    assert sample_images(1, (1, 1)).shape == (1, 1, 1, 3)


def test_they_are_not_noise() -> None:
    """Neighbouring pixels of photographs are alike; those of noise are not. And no plane is empty."""
    images = sample_images(4).astype(float)
    left = images[:, :, :-1].ravel()
    right = images[:, :, 1:].ravel()
    assert np.corrcoef(left, right)[0, 1] > 0.9
    assert images.std(axis=(1, 2)).min() > 15
    assert len({hashlib.sha256(image.tobytes()).hexdigest() for image in images}) == 4
