"""Both baselines as classifiers, on real images."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import shiftbench as sb
from shiftbench.classifiers.check import check_classifier
from shiftbench.datasets.arrays import ArrayDataset
from shiftbench.datasets.base import DecodedImage
from shiftbench.errors import BadImageError
from shiftbench.hardening.architectures.baselines import fit_baseline
from shiftbench.hardening.architectures.baselines.classifier import BaselineClassifier, Examples
from shiftbench.hardening.architectures.baselines.fisher_vectors import FisherVectorOptions
from shiftbench.hardening.architectures.baselines.random_features import RandomFeatureOptions
from shiftbench.hardening.errors import ArchitectureError
from tests.hardening.architectures.baselines.conftest import Split

linear_model = pytest.importorskip("sklearn.linear_model")
Cifar = Callable[[int, int], Split]


def accuracy(classifier: BaselineClassifier, split: Split) -> float:
    return float((classifier.scores(split.asked).argmax(axis=1) == split.answers).mean())


def best_on_pixels(split: Split) -> float:
    """What a linear classifier on pixels reaches at the strength that suits the test set best."""
    learnt, asked = (images.reshape(len(images), -1) / 255 for images in (split.images, split.asked))
    models = (linear_model.RidgeClassifier(alpha=alpha).fit(learnt, split.labels) for alpha in (100, 1000, 10_000))
    return max(float(model.score(asked, split.answers)) for model in models)


@pytest.fixture(scope="module", params=["random-features", "fisher-vectors"])
def classifier(request: pytest.FixtureRequest, cifar: Cifar) -> BaselineClassifier:
    data = cifar(600, 1).data
    if request.param == "random-features":
        return fit_baseline(RandomFeatureOptions(filters=48, patches=5000, ridge=0.3), data)
    small = FisherVectorOptions(centres=6, components=12, cells=(2, 4), step=3, descriptors=4000, ridge=0.3)
    return fit_baseline(small, data)


def test_conformance(classifier: BaselineClassifier, cifar: Cifar) -> None:
    assert [check for check in check_classifier(classifier, cifar(1, 6).asked) if not check.ok] == []
    assert classifier.space.name == "cifar-10" and classifier.name == classifier.features.kind


def test_it_beats_a_linear_classifier_on_pixels(classifier: BaselineClassifier, cifar: Cifar) -> None:
    split = cifar(600, 500)
    assert accuracy(classifier, split) > best_on_pixels(split) + 0.05


def test_it_can_be_evaluated_like_any_other(classifier: BaselineClassifier, cifar: Cifar, tmp_path: Path) -> None:
    split = cifar(1, 60)
    part = ArrayDataset("part", split.space, split.asked, split.answers)
    run = sb.evaluate(classifier, "clean", part, tmp_path, metric=["top1"], workers=1, progress=False)
    ((_, _, score),) = run.scores("top1")
    assert score.value == pytest.approx(accuracy(classifier, split)) and score.n == 60


def test_another_size_is_refused_and_larger_pictures_are_brought_to_it(
    classifier: BaselineClassifier, cifar: Cifar
) -> None:
    with pytest.raises(ArchitectureError, match="another size"):
        classifier.scores(np.zeros((1, 48, 48, 3), np.uint8))
    doubled = cifar(2, 1).images.repeat(2, axis=1).repeat(2, axis=2)
    examples = Examples(ArrayDataset("doubled", classifier.space, doubled, [0, 1]), 32)
    ((images, labels),) = list(examples.batches(8))
    assert images.shape == (2, 32, 32, 3) and labels.tolist() == [0, 1]


def test_data_sets_bring_their_labels_and_bad_pictures_are_left_out(cifar: Cifar) -> None:
    class Damaged(ArrayDataset):
        def read(self, index: int) -> DecodedImage:
            if index % 2:
                raise BadImageError("damaged")
            return super().read(index)

    split = cifar(7, 1)
    dataset = Damaged("damaged", split.space, split.images, [0, 1, -1, 3, 4, 5, 6])
    examples = Examples(dataset, 32)
    batches = list(examples.batches(4))
    assert np.concatenate([labels for _, labels in batches]).tolist() == [0, 4, 6]
    np.testing.assert_array_equal(batches[0][0][1], split.images[4])
    assert len(examples.sample(100, np.random.default_rng(0))) == 3


@pytest.mark.soak
def test_thousands_of_pictures_are_told_apart_far_better_than_by_pixels(cifar: Cifar) -> None:
    split = cifar(6000, 2000)
    pixels = best_on_pixels(split)
    random = accuracy(fit_baseline(RandomFeatureOptions(flips=True), split.data), split)
    fisher = accuracy(fit_baseline(FisherVectorOptions(), split.data), split)
    assert pixels < 0.42 and random > 0.6 and fisher > 0.63
