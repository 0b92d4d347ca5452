"""The account of a factor-split table as tables: its sets, and the values of its factors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from shiftbench.reports import formatting
from shiftbench.reports.table import Column, Table

if TYPE_CHECKING:
    from shiftbench.datasets.factor_audit import FactorAudit


def audit_tables(audit: FactorAudit) -> Iterator[Table]:
    """The sets, then the values of each factor with what the protocol does with them."""
    yield Table(
        [
            Column("name", "set"),
            Column("images", "images", "count"),
            Column("rows", "rows", "count", optional=True),
            Column("classes", "classes", "count"),
            Column("what", "what it takes"),
        ],
        [asdict(one) for one in audit.sets],
        title=f"{audit.protocol}: {formatting.count(audit.rows)} rows, {formatting.count(audit.images)} images",
        notes=_notes(audit),
    )
    yield Table(
        [
            Column("factor", "factor"),
            Column("value", "value"),
            Column("rows", "rows", "count"),
            Column("used", "where it is used"),
        ],
        [asdict(one) for one in audit.values],
    )


def _notes(audit: FactorAudit) -> list[str]:
    left = sum(audit.left_over.values())
    lines = [f"{formatting.count(left)} rows are in no set:"] if left else []
    lines += [f"  {formatting.count(n)}  {why}" for why, n in list(audit.left_over.items())[:8]]
    if len(audit.left_over) > 8:
        lines.append(f"  ... and {len(audit.left_over) - 8} more reasons (--json lists all)")
    return [*lines, *audit.notes]
