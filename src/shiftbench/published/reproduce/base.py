"""A claim of a paper: the numbers it printed, and a function that computes each of them again.

``claims.toml`` says where each claim stands and which printed numbers it is about. A registered function gets one of
these and the data that was given, and returns the number computed again:

    @claim("002.mean_ce")
    def mean_ce(row, data):
        return mean_of(published("002", "1", model=row.model, metric="CE"))

It raises ``NoDataError`` if its data is missing: the number is then listed with what it needs.
"""

from __future__ import annotations

import csv
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from shiftbench.published.tables import PAPERS, PublishedValue, published, stated
from shiftbench.registry import Registry
from shiftbench.studies.base import StudyError

if TYPE_CHECKING:
    from shiftbench.published.reproduce.sources import Data

SAME = "same"
ROUNDING = "rounding"
INTERVAL = "interval"
DIFFERS = "differs"
ABSENT = "not recomputed"
#: Every mark and its meaning, from the best to the worst.
MARKS = {
    SAME: "prints as the published number",
    ROUNDING: "may print so: what it was recomputed from is rounded itself, which can explain the difference",
    INTERVAL: "another number, within the printed interval",
    DIFFERS: "another number, beyond rounding and outside of any printed interval",
    ABSENT: "the data that it needs was not given",
}

PREDICTIONS = "predictions"
PUBLIC = "public results"
IDENTITY = "identity"
FITTED = "our rule"
#: What a number is recomputed from. Only the first two say anything about models and images.
KINDS = {
    PREDICTIONS: "from predictions on images, in a workspace or released",
    PUBLIC: "from results that others published",
    IDENTITY: "from other printed numbers of the same paper, which must agree",
    FITTED: "by a rule of ours with thresholds chosen so that the printed marks follow: no evidence",
}


class NoDataError(Exception):
    """Raised by a claim whose data is missing; the message names what it needs."""


@dataclass(frozen=True)
class Recomputed:
    """A number computed again, in the unit of the printed one."""

    value: float
    #: How far the rounding of printed inputs can move it; 0 for what comes from images or full digits.
    slack: float = 0.0
    low: float | None = None
    high: float | None = None

    def as_error(self) -> Recomputed:
        """The error that belongs to this accuracy; the ends of its interval change places."""
        low = None if self.high is None else 1.0 - self.high
        high = None if self.low is None else 1.0 - self.low
        return Recomputed(1.0 - self.value, self.slack, low, high)


#: A recomputed number is the expected one if it is this close: public tables are read without loss.
_EXPECTED_WITHIN = 1e-6


@dataclass(frozen=True)
class ExpectedDifference:
    """A number that is known to differ from the printed one, as untouched public data gives it, and why."""

    recomputed: float
    reason: str


@cache
def _expected_differences() -> dict[tuple[str, ...], ExpectedDifference]:
    """The rows of ``expected_differences.csv``, by claim, table, model, setting and metric."""
    text = files("shiftbench.published").joinpath("data", "expected_differences.csv").read_text(encoding="utf-8")
    expected: dict[tuple[str, ...], ExpectedDifference] = {}
    for row in csv.DictReader(text.splitlines()):
        key = (row["claim"], row["table"], row["model"], row["setting"], row["metric"])
        expected[key] = ExpectedDifference(float(row["recomputed"]), row["reason"])
    return expected


def _expected_reason(claim_name: str, printed: PublishedValue, recomputed: Recomputed) -> str:
    """Why a number is known to differ; "" if it is not known to, or is another number than public data gives."""
    key = (claim_name, printed.table, printed.model, printed.setting, printed.metric)
    expected = _expected_differences().get(key)
    if expected is not None and abs(recomputed.value - expected.recomputed) <= _EXPECTED_WITHIN:
        return expected.reason
    return _printed_elsewhere(printed, recomputed)


def _printed_elsewhere(printed: PublishedValue, recomputed: Recomputed) -> str:
    """The place where the same paper prints another number for the same, which the recomputed one agrees with."""
    if printed.relation:
        return ""
    same = published(printed.paper, model=printed.model, setting=printed.setting, metric=printed.metric)
    for other in same:
        if other.table != printed.table and not other.relation and other.agrees(recomputed.value):
            place = f"table {other.table}" if other.table.isdigit() else other.table
            return f"the paper contradicts itself: {place} prints the recomputed number"
    return ""


@dataclass(frozen=True)
class ReleasedNumbers:
    """What untouched public files give for a claim, in full digits."""

    count: int
    weighted_mean: float


