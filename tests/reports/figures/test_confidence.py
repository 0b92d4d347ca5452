"""Reliability diagrams and response curves against the metrics, on a real network's outputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import PathCollection

from shiftbench.metrics.calibration import aurra, expected_calibration_error
from shiftbench.reports.figures import reliability, response
from shiftbench.store.predictions import Predictions
from shiftbench.studies import StudyError
from tests.metrics.making import predictions
from tests.raised import raises
from tests.reports.figures.looking import check, check_svg, texts


def forecasts(n: int = 400, *, bias: float = 0.0, name: str = "net", setting: str = "clean") -> Predictions:
    rng = np.random.default_rng(n)
    confidence = rng.uniform(0.2, 1.0, n)
    right = rng.random(n) < np.clip(confidence - bias, 0, 1)
    made = predictions(np.where(right, 0, 1), np.zeros(n), classes=2, classifier=name, setting=setting)
    return replace(made, confidence=confidence.astype(np.float32))


@pytest.fixture(scope="module")
def lenet(reference_data: Path) -> Predictions:
    """LeNet-5 on CIFAR-10: overconfident."""
    data = np.load(reference_data / "calibration" / "lenet-5-cifar-10.npz")
    scores = data["predictions"].astype(np.float64)
    if not np.allclose(scores.sum(axis=1), 1.0, atol=1e-3):
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        scores /= scores.sum(axis=1, keepdims=True)
    made = predictions(
        scores.argmax(axis=1), data["ground_truth"], classes=10, classifier="LeNet-5", setting="cifar-10"
    )
    return replace(made, confidence=scores.max(axis=1).astype(np.float32))


def test_diagram_of_a_real_network(lenet: Predictions) -> None:
    figure = reliability([lenet], bins=10)
    check(figure)
    upper, lower = figure.axes
    [points] = [collection for collection in upper.collections if isinstance(collection, PathCollection)]
    drawn = np.asarray(points.get_offsets(), dtype=float)
    edges = np.linspace(0, 1, 11)
    for x, y in drawn:
        place = int(np.searchsorted(edges[1:-1], x / 100, side="left"))
        inside = np.searchsorted(edges[1:-1], lenet.confidence, side="left") == place
        assert (x, y) == pytest.approx((100 * lenet.confidence[inside].mean(), 100 * lenet.correct[inside].mean()))
    assert sum(bar.get_height() for bar in lower.patches) == pytest.approx(100)  # type: ignore[attr-defined]
    ece = 100 * expected_calibration_error(lenet.confidence, lenet.correct)
    assert any(f"ECE {ece:.2f} [" in text for text in texts(figure))


@pytest.mark.parametrize(("count", "width"), [(2, "double"), (4, 9.0)])
def test_several_panels(count: int, width: str | float) -> None:
    many = [forecasts(60 + i, bias=0.2 * i, name=f"net-{i}") for i in range(count)]
    figure = reliability(many, width=width)
    check(figure)
    assert [axes.get_title(loc="left") for axes in figure.axes[::2]] == [f"net-{i}" for i in range(count)]


def test_few_images_and_certain_ones() -> None:
    """One image, a confidence of 1, empty bins: no nan anywhere."""
    sure = replace(forecasts(5), confidence=np.ones(5, np.float32))
    one = forecasts(1)
    for made in ([sure], [one], [sure, one]):
        for figure in (reliability(made), response(made)):
            check(figure)
            check_svg(figure)


def test_response_curves_and_their_area(lenet: Predictions) -> None:
    second = forecasts(300, setting="fog")
    figure = response([lenet, second])
    check(figure)
    value = 100 * aurra(lenet.confidence, lenet.correct)
    assert any(text.startswith(f"LeNet-5, cifar-10: AURRA {value:.2f} [") for text in texts(figure))
    x, y = np.asarray(figure.axes[0].lines[0].get_xydata()).T
    assert (x[-1], y[-1]) == pytest.approx((100, 100 * lenet.correct.mean()))
    assert (np.diff(x) > 0).all()


def test_titles_say_what_differs() -> None:
    clean = forecasts(50)
    fog = forecasts(50, setting="fog")
    assert [axes.get_title(loc="left") for axes in reliability([clean, fog]).axes[::2]] == ["clean", "fog"]


def test_bad_input() -> None:
    with pytest.raises(StudyError, match="no confidences"):
        response([replace(forecasts(5), confidence=np.full(5, np.nan, np.float32))])
    with raises(StudyError, found=9):
        response([forecasts(5)] * 9)
    with pytest.raises(StudyError, match="1 to 12"):
        reliability([])
    with pytest.raises(StudyError, match="no image"):
        reliability([replace(forecasts(5), labels=np.full(5, -1, np.int32))])
