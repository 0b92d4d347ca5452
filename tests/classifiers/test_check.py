"""The conformance suite finds every broken promise."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.check import check_classifier
from shiftbench.classifiers.preprocessing import Preprocessing
from shiftbench.datasets.geometry import Geometry
from shiftbench.labels.space import LabelSpace
from tests.classifiers.networks import mean_colours


class Good(Classifier):
    """Keeps every promise; the others break one each."""

    name = "good"
    fingerprint = "fixed"
    batch_size = 4

    def __init__(self) -> None:
        self.space = LabelSpace("colours", ("r", "g", "b"))
        self.preprocessing = Preprocessing(Geometry(20, 16))

    def scores(self, images: Any) -> Any:
        return mean_colours(images).astype(np.float32) if len(images) else np.empty((0, 3), np.float32)


class Wide(Good):
    def scores(self, images: Any) -> Any:
        return np.repeat(super().scores(images), 2, axis=1)


class Double(Good):
    def scores(self, images: Any) -> Any:
        return super().scores(images).astype(np.float64)


class Infinite(Good):
    def scores(self, images: Any) -> Any:
        return super().scores(images) * np.float32(np.inf)


class Constant(Good):
    def scores(self, images: Any) -> Any:
        return np.ones((len(images), 3), np.float32)


class NoSoftmax(Good):
    outputs = "probabilities"


class SecretSoftmax(Good):
    def scores(self, images: Any) -> Any:
        scores = super().scores(images)
        return scores / scores.sum(axis=1, keepdims=True)


class Counting(Good):
    calls = itertools.count()

    def scores(self, images: Any) -> Any:
        return super().scores(images) + next(self.calls)


class BatchNormalising(Good):
    def scores(self, images: Any) -> Any:
        scores = super().scores(images)
        return scores - scores[:1] + images[0, 0, 0, 0] if len(scores) else scores


class SquashesOne(Good):
    def scores(self, images: Any) -> Any:
        return super().scores(images).squeeze()


class Spoiling(Good):
    def scores(self, images: Any) -> Any:
        scores = super().scores(images)
        if images.flags.writeable:
            images[:] = 0
        return scores


class NeedsWritable(Good):
    def scores(self, images: Any) -> Any:
        images += 0
        return super().scores(images)


class Limited(Good):
    def scores(self, images: Any) -> Any:
        if len(images) > 7:
            raise ValueError("too many")
        return super().scores(images)


class Restless(Good):
    numbers = itertools.count()

    @property
    def fingerprint(self) -> str:  # type: ignore[override]
        return str(next(self.numbers))


class Unpicklable(Good):
    def __init__(self) -> None:
        super().__init__()
        self.function = lambda: None


class Undescribed(Good):
    def describe(self) -> dict[str, Any]:
        return {"classifier": object()}


class NotEmpty(Good):
    def scores(self, images: Any) -> Any:
        return mean_colours(images).astype(np.float32) if len(images) else np.empty(0, np.float32)


class Seeding(Good):
    """Gives the same scores each time, and the same random numbers to everybody else as well."""

    def scores(self, images: Any) -> Any:
        np.random.seed(0)  # noqa: NPY002
        return super().scores(images)


def test_a_good_one_passes() -> None:
    assert [check for check in check_classifier(Good()) if not check.ok] == []


@pytest.mark.parametrize(
    ("kind", "promise"),
    [
        (Wide, "one column per class"),
        (Double, "float32"),
        (Infinite, "finite"),
        (Constant, "depend on the image"),
        (NoSoftmax, "of the declared kind"),
        (SecretSoftmax, "of the declared kind"),
        (Counting, "same again"),
        (BatchNormalising, "neighbours"),
        (SquashesOne, "batch of one"),
        (Spoiling, "left as they are"),
        (NeedsWritable, "read-only"),
        (Limited, "more than a batch"),
        (Restless, "fingerprint"),
        (Unpicklable, "pickled"),
        (Undescribed, "JSON"),
        (NotEmpty, "empty batch"),
        (Seeding, "global random numbers"),
    ],
)
def test_each_broken_promise_is_found(kind: type[Good], promise: str) -> None:
    failed = [check for check in check_classifier(kind()) if not check.ok]
    assert any(promise in check.name for check in failed), failed


def test_one_that_gives_nothing() -> None:
    class Broken(Good):
        def scores(self, images: Any) -> Any:
            raise RuntimeError("no weights")

    (check,) = check_classifier(Broken())
    assert (check.ok, check.message) == (False, "RuntimeError: no weights")
