"""What intervals and verdicts cover, by simulation: docs/statistics.md.

    python -m benchmarks.statistics [SECTION ...] [--page-only]

Populations are simulated, so that the true values are known. Every section stores its results apart and can be run
alone.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.gate import simulated
from benchmarks.gate_cells import cells_text, simulate_cells
from benchmarks.interval_coverage import (
    calibration_text,
    confidence_text,
    differences_text,
    simulate_calibration,
    simulate_confidence,
    simulate_differences,
)
from benchmarks.model_intervals import (
    lines_text,
    modelled_text,
    seeds_text,
    simulate_lines,
    simulate_modelled,
    simulate_seeds,
)
from benchmarks.page import RESULTS, table
from shiftbench.arrays import FloatArray
from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS
from shiftbench.metrics.betting import Drop
from shiftbench.metrics.bootstrap import percentile_interval, resampled_means
from shiftbench.metrics.corruption import ALEXNET, ALEXNET_ERRORS, SEVERITIES
from shiftbench.metrics.designs import DesignOutcomes, Estimate
from shiftbench.metrics.intervals import Interval, clopper_pearson, difference_of_shares, mean_share_intervals
from shiftbench.studies.gate import DEFAULT_POLICY, judge

PAGE = Path(__file__).parents[1] / "docs" / "statistics.md"
LEVEL = 0.95
ALPHA = 0.05
#: Half-width of a 95 % interval, in standard errors.
_Z = 1.96

Rows = list[dict[str, Any]]


def monte_carlo_error(share: float, replicates: int) -> float:
    """The half-width of a share of replicates; near 0 and 1 that of one more and one less."""
    smallest = 1 / (replicates + 2)
    inside = min(max(share, smallest), 1 - smallest)
    return _Z * math.sqrt(inside * (1 - inside) / replicates)


def percent(share: float, replicates: int) -> str:
    return f"{100 * share:.1f} ± {100 * monte_carlo_error(share, replicates):.1f}"


# Means over settings


@dataclass(frozen=True)
class Population:
    """Images that differ in difficulty, under 15 corruptions at 5 severities; a threshold sets how many are wrong."""

    threshold: float

    def sample(self, n: int, rng: np.random.Generator) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """(n, 75) wrong under each shift, and (n,) wrong when clean."""
        difficulty = rng.normal(size=(n, 1))
        slope = 0.15 * np.exp(0.3 * rng.normal(size=(n, 1)))
        of_corruption = np.repeat(np.linspace(-0.6, 0.6, 15) + 0.5 * rng.normal(size=(n, 15)), 5, axis=1)
        severity = np.tile(np.arange(1, 6), 15)
        score = difficulty + slope * severity + of_corruption + 0.7 * rng.normal(size=(n, 75)) + self.threshold
        clean = difficulty[:, 0] + 0.7 * rng.normal(size=n) + self.threshold
        return score > 0, clean > 0

    @classmethod
    def with_mean_error(cls, target: float) -> Population:
        low = -9.0
        high = 5.0
        for _ in range(22):
            middle = (low + high) / 2
            wrong, _ = cls(middle).sample(4000, np.random.default_rng(1))
            if wrong.mean() < target:
                low = middle
            else:
                high = middle
        return cls(middle)

    def truth(self, images: int = 300_000) -> tuple[FloatArray, float]:
        """The error under each shift and when clean, from many images."""
        rng = np.random.default_rng(2)
        block = 10_000
        errors = np.zeros(75)
        clean_error = 0.0
        for _ in range(images // block):
            wrong, clean = self.sample(block, rng)
            errors += wrong.mean(axis=0) * block / images
            clean_error += float(clean.mean()) * block / images
        return errors, clean_error


def _mean_weights() -> dict[str, FloatArray]:
    """The weight of the 75 errors in each mean; those of relative mCE are also the weight of the clean error."""
    alexnet = np.array([np.mean(ALEXNET_ERRORS[name]) for name in BENCHMARK_CORRUPTIONS])
    per_setting = 1 / (len(alexnet) * len(SEVERITIES))
    return {
        "mean error": np.full(75, per_setting),
        "mCE": np.repeat(per_setting / alexnet, len(SEVERITIES)),
        "relative mCE": np.repeat(per_setting / (alexnet - ALEXNET.clean_error()), len(SEVERITIES)),
    }


def _share(values: FloatArray) -> tuple[float, FloatArray, Interval]:
    mean = float(values.mean())
    deviations = values - mean
    low, high = mean_share_intervals(mean, float(deviations @ deviations), len(values), LEVEL)
    return mean, deviations, Interval(float(low), float(high))


def student_interval(name: str, wrong: NDArray[np.bool_], clean: NDArray[np.bool_], weights: FloatArray) -> Interval:
    total = float(weights.sum())
    mean, deviations, ends = _share(wrong @ (weights / total))
    if name == "relative mCE":
        clean_mean, clean_deviations, clean_ends = _share(clean.astype(float))
        squares = float(deviations @ deviations) * float(clean_deviations @ clean_deviations)
        correlation = float(deviations @ clean_deviations) / math.sqrt(squares) if squares > 0 else 0.0
        ends = difference_of_shares(mean, ends, clean_mean, clean_ends, correlation)
    return Interval(total * ends.low, total * ends.high)


def _bootstrap_intervals(wrong: NDArray[np.bool_], clean: NDArray[np.bool_], seed: int) -> dict[str, Interval]:
    """What versions before 0.2 showed: percentiles of 500 resamples."""
    drawn = resampled_means(np.column_stack([wrong, clean]), resamples=500, seed=seed)
    intervals = {}
    for name, weights in _mean_weights().items():
        values = drawn[:, :75] @ weights
        if name == "relative mCE":
            values = values - weights.sum() * drawn[:, 75]
        low, high = percentile_interval(values, LEVEL)
        intervals[name] = Interval(float(low), float(high))
    return intervals


def simulate_means() -> Rows:
    """Intervals of means over settings, on test sets of several sizes."""
    rows: Rows = []
    all_weights = _mean_weights()
    for target in (0.005, 0.02, 0.1, 0.4):
        population = Population.with_mean_error(target)
        errors, clean_error = population.truth()
        for n, replicates, bootstraps in ((50, 500, 200), (114, 500, 200), (300, 400, 100), (1000, 200, 0)):
            rng = np.random.default_rng([n, int(1000 * target)])
            held = dict.fromkeys(all_weights, 0)
            width = dict.fromkeys(all_weights, 0.0)
            held_before = dict.fromkeys(all_weights, 0)
            for replicate in range(replicates):
                wrong, clean = population.sample(n, rng)
                before = _bootstrap_intervals(wrong, clean, replicate) if replicate < bootstraps else {}
                for name, weights in all_weights.items():
                    truth = float(errors @ weights)
                    if name == "relative mCE":
                        truth -= clean_error * float(weights.sum())
                    low, high = student_interval(name, wrong, clean, weights)
                    held[name] += low <= truth <= high
                    width[name] += (high - low) / replicates
                    if before:
                        held_before[name] += before[name].low <= truth <= before[name].high
            for name in all_weights:
                rows.append(
                    {
                        "number": name,
                        "error": target,
                        "n": n,
                        "replicates": replicates,
                        "covered": held[name] / replicates,
                        "width": width[name],
                        "bootstraps": bootstraps,
                        "covered_by_bootstrap": held_before[name] / bootstraps if bootstraps else None,
                    }
                )
                print(rows[-1], flush=True)
    return rows


def means_text(rows: Rows) -> str:
    shown = []
    for row in rows:
        before = row["covered_by_bootstrap"]
        shown.append(
            [
                row["number"],
                f"{100 * row['error']:g} %",
                f"{row['n']:,}",
                percent(row["covered"], row["replicates"]),
                f"{100 * row['width']:.1f}",
                "" if before is None else percent(before, row["bootstraps"]),
            ]
        )
    header = ["number", "mean error", "images", "covered, %", "mean width, points", "percentiles, %"]
    return (
        "Each image has a difficulty, a sensitivity to severity and one to each corruption; 15 corruptions at 5 "
        "severities, 200 to 500 test sets each. The last column is the coverage of percentiles of an image "
        "bootstrap, which earlier versions showed: where few images are wrong they miss the true mean too often, "
        "nearly always because it is above their upper end.\n\n" + table(header, shown)
    )


# Designs: new images, and the full grid on these images


def simulate_designs() -> Rows:
    """Intervals of the mean error by a design, for both of its truths."""
    rows: Rows = []
    replicates = 200
    for target in (0.02, 0.1, 0.4):
        population = Population.with_mean_error(target)
        errors, _ = population.truth()
        for n in (150, 600):
            for passes in (1, 2, 5, 15):
                rng = np.random.default_rng([n, passes, int(1000 * target)])
                held = dict.fromkeys(("population", "grid"), 0)
                ratio = 0.0
                for _ in range(replicates):
                    wrong, clean = population.sample(n, rng)
                    order = rng.permutation(75)
                    first = rng.permutation(np.arange(n) % 75)
                    places = np.concatenate([order[(first + turn) % 75] for turn in range(passes)])
                    images = np.tile(np.arange(n), passes)
                    outcomes = DesignOutcomes(
                        n, images, places, wrong[images, places].astype(float), 75, clean.astype(float)
                    )
                    estimate = Estimate.average(outcomes.errors())
                    half_width = outcomes.full_grid_half_width(LEVEL)
                    if not estimate.error:
                        estimate = outcomes.mean_error(range(75))
                    low, high = estimate.interval(LEVEL)
                    if outcomes.same_outcome(range(75)) is not None:
                        low, high = clopper_pearson(0, n, LEVEL)
                    held["population"] += low <= float(errors.mean()) <= high
                    held["grid"] += abs(estimate.value - float(wrong.mean())) <= half_width
                    ratio += 2 * half_width / (high - low) / replicates
                row = {"error": target, "n": n, "passes": passes, "replicates": replicates, "ratio": ratio}
                rows.append({**row, **{name: count / replicates for name, count in held.items()}})
                print(rows[-1], flush=True)
    return rows


def designs_text(rows: Rows) -> str:
    shown = []
    for row in rows:
        covered = [percent(row[name], row["replicates"]) for name in ("population", "grid")]
        shown.append([f"{100 * row['error']:g} %", row["n"], row["passes"], *covered, f"{row['ratio']:.2f}"])
    header = ["mean error", "images", "passes", "new images, %", "the full grid, %", "its width, relative"]
    return (
        "The mean error over 75 shifts, estimated by `--design one-pass`. Tables show the interval for new images like "
        "these; a note below gives the narrower one for what the full grid would give on these images.\n\n"
        + table(header, shown)
    )


# Verdicts of gates


def _losses(rng: np.random.Generator, shape: tuple[int, ...], disagreement: float, drop: float) -> FloatArray:
    """1 where the candidate lost an image, -1 where it won one."""
    lost = (disagreement + drop) / 2
    draws = rng.random(shape)
    return np.where(draws < lost, 1.0, np.where(draws < disagreement, -1.0, 0.0))


def _fixed_test_passes(losses: FloatArray, margin: float) -> bool:
    """The score test for one look that earlier versions had (Tango 1998, for one number)."""
    n = len(losses)
    mean = float(losses.mean())
    distance = margin - mean - 1 / (2 * n)
    missing = min((margin - mean) / (1 - mean), 1.0)
    variance = (1 - missing) * float(np.square(losses).mean()) + missing - margin**2
    return distance > 0 and distance / math.sqrt(max(variance, 1e-12) / n) > _ONE_SIDED


#: The quantile of a one-sided test at 5 %.
_ONE_SIDED = 1.645
_LOOKS = tuple(range(500, 10_001, 500))


def _simulate_looks(rng: np.random.Generator) -> Rows:
    """How often a candidate whose drop is the margin ever passes, when images are added until it does."""
    rows: Rows = []
    replicates = 500
    for disagreement in (0.02, 0.05, 0.12):
        anytime = fixed_once = fixed_often = 0
        for _ in range(replicates):
            losses = _losses(rng, (_LOOKS[-1],), disagreement, 0.01)
            anytime += Drop(losses, 0.01).p_within(0.01) <= ALPHA
            fixed = [_fixed_test_passes(losses[:n], 0.01) for n in _LOOKS]
            fixed_once += fixed[-1]
            fixed_often += any(fixed)
        row = {"kind": "looks", "disagreement": disagreement, "replicates": replicates}
        counts = {"anytime": anytime, "fixed_once": fixed_once, "fixed_often": fixed_often}
        rows.append({**row, **{name: count / replicates for name, count in counts.items()}})
        print(rows[-1], flush=True)
    return rows


def simulate_gates() -> Rows:
    rng = np.random.default_rng(11)
    rows = _simulate_looks(rng)
    replicates = 100
    for one_pass in (False, True):
        for disagreement in (0.04, 0.08):
            for drop in (0.0, 0.02, 0.04):
                verdicts = [
                    judge(simulated(rng, 2000, disagreement, one_pass, drop), DEFAULT_POLICY, "new", "old").verdict
                    for _ in range(replicates)
                ]
                row = {"kind": "policy", "one_pass": one_pass, "disagreement": disagreement, "drop": drop}
                shares = {verdict: verdicts.count(verdict) / replicates for verdict in ("pass", "fail")}
                rows.append({**row, **shares, "replicates": replicates})
                print(rows[-1], flush=True)
    return rows


def gates_text(rows: Rows) -> str:
    looks = []
    policy = []
    for row in rows:
        count = row["replicates"]
        disagreement = f"{100 * row['disagreement']:g} %"
        if row["kind"] == "looks":
            looks.append(
                [disagreement, *(percent(row[name], count) for name in ("anytime", "fixed_often", "fixed_once"))]
            )
        else:
            design = "one-pass" if row["one_pass"] else "full"
            drop = f"{100 * row['drop']:g}"
            policy.append([design, disagreement, drop, percent(row["pass"], count), percent(row["fail"], count)])
    return (
        "A candidate whose drop is the margin of 1 point should pass in at most 5 % of cases. Here the gate is "
        "repeated with 500 images more, up to 10,000, until it passes; the bets of the gate are even followed after "
        "every image. The last columns are a test for one number of images, as earlier versions had it.\n\n"
        + table(
            ["disagreement", "ever passes, %", "the test for one look, repeated, %", "the same, once, %"],
            looks,
        )
        + "\n\nThe default policy on 2,000 images, clean and under 15 corruptions; the candidate has the drop, in "
        "points, in every setting. Its blocking margins are 2 points. Gates that neither pass nor fail need more "
        "images.\n\n" + table(["design", "disagreement", "drop", "pass, %", "fail, %"], policy)
    )


# Many commits that each lose a little


def simulate_drift() -> Rows:
    """Commits that lose 0.3 points each, compared with the first model, by a margin on 10,000 images."""
    rng = np.random.default_rng(12)
    replicates = 100
    rows: Rows = []
    for margin in (0.01, 0.02):
        for commits in (3, 5, 6, 7, 8, 10, 12):
            drop = 0.003 * commits
            passed = failed = 0
            for _ in range(replicates):
                losses = Drop(_losses(rng, (10_000,), 0.04, drop), margin)
                passed += losses.p_within(margin) <= ALPHA
                failed += losses.p_beyond(margin) <= ALPHA
            row = {"margin": margin, "commits": commits, "replicates": replicates}
            rows.append({**row, "pass": passed / replicates, "fail": failed / replicates})
    return rows


def drift_text(rows: Rows) -> str:
    shown = []
    for row in rows:
        count = row["replicates"]
        lost = f"{0.3 * row['commits']:.1f}"
        margin = f"{100 * row['margin']:g}"
        shown.append([margin, row["commits"], lost, percent(row["pass"], count), percent(row["fail"], count)])
    return (
        "Each commit loses 0.3 points. The gate compares it with the first model, by one rule, on 10,000 images of "
        "which the two answer 4 % differently.\n\n"
        + table(["margin", "commits", "points lost", "pass, %", "fail, %"], shown)
    )


@dataclass(frozen=True)
class Section:
    title: str
    simulate: Callable[[], Rows]
    text: Callable[[Rows], str]


SECTIONS: Mapping[str, Section] = {
    "means": Section("Means over settings: mean error, mCE, relative mCE", simulate_means, means_text),
    "designs": Section("Means over settings by a design", simulate_designs, designs_text),
    "modelled": Section("Single settings by a partially pooled model", simulate_modelled, modelled_text),
    "differences": Section("Differences of two models", simulate_differences, differences_text),
    "confidence": Section("Confidence and detection", simulate_confidence, confidence_text),
    "calibration": Section("Calibration errors, AUPR and AUROC", simulate_calibration, calibration_text),
    "lines": Section("Lines of models", simulate_lines, lines_text),
    "seeds": Section("Seeds of experiments", simulate_seeds, seeds_text),
    "gate": Section("Verdicts of gates", simulate_gates, gates_text),
    "cells": Section("Gates with a limit of forward passes", simulate_cells, cells_text),
    "drift": Section("Gates of many commits", simulate_drift, drift_text),
}

_HEAD = """# What intervals and verdicts cover

