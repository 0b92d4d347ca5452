"""Verify a project: the database file, answers and counts by their digests, counts by the answers, image files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import select, text
from sqlalchemy.orm import Session

from shiftbench.testsets.database import Account, Assignment, Image, PoolEntry, SelectedSlot, Slot
from shiftbench.testsets.digests import damaged_answers, damaged_entries
from shiftbench.testsets.errors import DamagedError
from shiftbench.testsets.frequencies import answers, is_counted
from shiftbench.testsets.pool.images import image_digest
from shiftbench.testsets.project import Project


@dataclass(frozen=True)
class DamagedRecord:
    """Something that is not as the program wrote it."""

    #: "database", "answer", "pool entry" or "image".
    kind: str
    #: Its number or file.
    which: str
    #: What is wrong with it.
    what: str


def verify(project: Project) -> list[DamagedRecord]:
    """Everything that is damaged in a project; empty if it is as the program wrote it."""
    damages: list[DamagedRecord] = []
    for check in (_database_damage, _answer_damage, _count_damage, _image_damage):
        try:
            with project.reading() as session:
                damages += check(project, session)
        except DamagedError as error:
            damages.append(DamagedRecord("database", project.database.shown, str(error.found)))
    return damages


def _database_damage(project: Project, session: Session) -> Iterator[DamagedRecord]:
    """What the database itself finds; PostgreSQL has checksums of its own."""
    if not project.database.is_sqlite:
        return
    for message in session.scalars(text("PRAGMA integrity_check")):
        if message != "ok":
            yield DamagedRecord("database", project.database.shown, str(message))
    for table, row, parent, _ in session.execute(text("PRAGMA foreign_key_check")):
        yield DamagedRecord("database", f"row {row} of {table}", f"refers to a missing row of {parent}")


def _answer_damage(project: Project, session: Session) -> Iterator[DamagedRecord]:
    for number in damaged_answers(session):
        yield DamagedRecord("answer", str(number), "does not have its digest")


def _count_damage(project: Project, session: Session) -> Iterator[DamagedRecord]:
    """Entries without their digest, and those whose counts are not the sums of the answers."""
    damaged = set(damaged_entries(session))
    for number in sorted(damaged):
        yield DamagedRecord("pool entry", str(number), "does not have its digest")
    counted = _counted_answers(session)
    query = select(PoolEntry.id, PoolEntry.selected, PoolEntry.annotations).order_by(PoolEntry.id)
    for entry, *counts in session.execute(query):
        expected = counted.get(entry, (0, 0))
        if entry not in damaged and tuple(counts) != expected:
            found = f"{counts[0]} of {counts[1]}"
            yield DamagedRecord("pool entry", str(entry), f"counts {found}, its answers {expected[0]} of {expected[1]}")


def _counted_answers(session: Session) -> dict[int, tuple[int, int]]:
    """The counts of each entry by the answers: for each annotator, the first answer in a grid of its class."""
    votes: dict[tuple[int, int], bool] = {}
    query = answers(Slot.entry_id, Assignment.account_id, SelectedSlot.slot_id)
    query = query.where(is_counted(), Account.excluded_at.is_(None))
    for entry, account, slot in session.execute(query.order_by(Assignment.submitted_at, Assignment.id)):
        votes.setdefault((entry, account), slot is not None)
    counted: dict[int, tuple[int, int]] = {}
    for (entry, _), was_selected in votes.items():
        selected, total = counted.get(entry, (0, 0))
        counted[entry] = (selected + was_selected, total + 1)
    return counted


def _image_damage(project: Project, session: Session) -> Iterator[DamagedRecord]:
    for digest, suffix in session.execute(select(Image.digest, Image.suffix).order_by(Image.id)):
        path = project.images.original(digest, suffix)
        try:
            data = path.read_bytes()
        except OSError as error:
            yield DamagedRecord("image", str(path), error.strerror or "cannot be read")
            continue
        if image_digest(data) != digest:
            yield DamagedRecord("image", str(path), "does not have its digest")
