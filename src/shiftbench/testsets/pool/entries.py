"""Entries of the pool by their numbers, however many."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from shiftbench.testsets.database.tables import Entry

#: Databases limit how many values a question may have.
_AT_ONCE = 500


def read_entries(session: Session, numbers: Sequence[int]) -> list[Entry]:
    """In the order asked for."""
    found: dict[int, Entry] = {}
    for start in range(0, len(numbers), _AT_ONCE):
        block = numbers[start : start + _AT_ONCE]
        found.update({entry.id: entry for entry in session.scalars(select(Entry).where(Entry.id.in_(block)))})
    return [found[number] for number in numbers]