Every figure on this page is from a simulation with known truth, by `python -m benchmarks.statistics`; the functions
that are tested are those that commands call. Intervals promise 95 %. ± is the half-width of a 95 % interval of the
simulation itself (its Monte Carlo error): a coverage of 93.8 ± 1.5 is compatible with 95, one of 91 ± 1.5 is not.

Proportions of images (accuracy in one setting) have the exact interval of Clopper and Pearson, which never covers less
than it promises; it needs no simulation. How the numbers are computed is on the page of [formulas](formulas.md).

"""


def write_page() -> None:
    text = _HEAD
    for name, section in SECTIONS.items():
        path = _path(name)
        if path.exists():
            text += f"## {section.title}\n\n{section.text(json.loads(path.read_text()))}\n\n"
    PAGE.write_text(text.rstrip() + "\n")


def _path(name: str) -> Path:
    return RESULTS / f"statistics_{name}.json"


def main(names: Sequence[str], *, page_only: bool) -> None:
    for name in [] if page_only else names or list(SECTIONS):
        rows = SECTIONS[name].simulate()
        _path(name).write_text(json.dumps(rows, indent=1) + "\n")
        write_page()
    write_page()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", help=f"of {', '.join(SECTIONS)}; default: all")
    parser.add_argument("--page-only", action="store_true", help="only write the page, from the stored results")
    options = parser.parse_args()
    main(options.sections, page_only=options.page_only)
