"""Coverage of intervals of differences, detection, confidence and calibration: sections of docs/statistics.md."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import multinomial, norm
from tests.metrics.forecasting import forecasts

from benchmarks.page import table
from shiftbench.arrays import BoolArray, FloatArray
from shiftbench.metrics import aupr, auroc, aurra, metrics, soft_f1
from shiftbench.metrics.base import Score
from shiftbench.metrics.detection import detection_scores
from shiftbench.metrics.paired import difference_interval, mcnemar

Rows = list[dict[str, Any]]


def simulate_differences() -> Rows:
    """Exact coverage over all outcomes, and how often interval and McNemar's test contradict each other."""
    rows: Rows = []
    for n in (50, 100):
        for only_first, only_second in ((0.02, 0.01), (0.05, 0.05), (0.1, 0.05), (0.2, 0.02), (0.3, 0.3)):
            covered = 0.0
            contradicted = 0.0
            for b in range(n + 1):
                for c in range(n - b + 1):
                    shares = [only_first, only_second, 1 - only_first - only_second]
                    chance = float(multinomial.pmf([b, c, n - b - c], n, shares))
                    if chance < 1e-9:
                        continue
                    low, high = difference_interval(b, c, n)
                    covered += chance * (low <= only_first - only_second <= high)
                    contradicted += chance * ((low > 0 or high < 0) != (float(mcnemar(b, c)) <= 0.05))
            rows.append(
                {
                    "n": n,
                    "first": only_first,
                    "second": only_second,
                    "covered": covered,
                    "contradicted": contradicted,
                }
            )
            print(rows[-1], flush=True)
    return rows


def differences_text(rows: Rows) -> str:
    shown = []
    for row in rows:
        shares = f"{100 * row['first']:g} %, {100 * row['second']:g} %"
        shown.append([shares, row["n"], f"{100 * row['covered']:.1f}", f"{100 * row['contradicted']:.1f}"])
    return (
        "Two models on the same images: `compare`, `history`, the doctor and the export check. The coverage is exact, "
        "over all outcomes; a contradiction is an interval that excludes 0 where McNemar's exact test does not "
        "reject at 5 %, or the reverse.\n\n"
        + table(["right in one model only", "images", "covered, %", "contradictions, %"], shown)
    )


def _covered(draw: Callable[[], Score], truth: float, replicates: int) -> dict[str, float]:
    held = 0
    width = 0.0
    for _ in range(replicates):
        score = draw()
        held += score.low <= truth <= score.high
        width += (score.high - score.low) / replicates
    return {"covered": held / replicates, "width": width, "replicates": replicates}


def simulate_confidence() -> Rows:
    rows: Rows = []
    rng = np.random.default_rng(31)
    for ins, outs in ((100, 20), (200, 50), (300, 100), (1000, 200)):
        for distance in (1.0, 2.5):
            truth = float(norm.sf(norm.ppf(0.05) + distance))

            def fpr(ins: int = ins, outs: int = outs, distance: float = distance) -> Score:
                return detection_scores(rng.normal(size=ins), rng.normal(distance, size=outs), resamples=3).fpr95

            rows.append({"number": "FPR95", "truth": truth, "n": f"{ins:,} + {outs:,}", **_covered(fpr, truth, 400)})
            print(rows[-1], flush=True)
    noise = rng.normal(0, 1.5, 300_000)
    for accuracy in (0.99, 0.9, 0.7):
        centre = brentq(lambda shift, target=accuracy: float(expit(noise + shift).mean()) - target, -5, 12)

        def sample(n: int, centre: float = centre) -> tuple[FloatArray, BoolArray]:
            confidence = expit(rng.normal(centre, 1.5, n))
            return confidence, rng.random(n) < confidence

        everything = sample(400_000)
        for name, function in (("aurra", aurra), ("soft_f1", soft_f1)):
            truth = float(function(*everything))
            for n in (100, 200, 1000):

                def drawn(name: str = name, n: int = n, sample: Callable[..., Any] = sample) -> Score:
                    return metrics.get(name)(forecasts(*sample(n)))

                title = {"aurra": "AURRA", "soft_f1": "soft F1"}[name]
                rows.append({"number": title, "truth": truth, "n": f"{n:,}", **_covered(drawn, truth, 400)})
                print(rows[-1], flush=True)
    return rows


def _coverage_table(rows: Rows) -> str:
    """How often the intervals of each number held its true value, and how wide they were."""
    shown = []
    for row in rows:
        share = row["covered"]
        error = 196 * math.sqrt(max(share * (1 - share), 0.002) / row["replicates"])
        covered = f"{100 * share:.1f} ± {error:.1f}"
        shown.append([row["number"], f"{100 * row['truth']:.1f}", row["n"], covered, f"{100 * row['width']:.1f}"])
    return table(["number", "true value", "images", "covered, %", "mean width, points"], shown)


def confidence_text(rows: Rows) -> str:
    return (
        "FPR95 of normal scores (in- and out-images), AURRA and soft F1 of calibrated models with accuracies of 99, 90 "
        "and 70 %. With fewer than 72 out-images, the threshold that finds 95 % of them has no lower bound, and the "
        "interval of FPR95 ends at 100 %. Soft F1 covers too little where the model is wrong on few images.\n\n"
        + _coverage_table(rows)
    )


def simulate_calibration() -> Rows:
    """Calibration errors of models whose gap is the same at every confidence, and areas of detection."""
    rows: Rows = []
    rng = np.random.default_rng(33)
    for gap in (0.0, 0.05):
        for n in (300, 1000):

            def sample(n: int = n, gap: float = gap) -> tuple[FloatArray, BoolArray]:
                confidence = rng.uniform(0.4, 1, n)
                return confidence, rng.random(n) < confidence - gap

            titles = {"ece": "ECE", "rms_calibration_error": "RMS", "max_calibration_error": "largest gap"}
            for name, title in titles.items():

                def drawn(name: str = name, sample: Callable[..., Any] = sample) -> Score:
                    return metrics.get(name)(forecasts(*sample()))

                rows.append({"number": title, "truth": gap, "n": f"{n:,}", **_covered(drawn, gap, 60)})
                print(rows[-1], flush=True)
    for ins, outs in ((100, 20), (200, 50), (1000, 200)):
        for distance in (1.0, 2.5):
            many = rng.normal(size=500 * ins), rng.normal(distance, size=500 * outs)
            for name, function in (("aupr", aupr), ("auroc", auroc)):

                def area(name: str = name, ins: int = ins, outs: int = outs, distance: float = distance) -> Score:
                    scores = detection_scores(rng.normal(size=ins), rng.normal(distance, size=outs), resamples=200)
                    return scores.aupr if name == "aupr" else scores.auroc

                truth = float(function(*many))
                row = {"number": name.upper(), "truth": truth, "n": f"{ins:,} + {outs:,}"}
                rows.append({**row, **_covered(area, truth, 150)})
                print(rows[-1], flush=True)
    return rows


def calibration_text(rows: Rows) -> str:
    return (
        "Calibration errors of models that are calibrated, or 5 points too sure at every confidence; AUPR and AUROC of "
        "normal scores of in- and out-images. Noise can only raise a calibration error, so that its interval is wide "
        "downwards; its lower end is at least that of the gap between mean confidence and accuracy.\n\n"
        + _coverage_table(rows)
    )
