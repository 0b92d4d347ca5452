"""Digests of answers and counts, which tell damage to the database from data.

A flipped bit in a database file may change a count, a class or a time without any error. Every pool entry has a digest
of its counts, and every answer one of the whole grid. They are checked where the counts and answers are read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC

from sqlalchemy import select
from sqlalchemy.orm import Session

from shiftbench.testsets.database import (
    SUBMITTED,
    Assignment,
    Image,
    PoolEntry,
    SelectedSlot,
    Slot,
    counts_digest,
    damaged_error,
    digest_of,
)

#: Answers whose grids are in memory at once.
_ANSWERS_AT_ONCE = 500
#: Damaged rows that an error names.
_MOST_NAMED = 5


def answer_digest(answer: Assignment, entries: Mapping[int, int], selected: Mapping[int, str | None]) -> str:
    """The digest of a submitted answer: who and when, the entries of the grid by slot, and the selected slots."""
    submitted_at = answer.submitted_at.astimezone(UTC).isoformat() if answer.submitted_at else ""
    return digest_of(
        answer.task_id,
        answer.account_id,
        submitted_at,
        answer.seconds,
        [answer.images, answer.selected, answer.positives, answer.positives_selected],
        [answer.negatives, answer.negatives_left],
        answer.remarks,
        sorted(entries.items()),
        sorted(selected.items()),
    )


def damaged_answers(session: Session, tasks: Collection[int] | None = None) -> list[int]:
    """The ids of submitted answers that do not have their digests, of some tasks or of all."""
    query = select(Assignment.id).where(Assignment.state == SUBMITTED).order_by(Assignment.id)
    if tasks is not None:
        query = query.where(Assignment.task_id.in_(tasks))
    ids = session.scalars(query).all()
    damaged: list[int] = []
    for start in range(0, len(ids), _ANSWERS_AT_ONCE):
        damaged += _damaged_among(session, ids[start : start + _ANSWERS_AT_ONCE])
    return damaged


def _damaged_among(session: Session, ids: Collection[int]) -> list[int]:
    """As :func:`damaged_answers`, for few answers."""
    # An answer and what it selects are read by the same statement: others may store or withdraw it in the meantime, and
    # PostgreSQL shows every statement of a transaction what was committed before it.
    query = select(Assignment, SelectedSlot.slot_id, SelectedSlot.label)
    query = query.outerjoin(SelectedSlot, SelectedSlot.assignment_id == Assignment.id)
    query = query.where(Assignment.id.in_(ids), Assignment.state == SUBMITTED).order_by(Assignment.id)
    answers: dict[int, Assignment] = {}
    selected: dict[int, dict[int, str | None]] = defaultdict(dict)
    for answer, selected_slot, label in session.execute(query.execution_options(populate_existing=True)):
        answers[answer.id] = answer
        if selected_slot is not None:
            selected[answer.id][selected_slot] = label
    # The slots of a grid never change.
    entries: dict[int, dict[int, int]] = defaultdict(dict)
    tasks = {answer.task_id for answer in answers.values()}
    for task, slot, entry in session.execute(
        select(Slot.task_id, Slot.id, Slot.entry_id).where(Slot.task_id.in_(tasks))
    ):
        entries[task][slot] = entry
    damaged = []
    for answer in answers.values():
        digest = answer_digest(answer, entries[answer.task_id], selected[answer.id])
        if answer.digest != digest:
            damaged.append(answer.id)
    return damaged


def check_answers(session: Session, tasks: Collection[int] | None = None) -> None:
    """Raise DamagedError if an answer of these tasks, or of all, does not have its digest."""
    raise_damaged("answers", damaged_answers(session, tasks))


def damaged_entries(session: Session) -> list[int]:
    """The ids of pool entries whose counts do not have their digests."""
    columns = (PoolEntry.id, PoolEntry.role, PoolEntry.class_key, Image.digest + Image.suffix)
    query = select(*columns, PoolEntry.selected, PoolEntry.annotations, PoolEntry.digest).join(PoolEntry.image)
    damaged = []
    for entry, role, class_key, image, selected, annotated, digest in session.execute(query):
        if digest != counts_digest(role, class_key, image, selected, annotated):
            damaged.append(entry)
    return damaged


def raise_damaged(what: str, ids: Iterable[int]) -> None:
    """Raise DamagedError if there are any ids."""
    numbers = sorted(ids)
    if numbers:
        named = ", ".join(map(str, numbers[:_MOST_NAMED]))
        raise damaged_error(f"{len(numbers)} {what} were changed outside the program: {named}")
