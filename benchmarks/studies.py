"""Fits, effective robustness and bands over the public testbed's grid, against plain loops.

python -m benchmarks.studies [--data FOLDER]

FOLDER holds the testbed's results_204x213.csv and models_338.csv; without it a synthetic grid of that size is used.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import statsmodels.api
from scipy.stats import linregress

from benchmarks.page import save, table
from shiftbench.arrays import FloatArray
from shiftbench.published.tables import published
from shiftbench.studies import Fit, Models, Results, fit, read_models, read_results
from shiftbench.studies.base import inverse_logit, logit
from shiftbench.studies.fits import TESTBED_SEED
from shiftbench.studies.models import ModelInfo
from shiftbench.studies.study import Study

DATA = Path(__file__).parents[2] / "shared" / "reference" / "data" / "imagenet-testbed"
RESAMPLES = 1000
GRID = 200
#: How many settings the loops get; their times are extrapolated to all, and marked so.
LOOPED = 4
#: The same for resamples of the 004 fit.
LOOPED_RESAMPLES = 2000

Line = Callable[[FloatArray, FloatArray], tuple[float, float]]


def scipy_line(u: FloatArray, v: FloatArray) -> tuple[float, float]:
    found = linregress(u, v)
    return float(found.slope), float(found.intercept)


def statsmodels_line(u: FloatArray, v: FloatArray) -> tuple[float, float]:
    intercept, slope = statsmodels.api.OLS(v, statsmodels.api.add_constant(u)).fit().params
    return float(slope), float(intercept)


def lstsq_line(u: FloatArray, v: FloatArray) -> tuple[float, float]:
    """As the testbed's own plots do it."""
    intercept, slope = np.linalg.lstsq(np.stack([np.ones(len(u)), u], axis=1), v, rcond=None)[0]
    return float(slope), float(intercept)


def loop(x: FloatArray, y: FloatArray, baseline: np.ndarray[tuple[int], np.dtype[np.bool_]], line: Line) -> FloatArray:
    """Fit, rho and band of one setting, one resample after the other; ends of the slope."""
    known = ~(np.isnan(x) | np.isnan(y))
    here = baseline & known & (y > 0)
    u, v = logit(x[here] / 100), logit(y[here] / 100)
    slope, intercept = line(u, v)
    _ = y[known] - 100 * inverse_logit(slope * logit(x[known] / 100) + intercept)
    rng = np.random.RandomState(TESTBED_SEED)
    grid = np.linspace(u.min(), u.max(), GRID)
    lines, heights = [], []
    for _ in range(RESAMPLES):
        index = rng.choice(len(u), len(u))
        lines.append(line(u[index], v[index]))
        heights.append(lines[-1][0] * grid + lines[-1][1])
    np.percentile(heights, 2.5, axis=0, method="lower")
    np.percentile(heights, 97.5, axis=0, method="higher")
    slopes = np.array(lines)[:, 0]
    return np.array([np.percentile(slopes, 2.5, method="lower"), np.percentile(slopes, 97.5, method="higher")])


def grid_of(folder: Path) -> tuple[Study, str]:
    if folder.is_dir():
        results, models = read_results(folder / "results_204x213.csv"), read_models(folder / "models_338.csv")
        return Study(results, models), "the public testbed's grid"
    rng = np.random.default_rng(0)
    x = rng.uniform(55, 88, (204, 1))
    rest = 100 * inverse_logit(logit(x / 100) * 0.9 - rng.uniform(0.2, 2, (1, 212)) + rng.normal(0, 0.1, (204, 212)))
    names = tuple(f"m{i}" for i in range(204))
    settings = ("val", *(f"s{i}" for i in range(212)))
    models = Models({name: ModelInfo(name, "standard" if i < 78 else "more_data") for i, name in enumerate(names)})
    return Study(Results(names, settings, np.hstack([x, rest]), "percent"), models), "a synthetic grid of that size"


def ours(study: Study, settings: list[str]) -> tuple[float, dict[str, Fit]]:
    begin = time.perf_counter()
    lines = {}
    for setting in settings:
        found = study.effective("val", setting, resamples=RESAMPLES)
        assert isinstance(found.line, Fit)
        found.line.band(found.line.grid(GRID))
        lines[setting] = found.line
    return time.perf_counter() - begin, lines


def fit_of_004() -> list[tuple[str, float, bool]]:
    """Seconds of 100,000 resamples of the CIFAR-10 line, ours and by loops."""
    x, y = (
        {row.model: row.value for row in published("004", "11", setting=setting, metric="top1")}
        for setting in ("cifar-10", "cifar-10.1-v4")
    )
    begin = time.perf_counter()
    fit(x, y, scale="linear", resamples=100_000)
    rows = [("shiftbench", time.perf_counter() - begin, False)]
    u, v = np.array(list(x.values())), np.array([y[name] for name in x])
    for name, line in (("numpy lstsq loop", lstsq_line), ("scipy linregress loop", scipy_line)):
        rng = np.random.default_rng(0)
        begin = time.perf_counter()
        for _ in range(LOOPED_RESAMPLES):
            index = rng.integers(0, len(u), len(u))
            line(u[index], v[index])
        rows.append((name, (time.perf_counter() - begin) * 100_000 / LOOPED_RESAMPLES, True))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    study, what = grid_of(parser.parse_args().data)
    settings = [setting for setting in study.results.settings if setting != "val"]
    ours(study, settings[:3])  # imports, caches
    seconds, lines = ours(study, settings)
    rows = [("shiftbench", seconds, False)]
    x, baseline = study.results.column("val"), study.baseline
    agree = 0.0
    peers = (
        ("numpy lstsq loop", lstsq_line),
        ("scipy linregress loop", scipy_line),
        ("statsmodels OLS loop", statsmodels_line),
    )
    for name, line in peers:
        begin = time.perf_counter()
        for setting in settings[:LOOPED]:
            ends = loop(x, study.results.column(setting), baseline, line)
            found = lines[setting].slope_interval
            assert found is not None
            agree = max(agree, float(np.abs(ends - np.array(found)).max()))
        rows.append((name, (time.perf_counter() - begin) * len(settings) / LOOPED, True))
    assert agree < 1e-8, f"the loops' intervals differ by {agree}"
    resampled = fit_of_004()
    report(what, len(settings), rows, resampled, agree)


def report(
    what: str,
    settings: int,
    rows: list[tuple[str, float, bool]],
    resampled: list[tuple[str, float, bool]],
    agree: float,
) -> None:
    def lines(timed: list[tuple[str, float, bool]]) -> list[list[str]]:
        return [
            [name, f"{seconds:.2f} s" + (" (extrapolated)" if guessed else ""), f"{seconds / timed[0][1]:.1f}"]
            for name, seconds, guessed in timed
        ]

    text = (
        f"All fits, effective robustness of every model and {RESAMPLES:,}-resample bands on {GRID} points, "
        f"{settings} settings of {what} against `val`. The loops draw the same resamples; on the settings they were "
        f"given their slope intervals differ from ours by at most {agree:.0e}.\n\n"
        + table(["", "time", "relative to ours"], lines(rows))
        + "\n\n100,000 resamples of the CIFAR-10 line of paper 004 (34 models):\n\n"
        + table(["", "time", "relative to ours"], lines(resampled))
    )
    data = {
        "settings": settings,
        "grid_seconds": {name: seconds for name, seconds, _ in rows},
        "resamples_100000_seconds": {name: seconds for name, seconds, _ in resampled},
        "largest_difference": agree,
    }
    save("studies", "Studies", data, text)
    print(text)


if __name__ == "__main__":
    main()
