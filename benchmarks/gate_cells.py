"""How many forward passes a gate needs whose cells are chosen by the baseline: a section of docs/statistics.md.

The candidates are real networks whose full grid is known (``benchmarks.grids``). Their disagreements are kept, and as
many losses or gains are removed or added as it takes to make the true drop 0, or the margin.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.grids import Pair, pairs
from benchmarks.page import table
from shiftbench.arrays import BoolArray, FloatArray, IntArray
from shiftbench.metrics.betting import Drop
from shiftbench.metrics.cells import BINS, CellPool, DisagreementRates
from shiftbench.studies.gate_power import images_to_pass, planned_numbers

GRIDS = Path(tempfile.gettempdir()) / "shiftbench-grids.npz"
MARGIN = 0.01
ALPHA = 0.05
POWER = 0.8
#: Draws that earlier candidates left, from which rates are learnt.
_LEARNT_DRAWS = 3000
_MOST_PASSES = 8000
#: Passes of the gate whose ``needed`` is compared with the passes that are really needed.
_PILOT = 300
#: Candidates whose rates are learnt, by the candidate that is judged.
_EARLIER = {
    "cnn, fine-tuned": "cnn, 5-bit weights",
    "cnn, retrained": "cnn, fine-tuned",
    "cnn, 8-bit weights": "cnn, 5-bit weights",
    "cnn, 5-bit weights": "cnn, fine-tuned",
    "cnn, 20 % pruned": "cnn, fine-tuned",
    "cnn, 40 % pruned": "cnn, fine-tuned",
}


def shifted_pool(pair: Pair) -> CellPool:
    settings, images = pair.base.right[1:].shape
    numbers = np.repeat(np.arange(settings), images)
    rows = np.tile(np.arange(images), settings)
    return CellPool(numbers, rows, pair.base.right[1:].ravel(), pair.base.confidence[1:].ravel())


def with_drop(
    pool: CellPool, losses: IntArray, target: float, rng: np.random.Generator, *, where_sure: bool = False
) -> BoolArray:
    """Whether a candidate like this is right in each cell, changed so that its drop is the target exactly.

    With ``where_sure``, the losses that are missing are put into cells where the baseline is right and surest: the
    worst case for cells that are chosen where it is unsure.
    """
    changed = losses.copy()
    missing = round(target * len(losses)) - int(losses.sum())
    kind = -1 if missing > 0 else 1
    removable = rng.permutation(np.flatnonzero(changed == kind))
    if where_sure and missing > 0:
        removable = removable[:0]
    changed[removable[: abs(missing)]] = 0
    missing -= int(changed.sum()) - int(losses.sum())
    candidates = np.flatnonzero((changed == 0) & (pool.was_right if missing > 0 else ~pool.was_right))
    by_confidence = candidates[np.argsort(pool.confidence[candidates])]
    if missing and where_sure:
        changed[by_confidence[-missing:]] = 1
    elif missing:
        least_sure = by_confidence[: 3 * abs(missing)]
        changed[rng.permutation(least_sure)[: abs(missing)]] = int(math.copysign(1, missing))
    return np.asarray(pool.was_right.astype(int) - changed == 1)


def passes_until_shown(drop: Drop) -> float:
    """The draws after which the drop is first shown to be within the margin; infinite if it never is."""
    low = 1
    high = drop.n
    if drop.p_within(MARGIN) > ALPHA:
        return math.inf
    while low < high:
        middle = (low + high) // 2
        part = Drop(drop.losses[:middle], MARGIN, drop.bound, drop.step, drop.prior)
        if part.p_within(MARGIN) <= ALPHA:
            high = middle
        else:
            low = middle + 1
    return low


def _stops(pool: CellPool, is_right: BoolArray, rates: DisagreementRates, runs: int) -> FloatArray:
    every_cell = np.ones(len(pool), bool)
    stops = []
    for seed in range(runs):
        draws = pool.drawn(rates, _MOST_PASSES, seed)
        stops.append(passes_until_shown(pool.drop(every_cell, draws, is_right[draws], rates, MARGIN)))
    return np.array(stops)


def _needed(pool: CellPool, is_right: BoolArray, rates: DisagreementRates, runs: int) -> float:
    """The median of what gates of few passes report as needed."""
    every_cell = np.ones(len(pool), bool)
    needed = []
    for seed in range(1000, 1000 + runs):
        draws = pool.drawn(rates, _PILOT, seed)
        drop = pool.drop(every_cell, draws, is_right[draws], rates, MARGIN)
        needed.append(images_to_pass(planned_numbers([drop], _PILOT), ALPHA, POWER))
    return float(np.median(needed))


def simulate_cells(runs: int = 200) -> list[dict[str, Any]]:
    rows = []
    by_name = {pair.name: pair for pair in pairs(GRIDS)}
    rng = np.random.default_rng(21)
    even = DisagreementRates(np.full(BINS, 1e9), np.full(BINS, 1e8))
    for name, pair in by_name.items():
        pool = shifted_pool(pair)
        rates = DisagreementRates.unknown()
        if name in _EARLIER:
            earlier = by_name[_EARLIER[name]].losses[1:].ravel()
            draws = rng.integers(0, len(pool), _LEARNT_DRAWS)
            rates = pool.seen(draws, (pool.was_right[draws] - earlier[draws]) == 1)
        losses = pair.losses[1:].ravel()
        equal = with_drop(pool, losses, 0.0, rng)
        row: dict[str, Any] = {"name": name, "learnt": _EARLIER.get(name), "runs": runs}
        row["disagreement"] = float(np.mean(equal != pool.was_right))
        stops = _stops(pool, equal, rates, runs)
        row["median"], row["most"] = np.quantile(stops, [0.5, POWER], method="higher").tolist()
        row["by_2000"] = float(np.mean(stops <= 2000))
        row["needed"] = _needed(pool, equal, rates, 40)
        row["even"] = np.quantile(_stops(pool, equal, even, runs), POWER, method="higher").item()
        for where_sure in (False, True):
            at_margin = with_drop(pool, losses, MARGIN, rng, where_sure=where_sure)
            passed = np.isfinite(_stops(pool, at_margin, rates, runs))
            row["false_sure" if where_sure else "false"] = float(passed.mean())
        rows.append(row)
        print(row, flush=True)
    return rows


def _passes(number: float) -> str:
    return f"{number:,.0f}" if math.isfinite(number) else f"more than {_MOST_PASSES:,}"


def cells_text(rows: Sequence[dict[str, Any]]) -> str:
    shown = []
    for row in rows:
        error = 196 * math.sqrt(0.05 * 0.95 / row["runs"])
        shown.append(
            [
                row["name"],
                row["learnt"] or "assumed",
                f"{100 * row['disagreement']:.1f} %",
                _passes(row["median"]),
                _passes(row["most"]),
                f"{100 * row['by_2000']:.0f}",
                _passes(row["even"]),
                _passes(row["needed"]),
                f"{100 * row['false']:.1f}, {100 * row['false_sure']:.1f} ± {error:.1f}",
            ]
        )
    header = [
        "candidate",
        "rates from",
        "disagreement",
        "median passes",
        "passes in 80 %",
        "shown by 2,000, %",
        "even draws, 80 %",
        "`needed`",
        "false passes, %",
    ]
    return (
        f"The mean under shift within {100 * MARGIN:g} point, of real networks on 1,000 images of CIFAR-10 under 75 "
        "corruptions: a small network with fine-tuned, retrained, pruned and quantised copies, and the ResNet-8 of the "
        f"demo with its int8 copy. {rows[0]['runs']} gates each draw cells of the shifted grid until the rule is "
        "decided; the true drop was made 0, and for the last column the margin, with the missing losses where the "
        "baseline was unsure, and where it was right and surest. Even draws choose all cells alike; `needed` is the "
        f"median of what gates report after {_PILOT} passes, and should be the passes in 80 %.\n\n"
        + table(header, shown)
    )
