"""Conformance checks for metrics: what tables, runs and tests of significance rely on, for authors to run.

The heart is a simulation. A model of known accuracy answers random images, the metric scores a few of them many times,
and its intervals must hold the value that it gives for very many images about as often as they claim. An interval
without a width, such as [100, 100] where all of 18 images are right, claims a certainty that nobody has.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import IntArray
from shiftbench.conformance import CheckResult, require, require_own_randomness, requirement
from shiftbench.errors import MissingExtraError
from shiftbench.labels.space import LabelSpace
from shiftbench.metrics.arrays import softmax
from shiftbench.metrics.base import Metric, Needs, Score, metrics
from shiftbench.store.predictions import SKIPPED, Predictions
from shiftbench.store.spec import ResultSpec

#: From a generator of random numbers and a number of images to the predictions of a model on as many new images.
Simulation = Callable[[np.random.Generator, int], Predictions]

#: Numbers of images at which intervals are tried: as few as a careful person still publishes, and more.
SIZES = (18, 100, 400)
#: Simulated evaluations at each size.
REPLICATES = 200
#: How far the share of intervals that hold the true value may lie below their level. Bootstrap intervals of few images
#: are known to be somewhat too short.
TOLERANCE = 0.1
#: Images from which the true value is computed.
_POPULATION = 20_000
_CLASSES = 10
_SMALLEST_WIDTH = 1e-6


def simulated_predictions(rng: np.random.Generator, n: int, margin: float = 2.0) -> Predictions:
    """Predictions of a somewhat overconfident model on ``n`` random images of ten classes, with all scores.

    Args:
        rng: Source of the random numbers.
        n: Number of images.
        margin: By how much the score of the right class exceeds the others, on average: 2 is right for about 61 % of
            the images, 5 for 97 %.

    Example:
        >>> predictions = simulated_predictions(np.random.default_rng(0), 1000)
        >>> round(float(predictions.correct.mean()), 1)
        0.6
    """
    space = LabelSpace("simulated", tuple(f"class {i}" for i in range(_CLASSES)))
    labels = rng.integers(0, _CLASSES, n).astype(np.int32)
    scores = rng.normal(0, 1, (n, _CLASSES))
    scores[np.arange(n), labels] += rng.normal(margin, 1.5, n)
    scores *= 1.2
    top = np.argsort(-scores, axis=1, kind="stable")[:, :5].astype(np.int32)
    return Predictions(
        classifier="simulated",
        setting="simulated",
        space=space,
        ids=[f"image-{i}" for i in range(n)],
        labels=labels,
        top=top,
        confidence=softmax(scores).max(axis=1).astype(np.float32),
        spec=ResultSpec.from_json({"classifier": {"outputs": "logits"}, "metric": "top1", "provenance": "simulated"}),
        scores=scores.astype(np.float32),
    )


def _usually_right(rng: np.random.Generator, n: int) -> Predictions:
    return simulated_predictions(rng, n, margin=2.0)


def _nearly_always_right(rng: np.random.Generator, n: int) -> Predictions:
    return simulated_predictions(rng, n, margin=5.0)


#: Models of the simulation.
_SIMULATIONS: Sequence[Simulation] = (_usually_right, _nearly_always_right)


def check_metric(
    metric: str | Metric,
    *,
    cases: Sequence[tuple[Predictions, float]] = (),
    simulations: Sequence[Simulation] = _SIMULATIONS,
    sizes: Sequence[int] = SIZES,
    replicates: int = REPLICATES,
    level: float = 0.95,
) -> list[CheckResult]:
    """Run every check on a metric; a failing one explains itself, and none stops the others.

    Args:
        metric: The metric, or the name under which it is registered.
        cases: Predictions and the value that the metric must give for them, computed by hand or by another library.
        simulations: For a metric of other data than images with one label: functions that simulate predictions.
        sizes: Numbers of images at which the intervals are tried.
        replicates: Simulated evaluations at each size; 200 tell 80 % from 90 %.
        level: Confidence level of the intervals.

    Example:
        >>> all(result.ok for result in check_metric("top1", sizes=[18], replicates=50))
        True
    """
    results: list[CheckResult] = []
    with requirement("is registered", results) as notes:
        if isinstance(metric, str):
            metric = metrics.get(metric)
        require(isinstance(metric, Metric), "this is not a metric", found=type(metric).__name__)
        notes.append(metric.name)
    if not results[-1].ok or isinstance(metric, str):
        return results
    sample = simulations[0](np.random.default_rng(0), max(sizes))
    with requirement("gives a score", results) as notes:
        score = metric(sample, level=level)
        require(isinstance(score, Score), "the result is not a score", found=type(score).__name__)
        notes.append(score.text)
    if not results[-1].ok:
        return results
    _check_score(metric, sample, level, results)
    _check_needs(metric, sample, level, results)
    _check_cases(metric, cases, results)
    _check_rows(metric, sample, level, results)
    _check_levels(metric, sample, results)
    for simulation in simulations:
        for size in sizes:
            _check_coverage(metric, simulation, size, replicates, level, results)
    return results


def _check_score(metric: Metric, sample: Predictions, level: float, results: list[CheckResult]) -> None:
    score = metric(sample, level=level)
    with requirement("the value is a number of its unit", results):
        require(math.isfinite(score.value), "the value is not finite", found=score.value)
        if score.unit == "%":
            expected = "a fraction from 0 to 1, which tables show times 100"
            require(0 <= score.value <= 1, "the unit is %", found=score.value, expected=expected)
    with requirement("the interval holds the value", results):
        _require_interval(score)
        interval = f"[{score.low:.6g}, {score.high:.6g}]"
        slack = 1e-9
        inside = score.low - slack <= score.value <= score.high + slack
        require(inside, "the value lies outside", found=f"{score.value:.6g} in {interval}")
    with requirement("counts the images that count", results):
        images = int(sample.valid.sum())
        require(0 < score.n <= len(sample), "n is not a number of images", found=score.n, expected=f"up to {images}")
    with requirement("keeps level and provenance", results):
        require(score.level == level, "the level is another", found=score.level, expected=level)
        hint = "pass provenance=predictions.provenance to Score"
        kept = score.provenance.startswith(sample.provenance)
        require(kept, "the provenance is lost", found=repr(score.provenance), expected=sample.provenance, hint=hint)
    with requirement("the score can be stored as JSON", results):
        json.dumps(score.as_dict())
    with requirement("the same again", results):
        again = metric(sample, level=level)
        hint = "give the generator of a bootstrap a fixed seed"
        require(again == score, "a second call gives another score", found=again.text, expected=score.text, hint=hint)
    with requirement("says what it measures", results):
        hint = "the first line of the function's docstring is what `shiftbench list metrics` shows"
        require(bool(metric.function.__doc__), "the function has no docstring", hint=hint)


def _check_needs(metric: Metric, sample: Predictions, level: float, results: list[CheckResult]) -> None:
    """Check that the declared needs suffice: reports read no other columns of the stored predictions."""
    with requirement("what it declares to need is enough", results) as notes:
        stored = _as_read(sample, metric.needs)
        hint = "declare what the metric reads: @metric(..., needs=Needs(top_k=5, confidence=True, scores=True))"
        try:
            score = metric(stored, level=level)
        except MissingExtraError:
            raise
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
            require(False, "the metric reads more than it declares", found=found, expected=str(metric.needs), hint=hint)
            return
        expected = metric(sample, level=level)
        numbers = (score.value, score.low, score.high, float(score.n))
        same = _same_numbers(numbers, (expected.value, expected.low, expected.high, float(expected.n)))
        found = f"{score.text} from what {metric.needs} reads"
        message = "the metric reads more than it declares"
        require(same, message, found=found, expected=f"{expected.text}, as with all columns", hint=hint)
        notes.append(str(metric.needs))
    with requirement("the global random numbers are left alone", results):
        hint = "draw from a generator of its own with a fixed seed: np.random.default_rng(0)"
        require_own_randomness(lambda: metric(sample, level=level), hint)


def _as_read(predictions: Predictions, needs: Needs) -> Predictions:
    """The predictions as they are read from a workspace for a metric with these needs."""
    confidence = predictions.confidence
    if not needs.confidence:
        confidence = np.full_like(confidence, np.nan)
    scores = predictions.scores
    if not needs.scores:
        scores = None
    return replace(predictions, top=predictions.top[:, : needs.top_k], confidence=confidence, scores=scores)


def _same_numbers(first: Sequence[float], second: Sequence[float]) -> bool:
    return bool(np.allclose(first, second, rtol=1e-6, atol=1e-9, equal_nan=True))


def _check_cases(metric: Metric, cases: Sequence[tuple[Predictions, float]], results: list[CheckResult]) -> None:
    if not cases:
        return
    with requirement("gives the known values", results) as notes:
        for number, (predictions, expected) in enumerate(cases):
            value = metric(predictions).value
            close = math.isclose(value, expected, rel_tol=1e-6, abs_tol=1e-9)
            close = close or (math.isnan(value) and math.isnan(expected))
            require(close, f"case {number} has another value", found=value, expected=expected)
        notes.append(f"{len(cases)} cases")


def _check_rows(metric: Metric, sample: Predictions, level: float, results: list[CheckResult]) -> None:
    """Check what happens to rows: their order, rows that do not count, and none at all."""
    score = metric(sample, level=level)
    with requirement("the order of the images does not matter", results):
        order = np.random.default_rng(1).permutation(len(sample))
        shuffled = metric(_rows(sample, order), level=level)
        same = math.isclose(shuffled.value, score.value, rel_tol=1e-6, abs_tol=1e-9)
        require(same, "the value depends on the order", found=shuffled.value, expected=score.value)
    with requirement("images that could not be read do not count", results):
        unread = _with_unread(sample)
        other = metric(unread, level=level)
        hint = "look only at the rows of predictions.valid"
        same = math.isclose(other.value, score.value, rel_tol=1e-6, abs_tol=1e-9)
        require(same, "a skipped image changes the value", found=other.value, expected=score.value, hint=hint)
        require(other.n == score.n, "a skipped image is counted", found=other.n, expected=score.n, hint=hint)
    with requirement("without images the value is undefined", results):
        empty = metric(_rows(sample, np.arange(0)), level=level)
        hint = "return nan with the widest interval, as shiftbench.metrics.proportion does"
        require(math.isnan(empty.value), "no images have a value", found=empty.value, expected="nan", hint=hint)
    with requirement("the predictions are left as they are", results):
        before = [array.copy() for array in _arrays(sample)]
        metric(sample, level=level)
        unchanged = all(map(_same_array, before, _arrays(sample)))
        require(unchanged, "the metric changed the arrays that it was given", hint="work on copies")


def _check_levels(metric: Metric, sample: Predictions, results: list[CheckResult]) -> None:
    with requirement("a higher level gives a wider interval", results):
        narrow = metric(sample, level=0.8)
        wide = metric(sample, level=0.99)
        widths = f"{narrow.high - narrow.low:.4g} at 80 %, {wide.high - wide.low:.4g} at 99 %"
        wider = wide.high - wide.low > narrow.high - narrow.low
        require(wider, "the level has no effect", found=widths, hint="compute the interval from the argument level")


def _check_coverage(
    metric: Metric, simulation: Simulation, size: int, replicates: int, level: float, results: list[CheckResult]
) -> None:
    """Check at one size that the intervals hold the value of the population as often as their level says."""
    population = simulation(np.random.default_rng(1), _POPULATION)
    right = float(population.correct.mean())
    name = f"{level:.0%} intervals hold the true value at n = {size}, model right on {right:.0%}"
    with requirement(name, results) as notes:
        truth = metric(population, level=level).value
        covered = 0
        without_width = 0
        for number in range(replicates):
            score = metric(simulation(np.random.default_rng([2, size, number]), size), level=level)
            _require_interval(score)
            covered += score.low - 1e-9 <= truth <= score.high + 1e-9
            without_width += score.high - score.low < _SMALLEST_WIDTH
        share = covered / replicates
        noise = 2 * math.sqrt(TOLERANCE * (1 - TOLERANCE) / replicates)
        least = level - TOLERANCE - noise
        found = f"{share:.0%} of {replicates} intervals hold {truth:.4g}"
        if without_width:
            found += f"; {without_width} have no width"
        require(
            share >= least and not without_width,
            "the intervals are too short, or beside the value",
            found=found,
            expected=f"at least {least:.0%} ({TOLERANCE:.0%} below the level, less the simulation's noise) and a width",
            hint="for shares use shiftbench.metrics.proportion; a bootstrap has no width where all images agree",
        )
        notes.append(found)


def _require_interval(score: Score) -> None:
    ordered = score.low <= score.high
    hint = "compute an interval, such as that of shiftbench.metrics.proportion"
    found = f"[{score.low}, {score.high}]"
    require(ordered, "a score needs an interval", found=found, expected="low <= high", hint=hint)


def _rows(predictions: Predictions, rows: IntArray) -> Predictions:
    """These rows of the predictions, in this order."""
    positions = rows.tolist()
    label_sets = predictions.label_sets
    if label_sets is not None:
        label_sets = [label_sets[row] for row in positions]
    return replace(
        predictions,
        ids=[predictions.ids[row] for row in positions],
        labels=predictions.labels[rows],
        top=predictions.top[rows],
        confidence=predictions.confidence[rows],
        scores=None if predictions.scores is None else predictions.scores[rows],
        label_sets=label_sets,
    )


def _with_unread(predictions: Predictions) -> Predictions:
    """The predictions with one more image, which could not be read."""
    rows = np.append(np.arange(len(predictions)), 0)
    extended = _rows(predictions, rows)
    extended.top[-1] = SKIPPED
    extended.confidence[-1] = np.nan
    if extended.scores is not None:
        extended.scores[-1] = np.nan
    return replace(extended, ids=[*predictions.ids, "an image that could not be read"])


def _arrays(predictions: Predictions) -> list[NDArray[Any]]:
    arrays: list[NDArray[Any]] = [predictions.labels, predictions.top, predictions.confidence]
    if predictions.scores is not None:
        arrays.append(predictions.scores)
    return arrays


def _same_array(first: NDArray[Any], second: NDArray[Any]) -> bool:
    return first.tobytes() == second.tobytes()