#: Full digits of the same public files agree this closely. One image of 50,000 in the first of 886 accuracies, which
#: weighs least, moves their weighted mean by 5e-11.
_RELEASED_WITHIN = 2e-11


@cache
def _released_numbers() -> dict[str, ReleasedNumbers]:
    """The rows of ``released_numbers.csv`` by claim; ``scripts/released_numbers.py`` writes the file."""
    text = files("shiftbench.published").joinpath("data", "released_numbers.csv").read_text(encoding="utf-8")
    released = {}
    for row in csv.DictReader(text.splitlines()):
        released[row["claim"]] = ReleasedNumbers(int(row["numbers"]), float(row["weighted_mean"]))
    return released


def weighted_mean(values: Sequence[float]) -> float:
    """The mean of numbers weighted by their positions: it changes if any number does, or if two change places.

    >>> weighted_mean([1.0, 4.0])
    3.0
    """
    total = sum(position * value for position, value in enumerate(values, start=1))
    return total / (len(values) * (len(values) + 1) / 2)


@dataclass(frozen=True)
class CheckedNumber:
    """One printed number beside the recomputed one."""

    name: str
    printed: PublishedValue
    found: Recomputed | None
    #: What is missing, if the number was not recomputed.
    needed: str = ""
    #: Why it is known to differ, if it is the number that untouched public data gives.
    expected: str = ""

    @property
    def difference(self) -> float | None:
        """Recomputed minus published."""
        return None if self.found is None else self.found.value - self.printed.value

    @property
    def mark(self) -> str:
        """One of ``MARKS``."""
        printed = self.printed
        recomputed = self.found
        if recomputed is None:
            return ABSENT
        if printed.agrees(recomputed.value):
            return SAME
        # A bound such as "over 23" is exact. The tiny bit is for sums of decimals that binary numbers can't hold.
        rounding = 0.0 if printed.relation else printed.rounding
        if abs(recomputed.value - printed.value) <= rounding + recomputed.slack + 1e-12:
            return ROUNDING
        if printed.low is not None and printed.high is not None and printed.low <= recomputed.value <= printed.high:
            return INTERVAL
        return DIFFERS

    def is_unexpected(self, tolerance: float = 0.0) -> bool:
        """Whether it differs, for no reason that is known, and by more than the tolerance, in percentage points.

        Counts, ranks and signs are exact.
        """
        if self.mark != DIFFERS or self.expected or self.difference is None:
            return False
        is_exact = self.printed.unit not in ("%", "")
        return is_exact or abs(self.difference) > tolerance / 100 + 1e-12

    def as_dict(self) -> dict[str, Any]:
        """The number for JSON; None where something does not exist."""
        printed = self.printed
        recomputed: float | None = None
        low: float | None = None
        high: float | None = None
        if self.found is not None:
            recomputed = self.found.value
            low = self.found.low
            high = self.found.high
        return {
            "name": self.name,
            "table": printed.table,
            "model": printed.model,
            "setting": printed.setting,
            "metric": printed.metric,
            "unit": printed.unit,
            "recomputed": recomputed,
            "recomputed_low": low,
            "recomputed_high": high,
            "published": printed.value,
            "relation": printed.relation or None,
            "published_low": printed.low,
            "published_high": printed.high,
            "difference": self.difference,
            "mark": self.mark,
            "expected": self.expected or None,
            "needed": self.needed or None,
        }


