"""The encoding against numerical gradients of scikit-learn's log-likelihood."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shiftbench.errors import DatasetError
from shiftbench.hardening.architectures.baselines.classifier import Examples, checked_options, fit_baseline
from shiftbench.hardening.architectures.baselines.fisher_vectors import (
    FisherVectorOptions,
    Mixture,
    improved,
)
from shiftbench.hardening.errors import ArchitectureError
from tests.hardening.architectures.baselines.conftest import Split

mixture_module = pytest.importorskip("sklearn.mixture")
Cifar = Callable[[int, int], Split]
SMALL = FisherVectorOptions(centres=3, components=5, cells=(4,), step=4, descriptors=600)
CENTRES = 3
DIMENSIONS = 4


@pytest.fixture(scope="module")
def fitted() -> tuple[Any, Mixture, NDArray[np.float32]]:
    """A mixture of scikit-learn, ours with its numbers, and descriptors of two images."""
    generator = np.random.default_rng(7)
    data = np.concatenate([generator.normal(m, s, (200, DIMENSIONS)) for m, s in ((-1, 0.5), (0.5, 1), (2, 0.7))])
    gaussians = mixture_module.GaussianMixture(CENTRES, covariance_type="diag", random_state=0).fit(data)
    parts = (gaussians.weights_, gaussians.means_, gaussians.covariances_)
    ours = Mixture(
        np.zeros(DIMENSIONS, np.float32), np.eye(DIMENSIONS, dtype=np.float32), *(p.astype(np.float32) for p in parts)
    )
    return gaussians, ours, generator.normal(0.4, 1.5, (2, 30, DIMENSIONS)).astype(np.float32)


def mean_log_likelihood(x: Any, weights: Any, means: Any, deviations: Any) -> float:
    model = mixture_module.GaussianMixture(len(weights), covariance_type="diag")
    model.weights_ = weights
    model.means_ = means
    model.covariances_ = deviations**2
    model.precisions_cholesky_ = 1 / deviations
    return float(model.score_samples(x).mean())


def test_posteriors_are_scikit_learns(fitted: tuple[Any, Mixture, NDArray[np.float32]]) -> None:
    gaussians, ours, x = fitted
    np.testing.assert_allclose(ours.posteriors(x)[0], gaussians.predict_proba(x[0]), atol=1e-4)


def test_the_vector_is_the_gradient_of_the_log_likelihood(fitted: tuple[Any, Mixture, NDArray[np.float32]]) -> None:
    gaussians, ours, x = fitted
    weights = gaussians.weights_
    means = gaussians.means_
    deviations = np.sqrt(gaussians.covariances_)
    found = ours.gradients(x).reshape(2, 2, CENTRES, DIMENSIONS)
    step = 1e-5
    for picture in range(2):
        for k in range(CENTRES):
            for d in range(DIMENSIONS):
                moved = np.zeros((CENTRES, DIMENSIONS))
                moved[k, d] = step
                likelihoods = [
                    mean_log_likelihood(x[picture].astype(np.float64), weights, means + m, deviations + s)
                    for m, s in ((moved, 0), (-moved, 0), (0, moved), (0, -moved))
                ]
                by_mean = (likelihoods[0] - likelihoods[1]) / (2 * step)
                by_deviation = (likelihoods[2] - likelihoods[3]) / (2 * step)
                # In units of the gradients' own spread: Fisher information w / s^2 and 2 w / s^2.
                unit = deviations[k, d] / np.sqrt(weights[k])
                assert found[picture, 0, k, d] == pytest.approx(by_mean * unit, rel=2e-3, abs=1e-4)
                assert found[picture, 1, k, d] == pytest.approx(by_deviation * unit / np.sqrt(2), rel=2e-3, abs=1e-4)


def test_descriptors_drawn_from_the_mixture_move_it_nowhere(fitted: tuple[Any, Mixture, NDArray[np.float32]]) -> None:
    gaussians, ours, x = fitted
    drawn = gaussians.sample(40_000)[0].astype(np.float32)
    assert np.abs(ours.gradients(drawn[None])).max() < 0.04
    assert np.abs(ours.gradients(x)).max() > 0.3


def test_roots_keep_signs_and_length_is_one() -> None:
    vectors = np.array([[4.0, -9.0, 0.0], [0.0, 0.0, 0.0]], np.float32)
    found = improved(vectors)
    np.testing.assert_allclose(found[0], np.array([2, -3, 0]) / np.sqrt(13), rtol=1e-6)
    assert not found[1].any()


def test_the_order_of_descriptors_and_neighbours_do_not_matter(
    fitted: tuple[Any, Mixture, NDArray[np.float32]],
) -> None:
    _, ours, x = fitted
    np.testing.assert_allclose(ours.gradients(x[:, ::-1]), ours.gradients(x), atol=1e-5)
    np.testing.assert_allclose(ours.gradients(x[1:])[0], ours.gradients(x)[1], atol=1e-6)


def test_both_kinds_of_descriptors_and_the_seed(cifar: Cifar) -> None:
    split = cifar(40, 3)
    examples = Examples(split.data, 32)
    one, two, other = (SMALL.fit(examples, np.random.default_rng(seed)) for seed in (1, 1, 2))
    found = one(split.asked)
    assert found.shape == (3, one.count) and one.count == 2 * 2 * 3 * (5 + 2)
    np.testing.assert_allclose(np.linalg.norm(found.reshape(3, 2, -1), axis=2), 1, rtol=1e-5)
    np.testing.assert_array_equal(found, two(split.asked))
    assert not np.allclose(found, other(split.asked), atol=1e-3)


def test_what_is_refused(cifar: Cifar) -> None:
    split = cifar(2, 1)
    for options, key in (
        ({"cells": (9,)}, "cells"),
        ({"cells": ()}, "cells"),
        ({"centres": 0}, "centres"),
        ({"components": 97}, "components"),
        ({"ridge": -1}, "ridge"),
        ({"size": 100_000}, "size"),
        ({"flips": "no"}, "flips"),
    ):
        with pytest.raises(ArchitectureError, match=key) as caught:
            checked_options(FisherVectorOptions, options, "Fisher vectors")
        assert caught.value.found is not None and caught.value.expected is not None
    with pytest.raises(DatasetError, match="too few descriptors"):
        fit_baseline(FisherVectorOptions(centres=600, step=4), split.data)
    with pytest.raises(ArchitectureError, match="positive"):
        ones = np.ones((1, 2), np.float32)
        Mixture(ones[0], np.eye(2, dtype=np.float32), ones[0, :1], ones, -ones)


def test_a_few_images_at_a_time_and_parts_are_the_vectors(cifar: Cifar, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory holds the descriptors of a few images, and each part needs one kind of them."""
    split = cifar(20, 1)
    features = SMALL.fit(Examples(split.data, 32), np.random.default_rng(0))
    whole = features(split.images)
    monkeypatch.setattr("shiftbench.hardening.architectures.baselines.fisher_vectors._AT_ONCE", 25 * 128 * 3)
    monkeypatch.setattr("shiftbench.hardening.architectures.baselines.fisher_vectors.PART", 40)
    assert [len(some) for some in SMALL.few(split.images)] == [3] * 6 + [2]
    np.testing.assert_array_equal(features(split.images), whole)
    parts = [part(split.images) for part in features.parts()]
    assert len(parts) == 4 and max(part.shape[1] for part in parts) <= 40
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)
