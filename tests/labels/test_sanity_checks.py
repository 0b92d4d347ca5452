"""Warnings about results: they come for permuted labels and chance level, and for nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from shiftbench.labels import LabelSpace, label_space
from shiftbench.labels.guard import outcome_warnings

Ints = NDArray[np.int64]
SPACES = {n: label_space(n) for n in ("imagenet-1k", "cifar-10")}


def classifier(truth: Ints, accuracy: float, classes: int, seed: int = 0) -> Ints:
    """Right with this probability, else any class."""
    chance = np.random.default_rng(seed)
    guess = chance.integers(0, classes, len(truth))
    return np.where(chance.random(len(truth)) < accuracy, truth, guess)


def labels(classes: int, each: int) -> Ints:
    return np.arange(classes).repeat(each)


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("accuracy", [0.99, 0.76, 0.5, 0.3])
@pytest.mark.parametrize("each", [1, 2, 10])
def test_silent_for_working_classifiers(name: str, accuracy: float, each: int) -> None:
    space = SPACES[name]
    if len(space) * each < 100 and accuracy < 0.5:
        pytest.skip("too few pictures to tell it from chance")
    truth = labels(len(space), each)
    for seed in range(3):
        assert outcome_warnings(truth, classifier(truth, accuracy, len(space), seed), space) == []


@pytest.mark.parametrize("name", SPACES)
def test_silent_for_weak_but_real_classifiers(name: str) -> None:
    space = SPACES[name]
    truth = labels(len(space), 100 if name == "cifar-10" else 10)
    weak = 0.1 if name == "cifar-10" else 0.02
    for seed in range(5):
        assert outcome_warnings(truth, classifier(truth, weak, len(space), seed), space) == []


def test_silent_for_systematic_confusion() -> None:
    """Half of each class goes to one neighbour, as similar breeds do; the labels still win."""
    truth = labels(1000, 20)
    chance = np.random.default_rng(1)
    confused = np.where(chance.random(len(truth)) < 0.45, np.minimum(truth + 1, 999), truth)
    assert outcome_warnings(truth, confused, SPACES["imagenet-1k"]) == []


def test_silent_for_too_few_pictures() -> None:
    assert outcome_warnings(np.array([3, 5, 7]), np.array([4, 6, 8]), SPACES["cifar-10"]) == []
    assert outcome_warnings(np.array([], dtype=int), np.array([], dtype=int), SPACES["cifar-10"]) == []
    assert outcome_warnings(np.array([-1] * 50), np.zeros(50, dtype=int), SPACES["cifar-10"]) == []


def test_silent_where_one_frequent_class_fits_a_shifted_constant() -> None:
    """95 % of the pictures are of class 4 and everything is called 5: a bad classifier, not a wrong map."""
    truth = np.array([4] * 95 + [1, 2, 3, 5, 6])
    found = outcome_warnings(truth, np.full(100, 5), SPACES["cifar-10"])
    assert not any(one.code == "permuted-labels" for one in found)


@pytest.mark.parametrize("name", SPACES)
def test_chance_level(name: str) -> None:
    space = SPACES[name]
    truth = labels(len(space), 10)
    (found,) = outcome_warnings(truth, classifier(truth, 0.0, len(space)), space)
    assert found.code == "chance-level" and "preprocessing" in str(found)


def test_one_class_for_everything() -> None:
    (found,) = outcome_warnings(labels(10, 100), np.full(1000, 3), SPACES["cifar-10"])
    assert "100 % of predictions are one class" in str(found)


def permuted(mapping: Ints, truth: Ints, accuracy: float, classes: int) -> Ints:
    return classifier(mapping[truth], accuracy, classes)


AS_TEXT = np.array(sorted(range(1000), key=str))


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        (AS_TEXT, "integer folders were sorted as text"),
        (np.argsort(AS_TEXT), "classifier's classes are integers sorted as text"),
        ((np.arange(1000) + 1) % 1000, "one class ahead"),
        ((np.arange(1000) - 1) % 1000, "one class behind"),
        (np.arange(1000)[::-1], "reversed"),
        (np.random.default_rng(7).permutation(1000), "consistently read as another"),
        (np.where(np.arange(1000) < 400, np.arange(1000), (np.arange(1000) + 1) % 1000), "missing or an extra"),
    ],
)
@pytest.mark.parametrize("accuracy", [0.4, 0.8])
def test_permuted_labels_are_named(mapping: Ints, words: str, accuracy: float) -> None:
    truth = labels(1000, 10)
    (found,) = outcome_warnings(truth, permuted(mapping, truth, accuracy, 1000), SPACES["imagenet-1k"])
    assert found.code == "permuted-labels" and words in str(found)


def test_assumed_preprocessing_is_named_as_the_other_cause() -> None:
    """A network that expects BGR exchanges red and blue things, as if its classes were in another order."""
    truth = labels(10, 20)
    space = SPACES["cifar-10"]
    (stated,) = outcome_warnings(truth, permuted(np.arange(10)[::-1].copy(), truth, 0.8, 10), space)
    (assumed,) = outcome_warnings(
        truth, permuted(np.arange(10)[::-1].copy(), truth, 0.8, 10), space, preprocessing_assumed=True
    )
    assert stated.code == assumed.code == "permuted-labels"
    assert "doctor" not in str(stated) and "`shiftbench doctor` tests both" in str(assumed)


def test_known_mistakes_are_found_with_one_picture_a_class() -> None:
    truth = labels(1000, 1)
    (found,) = outcome_warnings(truth, permuted(AS_TEXT, truth, 0.7, 1000), SPACES["imagenet-1k"])
    assert "sorted as text" in str(found)


def test_labels_of_the_200_read_as_labels_of_the_1000() -> None:
    full = SPACES["imagenet-1k"]
    subset = label_space("imagenet-r-200")
    truth = labels(200, 10)
    mapping = np.array([full.index(key) for key in subset.keys])
    (found,) = outcome_warnings(truth, permuted(mapping, truth, 0.5, 1000), full)
    assert "imagenet-r-200" in str(found)


def test_a_very_large_space_stays_cheap() -> None:
    space = LabelSpace("large", tuple(f"class {i:05d}" for i in range(20_000)))
    truth = labels(20_000, 2)
    assert outcome_warnings(truth, classifier(truth, 0.5, 20_000), space) == []
    (found,) = outcome_warnings(truth, classifier((truth + 1) % 20_000, 0.5, 20_000), space)
    assert "one class ahead" in str(found)


def test_predictions_outside_the_space_do_no_harm() -> None:
    truth = labels(200, 5)
    shuffled = np.random.default_rng(0).permutation(1000)
    for top1 in (truth + 700, shuffled[truth]):
        assert len(outcome_warnings(truth, top1, label_space("imagenet-a-200"))) == 1


def test_swapped_labels_of_two_classes() -> None:
    truth = labels(2, 50)
    (found,) = outcome_warnings(truth, classifier(1 - truth, 0.9, 2), LabelSpace("pets", ("cat", "dog")))
    assert found.code == "permuted-labels"


def test_real_classifiers_on_imagenet(reference_data: Path) -> None:
    """Real predictions on the validation set: silent as labelled, loud when the folders are sorted as text."""
    stored = np.load(reference_data / "imagenetv2" / "predictions_top5_imagenet-validation-original.npz")
    truth = stored["labels"].astype(np.int64)
    predictions = stored["predictions"]
    space = SPACES["imagenet-1k"]
    for model in range(0, len(predictions), 16):
        top1 = predictions[model, :, 0]
        assert outcome_warnings(truth, top1, space) == [], stored["models"][model]
        (found,) = outcome_warnings(np.argsort(AS_TEXT)[truth], top1, space)
        assert "integer folders were sorted as text" in str(found)


def test_real_classifiers_on_cifar(reference_data: Path) -> None:
    stored = np.load(reference_data / "cifar-10.1" / "cifar10_and_10.1_predictions_30models.npz")
    truth = stored["labels_cifar10"].astype(np.int64)
    shuffled = np.random.default_rng(3).permutation(10)
    for top1 in stored["cifar10"]:
        assert outcome_warnings(truth, top1, SPACES["cifar-10"]) == []
        (found,) = outcome_warnings(shuffled[truth], top1, SPACES["cifar-10"])
        assert found.code == "permuted-labels"
