"""Splits are balanced, disjoint and repeatable; 004's table 4; a real training on real pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

import shiftbench as sb
from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.options import Options
from shiftbench.classifiers.sklearn_ import from_estimator
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.catalogue import open_dataset, open_named
from shiftbench.datasets.subset import take
from shiftbench.errors import DatasetError, ShiftbenchError
from shiftbench.testsets.followups.splits import (
    Measured,
    Split,
    SplitComparison,
    cross_validation_splits,
    measure_linear_splits,
    measure_splits,
)
from shiftbench.testsets.near_duplicates.descriptors import NormalisedPixelDescriptor
from tests.raised import raises


@pytest.fixture(scope="module")
def sets() -> tuple[Dataset, Dataset, Dataset]:
    """Parts of CIFAR-10's test images as a training, a test and a new set."""
    cifar = open_named("cifar-10-test")
    return (
        take(cifar, range(503), name="train"),
        take(cifar, range(503, 603), name="test"),
        take(cifar, range(603, 700)),
    )


def test_folds_are_disjoint_balanced_and_complete(sets: tuple[Dataset, Dataset, Dataset]) -> None:
    train, test, _ = sets
    splits = cross_validation_splits(train, test, seed=3)
    assert sorted(image for split in splits for image in split.test) == sorted(train.ids)
    counts = []
    for split in splits:
        assert set(split.train).isdisjoint(split.test) and set(split.train) | set(split.test) == set(train.ids)
        assert split.train_from_test == tuple(test.ids)
        counts.append(np.bincount(split.test_set(train).labels, minlength=10))
        assert len(split.training_set(train, test)) == len(train) + len(test) - len(split.test)
    assert np.ptp(counts, axis=0).max() <= 1 and np.ptp(np.sum(counts, axis=1)) <= 1
    assert splits == cross_validation_splits(train, test, seed=3) != cross_validation_splits(train, test, seed=4)


def test_folds_of_a_wished_size_leave_the_rest_in_training(sets: tuple[Dataset, Dataset, Dataset]) -> None:
    train, test, _ = sets
    splits = cross_validation_splits(train, test, folds=3, fold_size=40)
    taken = [image for split in splits for image in split.test]
    assert len(taken) == len(set(taken)) == 120
    for split in splits:
        assert np.bincount(split.test_set(train).labels).tolist() == [4] * 10
        assert len(split.train) == len(train) - 40
    with pytest.raises(DatasetError, match="cannot balance"):
        cross_validation_splits(train, test, fold_size=41)
    with pytest.raises(DatasetError, match="cannot balance"):
        cross_validation_splits(train, test, fold_size=200)


def test_split_files(sets: tuple[Dataset, Dataset, Dataset], tmp_path: Path) -> None:
    train, test, new = sets
    split = cross_validation_splits(train, test)[1]
    again = Split.read(split.write(tmp_path / "split.json"))
    assert again == split
    joined = again.training_set(train, test)
    assert list(joined.ids) == [*split.train, *test.ids]
    for i in (0, len(split.train) - 1, len(split.train), len(joined) - 1):
        source = train if i < len(split.train) else test
        j = list(source.ids).index(joined.ids[i])
        np.testing.assert_array_equal(joined.read(i).pixels, source.read(j).pixels)
        assert joined.labels[i] == source.labels[j]
    assert joined.fingerprint == split.training_set(train, test).fingerprint
    with pytest.raises(DatasetError, match="missing"):
        again.test_set(new)
    (tmp_path / "other.json").write_text('{"name": "x"}')
    with pytest.raises(DatasetError, match="not a valid split"):
        Split.read(tmp_path / "other.json")


def test_split_files_are_datasets(tmp_path: Path) -> None:
    """What `harden train` and `eval` open: the same images as in the experiment itself."""
    images = open_named("cifar-10-test")
    for i in range(24):
        path = tmp_path / ("old", "test")[i % 2] / f"{i // 2 % 3}" / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(images.read(i).pixels).save(path)
    sources = str(tmp_path / "old"), str(tmp_path / "test")
    train, test = (open_dataset(source, space="folders") for source in sources)
    split = cross_validation_splits(train, test, folds=3, sources=sources)[0]
    path = split.write(tmp_path / "split-1.json")
    learnt, held_out = (open_dataset(f"split:{path}{suffix}", space="folders") for suffix in ("", "/test"))
    assert learnt.fingerprint == split.training_set(train, test).fingerprint
    assert list(held_out.ids) == list(split.test) and not set(held_out.ids) & set(learnt.ids)


def fit_ridge(train: Dataset) -> Classifier:
    """A linear classifier on small pixels: weak, quick and really trained."""
    from sklearn.linear_model import RidgeClassifier

    small = sb.Geometry(resize=8, crop=None, resize_rule="exact")
    images = np.stack([small(train.read(i).pixels) for i in range(len(train))])
    model = RidgeClassifier(alpha=1e6).fit(images.reshape(len(images), -1).astype(np.float32), train.labels)
    return from_estimator(model, Options.of("cifar-10", None, name="ridge"))


