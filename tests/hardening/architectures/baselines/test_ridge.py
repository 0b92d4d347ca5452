"""Streaming least squares against scikit-learn's ridge on all of the data at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from shiftbench.hardening.architectures.baselines.classifier import StreamingRidge, fit_baseline
from tests.hardening.architectures.baselines.conftest import Split

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
    targets = np.eye(classes, dtype=np.float32)[labels]
    for start in range(0, len(x), batch):
        solver.add(x[start : start + batch], targets[start : start + batch])
    return solver


@pytest.mark.parametrize("strength", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("images", [300, 9])  # more or fewer than features
def test_it_is_ridge_on_standardised_features(strength: float, images: int) -> None:
    x, labels = problem(images)
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


@dataclass(frozen=True)
class Projected:
    """Columns of a random projection of the pixels, some at a time."""

    kind: ClassVar[str] = "projected"
    matrix: NDArray[np.float32]
    each: int
    flips: bool

    @property
    def options(self) -> Any:
        return SimpleNamespace(size=32, ridge=0.1, flips=self.flips)

    @property
    def count(self) -> int:
        return len(self.matrix.T)

    @property
    def arrays(self) -> dict[str, NDArray[np.float32]]:
        return {"matrix": self.matrix}

    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        return images.reshape(len(images), -1).astype(np.float32) @ self.matrix

    def parts(self) -> list[Projected]:
        starts = range(0, self.count, self.each)
        return [Projected(self.matrix[:, start : start + self.each], self.each, self.flips) for start in starts]

    def fit(self, examples: object, generator: object) -> Projected:
        return self

    size = 32


@pytest.mark.parametrize("flips", [True, False])
def test_rounds_over_parts_end_at_the_ridge_of_all_features(
    cifar: Callable[[int, int], Split], monkeypatch: pytest.MonkeyPatch, flips: bool
) -> None:
    split = cifar(100, 30)
    matrix = np.random.default_rng(0).normal(size=(3072, 40)).astype(np.float32)
    whole = fit_baseline(Projected(matrix, 40, flips), split.data).scores(split.asked)
    few_rounds = fit_baseline(Projected(matrix, 12, flips), split.data)
    monkeypatch.setattr("shiftbench.hardening.architectures.baselines.classifier._SMALL_CHANGE", 1e-5)
    monkeypatch.setattr("shiftbench.hardening.architectures.baselines.classifier._MOST_ROUNDS", 400)
    parts = fit_baseline(Projected(matrix, 12, flips), split.data)
    assert len(Projected(matrix, 12, flips).parts()) == 4
    np.testing.assert_allclose(parts.scores(split.asked), whole, atol=2e-3)
    assert 0 < np.abs(few_rounds.scores(split.asked) - whole).max() < 0.3
