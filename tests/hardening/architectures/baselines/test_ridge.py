"""Streaming least squares against scikit-learn's ridge on all of the data at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shiftbench.errors import DatasetError
from shiftbench.hardening.architectures.baselines.classifier import MOST_FEATURES, StreamingRidge
from shiftbench.hardening.errors import ArchitectureError

linear_model = pytest.importorskip("sklearn.linear_model")
preprocessing = pytest.importorskip("sklearn.preprocessing")


def problem(count: int = 300, features: int = 12) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Features far from zero and of very different sizes."""
    generator = np.random.default_rng(4)
    labels = generator.integers(3, size=count)
    x = generator.normal(size=(count, features)) + labels[:, None] * generator.normal(size=features)
    return (x * np.geomspace(0.01, 100, features) + np.linspace(-50, 900, features)).astype(np.float32), labels


def streamed(x: NDArray[np.float32], labels: NDArray[Any], batch: int, classes: int = 3) -> StreamingRidge:
    solver = StreamingRidge(x.shape[1], classes)
    for start in range(0, len(x), batch):
        solver.add(x[start : start + batch], labels[start : start + batch])
    return solver


@pytest.mark.parametrize("strength", [1e-3, 0.1, 10.0])
def test_it_is_ridge_on_standardised_features(strength: float) -> None:
    x, labels = problem()
    found = streamed(x, labels, 64).solve(strength)(x)
    scaled = preprocessing.StandardScaler().fit_transform(x.astype(np.float64))
    expected = linear_model.Ridge(alpha=strength * len(x)).fit(scaled, np.eye(3)[labels]).predict(scaled)
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_batches_do_not_matter() -> None:
    x, labels = problem()
    whole, pieces = (streamed(x, labels, batch).solve(0.01)(x) for batch in (300, 7))
    np.testing.assert_allclose(whole, pieces, atol=2e-3)


def test_a_feature_that_never_changes_is_left_out() -> None:
    x, labels = problem()
    x[:, 5] = 77
    head = streamed(x, labels, 64).solve(1e-9)
    assert not head.weights[5].any() and np.isfinite(head.weights).all()
    without = streamed(np.delete(x, 5, axis=1), labels, 64).solve(1e-9)
    np.testing.assert_allclose(head(x), without(np.delete(x, 5, axis=1)), atol=2e-3)


def test_more_features_than_images_is_no_trouble() -> None:
    x, labels = problem(count=10, features=40)
    assert (streamed(x, labels, 4).solve(1e-3)(x).argmax(axis=1) == labels).all()


def test_a_class_without_images_is_never_the_answer() -> None:
    x, labels = problem()
    scores = streamed(x, labels, 64, classes=4).solve(0.1)(x)
    assert not (scores.argmax(axis=1) == 3).any() and np.abs(scores[:, 3]).max() < 1e-4


def test_what_is_refused() -> None:
    x, _ = problem()
    with pytest.raises(DatasetError, match="fewer than two classes"):
        streamed(x, np.zeros(len(x), int), 64).solve(1)
    with pytest.raises(DatasetError, match="0 images"):
        StreamingRidge(3, 2).solve(1)
    with pytest.raises(ArchitectureError, match="GiB"):
        StreamingRidge(MOST_FEATURES + 1, 2)
