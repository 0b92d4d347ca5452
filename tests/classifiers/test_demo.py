"""The four real classifiers on real photographs: the accuracies that were measured independently."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shiftbench.classifiers import load_classifier
from shiftbench.classifiers.check import check_classifier
from shiftbench.classifiers.demo import DEMO_CLASSIFIERS
from shiftbench.classifiers.onnx_ import OnnxClassifier
from shiftbench.classifiers.preprocessing import Normalisation, Preprocessing
from shiftbench.errors import UnknownNameError
from tests.classifiers.conftest import Photographs
from tests.raised import raises

#: Top-1 and top-5 hits on the 92 ai-benchmark photographs, then on the 20 of foolbox.
HITS = {
    "efficientnet-lite0": ((87, 91), (18, 19)),
    "efficientnet-lite1": ((87, 91), (18, 20)),
    "efficientnet-lite2": ((87, 91), (18, 20)),
    "squeezenet1_1": ((78, 86), (14, 19)),
}
#: A larger network of the same kind adds endurance only.
NAMES = [
    pytest.param(name, marks=pytest.mark.soak if name[-1] in "12" and "lite" in name else ())
    for name in sorted(DEMO_CLASSIFIERS)
]


def inputs(classifier: Any, photographs: Photographs, rows: list[int]) -> np.ndarray[Any, Any]:
    return np.stack([classifier.preprocessing.geometry(photographs.pixels[i]) for i in rows])


def hits(scores: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> tuple[int, int]:
    best = np.argsort(-scores, axis=1)[:, :5]
    return int((best[:, 0] == labels).sum()), int((best == labels[:, None]).any(axis=1).sum())


@pytest.mark.parametrize("name", NAMES)
def test_accuracy_on_the_photographs(name: str, photographs: Photographs) -> None:
    classifier = load_classifier(f"demo:{name}")
    for source, expected in zip(("ai-benchmark", "foolbox"), HITS[name], strict=True):
        rows = photographs.rows(source)
        found = hits(classifier.scores(inputs(classifier, photographs, rows)), photographs.labels[rows])
        assert found == expected


def test_wrong_normalisation_costs_accuracy(photographs: Photographs) -> None:
    """Why the description travels with the classifier."""
    right = load_classifier("demo:efficientnet-lite0")
    wrong = load_classifier(
        "demo:efficientnet-lite0", preprocessing=Preprocessing(right.preprocessing.geometry, Normalisation())
    )
    rows = photographs.rows("foolbox")
    images = inputs(right, photographs, rows)
    assert hits(wrong.scores(images), photographs.labels[rows])[0] < 18
    assert wrong.fingerprint != right.fingerprint


@pytest.mark.parametrize("name", NAMES)
def test_same_bits_for_every_batch_and_number_of_threads(name: str, photographs: Photographs) -> None:
    classifier = load_classifier(f"demo:{name}", threads=1)
    images = inputs(classifier, photographs, list(range(5)))
    expected = classifier.scores(images)
    for threads in (1, 2, 3):
        other = load_classifier(f"demo:{name}", threads=threads)
        for size in (1, 4):
            parts = [other.scores(images[start : start + size]) for start in range(0, len(images), size)]
            assert np.array_equal(np.concatenate(parts), expected)
    with ThreadPoolExecutor(4) as pool:  # as the runner does
        parts = list(pool.map(classifier.scores, [images[i : i + 2] for i in range(0, len(images), 2)]))
    assert np.array_equal(np.concatenate(parts), expected)


@pytest.mark.parametrize("name", NAMES)
def test_conformance(name: str, photographs: Photographs) -> None:
    classifier = load_classifier(f"demo:{name}")
    checks = check_classifier(classifier, inputs(classifier, photographs, [0, 1, 2]))
    assert [check for check in checks if not check.ok] == []


def test_pickled_by_path_and_revived_by_spec(photographs: Photographs) -> None:
    classifier = load_classifier("demo:squeezenet1_1", name="mine")
    assert isinstance(classifier, OnnxClassifier)
    images = inputs(classifier, photographs, [0, 1])
    expected = classifier.scores(images)
    data = pickle.dumps(classifier)
    assert len(data) < 200_000
    assert np.array_equal(pickle.loads(data).scores(images), expected)
    classifier.path = Path("nowhere.onnx")  # as it looks on another machine
    revived = pickle.loads(pickle.dumps(classifier))
    assert revived.name == "mine"
    assert np.array_equal(revived.scores(images), expected)


def test_unknown_demo_classifier() -> None:
    with raises(UnknownNameError, name="efficientnet-lite9"):
        load_classifier("demo:efficientnet-lite9")
