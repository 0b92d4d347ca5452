"""The image bootstrap against its definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shiftbench.errors import ShiftbenchError
from shiftbench.metrics.bootstrap import percentile_interval, resampled_means
from tests.raised import raises


def by_definition(values: NDArray[Any], valid: NDArray[Any], resamples: int, seed: int) -> NDArray[Any]:
    """Draw rows with replacement, take the mean of each column's entries that count."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(resamples):
        rows = rng.integers(0, len(values), len(values))
        out.append([values[rows, j][valid[rows, j]].mean() for j in range(values.shape[1])])
    return np.array(out)


@pytest.mark.parametrize("kind", [bool, float])
def test_equals_drawing_images(kind: type) -> None:
    rng = np.random.default_rng(1)
    values: NDArray[Any] = (rng.random((40, 3)) * 2).astype(kind)
    valid = rng.random((40, 3)) < 0.8
    expected = by_definition(values, valid, 50, seed=7)
    np.testing.assert_allclose(resampled_means(values, valid=valid, resamples=50, seed=7), expected, rtol=1e-6)


def test_blocks_do_not_change_the_result() -> None:
    values = np.random.default_rng(2).random((30, 4)) < 0.5
    whole = resampled_means(values, resamples=23, seed=3)
    for block in (1, 5, 23, 100):
        np.testing.assert_array_equal(resampled_means(values, resamples=23, seed=3, block=block), whole)
    assert not np.array_equal(resampled_means(values, resamples=23, seed=4), whole)


def test_settings_share_their_draws() -> None:
    """Two settings with the same outcomes move together exactly; opposite ones cancel."""
    hits = np.random.default_rng(3).random(50) < 0.6
    means = resampled_means(np.stack([hits, hits, ~hits], axis=1), resamples=200)
    np.testing.assert_array_equal(means[:, 0], means[:, 1])
    np.testing.assert_allclose(means[:, 0] + means[:, 2], 1.0, rtol=1e-6)


def test_spread_is_that_of_a_mean() -> None:
    hits = np.arange(400) < 100
    means = resampled_means(hits[:, None], resamples=4000)
    assert means.mean() == pytest.approx(0.25, abs=0.002)
    assert means.std() == pytest.approx(np.sqrt(0.25 * 0.75 / 400), rel=0.05)


def test_one_image_has_no_spread() -> None:
    assert set(resampled_means(np.array([[True]]), resamples=10).ravel()) == {1.0}


def test_a_column_without_images_has_no_interval() -> None:
    values = np.ones((5, 2), dtype=bool)
    valid = np.array([[True, False]] * 5)
    low, high = percentile_interval(resampled_means(values, valid=valid, resamples=10))
    assert (low[0], high[0]) == (1.0, 1.0)
    assert np.isnan([low[1], high[1]]).all()


def test_no_images_are_refused() -> None:
    with raises(ShiftbenchError, found="values of shape (0, 3)", expected="(images, settings)"):
        resampled_means(np.empty((0, 3), dtype=bool))
