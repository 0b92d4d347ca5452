"""Temperature scaling against SciPy's own minimiser, the truth that made the data, and the published search."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from shiftbench.errors import ShiftbenchError
from shiftbench.metrics import (
    apply_temperature,
    expected_calibration_error,
    fit_temperature,
    negative_log_likelihood,
    with_temperature,
)
from shiftbench.metrics.temperature import BOUNDS, calibrate, fit_temperature_of
from shiftbench.store.predictions import Predictions
from tests.metrics.forecasting import scored
from tests.metrics.making import changed
from tests.raised import raises

LENET = "calibration/lenet-5-cifar-10.npz"


def sample(truth: float, n: int = 3000, classes: int = 6) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Labels drawn from softmax(z), and logits z times a temperature."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(n, classes)) * 2
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return logits * truth, labels


@pytest.mark.parametrize("truth", [0.05, 0.5, 1.0, 3.0, 30.0])
def test_finds_the_minimum(truth: float) -> None:
    logits, labels = sample(truth)

    def loss(log_t: float) -> float:
        return float(-log_softmax(logits / math.exp(log_t), axis=1)[np.arange(len(labels)), labels].mean())

    found = fit_temperature(logits, labels)
    best = minimize_scalar(loss, bounds=(math.log(0.01), math.log(100)), method="bounded", options={"xatol": 1e-9})
    assert found == pytest.approx(math.exp(best.x), rel=1e-4)
    assert found == pytest.approx(truth, rel=0.1)


@pytest.mark.parametrize("truth", [0.1, 0.6, 2.0, 20.0])
def test_the_published_bisection(truth: float) -> None:
    """Written out with autograd, as published; it can't leave [0.2, 5]."""
    logits, labels = sample(truth, n=500)
    z = torch.tensor(logits)
    y = torch.tensor(labels)
    lower = 0.2
    upper = 5.0
    while upper - lower > 1e-4:
        t = torch.tensor(0.5 * (lower + upper), dtype=torch.float64, requires_grad=True)
        rises = torch.autograd.grad(torch.nn.functional.cross_entropy(z / t, y), t)[0] > 0
        lower, upper = (lower, float(t.detach())) if rises else (float(t.detach()), upper)
    ends = (lower, 0.5 * (lower + upper), upper)
    expected = min(ends, key=lambda x: float(torch.nn.functional.cross_entropy(z / x, y)))
    found = fit_temperature(logits, labels, method="published")
    assert found == pytest.approx(expected, abs=1e-9)
    if 0.2 < truth < 5:
        assert found == pytest.approx(fit_temperature(logits, labels), abs=2e-4)


def test_without_a_minimum_the_better_bound() -> None:
    logits = np.array([[3.0, 0.0], [0.0, 1.0]])
    assert fit_temperature(logits, [0, 1]) == BOUNDS[0]
    assert fit_temperature(logits, [1, 0]) == BOUNDS[1]
    assert fit_temperature(logits, [1, 0], bounds=(0.5, 2.0)) == 2.0
    # One class, or all logits the same: no temperature matters, so none is applied.
    assert fit_temperature([[3.0], [1.0]], [0, 0]) == 1.0
    assert fit_temperature(np.ones((2, 2)), [0, 1]) == 1.0


def test_adding_a_constant_changes_nothing() -> None:
    logits, labels = sample(2.0, n=200)
    shift = np.random.default_rng(1).normal(size=(200, 1)) * 100
    assert fit_temperature(logits + shift, labels) == pytest.approx(fit_temperature(logits, labels), rel=1e-6)
    assert fit_temperature(logits * 5, labels) == pytest.approx(5 * fit_temperature(logits, labels), rel=1e-6)


def test_applied_it_calibrates_and_keeps_the_classes() -> None:
    logits, labels = sample(3.0)
    temperature = fit_temperature(logits[:1500], labels[:1500])
    raw = apply_temperature(logits[1500:], 1.0)
    cooled = apply_temperature(logits[1500:], temperature)
    np.testing.assert_array_equal(raw.argmax(axis=1), cooled.argmax(axis=1))
    correct = raw.argmax(axis=1) == labels[1500:]
    before, after = (expected_calibration_error(p.max(axis=1), correct) for p in (raw, cooled))
    assert before > 0.1 > 0.04 > after
    assert negative_log_likelihood(cooled, labels[1500:]) < negative_log_likelihood(raw, labels[1500:])


@pytest.mark.parametrize("outputs", ["logits", "probabilities"])
def test_predictions_at_a_temperature(outputs: str) -> None:
    logits, labels = sample(2.0, n=400)
    table = logits if outputs == "logits" else apply_temperature(logits, 1.0)
    found = scored(table, labels, outputs=outputs, provenance="p")
    temperature = fit_temperature_of(found)
    assert temperature == pytest.approx(fit_temperature(logits, labels), rel=1e-3)
    cooled = with_temperature(found, temperature)
    expected = apply_temperature(logits, temperature)
    np.testing.assert_allclose(cooled.confidence, expected.max(axis=1), rtol=1e-4)
    np.testing.assert_array_equal(cooled.top, found.top)
    assert cooled.provenance.startswith("p; temperature ") and found.provenance == "p"
    assert fit_temperature_of(cooled) == pytest.approx(1.0, rel=1e-3)


