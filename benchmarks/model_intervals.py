"""Coverage of numbers that rest on a model: pooled settings, lines of models, seeds. Sections of docs/statistics.md."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import expit

from benchmarks.page import table
from shiftbench.arrays import FloatArray
from shiftbench.hardening.experiments.base import run_name
from shiftbench.hardening.experiments.study import _Measured, _number
from shiftbench.metrics.designs import DesignOutcomes
from shiftbench.metrics.partial_pooling import PooledModel
from shiftbench.studies.fits import fit

Rows = list[dict[str, Any]]

LEVEL = 0.95
CORRUPTIONS = 15
SEVERITIES = 5
SETTINGS = [
    (f"corruption {number}", float(severity)) for number in range(CORRUPTIONS) for severity in range(1, SEVERITIES + 1)
]


def _percent(share: float, count: int) -> str:
    """A share of so many independent cases, with the half-width of its 95 % interval."""
    inside = min(max(share, 1 / (count + 2)), 1 - 1 / (count + 2))
    return f"{100 * share:.1f} ± {196 * math.sqrt(inside * (1 - inside) / count):.1f}"


# Single settings by a partially pooled model


def _sample(effects: FloatArray, n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Wrong under each shift, wrong when clean, and the clean confidence, of images that differ in difficulty."""
    difficulty = rng.normal(size=(n, 1))
    of_corruption = 0.5 * np.repeat(rng.normal(size=(n, CORRUPTIONS)), SEVERITIES, axis=1)
    wrong = difficulty + of_corruption + effects + 0.7 * rng.normal(size=(n, len(effects))) > 0
    lowest = float(effects.min())
    clean = difficulty[:, 0] + lowest + 0.7 * rng.normal(size=n) > 0
    confidence = expit(-difficulty[:, 0] - lowest + 0.7 * rng.normal(size=n))
    return wrong.astype(float), clean.astype(float), confidence


def simulate_modelled() -> Rows:
    """Errors of single settings, corruptions and severities: coverage, and distance from the truth."""
    rows: Rows = []
    test_sets = 40
    for threshold, of_settings in ((-0.9, 0.15), (-0.9, 0.4), (-2.6, 0.15)):
        for n, passes in ((150, 1), (300, 1), (1000, 1), (300, 5)):
            rng = np.random.default_rng([n, passes, int(100 * of_settings), int(-10 * threshold)])
            held = dict.fromkeys(("setting", "corruption", "severity"), 0.0)
            width = dict.fromkeys(held, 0.0)
            modelled = direct = mean_error = 0.0
            for _ in range(test_sets):
                slopes = rng.normal(0.25, 0.1, (CORRUPTIONS, 1)) * np.arange(SEVERITIES)
                effects = rng.normal(0, 0.6, (CORRUPTIONS, 1)) + slopes
                effects = (effects + rng.normal(0, of_settings, effects.shape)).ravel() + threshold
                truth = _sample(effects, 6000, rng)[0].mean(axis=0)
                mean_error += float(truth.mean()) / test_sets
                wrong, clean, confidence = _sample(effects, n, rng)
                order = rng.permutation(len(SETTINGS))
                first = rng.permutation(np.arange(n) % len(SETTINGS))
                places = np.concatenate([order[(first + turn) % len(SETTINGS)] for turn in range(passes)])
                images = np.tile(np.arange(n), passes)
                outcomes = DesignOutcomes(n, images, places, wrong[images, places], len(SETTINGS), clean)
                model = PooledModel(outcomes, SETTINGS, confidence)
                grid = truth.reshape(CORRUPTIONS, SEVERITIES)
                true_errors = {"setting": truth, "corruption": grid.mean(axis=1), "severity": grid.mean(axis=0)}
                errors = {
                    "setting": model.by_setting(LEVEL).values(),
                    "corruption": model.by_corruption(LEVEL).values(),
                    "severity": model.by_severity(LEVEL).values(),
                }
                for kind, values in errors.items():
                    low = np.array([value.low for value in values])
                    high = np.array([value.high for value in values])
                    held[kind] += float(np.mean((low <= true_errors[kind]) & (true_errors[kind] <= high))) / test_sets
                    width[kind] += float(np.mean(high - low)) / test_sets
                by_setting = np.array([value.value for value in errors["setting"]])
                observed = np.bincount(places, outcomes.wrong) / np.bincount(places)
                modelled += float(np.square(by_setting - truth).mean()) / test_sets
                direct += float(np.square(observed - truth).mean()) / test_sets
            row = {"error": mean_error, "of_settings": of_settings, "n": n, "passes": passes, "test_sets": test_sets}
            distances = {"modelled": math.sqrt(modelled), "direct": math.sqrt(direct)}
            rows.append({**row, "held": held, "width": width, **distances})
            print(rows[-1], flush=True)
    return rows


def modelled_text(rows: Rows) -> str:
    shown = []
    for row in rows:
        held = [f"{100 * row['held'][kind]:.0f}" for kind in ("setting", "corruption", "severity")]
        shown.append(
            [
                f"{100 * row['error']:.0f} %",
                f"{row['of_settings']:g}",
                f"{row['n']:,}",
                row["passes"],
                *held,
                f"{100 * row['width']['setting']:.0f}",
                f"{100 * row['modelled']:.1f}",
                f"{100 * row['direct']:.1f}",
            ]
        )
    header = [
        "mean error",
        "scatter of settings",
        "images",
        "passes",
        "setting, %",
        "corruption, %",
        "severity, %",
        "width of a setting",
        "modelled",
        "as observed",
    ]
    return (
        "`table --mce --modelled` under a design: 15 corruptions at 5 severities, drawn anew for each of "
        f"{rows[0]['test_sets']} test sets, with an effect of each setting that nothing else explains (its standard "
        "deviation, in that of the images' difficulty). How often intervals of settings, corruptions and severities "
        "hold the error of new images, to about ±1, ±2 and ±3 %; and how far errors of single settings are from the "
        "truth (root mean square, points), modelled and as the few images of the setting show it. Where settings "
        "scatter much, what the model draws together differs, and intervals of settings cover 93 %.\n\n"
        + table(header, shown)
    )


