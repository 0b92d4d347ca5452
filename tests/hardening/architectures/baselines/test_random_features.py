"""Every step of the features against loops in float64, and what real images make of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shiftbench.errors import DatasetError
from shiftbench.hardening.architectures.baselines.classifier import Examples, checked_options, fit_baseline
from shiftbench.hardening.architectures.baselines.random_features import (
    RandomFeatureOptions,
    RandomFeatures,
    contrasted,
    whitening,
)
from shiftbench.hardening.errors import ArchitectureError
from tests.hardening.architectures.baselines.conftest import Split

Cifar = Callable[[int, int], Split]
SMALL = RandomFeatureOptions(filters=10, patches=600)


@pytest.fixture(scope="module")
def few(cifar: Cifar) -> Examples:
    return Examples(cifar(60, 1).data, 32)


@pytest.fixture(scope="module")
def features(few: Examples) -> RandomFeatures:
    return SMALL.fit(few, np.random.default_rng(0))


def by_loops(features: RandomFeatures, image: NDArray[Any]) -> NDArray[np.float64]:
    options = features.options
    answers = np.zeros((options.places, options.places, options.filters))
    for y in range(options.places):
        for x in range(options.places):
            patch = image[y : y + options.patch, x : x + options.patch].astype(np.float64).ravel()
            patch = (patch - patch.mean()) / np.sqrt(patch.var() + options.contrast)
            answers[y, x] = features.filters.astype(np.float64) @ patch - features.offset
    pools = [(y, x) for y in range(0, options.places, options.stride) for x in range(0, options.places, options.stride)]
    fitting = [(y, x) for y, x in pools if max(y, x) + options.pool <= options.places]
    rows = []
    for sign in (1, -1):
        rectified = np.where(sign * answers > options.threshold, sign * answers - options.threshold, 0)
        rows += [rectified[y : y + options.pool, x : x + options.pool].mean(axis=(0, 1)) for y, x in fitting]
    return np.concatenate(rows)


@pytest.mark.parametrize("pooling", [{}, {"pool": 15, "stride": 6}, {"pool": 27, "stride": 1}])
def test_features_are_those_of_the_definition(features: RandomFeatures, cifar: Cifar, pooling: dict[str, Any]) -> None:
    variant = RandomFeatures(replace(SMALL, **pooling), features.filters, features.offset)
    images = cifar(1, 2).asked
    found = variant(images)
    assert found.dtype == np.float32 and found.shape == (2, variant.count)
    for image, row in zip(images, found, strict=True):
        np.testing.assert_allclose(row, by_loops(variant, image), rtol=1e-3, atol=2e-4)


def test_quadrants_and_the_pools_of_the_paper() -> None:
    assert [(p.start, p.stop) for p in RandomFeatureOptions().pools] == [(0, 14), (13, 27)]
    assert [p.start for p in RandomFeatureOptions(pool=15, stride=6).pools] == [0, 6, 12]


def test_many_filters_are_the_same_in_chunks(few: Examples, monkeypatch: pytest.MonkeyPatch) -> None:
    features = SMALL.fit(few, np.random.default_rng(0))
    images = few.sample(3, np.random.default_rng(1))
    whole = features(images).reshape(3, 8, 10)
    monkeypatch.setattr("shiftbench.hardening.architectures.baselines.random_features._CHUNK", 4)
    chunks = np.split(features(images), [32, 64], axis=1)
    joined = np.concatenate([chunk.reshape(3, 8, -1) for chunk in chunks], axis=2)
    np.testing.assert_allclose(joined, whole, rtol=1e-4, atol=1e-5)


def test_contrast_takes_brightness_and_gain_away() -> None:
    patch = np.random.default_rng(0).integers(40, 90, (5, 108))
    plain = contrasted(patch, 1e-6)
    np.testing.assert_allclose(contrasted(patch + 60, 1e-6), plain, atol=1e-4)
    np.testing.assert_allclose(contrasted(patch * 2, 1e-6), plain, atol=1e-4)
    np.testing.assert_allclose(plain.var(axis=1), 1, rtol=1e-4)
    assert not contrasted(np.full((1, 108), 200), 10.0).any()


def test_whitened_patches_are_uncorrelated(few: Examples) -> None:
    generator = np.random.default_rng(0)
    mixed = generator.normal(size=(4000, 6)) @ generator.normal(size=(6, 6)) + 3
    mean, matrix = whitening(mixed.astype(np.float32), 1e-9)
    np.testing.assert_allclose(np.cov((mixed - mean) @ matrix, rowvar=False), np.eye(6), atol=1e-3)
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-9)  # ZCA: the whitening that moves patches least
    _, damped = whitening(mixed.astype(np.float32), 1e9)
    np.testing.assert_allclose(damped * np.sqrt(1e9), np.eye(6), atol=1e-4)


def test_the_seed_decides(few: Examples) -> None:
    one, two, other = (SMALL.fit(few, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert np.array_equal(one.filters, two.filters) and not np.allclose(one.filters, other.filters)


@pytest.mark.parametrize("flips", [True, False])
def test_mirror_images_are_learnt_where_asked(features: RandomFeatures, cifar: Cifar, flips: bool) -> None:
    """Images with their mirror images are one training set, whichever of both came first."""
    split = cifar(120, 60)
    either = RandomFeatures(replace(SMALL, flips=flips), features.filters, features.offset)
    fitted = SimpleNamespace(size=32, fit=lambda examples, generator: either)
    mirrored = split._replace(images=split.images[:, :, ::-1])
    scores = [fit_baseline(fitted, one.data).scores(split.asked) for one in (split, mirrored)]
    assert np.allclose(scores[0], scores[1], atol=1e-3) is flips


def test_the_parts_are_the_features(features: RandomFeatures, few: Examples, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shiftbench.hardening.architectures.baselines.random_features._CHUNK", 2)
    monkeypatch.setattr("shiftbench.hardening.architectures.baselines.random_features.PART", 40)
    images = few.sample(3, np.random.default_rng(0))
    parts = [part(images) for part in features.parts()]
    assert len(parts) > 1 and max(part.shape[1] for part in parts) <= 40
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), features(images))


def test_what_is_refused(cifar: Cifar) -> None:
    split = cifar(20, 1)
    for options, key in (
        ({"filters": 0}, "filters"),
        ({"pool": 28}, "pool"),
        ({"patch": 33}, "pool"),
        ({"patch": 1}, "patch"),
        ({"ridge": 0}, "ridge"),
        ({"whitening": float("nan")}, "whitening"),
        ({"filter": 3}, "filter"),
    ):
        with pytest.raises(ArchitectureError, match=key) as caught:
            checked_options(RandomFeatureOptions, options, "random features")
        assert caught.value.found is not None and caught.value.expected is not None
    flat = split._replace(images=np.full((20, 32, 32, 3), 90, np.uint8))
    with pytest.raises(DatasetError, match="too few different patches"):
        fit_baseline(SMALL, flat.data)
    with pytest.raises(DatasetError, match="fewer than two classes"):
        fit_baseline(SMALL, split._replace(labels=np.zeros(20, int)).data)
    with pytest.raises(DatasetError, match="no labelled image"):
        fit_baseline(SMALL, split._replace(labels=np.full(20, -1)).data)
