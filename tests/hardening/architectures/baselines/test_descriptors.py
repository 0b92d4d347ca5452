"""Descriptors against loops over pixels, and on images whose gradients are known."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.hardening.architectures.baselines.fisher_vectors import (
    centres,
    colour_statistics,
    gradient_histograms,
)
from tests.hardening.architectures.baselines.conftest import Split


@pytest.fixture
def images(cifar: Callable[[int, int], Split]) -> Pixels:
    return cifar(2, 1).images


def histogram_by_loops(image: Pixels, top: int, left: int, cell: int) -> NDArray[np.float64]:
    gradients: Any = np.gradient(image.astype(np.float64) @ np.array([0.299, 0.587, 0.114]))
    down, right = gradients
    found = np.zeros((4, 4, 8))
    for y in range(4 * cell):
        for x in range(4 * cell):
            dy = down[top + y, left + x]
            dx = right[top + y, left + x]
            turn = (math.atan2(dy, dx) / (2 * math.pi) * 8) % 8
            low = int(turn) % 8
            share = turn - int(turn)
            found[y // cell, x // cell, low] += math.hypot(dy, dx) * (1 - share)
            found[y // cell, x // cell, (low + 1) % 8] += math.hypot(dy, dx) * share
    flat = found.ravel()
    flat = np.minimum(flat / max(float(np.linalg.norm(flat)), 1.0), 0.2)
    return flat / max(float(np.linalg.norm(flat)), 1e-6)


@pytest.mark.parametrize(("cell", "step"), [(2, 2), (3, 5), (8, 1)])
def test_gradient_histograms(images: Pixels, cell: int, step: int) -> None:
    found = gradient_histograms(images, (cell,), step)
    starts = range(0, 32 - 4 * cell + 1, step)
    assert found.shape == (2, len(starts) ** 2, 128)
    for n, image in enumerate(images):
        expected = [histogram_by_loops(image, y, x, cell) for y in starts for x in starts]
        np.testing.assert_allclose(found[n], expected, atol=2e-4)


@pytest.mark.parametrize(("cell", "step"), [(2, 2), (3, 5)])
def test_colour_statistics(images: Pixels, cell: int, step: int) -> None:
    found = colour_statistics(images, (cell,), step)
    starts = range(0, 32 - 4 * cell + 1, step)
    for n, image in enumerate(images / 255):
        for t, (top, left) in enumerate((y, x) for y in starts for x in starts):
            patch = image[top : top + 4 * cell, left : left + 4 * cell].reshape(4, cell, 4, cell, 3)
            expected = np.concatenate([patch.mean(axis=(1, 3)), patch.std(axis=(1, 3))], axis=-1)
            np.testing.assert_allclose(found[n, t], expected.ravel(), atol=1e-5)


def test_sides_follow_one_another(images: Pixels) -> None:
    for make in (gradient_histograms, colour_statistics):
        both = make(images, (2, 4), 4)
        np.testing.assert_array_equal(both, np.concatenate([make(images, (s,), 4) for s in (2, 4)], axis=1))
    places = centres(32, (2, 4), 4)
    assert len(places) == gradient_histograms(images, (2, 4), 4).shape[1]
    assert places[0].tolist() == [4 / 32 - 0.5] * 2 and places[7].tolist() == [8 / 32 - 0.5, 4 / 32 - 0.5]


@pytest.mark.parametrize(("turns", "orientation"), [(0, 0), (1, 6), (2, 4), (3, 2)])
def test_a_ramp_has_one_direction(turns: int, orientation: int) -> None:
    """Brighter to the right; each quarter turn is anticlockwise, and rows count downwards."""
    ramp = np.broadcast_to(np.arange(0, 256, 8, dtype=np.uint8)[None, :, None], (32, 32, 3))
    found = gradient_histograms(np.rot90(ramp, turns)[None], (2,), 2).reshape(-1, 16, 8)
    assert (found.argmax(axis=2) == orientation).all()
    np.testing.assert_allclose(found.sum(axis=2), found.max(axis=2), atol=1e-5)


def test_a_flat_picture_says_nothing_about_gradients() -> None:
    flat = np.full((1, 32, 32, 3), 77, np.uint8)
    assert not gradient_histograms(flat, (2, 3), 2).any()
    colours = colour_statistics(flat, (2, 3), 2).reshape(-1, 16, 6)
    np.testing.assert_allclose(colours[:, :, :3], 77 / 255, atol=1e-6)
    np.testing.assert_allclose(colours[:, :, 3:], 0, atol=1e-4)