# Lines of models


def simulate_lines() -> Rows:
    """Slope and band at the centre by Student's t and by the testbed's resamples, and new ordinary models."""
    rows: Rows = []
    replicates = 300
    for scatter in (0.03, 0.12):
        for models in (4, 6, 8, 12, 30):
            rng = np.random.default_rng([models, int(100 * scatter)])
            held = dict.fromkeys(("slope", "band", "slope_resampled", "band_resampled", "ordinary"), 0)
            for _ in range(replicates):
                u = rng.normal(1.0, 0.6, models)
                v = 0.9 * u - 0.6 + scatter * rng.normal(size=models)
                x, y = expit(u), expit(v)
                centre = float(u.mean())
                true_height = expit(0.9 * centre - 0.6)
                for procedure, suffix in (("student", ""), ("testbed", "_resampled")):
                    line = fit(x, y, unit="fraction", resamples=500, procedure=procedure)
                    band = line.band(expit(centre))
                    if line.slope_interval is None or band is None:
                        raise ValueError("a line through several models has intervals")
                    held[f"slope{suffix}"] += line.slope_interval.low <= 0.9 <= line.slope_interval.high
                    held[f"band{suffix}"] += bool(band.low[0] <= true_height <= band.high[0])
                new = float(rng.normal(1.0, 0.6))
                ordinary = line.prediction(expit(new))
                height = expit(0.9 * new - 0.6 + scatter * rng.normal())
                if ordinary is not None:
                    held["ordinary"] += bool(ordinary.low[0] <= height <= ordinary.high[0])
            shares = {name: count / replicates for name, count in held.items()}
            rows.append({"scatter": scatter, "models": models, "replicates": replicates, **shares})
            print(rows[-1], flush=True)
    return rows


def lines_text(rows: Rows) -> str:
    names = ("slope", "band", "slope_resampled", "band_resampled", "ordinary")
    shown = []
    for row in rows:
        shares = [_percent(row[name], row["replicates"]) for name in names]
        shown.append([f"{row['scatter']:g}", row["models"], *shares])
    header = ["scatter", "models", "slope, %", "line, %", "slope, resampled", "line, resampled", "ordinary models, %"]
    return (
        "The line through models of one kind, which scatter about it on the logit scale (0.12 is about 2.5 points at "
        "70 %): Student's intervals of slope and line (at the mean x), those from 500 resamples of the models "
        '(`procedure="testbed"`), and how many new ordinary models the prediction interval holds: only a model '
        "outside it is marked as above or below the line.\n\n" + table(header, shown)
    )


# Seeds


def simulate_seeds() -> Rows:
    """The difference of two of nine variants that were trained with few seeds each."""
    rows: Rows = []
    replicates = 200
    variants = [f"v{number}" for number in range(9)]
    images = 1000
    for seeds in (2, 3, 5):
        names = [run_name(variant, seed) for variant in variants for seed in range(seeds)]
        rng = np.random.default_rng(seeds)
        held = {"alone": 0, "pooled": 0}
        width = {"alone": 0.0, "pooled": 0.0}
        for _ in range(replicates):
            difficulty = rng.normal(size=images)
            of_runs = 0.15 * rng.normal(size=(len(variants), seeds, 1))
            chances = expit(1 + difficulty + of_runs)
            hits = (rng.random((len(variants), seeds, images)) < chances).astype(float)
            rows_of_runs = hits.reshape(-1, images)
            measured = _Measured(names, rows_of_runs, rows_of_runs, {}, True, 0.0, 0.0, rows_of_runs)
            gain = measured.of(rows_of_runs, "v0", seeds) - measured.of(rows_of_runs, "v1", seeds)
            of_seeds = measured.seed_variance(rows_of_runs, variants, seeds)
            numbers = {"alone": _number(gain, LEVEL), "pooled": _number(gain, LEVEL, of_seeds, variants=2)}
            for name, difference in numbers.items():
                # The variants are equally good: their true difference is 0.
                held[name] += difference.low <= 0 <= difference.high
                width[name] += (difference.high - difference.low) / replicates
        shares = {name: count / replicates for name, count in held.items()}
        rows.append({"seeds": seeds, "replicates": replicates, "held": shares, "width": width})
        print(rows[-1], flush=True)
    return rows


def seeds_text(rows: Rows) -> str:
    shown = []
    for row in rows:
        cells: list[Any] = [row["seeds"]]
        for name in ("pooled", "alone"):
            cells += [_percent(row["held"][name], row["replicates"]), f"{100 * row['width'][name]:.1f}"]
        shown.append(cells)
    header = ["seeds", "pooled, %", "width, points", "of two variants alone, %", "width, points"]
    return (
        "`experiment` trains each variant with several seeds. The difference of two of nine equally good variants on "
        "1,000 images, with the variance over seeds from all variants together, as tables show it, and from the two "
        "variants alone.\n\n" + table(header, shown)
    )