def test_training_on_every_split(sets: tuple[Dataset, Dataset, Dataset]) -> None:
    train, test, new = sets
    splits = cross_validation_splits(train, test, folds=3)
    measured = measure_splits(fit_ridge, train, test, splits, new, model="ridge")
    assert [measurement.test_set for measurement in measured] == ["original", "split 1", "split 2", "split 3", "new"]
    assert [measurement.n for measurement in measured] == [100, 168, 168, 167, 97]
    # by hand, for one split
    split = splits[0]
    classifier = fit_ridge(split.training_set(train, test))
    held_out = split.test_set(train)
    geometry = classifier.preprocessing.geometry
    images = np.stack([geometry(held_out.read(i).pixels) for i in range(len(held_out))])
    assert measured[1].correct == int((classifier.scores(images).argmax(axis=1) == held_out.labels).sum())
    table = SplitComparison(measured)
    assert all(0.12 < value < 0.6 for value in table.accuracies("ridge").values())
    assert "the splits range over" in table.to_text(100)


def test_a_linear_model_on_every_split(sets: tuple[Dataset, Dataset, Dataset]) -> None:
    """As by hand: described, standardised, fitted on the split's own images, and judged on those held out."""
    train = take(sets[0], range(240))
    test = sets[1]
    new = sets[2]
    splits = cross_validation_splits(train, test, folds=3)
    measured = measure_linear_splits(train, test, splits[:1], new)
    assert [(measurement.test_set, measurement.n) for measurement in measured] == [
        ("original", 100),
        ("split 1", 80),
        ("new", 97),
    ]

    def rows(dataset: Dataset) -> NDArray[np.float32]:
        pictures = [dataset.read(i).pixels for i in range(len(dataset))]
        return NormalisedPixelDescriptor()(pictures).astype(np.float32)

    def right(learnt: Dataset, judged: Dataset) -> int:
        model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=300, random_state=0))
        with threadpool_limits(1):
            return int((model.fit(rows(learnt), learnt.labels).predict(rows(judged)) == judged.labels).sum())

    split = splits[0]
    by_hand = [right(train, test), right(split.training_set(train, test), split.test_set(train)), right(train, new)]
    assert [measurement.correct for measurement in measured] == by_hand
    assert sum(by_hand) > 0.15 * (100 + 80 + 97), "better than chance"
    with pytest.raises(DatasetError, match="different classes"):
        measure_linear_splits(train, test, splits, open_named("demo"))


#: 004 table 4: accuracies and intervals of wide_resnet_28_10, in percent.
TABLE_4 = {
    "original": (95.7, 95.3, 96.1),
    "split 1": (96.2, 95.8, 96.6),
    "split 2": (96.0, 95.6, 96.4),
    "split 3": (96.4, 96.0, 96.8),
    "split 4": (96.2, 95.8, 96.6),
    "split 5": (96.5, 96.1, 96.9),
    "new": (89.7, 88.3, 91.0),
}


def test_the_table_of_the_paper() -> None:
    measured = []
    for name, (accuracy, _, _) in TABLE_4.items():
        n = 2021 if name == "new" else 10_000
        measured.append(Measured("wide_resnet_28_10", name, round(accuracy / 100 * n), n))
    table = SplitComparison(measured)
    for row in table.rows:
        _, low, high = TABLE_4[row["test_set"]]
        assert [100 * row["low"], 100 * row["high"]] == pytest.approx([low, high], abs=0.051)
    assert table.spread("wide_resnet_28_10") == pytest.approx(0.005)
    assert table.rows[-1]["change"] == pytest.approx(-0.06, abs=0.001)
    assert "drops by 5.99" in table.to_text(120)


def test_bad_wishes(sets: tuple[Dataset, Dataset, Dataset]) -> None:
    train, test, _ = sets
    with raises(ShiftbenchError, found=1):
        cross_validation_splits(train, test, folds=1)
    with raises(ShiftbenchError, found="cifar-10 and imagenet-1k"):
        cross_validation_splits(train, open_named("demo"))
    with pytest.raises(ShiftbenchError, match="no accuracies"):
        SplitComparison([])


def test_sets_may_share_ids(sets: tuple[Dataset, Dataset, Dataset]) -> None:
    """Files of two folders often have the same names."""
    train = sets[0]
    split = cross_validation_splits(train, train)[0]
    joined = split.training_set(train, train)
    assert len(set(joined.ids)) == len(joined) == len(split.train) + len(train)
    assert joined.ids[-1] == f"2/{train.ids[-1]}"
    assert (joined.read(len(joined) - 1).pixels == train.read(len(train) - 1).pixels).all()


def test_a_split_without_its_data_is_not_opened(sets: tuple[Dataset, Dataset, Dataset], tmp_path: Path) -> None:
    train, test, _ = sets
    cross_validation_splits(train, test)[0].write(tmp_path / "split.json")
    with pytest.raises(DatasetError, match="does not name its data"):
        open_dataset(f"split:{tmp_path / 'split.json'}")
