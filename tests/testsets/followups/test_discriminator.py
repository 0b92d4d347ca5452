"""Discriminators see a difference where there is one, and none where there is none."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.planted import Planted
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import shiftbench as sb
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.catalogue import open_named
from shiftbench.datasets.subset import take
from shiftbench.errors import ShiftbenchError
from shiftbench.jobs.blocks import ComputeOptions
from shiftbench.testsets.followups.discriminator import _gathered, balanced_sides, discriminate
from shiftbench.testsets.followups.splits import deal
from shiftbench.testsets.near_duplicates.descriptors import NormalisedPixelDescriptor


@pytest.fixture(scope="module")
def halves() -> tuple[Dataset, Dataset]:
    """CIFAR-10's test images in two: nothing tells them apart."""
    cifar = open_named("cifar-10-test")
    return take(cifar, range(240), name="first"), take(cifar, range(240, 480), name="second")


def test_halves_of_one_set_are_not_told_apart(halves: tuple[Dataset, Dataset]) -> None:
    table = discriminate(*halves, by=("pixels-normalised", "demo:resnet8-cifar10"), folds=2)
    expected = ["logistic on pixels-normalised", "logistic on features:resnet8-cifar10"]
    assert [result.name for result in table.found] == expected
    for result in table.found:
        assert result.low < 0.5 < result.high, result
        assert 0.35 < result.accuracy < 0.65, result
    assert table.to_text(100).count("not detected") == 2


def test_a_lower_resolution_is_seen(halves: tuple[Dataset, Dataset]) -> None:
    """Pictures that were shrunk and enlarged again: the same scenes, a little blurred."""
    first, second = halves
    table = discriminate(first, Planted(second, ["half-size"]), by=("demo:resnet8-cifar10",), folds=2)
    assert all(result.sees_a_difference and result.accuracy > 0.8 for result in table.found), table.found


def test_held_out_answers_are_those_of_a_plain_loop(halves: tuple[Dataset, Dataset]) -> None:
    """The same folds, trained and asked by scikit-learn alone."""
    first, second = halves
    dark = Planted(second, ["darker"])
    result = discriminate(first, dark, by=("pixels-normalised",), folds=4, seed=7, per_class=12).found[0]
    sides = balanced_sides(first, dark, 12, 7)
    gathered = _gathered(sides, NormalisedPixelDescriptor(), 4, 7, ComputeOptions())
    images = NormalisedPixelDescriptor()([side.read(i).pixels for side in sides for i in range(len(side))])
    np.testing.assert_array_equal(gathered.rows, images)
    correct = 0
    for number in range(4):
        held_out = gathered.fold == number
        model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=300))
        model.fit(images.astype(np.float32)[~held_out], gathered.origins[~held_out])
        guesses = model.predict(images.astype(np.float32)[held_out])
        correct += int((guesses == gathered.origins[held_out]).sum())
    assert (result.correct, result.n) == (correct, len(images))


def test_either_set_gives_the_same_number_of_every_class(halves: tuple[Dataset, Dataset]) -> None:
    first, second = halves
    sides = balanced_sides(take(first, range(200)), second, 12, 0)
    counts = [np.bincount(side.labels, minlength=10) for side in sides]
    np.testing.assert_array_equal(counts[0], counts[1])
    assert counts[0].max() == 12
    fold = deal(sides[0].ids, sides[0].labels.tolist(), 4, 0)
    assert np.ptp(np.bincount(fold)) <= 1


def test_the_seed_decides(halves: tuple[Dataset, Dataset]) -> None:
    first, second = halves
    runs = [discriminate(first, second, by=("pixels",), folds=2, per_class=5, seed=seed) for seed in (0, 0, 1)]
    assert runs[0].found == runs[1].found
    assert runs[0].to_json() == runs[1].to_json()
    assert runs[2].found != runs[0].found


def test_sets_that_can_not_be_compared(halves: tuple[Dataset, Dataset]) -> None:
    with pytest.raises(ShiftbenchError, match="no classes in common"):
        discriminate(halves[0], open_named("demo"))
    with pytest.raises(ShiftbenchError, match="folds"):
        discriminate(*halves, folds=1)
    with pytest.raises(ShiftbenchError, match="unknown descriptor"):
        discriminate(*halves, by=("pixel",))


def test_a_classifier_object_serves_too(halves: tuple[Dataset, Dataset]) -> None:
    classifier = sb.load_classifier("demo:resnet8-cifar10")
    assert discriminate(*halves, by=(classifier,), folds=2, per_class=8).found[0].n == 160
