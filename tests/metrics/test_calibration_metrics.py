"""The registered metrics of confidence: equal to the plain functions, with intervals that mean something."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import scipy.special

import shiftbench.metrics as room
from shiftbench.errors import ShiftbenchError
from shiftbench.metrics import Score, metrics
from shiftbench.metrics.bootstrap import STATISTIC_RESAMPLES as RESAMPLES
from shiftbench.metrics.bootstrap import draw_counts, resampled_blocks
from shiftbench.store.predictions import Predictions
from tests.metrics.forecasting import forecasts, scored
from tests.metrics.making import predictions
from tests.raised import raises

FROM_CONFIDENCE: dict[str, Callable[..., float]] = {
    "rms_calibration_error": room.rms_calibration_error,
    "rms_calibration_error_published": lambda c, h: room.rms_calibration_error(c, h, published=True),
    "mad_calibration_error": room.mad_calibration_error,
    "max_calibration_error": room.max_calibration_error,
    "ece": room.expected_calibration_error,
    "aurra": room.aurra,
    "soft_f1": room.soft_f1,
}
FROM_PROBABILITIES: dict[str, Callable[..., float]] = {
    "classwise_ece": room.classwise_calibration_error,
    "brier": room.brier_score,
    "nll": room.negative_log_likelihood,
}
ALL = [*FROM_CONFIDENCE, *FROM_PROBABILITIES]


def sample(n: int = 500, classes: int = 4, outputs: str = "logits") -> Predictions:
    """A fair classifier, overconfident; the first picture could not be read, the second has no label."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, n)
    logits = rng.normal(size=(n, classes)) * 2
    logits[np.arange(n), labels] += 2
    table = logits if outputs == "logits" else room.softmax(logits)
    found = scored(table, labels, outputs=outputs, provenance="p")
    found.top[0], found.confidence[0], found.labels[1] = -1, np.nan, -1
    return found


def test_all_are_registered_and_say_what_they_need() -> None:
    assert set(ALL) <= set(metrics.names())
    assert all(metrics.get(name).needs.scores for name in FROM_PROBABILITIES)
    assert all(metrics.get(name).needs.confidence and not metrics.get(name).needs.scores for name in FROM_CONFIDENCE)
    assert {name for name in ALL if metrics.get(name).higher_is_better} == {"aurra", "soft_f1"}
    assert {name for name in ALL if metrics.get(name).unit != "%"} == {"brier", "nll"}
    # The command line shows the first line of each.
    lines = [(metrics.get(name).function.__doc__ or "").splitlines()[0] for name in ALL]
    assert all(20 < len(line) < 110 for line in lines) and len(set(lines)) == len(ALL)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("outputs", ["logits", "probabilities"])
def test_equals_the_plain_function_on_what_counts(name: str, outputs: str) -> None:
    found = sample(outputs=outputs)
    score = metrics.get(name)(found)
    if name in FROM_CONFIDENCE:
        expected = FROM_CONFIDENCE[name](found.confidence[2:], found.correct)
    else:
        assert found.scores is not None
        table = room.softmax(found.scores[2:]) if outputs == "logits" else found.scores[2:]
        expected = FROM_PROBABILITIES[name](table, found.labels[2:])
    assert score.value == pytest.approx(expected, rel=1e-5)
    assert score.low <= score.value <= score.high and score.low < score.high
    assert (score.metric, score.n, score.provenance) == (name, 498, "p")
    if name in ("aurra", "soft_f1"):
        assert "Student" in score.method
    else:
        assert "bootstrap" in score.method and f"{RESAMPLES:,}" in score.method


@pytest.mark.parametrize("name", ALL)
def test_the_same_each_time_and_narrower_at_a_lower_level(name: str) -> None:
    found = sample()
    wide, again, narrow = (metrics.get(name)(found, level=level) for level in (0.95, 0.95, 0.5))
    assert wide == again
    assert wide.low < narrow.low <= narrow.value <= narrow.high < wide.high


@pytest.mark.parametrize("name", ALL)
def test_no_image_counts(name: str) -> None:
    empty = scored(np.zeros((2, 3)), [-1, -1])
    score = metrics.get(name)(empty)
    assert math.isnan(score.value) and score.n == 0
    assert score.low == 0.0 and score.high == {"brier": 2.0, "nll": math.inf}.get(name, 1.0)


@pytest.mark.parametrize("name", FROM_CONFIDENCE)
def test_recorded_without_confidences(name: str) -> None:
    found = predictions([0, 1, 2] * 50, [0, 1, 1] * 50)
    with raises(
        ShiftbenchError, found="nan for 150 of 150 images, the first in row 0", expected="a number for each image"
    ):
        metrics.get(name)(replace(found, confidence=np.full(150, np.nan, np.float32)))


@pytest.mark.parametrize("name", FROM_PROBABILITIES)
def test_scores_that_were_not_kept(name: str) -> None:
    with raises(
        ShiftbenchError, found="the best classes and the confidence only", hint="evaluate again with keep_scores=True"
    ):
        metrics.get(name)(predictions([0, 1], [0, 1]))