def test_a_picture_that_could_not_be_read_stays_so() -> None:
    found = scored([[1.0, 0.0], [2.0, 0.0]], [0, 1])
    found.top[1], found.confidence[1] = -1, np.nan
    assert found.scores is not None
    found.scores[1] = np.nan
    cooled = with_temperature(found, 2.0)
    assert np.isnan(cooled.confidence[1]) and cooled.confidence[0] == pytest.approx(1 / (1 + math.exp(-0.5)))
    found.top[0] = -1
    with raises(ShiftbenchError, found="1 rows, none counts"):
        fit_temperature_of(scored([[1.0, 0.0]], [-1]))


def test_what_is_refused() -> None:
    with raises(ShiftbenchError, found="nan for 1 of 1 images, the first in row 0", expected="a number for each image"):
        fit_temperature([[math.nan, 1.0]], [0])
    with raises(ShiftbenchError, expected="finite numbers"):
        fit_temperature([[-math.inf, 1.0]], [1])
    with raises(ShiftbenchError, found="2.0 to 1.0", expected="0 < low < high"):
        fit_temperature([[0.0, 1.0]], [0], bounds=(2.0, 1.0))
    for bad in (0.0, -1.0, math.nan, math.inf):
        with raises(ShiftbenchError, expected="more than 0"):
            apply_temperature([[0.0, 1.0]], bad)


def test_lenet_on_cifar_10_was_overconfident(reference_data: Path) -> None:
    data = np.load(reference_data / LENET)
    logits = np.log(data["predictions"].astype(np.float64))
    labels = data["ground_truth"]
    temperature = fit_temperature(logits[:5000], labels[:5000])
    assert temperature > 1.2
    raw = apply_temperature(logits[5000:], 1.0)
    cooled = apply_temperature(logits[5000:], temperature)
    correct = raw.argmax(axis=1) == labels[5000:]
    before, after = (expected_calibration_error(p.max(axis=1), correct) for p in (raw, cooled))
    assert after < before / 3


def on(name: str, n: int = 400, **more: object) -> Predictions:
    """Predictions on images ``name/0``, ``name/1``, ..., three times too confident."""
    logits, labels = sample(3.0, n)
    found = scored(logits, labels)
    dataset = {"name": name, "fingerprint": name}
    return changed(replace(found, ids=[f"{name}/{i}" for i in range(n)]), dataset=dataset, **more)


def test_calibrating_on_other_images_is_fitting_there_and_applying_here() -> None:
    here = on("here")
    there = on("there")
    done = calibrate(here, there)
    assert done.temperature == fit_temperature_of(there) == pytest.approx(3, rel=0.2)
    assert done.before is here and done.held_out is there
    np.testing.assert_array_equal(done.after.confidence, with_temperature(here, done.temperature).confidence)


def test_a_split_has_each_image_on_one_side() -> None:
    whole = on("here")
    done = calibrate(whole, split=0.25, seed=7)
    fitted = set(done.held_out.ids)
    scored_ids = set(done.before.ids)
    assert not fitted & scored_ids and fitted | scored_ids == set(whole.ids)
    assert 60 <= len(fitted) <= 140
    assert "without 25 % of the images, seed 7" in done.before.provenance
    assert set(calibrate(whole, split=0.25, seed=8).held_out.ids) != fitted
    half = calibrate(whole)
    assert 150 <= len(half.held_out) <= 250, "one half where nothing is said"


def test_the_sides_of_an_image_are_the_same_under_every_shift() -> None:
    clean = on("here")
    foggy = on("here", shift="fog")
    done = calibrate(foggy, clean, split=0.5)
    assert not set(done.held_out.ids) & set(done.before.ids)
    assert set(done.before.ids) == set(calibrate(clean, split=0.5).before.ids)


def test_common_images_are_refused_under_another_shift_too() -> None:
    clean = on("here")
    for same in (clean, on("here", 50), on("here", shift="fog")):
        with raises(ShiftbenchError, expected="other images"):
            calibrate(clean, same)
    assert calibrate(clean, on("there")).temperature > 1


def test_another_classifier_and_bad_shares_are_refused() -> None:
    clean = on("here")
    with raises(ShiftbenchError, found="'net' and 'net'"):
        calibrate(clean, on("there", classifier={"classifier": "other"}))
    for share in (0.0, 1.0, -1.0):
        with raises(ShiftbenchError, expected="between 0 and 1"):
            calibrate(clean, split=share)
    with raises(ShiftbenchError, found="183 rows, none counts"):
        calibrate(replace(clean, labels=np.full(400, -1, np.int32)))
