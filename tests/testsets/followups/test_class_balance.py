"""Balanced to the image, and the effect on CIFAR-10.1 v4 is the one that 004 found."""

from __future__ import annotations

import numpy as np
import pytest

from shiftbench.datasets.catalogue import open_named
from shiftbench.datasets.subset import take
from shiftbench.errors import DatasetError, ShiftbenchError
from shiftbench.testsets.followups.set_effects import balance_effect, class_balanced
from tests.testsets.followups.conftest import Maker, predictions


def test_every_class_has_the_same_number() -> None:
    cifar = take(open_named("cifar-10-test"), range(300))
    least = int(np.bincount(cifar.labels).min())
    balanced = class_balanced(cifar)
    assert np.bincount(balanced.labels, minlength=10).tolist() == [least] * 10
    assert list(balanced.ids) == sorted(balanced.ids), "in the order of the dataset"
    assert set(class_balanced(cifar, per_class=5).ids) <= set(balanced.ids)
    assert list(class_balanced(cifar, seed=1).ids) != list(balanced.ids) == list(class_balanced(cifar).ids)
    with pytest.raises(DatasetError, match="images per class"):
        class_balanced(cifar, per_class=least + 1)


def test_images_without_a_label_and_classes_without_images() -> None:
    cifar = take(open_named("cifar-10-test"), range(100))
    cifar.labels[cifar.labels == 3] = -1
    assert set(np.bincount(class_balanced(cifar).labels, minlength=10)[[0, 1, 2, 4, 5, 6, 7, 8, 9]]) != {0}
    assert 3 not in class_balanced(cifar).labels
    cifar.labels[:] = -1
    with pytest.raises(DatasetError, match="no image has a label"):
        class_balanced(cifar)


def test_cifar_10_1_balanced(published: Maker) -> None:
    """v4 has 8 % ships. 004: balanced, weaker models gain about 0.3 points, the best one none."""
    table = balance_effect(published("v4"))
    v6 = {model.classifier: float(model.correct.mean()) for model in published("v6")}
    for model, row in zip(published("v4"), table.rows, strict=True):
        assert row["n"] == 2021 and row["balanced_n"] == 1610 == 10 * np.bincount(model.labels).min()
        by_class = [float((model.top[model.labels == c, 0] == c).mean()) for c in range(10)]
        assert row["class_mean"] == pytest.approx(np.mean(by_class))
        assert abs(row["class_mean"] - v6[row["model"]]) < 0.015, "as on the set that was balanced by hand"
    weak = [row["class_mean_change"] for row in table.rows if row["accuracy"] < 0.8]
    assert 0.001 < np.mean(weak) < 0.006
    best = max(table.rows, key=lambda row: row["accuracy"])
    assert abs(best["class_mean_change"]) < 0.002
    assert "balanced" in table.to_text(120)


def test_a_balanced_set_stays_as_it_is(published: Maker) -> None:
    table = balance_effect(published("v6")[:3])
    assert all(row["change"] == 0 and abs(row["class_mean_change"]) < 1e-12 for row in table.rows)


def test_nothing_to_balance() -> None:
    with pytest.raises(ShiftbenchError, match="no predictions"):
        balance_effect([])
    empty = predictions("a", "s", ["x"], np.array([-1]), np.array([0]))
    with pytest.raises(DatasetError):
        balance_effect([empty])
