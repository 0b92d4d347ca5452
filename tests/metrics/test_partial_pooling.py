"""A partially pooled model of single settings under a design, on populations whose errors are known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from shiftbench.arrays import FloatArray
from shiftbench.metrics.designs import DesignOutcomes
from shiftbench.metrics.partial_pooling import PooledModel

CORRUPTIONS = 10
SEVERITIES = 5
SETTINGS = [(f"corruption {number}", float(level)) for number in range(CORRUPTIONS) for level in range(1, 6)]


@dataclass(frozen=True)
class Population:
    """Images of normal difficulty; a probit model, with corruptions, slopes and settings of their own."""

    effects: FloatArray

    @classmethod
    def drawn(cls, rng: np.random.Generator, threshold: float) -> Population:
        of_corruption = rng.normal(0, 0.6, (CORRUPTIONS, 1))
        slopes = rng.normal(0.25, 0.1, (CORRUPTIONS, 1)) * np.arange(SEVERITIES)
        of_setting = rng.normal(0, 0.15, (CORRUPTIONS, SEVERITIES))
        return cls((of_corruption + slopes + of_setting).ravel() + threshold)

    def sample(self, n: int, rng: np.random.Generator) -> tuple[NDArray[np.bool_], FloatArray, FloatArray]:
        """Wrong under each shift; wrong when clean; the confidence when clean."""
        difficulty = rng.normal(size=(n, 1))
        score = difficulty + self.effects + 0.8 * rng.normal(size=(n, len(self.effects)))
        clean = difficulty[:, 0] - 1 + 0.8 * rng.normal(size=n) > 0
        confidence = 1 / (1 + np.exp(difficulty[:, 0] - 1 + 0.8 * rng.normal(size=n)))
        return score > 0, clean.astype(float), confidence


def model_of(population: Population, n: int, rng: np.random.Generator, passes: int = 1) -> PooledModel:
    wrong, clean, confidence = population.sample(n, rng)
    order = rng.permutation(len(SETTINGS))
    first = rng.permutation(np.arange(n) % len(SETTINGS))
    places = np.concatenate([order[(first + turn) % len(SETTINGS)] for turn in range(passes)])
    images = np.tile(np.arange(n), passes)
    observed = wrong[images, places].astype(float)
    outcomes = DesignOutcomes(n, images, places, observed, len(SETTINGS), clean)
    return PooledModel(outcomes, SETTINGS, confidence)


@pytest.mark.parametrize(("threshold", "n", "passes"), [(-0.6, 200, 1), (-2.0, 300, 1), (-0.6, 150, 4)])
def test_intervals_of_settings_and_corruptions_hold_the_truth_and_errors_halve(
    threshold: float, n: int, passes: int
) -> None:
    rng = np.random.default_rng(0)
    held: dict[str, list[bool]] = {"setting": [], "corruption": [], "severity": []}
    modelled_squares = []
    direct_squares = []
    for _ in range(6):
        population = Population.drawn(rng, threshold)
        truth = population.sample(10_000, rng)[0].mean(axis=0)
        model = model_of(population, n, rng, passes)
        by_setting = list(model.by_setting(0.95).values())
        by_corruption = list(model.by_corruption(0.95).values())
        by_severity = list(model.by_severity(0.95).values())
        grid = truth.reshape(CORRUPTIONS, SEVERITIES)
        kinds = {
            "setting": (truth, by_setting),
            "corruption": (grid.mean(axis=1), by_corruption),
            "severity": (grid.mean(axis=0), by_severity),
        }
        for kind, (true_errors, errors) in kinds.items():
            for true_error, error in zip(true_errors.tolist(), errors, strict=True):
                held[kind].append(error.low <= true_error <= error.high)
        places = model.outcomes.places
        direct = np.bincount(places, model.outcomes.wrong) / np.bincount(places)
        direct_squares.append(np.square(direct - truth).mean())
        modelled_squares.append(np.square(np.array([error.value for error in by_setting]) - truth).mean())
    assert np.mean(held["setting"]) > 0.9
    # The corruptions of one test set share its images, so that few test sets say less about them.
    assert np.mean(held["corruption"]) > 0.85
    assert np.mean(held["severity"]) > 0.8
    assert np.sqrt(np.mean(modelled_squares)) < 0.6 * np.sqrt(np.mean(direct_squares))


def test_with_many_images_the_model_agrees_with_what_they_show() -> None:
    rng = np.random.default_rng(3)
    model = model_of(Population.drawn(rng, -0.6), 6000, rng, passes=3)
    places = model.outcomes.places
    direct = np.bincount(places, model.outcomes.wrong) / np.bincount(places)
    modelled = [error.value for error in model.by_setting(0.95).values()]
    assert np.abs(np.array(modelled) - direct).max() < 0.05


def test_few_images_that_are_wrong_when_clean_do_not_decide_the_model() -> None:
    """The mean over settings and images is nearly the observed one, however few images are wrong when clean."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        population = Population.drawn(rng, -2.6)
        wrong, _, confidence = population.sample(500, rng)
        clean = np.zeros(500)
        clean[rng.choice(500, 1 + seed % 3)] = 1
        places = rng.permutation(np.arange(500) % len(SETTINGS))
        observed = wrong[np.arange(500), places].astype(float)
        model = PooledModel(
            DesignOutcomes(500, np.arange(500), places, observed, len(SETTINGS), clean), SETTINGS, confidence
        )
        mean = np.mean([error.value for error in model.by_setting(0.95).values()])
        assert mean == pytest.approx(observed.mean(), abs=0.02)


@pytest.mark.parametrize("outcome", [0.0, 1.0])
def test_one_outcome_of_all_images_gives_intervals_of_some_width(outcome: float) -> None:
    n = 200
    places = np.arange(n) % len(SETTINGS)
    outcomes = DesignOutcomes(n, np.arange(n), places, np.full(n, outcome), len(SETTINGS), np.full(n, np.nan))
    model = PooledModel(outcomes, SETTINGS, np.full(n, np.nan))
    for error in model.by_setting(0.95).values():
        assert 0 <= error.low <= error.value <= error.high <= 1
        assert error.high - error.low > 0.01
        assert abs(error.value - outcome) < 0.1
