"""ImageNet-O's recipe against a plain loop, and the funnel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

import shiftbench as sb
from shiftbench.classifiers.base import Classifier
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.catalogue import open_named
from shiftbench.datasets.subset import take
from shiftbench.errors import ShiftbenchError
from shiftbench.testsets.filtration import Funnel, FunnelStep, filter_out_of_distribution


@pytest.fixture(scope="module")
def squeezenet() -> Classifier:
    return sb.load_classifier("demo:squeezenet1_1")


@pytest.fixture(scope="module")
def demo() -> Dataset:
    return take(open_named("demo"), range(0, 114, 3))


def confidences(
    dataset: Dataset, classifier: Classifier, columns: list[int]
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    rows = []
    for i in range(len(dataset)):
        image = classifier.preprocessing.geometry(dataset.read(i).pixels)[None]
        rows.append(softmax(classifier.scores(image)[0, columns].astype(np.float64)))
    return np.array(rows)


def test_photographs_of_other_classes(demo: Dataset, squeezenet: Classifier) -> None:
    """The 200 classes of ImageNet-O are the known ones; photographs of the other 800 are the candidates."""
    space = sb.label_space("imagenet-o-200")
    filtration = filter_out_of_distribution(demo, [squeezenet], space=space, known=space, min_confidence=0.6)
    outside = [i for i, label in enumerate(demo.labels.tolist()) if demo.space.keys[label] not in space]
    chances = confidences(take(demo, outside), squeezenet, [demo.space.index(key) for key in space.keys])
    expected = {outside[i]: space.names[chances[i].argmax()] for i in np.flatnonzero(chances.max(axis=1) >= 0.6)}
    assert [step.left for step in filtration.funnel.steps] == [len(demo), len(outside), len(expected)]
    assert {demo.ids.index(image.image): image.taken_for for image in filtration.shortlist} == expected
    assert expected, "a test that finds nothing shows nothing"
    values = [image.confidence for image in filtration.shortlist]
    assert values == sorted(values, reverse=True) and min(values) >= 0.6
    assert all(image.label not in space.names for image in filtration.shortlist)


def test_all_classifiers_must_be_confident(demo: Dataset, squeezenet: Classifier, tmp_path: Path) -> None:
    space = sb.label_space("imagenet-o-200")
    efficientnet = sb.load_classifier("demo:efficientnet-lite0")

    def shortlist(*classifiers: Classifier) -> set[str]:
        filtration = filter_out_of_distribution(
            demo, list(classifiers), space=space, known=space, min_confidence=0.4, folder=tmp_path
        )
        return {image.image for image in filtration.shortlist}

    assert shortlist(squeezenet, efficientnet) == shortlist(squeezenet) & shortlist(efficientnet)


def test_known_classes_are_left_out_and_unlabelled_candidates_are_said_to_be(
    demo: Dataset, squeezenet: Classifier
) -> None:
    assert [s.left for s in filter_out_of_distribution(demo, [squeezenet]).funnel.steps] == [len(demo), 0, 0]
    cifar = take(open_named("cifar-10-test"), range(6))
    cifar.labels[:2] = -1
    filtration = filter_out_of_distribution(cifar, [squeezenet], min_confidence=0.0)
    assert filtration.funnel.steps[1].left == 6 == filtration.funnel.steps[2].left
    assert len(filtration.shortlist) == 6
    assert "2 candidates have no label" in filtration.funnel.to_text(100)
    assert {image.label for image in filtration.shortlist} <= {"", *cifar.space.names}


def test_bad_wishes(demo: Dataset, squeezenet: Classifier) -> None:
    with pytest.raises(ShiftbenchError, match="confidence"):
        filter_out_of_distribution(demo, [squeezenet], min_confidence=50)


def test_the_funnel_of_the_paper() -> None:
    steps = [FunnelStep("found", 81_413), FunnelStep("basic filter", 8_925), FunnelStep("shortlist", 1_452)]
    funnel = Funnel([*steps, FunnelStep("chosen by people", 80)])
    assert funnel.line == "81,413 -> 8,925 -> 1,452 -> 80"
    assert funnel.rows[1]["of_previous"] == pytest.approx(8_925 / 81_413)
    assert funnel.rows[3] == {
        "step": "chosen by people",
        "left": 80,
        "removed": 1_372,
        "of_previous": 80 / 1_452,
        "of_all": 80 / 81_413,
    }
    for text in (funnel.to_text(80), funnel.to_markdown(), funnel.to_latex()):
        assert "81,413" in text
    assert "80,1372" in funnel.to_csv()
    with pytest.raises(ShiftbenchError, match="invalid count"):
        Funnel([*steps, FunnelStep("chosen by people", 1_453)])


def test_a_funnel_of_nothing() -> None:
    assert Funnel([FunnelStep("candidates", 0), FunnelStep("left", 0)]).rows[1]["of_previous"] is None
