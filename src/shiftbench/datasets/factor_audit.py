"""How a protocol splits a table: the size of every set, what is missing and what is left over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shiftbench.datasets.factors import (
    SHIFTED,
    TEST,
    TRAIN,
    Protocol,
    Row,
    column_of_paths,
    inside,
    read_protocol,
    read_table,
    shared_images,
    split_rows,
    text_of,
)  # fmt: skip
from shiftbench.errors import listed

#: Use of a value that is in no set.
NOWHERE = "in no set"


@dataclass(frozen=True)
class SetSize:
    name: str
    #: In words: "year 2018; else as training".
    what: str
    rows: int
    images: int
    classes: int


@dataclass(frozen=True)
class ValueCount:
    factor: str
    value: str
    rows: int
    used: str


@dataclass(frozen=True)
class FactorAudit:
    protocol: str
    rows: int
    images: int
    sets: list[SetSize]
    values: list[ValueCount]
    #: Rows that are in no set: why, and how many.
    left_over: dict[str, int]
    missing: list[str]
    notes: list[str]
    #: For every row the sets it falls into; more than one only where the protocol's own values overlap.
    sets_of_rows: list[tuple[str, ...]]

    @property
    def ok(self) -> bool:
        return not self.missing

    def as_dict(self) -> dict[str, Any]:
        fields = {key: value for key, value in asdict(self).items() if key != "sets_of_rows"}
        return {**fields, "ok": self.ok}


def audit_factors(
    table: str | Path | Sequence[Row], protocol: str | Path | Protocol, *, root: Path | None = None
) -> FactorAudit:
    """Apply a protocol to a table; images must exist, but are not opened."""
    chosen = read_protocol(protocol)
    rows, folder = read_table(table) if isinstance(table, str | Path) else (table, Path())
    sets = split_rows(rows, chosen)
    column = column_of_paths(rows[0])
    paths = [inside(str(row[column])) for row in rows]
    images = {which: {paths[i] for i in found} for which, found in sets.items()}
    classes = {which: {text_of(rows[i].get(chosen.label)) for i in found} for which, found in sets.items()}
    of_rows: list[tuple[str, ...]] = [()] * len(rows)
    for which, found in sets.items():
        for i in found:
            of_rows[i] += (which,)
    values = _values(rows, chosen)
    used = {(one.factor, one.value) for one in values if one.used != NOWHERE}
    reasons = Counter(_reason(row, chosen, used) for row, names in zip(rows, of_rows, strict=True) if not names)
    missing = [f"no row for {which}" for which, found in sets.items() if not found]
    own = {text_of(row.get(chosen.label)) for row in rows}
    if unknown := sorted(own - set(chosen.own_space(own).keys)):
        missing.append(f"{len(unknown)} classes of the table are not in the protocol: {listed(unknown)}")
    base = folder if root is None else root
    if lost := [path for path in dict.fromkeys(paths) if not (base / path).is_file()]:
        missing.append(f"{len(lost):,} of {len(set(paths)):,} images, such as {lost[0]}")
    sizes = []
    for which, found in sets.items():
        conditions = chosen.shifts.get(which, chosen.base)
        what = ", ".join(f"{factor} {' or '.join(wanted)}" for factor, wanted in conditions.items())
        sizes.append(SetSize(which, what, len(found), len(images[which]), len(classes[which])))
    left_over = dict(sorted(reasons.items(), key=lambda item: -item[1]))
    notes = _notes(chosen, images, classes)
    return FactorAudit(chosen.name, len(rows), len(set(paths)), sizes, values, left_over, missing, notes, of_rows)


def _values(rows: Sequence[Row], protocol: Protocol) -> list[ValueCount]:
    out = []
    parts = protocol.parts
    for column in protocol.columns:
        counts = Counter(text_of(row.get(column)) for row in rows)
        asked = {value for which in protocol.sets for value in protocol.conditions(which)[column]}
        for value in sorted({*counts, *asked}):
            if parts is not None and column == parts.column:
                used = [part for part in (TRAIN, TEST, SHIFTED) if value in getattr(parts, part)]
            elif value in protocol.base[column]:
                used = ["training and test"]
            else:
                used = [set_ for set_, changed in protocol.shifts.items() if value in changed.get(column, ())]
            out.append(ValueCount(column, value, counts[value], ", ".join(used) or NOWHERE))
    return out


def _reason(row: Row, protocol: Protocol, used: set[tuple[str, str]]) -> str:
    for column in protocol.columns:
        if (column, text_of(row.get(column))) not in used:
            return f"{column} {text_of(row.get(column)) or '(empty)'}: used in no set"
    changed = [factor for factor, values in protocol.base.items() if text_of(row[factor]) not in values]
    if len(changed) > 1:
        return f"differ in {' and '.join(changed)}: only one factor may differ"
    part = protocol.parts.column if protocol.parts else ""
    return f"{part} {text_of(row.get(part))}: not with these values"


def _notes(protocol: Protocol, images: Mapping[str, set[str]], classes: Mapping[str, set[str]]) -> list[str]:
    notes = [note for which in protocol.sets[1:] for note in shared_images(which, images[which], images[TRAIN])]
    if images[TRAIN] & images[TEST]:
        notes.append("separate the rows of training and test in [parts]: scores on training images are too high")
    for which, found in classes.items():
        lost = sorted(classes[TRAIN] - found)
        if found and lost:
            notes.append(
                f"{which} lacks {len(lost)} of the {len(classes[TRAIN])} classes of training, such as {lost[0]}"
            )
    sizes = [f"{which} {size:,}" for which, size in protocol.published.items()]
    return [*notes, f"images in the published dataset: {', '.join(sizes)}"] if sizes else notes
