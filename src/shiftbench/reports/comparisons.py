"""Classifiers against each other on the same images, as a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from shiftbench.metrics import paired
from shiftbench.metrics.bootstrap import RESAMPLES
from shiftbench.metrics.paired import Comparison
from shiftbench.reports import formatting
from shiftbench.reports.base import Report
from shiftbench.store.predictions import Predictions

if TYPE_CHECKING:
    from rich.console import RenderableType

COMPARISON_FIELDS = (
    "setting", "first", "second", "n", "first_accuracy", "second_accuracy", "only_first", "only_second",
    "difference", "low", "high", "p", "p_holm", "better", "level", "provenance",
)  # fmt: skip

#: Said where the test can't tell the two apart.
UNDECIDED = "undecided"

_NAMES = ("setting", "first", "second")
#: What the table shows of a comparison, after the names.
_COLUMNS = ("1st %", "2nd %", "difference", "interval", "only 1st", "only 2nd", "p", "p (Holm)", "better")


def compare_all(
    predictions: Iterable[Predictions],
    *,
    reference: str | None = None,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> ComparisonTable:
    """Every pair of classifiers in every setting (or each against ``reference``), as a table."""
    made = paired.compare_all(predictions, reference=reference, level=level, resamples=resamples, seed=seed)
    return ComparisonTable(made)


class ComparisonTable(Report):
    """One row a pair. The p-values are read as one family: pass them through ``paired.corrected`` first."""

    def __init__(self, comparisons: Iterable[Comparison], *, title: str = "") -> None:
        self.comparisons = list(comparisons)
        self.title = title

    @property
    def settings(self) -> list[str]:
        return list(dict.fromkeys(one.setting for one in self.comparisons))

    def of(self, setting: str) -> list[Comparison]:
        return [one for one in self.comparisons if one.setting == setting]

    def heading(self, setting: str) -> str:
        sizes = sorted({one.n for one in self.of(setting)})
        n = formatting.count(sizes[0])
        if len(sizes) > 1:
            n += f" to {formatting.count(sizes[-1])}"
        return f"{setting} · top-1, points · n = {n}"

    def cells(self, one: Comparison) -> list[str]:
        """The row as text: accuracies, difference, interval, counts, p-values, verdict."""
        places = formatting.digits(one.n)
        return [
            formatting.number(one.first_accuracy, places),
            formatting.number(one.second_accuracy, places),
            formatting.number(one.difference, places, signed=True),
            formatting.interval(one.low, one.high, places, signed=True),
            formatting.count(one.only_first),
            formatting.count(one.only_second),
            formatting.p_value(one.p),
            formatting.p_value(one.p_holm),
            one.verdict or UNDECIDED,
        ]

    def notes(self) -> list[str]:
        if not self.comparisons:
            return []
        levels = " and ".join(dict.fromkeys(formatting.level_text(one.level) for one in self.comparisons))
        lines = list(dict.fromkeys(one.provenance for one in self.comparisons if one.provenance))
        return [
            f"difference: first minus second, {levels} interval by paired bootstrap of the images",
            f"p: exact McNemar; p (Holm): corrected for {len(self.comparisons)} comparisons; "
            "better: at that level after correction",
            "only 1st, only 2nd: images that only the first, only the second gets right",
            *(f"provenance: {formatting.one_line(line)}" for line in lines[:6]),
        ]

    def renderables(self, width: int, *, ascii_only: bool) -> Iterator[RenderableType]:
        from shiftbench.reports.terminal import comparison_table

        yield from comparison_table(self, width, ascii_only=ascii_only)

    def to_markdown(self) -> str:
        from shiftbench.reports.writers import markdown_table

        escape = formatting.markdown
        rows = [
            [escape(text) for text in (one.setting, one.first, one.second, *self.cells(one))]
            for one in self.comparisons
        ]
        caption = f"**{escape(self.title)}**\n\n" if self.title else ""
        notes = "".join(f"- {escape(note)}\n" for note in self.notes())
        return caption + markdown_table([*_NAMES, *_COLUMNS], rows, left=3) + "\n" + notes

    def to_csv(self) -> str:
        rows = [[_csv_field(one.as_dict()[field]) for field in COMPARISON_FIELDS] for one in self.comparisons]
        return formatting.csv_lines(COMPARISON_FIELDS, rows)

    def to_latex(self) -> str:
        from shiftbench.reports.writers import latex_table

        escape = formatting.latex
        rows = [
            [escape(text) for text in (one.setting, one.first, one.second, *self.cells(one))]
            for one in self.comparisons
        ]
        header = [escape(text) for text in (*_NAMES, *_COLUMNS)]
        return latex_table([header], rows, [*([self.title] if self.title else []), *self.notes()], left=3)

    def as_data(self) -> dict[str, Any]:
        from shiftbench.reports.writers import plain

        rows = [plain({field: one.as_dict()[field] for field in COMPARISON_FIELDS}) for one in self.comparisons]
        return {"title": self.title, "comparisons": rows, "notes": self.notes()}


def _csv_field(value: object) -> str:
    if isinstance(value, float):
        return formatting.csv_number(value)
    return str(value) if isinstance(value, int) else formatting.csv_text(str(value))
