"""The numbers printed in the papers, as one tidy table: paper, table, model, setting, metric, value, interval.

000: tables 1 to 9 and 11, the sizes and a gain of appendix B. 001: the values stated in its text. 002: tables 1 and 2,
sections 3.4, 3.5 and 4.2, appendices C and E. 003: the figures stated in its text. 004: tables 1, 2, 4, 5 and 11 to 20,
the two fits of section 3.3, section 4 and the abstract. Names of models are those of each paper's table; "+" joins what
a row adds to the model above it. "evidence" in tables 4 and 6 of 000: 1 where they print "+", -1 for "-".

Left out because the printed source is unclear: four blur errors of ResNet-152 in table 5 of 000 (they repeat its
corruption errors of table 8 and do not average to the printed mean); the test-set sizes of DeepFashion Remixed in
table 11 of 000 (eight numbers for nine names); the third row of table 14 of 004 (it repeats the first row's name).
The second pair of values that 003's text gives for "ResNeXt-101 (64x4d)" is DPN-98's, by the captions of its figures 10
and 11. ResNet-152 has two AUPR values in 003: both are here, under the paragraphs that state them. In the text that
table 1 of 002 was taken from, some two-digit errors have lost a digit. They were completed from recollection and
checked against table 2 and the printed means, within rounding: a single CE of table 1 may be off by one. The printed
mCE, relative mCE and clean errors, and table 2, are as printed.

``statements.csv`` has what sentences say about these numbers, such as "over 23 mCE": bounds, gains, sizes, directions.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from shiftbench.errors import UnknownNameError

PAPERS = ("000", "001", "002", "003", "004")


@dataclass(frozen=True)
class PublishedValue:
    """``value`` is a fraction where ``unit`` is "%", else as printed; it lies within ``rounding`` of the true one."""

    paper: str
    table: str
    model: str
    setting: str
    metric: str
    value: float
    rounding: float
    #: The printed interval, where there is one, in the unit of ``value``.
    low: float | None = None
    high: float | None = None
    #: "%", "" (a plain number), "rank", "count" or "sign".
    unit: str = "%"
    #: The ends may be printed with more or fewer digits than the value.
    end_rounding: float = 0.0
    #: "over", "at least" or "below" if the text states a bound, such as "over 23 mCE".
    relation: str = ""

    def agrees(self, value: float) -> bool:
        """Whether a recomputed value prints as the paper's number, or keeps to its bound."""
        if self.relation == "over":
            return value > self.value
        if self.relation == "at least":
            return value >= self.value
        if self.relation == "below":
            return value < self.value
        return abs(value - self.value) <= self.rounding * (1 + 1e-9)


def published(
    paper: str | None = None,
    table: str | None = None,
    *,
    model: str | None = None,
    setting: str | None = None,
    metric: str | None = None,
) -> list[PublishedValue]:
    """The printed numbers that fit all that is given."""
    if paper is not None and paper not in PAPERS:
        raise UnknownNameError("paper", paper, PAPERS)
    conditions = {"table": table, "model": model, "setting": setting, "metric": metric}
    conditions = {key: value for key, value in conditions.items() if value is not None}
    rows: list[PublishedValue] = []
    for number in [paper] if paper else PAPERS:
        rows.extend(_rows(number))
    return [row for row in rows if _fits(row, conditions)]


def stated(paper: str | None = None, table: str | None = None, *, metric: str | None = None) -> list[PublishedValue]:
    """What sentences of the papers say about models: gains, bounds, sizes, which are no results of one model."""
    conditions = {"paper": paper, "table": table, "metric": metric}
    conditions = {key: value for key, value in conditions.items() if value is not None}
    return [row for row in _statements() if _fits(row, conditions)]


def _fits(row: PublishedValue, conditions: Mapping[str, str | None]) -> bool:
    return all(getattr(row, key) == value for key, value in conditions.items())


@cache
def _rows(paper: str) -> tuple[PublishedValue, ...]:
    """All printed numbers of a paper."""
    return tuple(_published_value(row) for row in _data_file(f"paper_{paper}.csv"))


@cache
def _statements() -> tuple[PublishedValue, ...]:
    return tuple(_published_value(row) for row in _data_file("statements.csv"))


def _data_file(name: str) -> list[dict[str, str]]:
    text = files("shiftbench.published").joinpath("data", name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _published_value(row: Mapping[str, str]) -> PublishedValue:
    divisor = 100.0 if row["unit"] == "%" else 1.0
    digits = _decimals(row["value"])
    rounding = end_rounding = 0.0
    # Half a unit of the last printed digit; whole numbers that are counts are exact.
    low = row.get("low")
    high = row.get("high")
    if row["unit"] not in ("rank", "count", "sign"):
        rounding = 0.5 * 10.0**-digits / divisor
        end_rounding = 0.5 * 10.0 ** -_decimals(high or "") / divisor
    return PublishedValue(
        paper=row["paper"],
        table=row["table"],
        model=row["model"],
        setting=row["setting"],
        metric=row["metric"],
        # Rounded, because 91.0 / 100 should be the 0.91 that a reader expects.
        value=round(float(row["value"]) / divisor, digits + 2),
        rounding=rounding,
        low=float(low) / divisor if low else None,
        high=float(high) / divisor if high else None,
        unit=row["unit"],
        end_rounding=end_rounding,
        relation=row.get("relation", ""),
    )


def _decimals(number: str) -> int:
    """How many digits are printed after the point."""
    return len(number.partition(".")[2])