def test_a_draw_is_a_sample_of_images() -> None:
    """RMS and AURRA under one draw, against drawing images and computing from scratch."""
    rng = np.random.default_rng(1)
    confidence = rng.permutation(np.linspace(0.2, 0.99, 300)).astype(np.float32)
    correct = rng.random(300) < confidence
    found = forecasts(confidence, correct)
    by_rank = np.argsort(confidence)
    for name, function, order in (
        ("rms_calibration_error", room.rms_calibration_error, by_rank),
        ("aurra", room.aurra, by_rank[::-1]),
    ):
        rng = np.random.default_rng(0)
        draws = []
        for _ in range(RESAMPLES):
            rows = order[np.repeat(np.arange(300), draw_counts(rng, 300))]
            draws.append(function(confidence[rows], correct[rows]))
        score = metrics.get(name)(found)
        if name == "aurra":
            # Student's interval is that of many draws where many images are wrong.
            assert (score.low, score.high) == pytest.approx(tuple(np.quantile(draws, [0.025, 0.975])), abs=0.008)
        else:
            assert score.high == pytest.approx(score.value + np.quantile(draws, 0.975) - np.median(draws))


def test_classwise_groups_spread_as_images_do() -> None:
    """The interval from 200 groups against one from single images."""
    found = sample(2000, 3)
    score = metrics.get("classwise_ece")(found)
    assert found.scores is not None
    table = room.softmax(found.scores[2:])
    labels = found.labels[2:].astype(int)

    def drawn(counts: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> float:
        rows = np.repeat(np.arange(len(labels)), counts)
        return room.classwise_calibration_error(table[rows], labels[rows])

    draws = resampled_blocks(lambda block: map(drawn, block), len(labels), resamples=200)
    width = np.quantile(draws, 0.975) - np.median(draws)
    assert score.high - score.value == pytest.approx(width, rel=0.35)


@pytest.mark.parametrize("hit", [True, False])
def test_outcomes_that_are_all_the_same_leave_room(hit: bool) -> None:
    found = forecasts(np.full(200, 0.75), np.full(200, hit))
    for name, value in (
        ("aurra", float(hit)),
        ("ece", 0.25 if hit else 0.75),
        ("rms_calibration_error", 0.25 if hit else 0.75),
    ):
        score: Score = metrics.get(name)(found)
        assert score.value == pytest.approx(value)
        assert score.high - score.low > 0.01 and "exact" in score.method


def test_aurra_intervals_hold_the_truth() -> None:
    """Hits that do not depend on the confidence: the area is the accuracy."""
    rng = np.random.default_rng(2)
    held = 0
    for _ in range(30):
        score = metrics.get("aurra")(forecasts(rng.random(300), rng.random(300) < 0.7))
        held += score.low <= 0.7 <= score.high
    assert held >= 25


@pytest.mark.parametrize(("name", "fewest"), [("aurra", 74), ("soft_f1", 68)])
def test_intervals_hold_the_truth_where_few_images_are_wrong(name: str, fewest: int) -> None:
    """A calibrated model with an accuracy of 98 %; percentiles of a bootstrap covered 50 to 80 %."""
    rng = np.random.default_rng(3)

    def drawn(n: int) -> tuple[np.ndarray, np.ndarray]:
        confidence = scipy.special.expit(rng.normal(5.2, 1.5, n))
        return confidence, rng.random(n) < confidence

    function = {"aurra": room.aurra, "soft_f1": room.soft_f1}[name]
    truth = function(*drawn(400_000))
    held = 0
    for _ in range(80):
        score = metrics.get(name)(forecasts(*drawn(200)))
        held += score.low <= truth <= score.high
    assert held >= fewest


@pytest.mark.parametrize("name", ["ece", "mad_calibration_error", "rms_calibration_error", "max_calibration_error"])
def test_errors_are_at_least_the_gap_between_mean_confidence_and_accuracy(name: str) -> None:
    """A model that is overconfident everywhere: the mean gap shows it, with or without bins."""
    rng = np.random.default_rng(6)
    confidence = rng.uniform(0.5, 1, 1000)
    score = metrics.get(name)(forecasts(confidence, rng.random(1000) < confidence - 0.08))
    assert 0.03 < score.low <= 0.08 and score.low <= score.value <= score.high


def test_a_probability_of_zero_is_floored() -> None:
    found = scored([[1.0, 0.0], [0.5, 0.5]], [1, 0], outputs="probabilities")
    score = metrics.get("nll")(found)
    assert score.value == pytest.approx((-math.log(np.finfo(float).eps) + math.log(2)) / 2)
    with raises(ShiftbenchError, found="nan for 1 of 1 images, the first in row 0", expected="a number for each image"):
        metrics.get("nll")(scored([[0.0, 0.0]], [0], outputs="probabilities"))


def test_every_exported_name_is_there() -> None:
    for name in room.__all__:
        assert callable(getattr(room, name)) or name == "metrics"
    assert set(room.__all__) <= set(dir(room))
    with pytest.raises(AttributeError, match="nothing"):
        room.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_plain_functions_import_lazily_and_lightly() -> None:
    code = "import sys, shiftbench.metrics as m\n"
    code += "early = [n for n in sys.modules if n.startswith('shiftbench.metrics.') and 'calibration' in n]\n"
    code += "m.rms_calibration_error([0.5], [True]), m.aupr([0], [1]), m.aurra([0.5], [True])\n"
    code += "heavy = [n for n in ('scipy', 'sklearn', 'pyarrow', 'torch', 'rich') if n in sys.modules]\n"
    code += "sys.exit(str((early, heavy)) if early or heavy else 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
