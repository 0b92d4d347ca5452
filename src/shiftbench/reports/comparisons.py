"""Models against each other on the same images, as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from shiftbench.metrics import paired
from shiftbench.metrics.bootstrap import RESAMPLES
from shiftbench.metrics.paired import Comparison
from shiftbench.reports import formatting
from shiftbench.reports.table import Column, Number, Table
from shiftbench.reports.writers import plain
from shiftbench.store.predictions import Predictions

_KEYS = (
    "setting", "first", "second", "n", "first_accuracy", "second_accuracy", "only_first", "only_second",
    "difference", "low", "high", "p", "p_holm", "better", "level", "provenance",
)  # fmt: skip
#: Shown if the test finds no difference.
UNDECIDED = "undecided"
_COLUMNS = [
    Column("first", "first"),
    Column("second", "second"),
    Column("first_accuracy", "1st %", "number", times=100, optional=True),
    Column("second_accuracy", "2nd %", "number", times=100, optional=True),
    Column("difference", "difference", "points", times=100),
    Column("only_first", "only 1st", "count", optional=True),
    Column("only_second", "only 2nd", "count", optional=True),
    Column("p", "p", "p", optional=True),
    Column("p_holm", "p (Holm)", "p"),
    Column("better", "better", brief="which"),
]


def compare_all(
    predictions: Iterable[Predictions],
    *,
    reference: str | None = None,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Table:
    """Every pair of models in every setting (or each against ``reference``), as a table."""
    made = paired.compare_all(predictions, reference=reference, level=level, resamples=resamples, seed=seed)
    return comparison_table(made)


def comparison_table(comparisons: Sequence[Comparison], *, title: str = "") -> Table:
    """One row per pair. The p-values are read as one family: pass them through ``paired.corrected`` first."""
    settings: dict[str, list[Comparison]] = {}
    for one in comparisons:
        settings.setdefault(one.setting, []).append(one)
    rows = [plain({key: one.as_dict()[key] for key in _KEYS}) for one in comparisons]
    notes = _notes(comparisons)
    return Table(
        _COLUMNS,
        rows,
        shown=[],
        keys=_KEYS,
        title=title,
        lead=[] if comparisons else ["nothing to compare: at least two classifiers are needed"],
        notes=notes,
        parts=[
            Table(_COLUMNS, [_shown(one) for one in found], title=_heading(setting, found))
            for setting, found in settings.items()
        ],
        data={"title": title, "comparisons": rows, "notes": notes},
    )


def _heading(setting: str, comparisons: Sequence[Comparison]) -> str:
    sizes = sorted({one.n for one in comparisons})
    n = " to ".join(formatting.count(size) for size in (sizes[0], *sizes[1:][-1:]))
    return f"{setting} · top-1, points · n = {n}"


def _shown(one: Comparison) -> dict[str, Any]:
    places, sure = formatting.digits(one.n), bool(one.verdict)
    which = "first" if one.verdict == one.first else "second"
    return {
        **one.as_dict(),
        "first_accuracy": Number(one.first_accuracy, places=places),
        "second_accuracy": Number(one.second_accuracy, places=places),
        "difference": Number(one.difference, one.low, one.high, places, bold=sure),
        "better": one.verdict or UNDECIDED,
        "which": which if sure else formatting.MISSING,
    }


def _notes(comparisons: Sequence[Comparison]) -> list[str]:
    if not comparisons:
        return []
    levels = " and ".join(dict.fromkeys(formatting.level_text(one.level) for one in comparisons))
    lines = list(dict.fromkeys(one.provenance for one in comparisons if one.provenance))
    return [
        f"difference: first minus second, {levels} interval by paired bootstrap of the images",
        f"p: exact McNemar; p (Holm): corrected for {len(comparisons)} comparisons; "
        "better: at that level after correction",
        "only 1st, only 2nd: images that only the first, only the second gets right",
        *(f"provenance: {formatting.one_line(line)}" for line in lines[:6]),
    ]
