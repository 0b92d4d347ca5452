"""scikit-learn estimators on small digits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shiftbench.classifiers import load_classifier
from shiftbench.classifiers.check import check_classifier
from shiftbench.classifiers.preprocessing import Preprocessing, luma
from shiftbench.datasets.geometry import Geometry
from shiftbench.errors import ClassifierError, LabelError
from shiftbench.labels.space import LabelSpace
from tests.raised import raises

datasets = pytest.importorskip("sklearn.datasets")
linear_model = pytest.importorskip("sklearn.linear_model")
svm = pytest.importorskip("sklearn.svm")

DIGITS = LabelSpace(
    "digits", tuple("0123456789"), ("zero", "one", "two", "three", "four", *(f"n{i}" for i in range(5)))
)


@pytest.fixture(scope="module")
def digits() -> tuple[Any, Any]:
    """Eight by eight grey pictures of 0 to 16, here 0 to 240, and their numbers."""
    data = datasets.load_digits()
    return (data.images * 15).astype(np.uint8), data.target


@pytest.fixture(scope="module")
def logistic(digits: tuple[Any, Any]) -> Any:
    images, labels = digits
    return linear_model.LogisticRegression(max_iter=300).fit(images[:600].reshape(600, -1), labels[:600])


def colour(images: Any) -> Any:
    return np.repeat(images[..., None], 3, axis=-1)


def test_probabilities_are_the_estimators(digits: tuple[Any, Any], logistic: Any) -> None:
    images, _ = digits
    classifier = load_classifier(logistic, labels=DIGITS)
    assert classifier.outputs == "probabilities"
    assert classifier.preprocessing.geometry.output == (8, 8)
    expected = logistic.predict_proba(images[600:700].reshape(100, -1))
    assert np.allclose(classifier.scores(colour(images[600:700])), expected, atol=1e-6)


def test_conformance(digits: tuple[Any, Any], logistic: Any) -> None:
    checks = check_classifier(load_classifier(logistic, labels=DIGITS), colour(digits[0][:6]))
    assert [check for check in checks if not check.ok] == []


def test_decision_functions_are_logits(digits: tuple[Any, Any]) -> None:
    images, labels = digits
    machine = svm.LinearSVC().fit(images[:300].reshape(300, -1) / 255, labels[:300])
    described = {"geometry": {"resize": 8, "crop": None, "resize_rule": "exact"}}
    described["normalisation"] = {"mean": [0, 0, 0], "std": [1, 1, 1]}  # type: ignore[dict-item]
    classifier = load_classifier(machine, labels=DIGITS, preprocessing=described)
    assert classifier.outputs == "logits"
    expected = machine.decision_function(images[300:310].reshape(10, -1) / 255)
    assert np.allclose(classifier.scores(colour(images[300:310])), expected, atol=1e-4)


def test_two_classes_and_classes_never_seen(digits: tuple[Any, Any]) -> None:
    images, labels = digits
    some = labels < 2
    machine = svm.LinearSVC().fit(images[some].reshape(some.sum(), -1) / 255, labels[some])
    scores = load_classifier(machine, labels=DIGITS, preprocessing=Preprocessing(Geometry(8, None, "exact"))).scores(
        colour(images[:4])
    )
    assert scores.shape == (4, 10)
    assert np.isfinite(scores).all()
    assert (scores[:, :2].argmax(axis=1) == scores.argmax(axis=1)).all()


def test_a_transform_of_ones_own(digits: tuple[Any, Any], logistic: Any) -> None:
    images, _ = digits

    def transformed(batch: Any) -> Any:
        return logistic.predict_proba(batch[..., 0].reshape(len(batch), -1))

    classifier = load_classifier(transformed, labels=DIGITS, preprocessing=Preprocessing(Geometry(8, None, "exact")))
    expected = logistic.predict_proba(images[:5].reshape(5, -1))
    assert np.allclose(classifier.scores(colour(images[:5])), expected, atol=1e-6)


def test_grey_is_pillows() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (50, 40, 3), dtype=np.uint8)
    assert np.array_equal(luma(pixels[None])[0, ..., 0], np.asarray(Image.fromarray(pixels).convert("L")))


def test_classes_by_number_and_by_name(logistic: Any) -> None:
    by_number = LabelSpace("words", tuple("abcdefghij"))
    assert load_classifier(logistic, labels=by_number).space is by_number
    with raises(LabelError, found="0, 1, 2, 3, 4", expected="cat, dog, ..., or their numbers"):
        load_classifier(logistic, labels=LabelSpace("pets", ("cat", "dog")))


def test_what_is_missing(logistic: Any) -> None:
    with raises(ClassifierError, found="no attribute classes_"):
        load_classifier(linear_model.LogisticRegression())
    odd = linear_model.LogisticRegression().fit(np.eye(7), np.arange(7))
    with pytest.raises(ClassifierError, match="7 features"):
        load_classifier(odd)


def test_a_pickled_estimator_where_trusted(tmp_path: Path, logistic: Any, digits: tuple[Any, Any]) -> None:
    joblib = pytest.importorskip("joblib")
    joblib.dump(logistic, tmp_path / "digits.joblib")
    with pytest.raises(ClassifierError, match="trust=True"):
        load_classifier(tmp_path / "digits.joblib", labels=DIGITS)
    loaded = load_classifier(tmp_path / "digits.joblib", labels=DIGITS, trust=True)
    assert loaded.name == "digits"
    direct = load_classifier(logistic, labels=DIGITS)
    assert loaded.fingerprint == direct.fingerprint
    assert np.array_equal(loaded.scores(colour(digits[0][:3])), direct.scores(colour(digits[0][:3])))