@dataclass(frozen=True)
class Claim:
    """A statement of a paper, its place, and how its numbers are computed again."""

    name: str
    paper: str
    place: str
    what: str
    of: Callable[[], Sequence[PublishedValue]]
    recompute: Callable[[PublishedValue, Data], Recomputed | float]
    #: From what it is recomputed.
    source: str = ""
    #: How to read the result.
    remark: str = ""
    #: One of ``KINDS``.
    kind: str = IDENTITY
    #: Tables with hundreds of numbers are counted, not listed: the group that a number belongs to.
    group: Callable[[PublishedValue], str] | None = None

    def check(self, data: Data) -> Checked:
        """Recompute and compare every number of the claim, as far as the data suffices."""
        printed = list(self.of())
        rows = [self._check_number(name, row, data) for name, row in zip(names(printed), printed, strict=True)]
        checked = Checked(self, tuple(rows), data.is_release, with_testbed=data.study is not None)
        if self.kind == PUBLIC and data.study is None and data.run is not None and checked.any_recomputed:
            # Did the numbers come from data of this package, as the claim says, or from the workspace's predictions? A
            # check without the workspace tells.
            without_workspace = self.check(replace(data, run=None))
            if not without_workspace.any_recomputed:
                source = f"the workspace, in place of {self.source}"
                return Checked(replace(self, kind=PREDICTIONS, source=source), tuple(rows))
        return checked

    def _check_number(self, name: str, row: PublishedValue, data: Data) -> CheckedNumber:
        try:
            recomputed = self.recompute(row, data)
        except NoDataError as missing:
            return CheckedNumber(name, row, None, str(missing))
        except StudyError as problem:
            # Data that is there but too little of it: a line through one model, no base models.
            return CheckedNumber(name, row, None, f"more than was given: {problem.message}")
        if not isinstance(recomputed, Recomputed):
            recomputed = Recomputed(float(recomputed))
        checked = CheckedNumber(name, row, recomputed)
        if checked.mark == DIFFERS:
            return replace(checked, expected=_expected_reason(self.name, row, recomputed))
        return checked


@dataclass(frozen=True)
class Group:
    """Many numbers of one table, counted."""

    name: str
    rows: tuple[CheckedNumber, ...]

    @property
    def compared(self) -> tuple[CheckedNumber, ...]:
        return tuple(row for row in self.rows if row.found is not None)

    @property
    def same(self) -> int:
        return sum(row.mark == SAME for row in self.rows)

    @property
    def worst(self) -> CheckedNumber:
        """The compared number with the worst mark, and among those the one with the largest difference."""
        order = list(MARKS)
        return max(self.compared, key=lambda row: (order.index(row.mark), abs(row.difference or 0.0)))

    def as_dict(self) -> dict[str, Any]:
        worst = self.worst if self.compared else None
        return {
            "name": self.name,
            "printed": len(self.rows),
            "compared": len(self.compared),
            "same": self.same,
            "largest_difference": worst.difference if worst else None,
            "mark": worst.mark if worst else ABSENT,
        }


@dataclass(frozen=True)
class Checked:
    """A claim and every number of it, compared."""

    claim: Claim
    rows: tuple[CheckedNumber, ...]
    #: Whether no data was given but public files that never change.
    from_release: bool = False
    #: Whether the testbed's table was given.
    with_testbed: bool = False

    @property
    def change(self) -> str:
        """How the numbers differ from those of the untouched public files; "" if they do not, or are of other data."""
        released = _released_numbers().get(self.claim.name)
        values = [row.found.value for row in self.rows if row.found is not None]
        if released is None or not self.from_release or not values:
            return ""
        if len(values) < released.count and self.claim.kind == PUBLIC and self.with_testbed:
            return f"{len(values)} of {released.count} numbers could be recomputed"
        if len(values) != released.count:
            return ""  # Only some of the public files were given.
        mean = weighted_mean(values)
        if abs(mean - released.weighted_mean) <= _RELEASED_WITHIN:
            return ""
        return (
            f"the public files have changed: the weighted mean of {len(values)} numbers is {mean:.10f}, "
            f"not {released.weighted_mean:.10f}"
        )

    @property
    def counts(self) -> dict[str, int]:
        """How many numbers have each mark, 0 included."""
        counts = Counter(row.mark for row in self.rows)
        return {mark: counts[mark] for mark in MARKS}

    @property
    def any_recomputed(self) -> bool:
        """Whether the data sufficed for at least one number."""
        return any(row.found is not None for row in self.rows)

    @property
    def groups(self) -> list[Group]:
        """The groups of a counted table; empty for a claim that is listed number by number."""
        if self.claim.group is None:
            return []
        groups: dict[str, list[CheckedNumber]] = {}
        for row in self.rows:
            groups.setdefault(self.claim.group(row.printed), []).append(row)
        return [Group(name, tuple(rows)) for name, rows in groups.items()]

    def as_dict(self) -> dict[str, Any]:
        """JSON-able, with every number."""
        return {
            "name": self.claim.name,
            "place": self.claim.place,
            "claim": self.claim.what,
            "kind": self.claim.kind,
            "recomputed_from": self.claim.source,
            "remark": self.claim.remark or None,
            "counts": self.counts,
            "change": self.change or None,
            "groups": [group.as_dict() for group in self.groups],
            "rows": [row.as_dict() for row in self.rows],
            "needed": {missing: len(waiting) for missing, waiting in needed(self.rows).items()},
        }


