"""Estimates by a design: equal to the full grid where all is evaluated, unbiased, and covering."""

from __future__ import annotations

import numpy as np
import pytest

from shiftbench.arrays import FloatArray
from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS
from shiftbench.errors import SettingError
from shiftbench.metrics.corruption import ALEXNET, GROUPS
from shiftbench.metrics.corruption_scores import GridShape
from shiftbench.metrics.designs import DesignOutcomes, Estimate, compare_grids, design_numbers
from shiftbench.shifts.assigned import assign
from tests.metrics.making import predictions

PLACES = [(name, float(severity)) for name in ("fog", "snow", "frost") for severity in (1, 3)]
SHAPE = GridShape.of(PLACES)
SHIFTS = len(PLACES)


def population(images: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Errors of images that are hard or easy under all shifts, (images, shifts), and on the clean images."""
    rng = np.random.default_rng(seed)
    hardness = rng.normal(0, 1, (images, 1))
    wrong = hardness + rng.normal(0, 1, (images, SHIFTS)) + np.linspace(-1, 1, SHIFTS) > 0
    return wrong.astype(float), (hardness[:, 0] + rng.normal(0, 0.5, images) > 1).astype(float)


def observed(wrong: FloatArray, clean: FloatArray, passes: int, seed: int) -> DesignOutcomes:
    ids = [str(i) for i in range(len(wrong))]
    labels = np.arange(len(wrong), dtype=np.int32) % 4
    turns = [assign(ids, labels, SHIFTS, seed=seed, turn=turn) for turn in range(passes)]
    images = np.tile(np.arange(len(wrong)), passes)
    places = np.concatenate(turns)
    return DesignOutcomes(len(wrong), images, places, wrong[images, places], SHIFTS, clean)


def values(wrong: FloatArray, clean: FloatArray) -> dict[str, float]:
    """The full grid's numbers, by their definitions."""
    errors = wrong.mean(axis=0).reshape(3, 2).mean(axis=1)
    base = [ALEXNET.mean(name, (1.0, 3.0)) for name in ("fog", "snow", "frost")]
    rise = [one - ALEXNET.clean_error() for one in base]
    return {
        "mean": float(errors.mean()),
        "mce": float(np.mean(errors / base)),
        "relative": float(np.mean((errors - clean.mean()) / rise)),
    }


def estimated(outcomes: DesignOutcomes) -> dict[str, tuple[float, float, float]]:
    found = design_numbers(outcomes, PLACES, SHAPE, ALEXNET, 0.95)
    return {"mean": found["error", ""], "mce": found["CE", ""], "relative": found["relative CE", ""]}


@pytest.mark.parametrize("sizes", [(12, 3), (13, 1, 1), (9, 4, 2)])
def test_every_class_has_its_share(sizes: tuple[int, ...]) -> None:
    """Two or three images meet each shift: the mean of the shifts' means must not count a rare class too little."""
    classes = np.repeat(np.arange(len(sizes)), sizes)
    ids = [str(i) for i in range(15)]
    for seed in range(10):
        places = assign(ids, classes.astype(np.int32), SHIFTS, seed=seed)
        rare = (classes > 0).astype(float)
        seen = DesignOutcomes(15, np.arange(15), places, rare, SHIFTS, None, classes)
        assert Estimate.average(seen.errors()).value == pytest.approx(rare.mean(), abs=1e-6)
        assert seen.mean_error(range(SHIFTS)).value == pytest.approx(rare.mean(), abs=1e-6)


def test_all_passes_give_the_full_grid() -> None:
    wrong, clean = population(40, 0)
    whole = values(wrong, clean)
    found = estimated(observed(wrong, clean, SHIFTS, 0))
    assert {name: found[name][0] for name in whole} == pytest.approx(whole)


def test_the_variance_of_all_passes_is_that_of_image_means() -> None:
    wrong, clean = population(400, 1)
    estimate = Estimate.average(observed(wrong, clean, SHIFTS, 0).errors())
    assert estimate.error == pytest.approx(wrong.mean(axis=1).std(ddof=1) / 20)


def test_estimates_are_unbiased_over_designs() -> None:
    wrong, clean = population(60, 2)
    whole = values(wrong, clean)
    drawn = [estimated(observed(wrong, clean, 1, seed)) for seed in range(400)]
    for name, true in whole.items():
        found = np.array([one[name][0] for one in drawn])
        assert abs(found.mean() - true) < 4 * found.std() / 20


@pytest.mark.parametrize("passes", [1, 3])
def test_intervals_cover_the_population(passes: int) -> None:
    """New images and a new design each time: 95 % intervals hold the truth of endlessly many images."""
    truth = values(*population(400_000, 3))
    hits = dict.fromkeys(truth, 0)
    runs = 400
    for seed in range(runs):
        found = estimated(observed(*population(120, 1000 + seed), passes, seed))
        for name, true in truth.items():
            hits[name] += found[name][1] <= true <= found[name][2]
    assert all(0.92 <= count / runs <= 0.985 for count in hits.values()), hits


@pytest.mark.parametrize("passes", [1, 3])
def test_intervals_for_these_images_cover_their_full_grid(passes: int) -> None:
    """New designs on the same images; the interval is narrower than the one for new images."""
    wrong, clean = population(120, 5)
    truth = float(wrong.mean())
    runs = 300
    held = 0
    for seed in range(runs):
        outcomes = observed(wrong, clean, passes, seed)
        estimate = Estimate.average(outcomes.errors())
        half_width = outcomes.full_grid_half_width(0.95)
        held += abs(estimate.value - truth) <= half_width
        assert half_width < estimate.half_width(0.95) * (1.02 if passes == 1 else 0.75)
    assert 0.92 <= held / runs <= 1


def test_two_wrong_images_under_one_shift_are_no_certainty() -> None:
    """Two images met each shift, and both were wrong under the same one: no shift shows a variance of its own."""
    places = np.repeat(np.arange(SHIFTS), 2)
    wrong = (places == 3).astype(float)
    outcomes = DesignOutcomes(2 * SHIFTS, np.arange(2 * SHIFTS), places, wrong, SHIFTS, np.zeros(2 * SHIFTS))
    for kind in ("error", "CE", "relative CE"):
        value, low, high = design_numbers(outcomes, PLACES, SHAPE, ALEXNET, 0.95)[kind, ""]
        assert low < value < high


def test_models_that_differ_under_one_shift_are_no_certainty() -> None:
    grids = []
    for top in (0, 1):
        grid = {}
        for severity in range(6):
            answers = [top, top] if severity == 3 else [0, 0]
            ids = [f"{severity}-0", f"{severity}-1"]
            grid["fog", severity] = predictions(answers, [0, 0], ids=ids, classifier=str(top))
        grids.append(grid)
    comparison = compare_grids("c", *grids, level=0.95)
    assert comparison.low < 0 < comparison.difference == pytest.approx(1 / 6)
    assert 0.05 < comparison.p < 1


def test_all_passes_leave_nothing_open_on_these_images() -> None:
    assert observed(*population(60, 0), SHIFTS, 0).full_grid_half_width(0.95) == pytest.approx(0, abs=1e-6)


@pytest.mark.soak
def test_intervals_cover_with_few_images_of_unequal_classes() -> None:
    """114 images, one in ten of a hard class, two or three under each of 45 shifts: means, mCE, relative mCE, the means
    over noise, blur, weather and digital, and the difference of two models."""
    places = [(name, float(severity)) for name in BENCHMARK_CORRUPTIONS for severity in (1, 3, 5)]
    shape = GridShape.of(places)
    rng = np.random.default_rng(0)
    runs = 1500
    rise = np.tile([-0.5, 0.25, 1.0], 15) + np.linspace(-0.5, 0.5, 45)
    ids = [str(i) for i in range(114)]
    labels = np.arange(114, dtype=np.int32) // 103

    def images(classes: np.ndarray) -> tuple[FloatArray, FloatArray, FloatArray]:
        hardness = rng.normal(0, 1, (len(classes), 1)) + 3.0 * classes[:, None] - 1.5
        noise = rng.normal(0, 1, (2, len(classes), 45))
        first, second = (hardness + rise + own > 0 for own in (noise[0], 0.7 * noise.sum(axis=0)))
        clean = hardness[:, 0] + rng.normal(0, 0.5, len(classes)) > 0.8
        return first.astype(float), second.astype(float), clean.astype(float)

    whole, other, clean = images(rng.choice(labels, 40_000))
    errors = dict(zip(BENCHMARK_CORRUPTIONS, whole.mean(axis=0).reshape(15, 3).mean(axis=1), strict=True))
    base = {name: ALEXNET.mean(name, (1.0, 3.0, 5.0)) for name in errors}
    truth = {("error", group): float(np.mean([errors[name] for name in own])) for group, own in GROUPS.items()}
    truth["error", ""] = float(whole.mean())
    truth["CE", ""] = float(np.mean([errors[name] / base[name] for name in base]))
    lost = {name: (errors[name] - clean.mean()) / (base[name] - ALEXNET.clean_error()) for name in base}
    truth["relative CE", ""] = float(np.mean(list(lost.values())))
    truth["difference", ""] = float(other.mean() - whole.mean())
    hits = dict.fromkeys(truth, 0)
    for seed in range(runs):
        classes = np.sort(rng.choice(labels, 114))
        first, second, clean = images(classes)
        met = assign(ids, classes, 45, seed=seed)
        a, b = (
            DesignOutcomes(114, np.arange(114), met, one[np.arange(114), met], 45, clean, classes)
            for one in (first, second)
        )
        found = design_numbers(a, places, shape, ALEXNET, 0.95)
        difference = Estimate.average([y - x for x, y in zip(a.errors(), b.errors(), strict=True)])
        found["difference", ""] = (difference.value, *difference.interval(0.95))
        for name, true in truth.items():
            hits[name] += found[name][1] <= true <= found[name][2]
    coverage = {name: count / runs for name, count in hits.items()}
    print(coverage)
    assert min(coverage.values()) >= 0.94 - 2 * (0.05 * 0.95 / runs) ** 0.5, coverage


def test_where_all_outcomes_agree_intervals_are_exact() -> None:
    """One-sided Clopper-Pearson by its definition: the error at which n of n wrong has probability 0.025."""
    wrong = np.ones((24, SHIFTS))
    clean = np.zeros(24)
    found = design_numbers(observed(wrong, clean, 1, 0), PLACES, SHAPE, ALEXNET, 0.95)
    assert found["error", "fog"] == pytest.approx((1.0, 0.025 ** (1 / 8), 1.0))
    assert found["error", ""] == pytest.approx((1.0, 0.025 ** (1 / 24), 1.0))
    value, low, high = found["relative CE", ""]
    assert low < value
    assert high >= value
    more = design_numbers(observed(wrong, clean, 3, 0), PLACES, SHAPE, ALEXNET, 0.95)
    assert more["error", ""] == pytest.approx((1.0, 0.025 ** (1 / 24), 1.0)), "passes of one image do not add images"


@pytest.mark.parametrize("images", [14, 40, 90, 600])
def test_errors_are_possible_and_within_their_intervals(images: int) -> None:
    """A model that is mostly right: clean outcomes must not move its few errors below zero."""
    rng = np.random.default_rng(images)
    for seed in range(30):
        clean = (rng.random(images) < 0.3).astype(float)
        wrong = clean[:, None] * (rng.random((images, SHIFTS)) < [0.0, 0.05, 0.3, 0.3, 0.9, 0.9])
        for (kind, _), (value, low, high) in design_numbers(
            observed(wrong, clean, 1, seed), PLACES, SHAPE, ALEXNET, 0.95
        ).items():
            assert low <= value <= high
            assert kind == "relative CE" or value >= 0
            assert kind != "error" or high <= 1


def test_errors_divided_by_another_model_are_those_of_the_full_grid() -> None:
    wrong, clean = population(40, 5)
    other, other_clean = population(40, 6)
    both = (observed(one, own, SHIFTS, 0) for one, own in ((wrong, clean), (other, other_clean)))
    found = design_numbers(next(both), PLACES, SHAPE, next(both), 0.95)
    by_type = wrong.mean(axis=0).reshape(3, 2).mean(axis=1) / other.mean(axis=0).reshape(3, 2).mean(axis=1)
    assert found["CE", ""][0] == pytest.approx(by_type.mean())
    assert found["CE", ""][1] < by_type.mean() < found["CE", ""][2]


def test_ratio_of_two_models_has_the_spread_of_new_images() -> None:
    """Linearised standard error of a ratio against its spread over new images and designs."""

    def ratio(seed: int) -> Estimate:
        first, second = (Estimate.average(observed(*population(300, 2 * seed + i), 1, seed).errors()) for i in (0, 1))
        return first.over(second)

    drawn = [ratio(seed) for seed in range(300)]
    spread = float(np.std([one.value for one in drawn]))
    assert float(np.mean([one.error for one in drawn])) == pytest.approx(spread, rel=0.15)


def test_clean_outcomes_narrow_the_intervals_of_unequal_weights() -> None:
    """Relative mCE of images that are wrong when shifted mostly if they are wrong when clean."""
    rng = np.random.default_rng(0)
    clean = (rng.random(240) < 0.4).astype(float)
    wrong = (rng.random((240, SHIFTS)) < np.where(clean, 0.95, 0.1)[:, None]).astype(float)
    with_clean = observed(wrong, clean, 1, 0)
    without = DesignOutcomes(240, with_clean.images, with_clean.places, with_clean.wrong, SHIFTS)
    weights = np.array([5.0, 5, 0.5, 0.5, 0.5, 0.5])

    def error(outcomes: DesignOutcomes) -> float:
        return float(np.linalg.norm(weights @ np.array([error.influence for error in outcomes.errors()])))

    assert error(with_clean) < 0.85 * error(without)
    assert Estimate.average(with_clean.errors()).error == pytest.approx(
        Estimate.average(without.errors()).error, rel=0.05
    ), "equal weights cancel what the clean outcome explains"


def test_too_few_images() -> None:
    wrong, clean = population(SHIFTS + 1, 4)
    with pytest.raises(SettingError):
        observed(wrong, clean, 1, 0)