#: All claims, in the order of the papers.
claims: Registry[Claim] = Registry(
    "claim", builtin=tuple(f"shiftbench.published.reproduce.paper_{paper}" for paper in PAPERS)
)

Recompute = Callable[[PublishedValue, "Data"], "Recomputed | float"]
_GROUPS: Mapping[str, Callable[[PublishedValue], str]] = {
    "table": lambda row: f"table {row.table}",
    "place": lambda row: row.table,
}


@cache
def _claim_entries() -> dict[str, dict[str, Any]]:
    """The entries of ``claims.toml`` by name."""
    text = files("shiftbench.published").joinpath("data", "claims.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def claim(name: str, *, of: Callable[[], Sequence[PublishedValue]] | None = None) -> Callable[[Recompute], Recompute]:
    """Register a function as the one that recomputes a claim of ``claims.toml``.

    ``of`` gives the printed numbers that the claim is about, where no selection of rows there does.
    """
    entry = dict(_claim_entries()[name])
    selections = entry.pop("of", ())
    group = entry.pop("group", None)
    entry.pop("needs", None)

    def selected_rows() -> list[PublishedValue]:
        rows = []
        for selection in selections:
            rows.extend(published(entry["paper"], **selection))
            if selection.keys() == {"table"}:
                rows.extend(stated(entry["paper"], **selection))
        return rows

    def register(recompute: Recompute) -> Recompute:
        group_of = _GROUPS[group] if group else None
        claims.add(name, Claim(name, **entry, of=of or selected_rows, recompute=recompute, group=group_of))
        return recompute

    return register


def claim_missing(paper: str) -> None:
    """Register the claims of a paper that nothing recomputes, for that takes more than tables."""
    for name, entry in _claim_entries().items():
        if entry["paper"] == paper and "needs" in entry:
            claim(name)(_never_recomputed(entry["needs"]))


def _never_recomputed(needs: str) -> Recompute:
    def recompute(row: PublishedValue, data: Data) -> Recomputed:
        raise NoDataError(needs)

    return recompute


def needed(rows: Sequence[CheckedNumber]) -> dict[str, list[CheckedNumber]]:
    """The numbers that could not be recomputed, by the data that each of them needs."""
    missing: dict[str, list[CheckedNumber]] = {}
    for row in rows:
        if row.found is None:
            missing.setdefault(row.needed, []).append(row)
    return missing


def names(rows: Sequence[PublishedValue]) -> list[str]:
    """Names that distinguish the numbers: model, setting, metric, where they differ."""
    keys = [key for key in ("model", "setting", "metric") if _differs(rows, key)] or ["metric"]
    distinguished = []
    for row in rows:
        distinguished.append(", ".join(_short_name(getattr(row, key)) for key in keys))
    return distinguished


def _differs(rows: Sequence[PublishedValue], key: str) -> bool:
    return len({getattr(row, key) for row in rows}) > 1


def _short_name(name: str) -> str:
    """A description without its brackets, a setting without its file format."""
    if name.startswith("(") and name.endswith(")"):
        name = name[1:-1]
    return name.replace("imagenetv2-matched-frequency-format-val", "imagenetv2")


def mean_of(rows: Sequence[PublishedValue]) -> Recomputed:
    """The mean of printed numbers.

    Each number is off by up to half its last digit, evenly. The slack is three standard deviations of the effect on
    the mean, and never more than the half digit itself.
    """
    if not rows:
        raise NoDataError("the numbers that the mean is of")
    largest_rounding = max(row.rounding for row in rows)
    slack = min(1.0, (3.0 / len(rows)) ** 0.5) * largest_rounding
    return Recomputed(sum(row.value for row in rows) / len(rows), slack)


def difference_of(first: PublishedValue, second: PublishedValue) -> Recomputed:
    """first - second; both may be off by half their last digit."""
    return Recomputed(first.value - second.value, first.rounding + second.rounding)


def ends_of(rows: Sequence[PublishedValue]) -> list[PublishedValue]:
    """The ends of printed intervals as numbers of their own."""
    numbers = []
    for row in rows:
        number = replace(row, rounding=row.end_rounding, low=None, high=None)
        if row.low is not None:
            numbers.append(replace(number, metric=f"{row.metric}, lower end", value=row.low))
        if row.high is not None:
            numbers.append(replace(number, metric=f"{row.metric}, upper end", value=row.high))
    return numbers
