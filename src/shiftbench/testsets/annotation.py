"""The service that annotators' pages stand on: take a task, answer it, see how far things are.

    grid = next_task(project, annotator)              # a grid of 48 opaque ids, or None when all is done
    path = shown_images(project, annotator, grid.task)[grid.images[0]]
    receipt = submit(project, annotator, grid.task, selected=[grid.images[3], grid.images[7]])

``annotator`` is the id of an account. Every function checks that the account may do what it asks for; ids are
opaque and belong to one annotator, so that a control image can't be told from a candidate, and nobody can
answer for another. All functions may be called from many threads and processes at once.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy import Exists, Select, exists, func, select
from sqlalchemy.orm import Session

from shiftbench.testsets.accounts import ANNOTATORS, require
from shiftbench.testsets.database.tables import (
    EXPIRED,
    LEASED,
    REFERENCE,
    SUBMITTED,
    Account,
    Assignment,
    Entry,
    Image,
    Selection,
    Slot,
    Task,
)
from shiftbench.testsets.errors import AnsweredError, LeaseExpiredError, UnknownTaskError
from shiftbench.testsets.project import Project

#: Expired leases that are returned in one go.
_RETURNED_AT_ONCE = 100
#: Seconds until a task that another is taking is looked at again.
_MOMENT = 0.01
#: Who stays active may hold a task for so many leases.
_LEASES_AT_MOST = 4
_EXAMPLES = 4


@dataclass(frozen=True)
class Grid:
    """A task as one annotator sees it."""

    #: The opaque id of the task, for this annotator only.
    task: str
    class_key: str
    class_name: str
    definition: str
    link: str
    #: Opaque ids of the pictures, in this annotator's own order.
    images: tuple[str, ...]
    expires_at: datetime


@dataclass(frozen=True)
class Receipt:
    """An answer that is stored: what is on a receipt is never lost."""

    task: str
    images: int
    selected: int
    submitted_at: datetime
    #: The same answer had come before; nothing was changed.
    repeated: bool


@dataclass(frozen=True)
class ClassProgress:
    class_key: str
    tasks: int
    finished_tasks: int
    #: Annotator places: wished, answered (by people whose answers count), in somebody's hands.
    places: int
    answered: int
    in_hand: int

    @property
    def share(self) -> float:
        return min(1.0, self.answered / self.places) if self.places else 1.0


@dataclass(frozen=True)
class OwnProgress:
    """What one annotator did, and what there is left to do."""

    answered_tasks: int
    answered_images: int
    open_tasks: int


def next_task(project: Project, annotator: int, *, class_key: str | None = None) -> Grid | None:
    """The task in the annotator's hands, or a new one; None when nothing is left for them.

    ``class_key`` asks for a certain class. Tasks that somebody has begun go first, so that images are done early.
    """
    return_expired(project)
    while True:
        with project.writing() as session:
            require(session, annotator, ANNOTATORS, lock=True)
            assignment = _held(session, annotator) or _take(project, session, annotator, class_key)
            if assignment is not None:
                return _grid(project, session, assignment)
            if session.scalars(_open_tasks(annotator, class_key)).first() is None:
                return None
        # Every open task was in the act of being taken by somebody, and may have a place left in a moment. Waiting
        # for them within the transaction could end in a circle of people who wait for each other.
        time.sleep(_MOMENT)


def current_task(project: Project, annotator: int, task: str) -> Grid:
    """The grid of a task that the annotator holds, in the same order as before."""
    with project.reading() as session:
        require(session, annotator, ANNOTATORS)
        assignment = _own(session, annotator, task)
        if assignment.state == SUBMITTED:
            raise AnsweredError("this task is answered already")
        _check_lease(project, assignment)
        return _grid(project, session, assignment)


def submit(project: Project, annotator: int, task: str, selected: Iterable[str]) -> Receipt:
    """Store an answer, whole or not at all. The same answer twice is one answer; another one is refused."""
    chosen_ids = set(selected)
    expired = False
    with project.writing() as session:
        require(session, annotator, ANNOTATORS, lock=True)
        assignment = _own(session, annotator, task, lock=True)
        slots = _slots_by_id(project, session, assignment)
        unknown = chosen_ids - slots.keys()
        if unknown:
            raise UnknownTaskError("a selected picture is not of this task", found=min(unknown)[:40])
        chosen = {slots[image] for image in chosen_ids}
        if assignment.state == SUBMITTED:
            return _repeated(session, assignment, chosen, len(slots))
        if assignment.state == EXPIRED or assignment.expires_at <= project.now():
            expired = True
            _return_place(session, assignment)
        else:
            assignment.state, assignment.submitted_at = SUBMITTED, project.now()
            session.add_all(Selection(assignment_id=assignment.id, slot_id=slot) for slot in sorted(chosen))
    if expired:  # outside the block, so that the task's return is kept
        raise _lease_expired()
    assert assignment.submitted_at is not None
    return Receipt(task, len(slots), len(chosen), assignment.submitted_at, repeated=False)


def give_back(project: Project, annotator: int, task: str) -> None:
    """Return a task unanswered; it may come again."""
    with project.writing() as session:
        require(session, annotator, ANNOTATORS, lock=True)
        assignment = _own(session, annotator, task, lock=True)
        if assignment.state == SUBMITTED:
            raise AnsweredError("this task is answered already")
        _return_place(session, assignment)


def shown_images(project: Project, annotator: int, task: str) -> dict[str, Path]:
    """All files of a task by their opaque ids: those of the grid, and the examples beside it.

    They are the small copies, without EXIF, whatever a picture is there for.
    """
    with project.reading() as session:
        require(session, annotator, ANNOTATORS)
        assignment = _own(session, annotator, task)
        rows = session.execute(
            select(Slot.id, Image.digest, Image.suffix)
            .join(Entry, Entry.id == Slot.entry_id)
            .join(Image, Image.id == Entry.image_id)
            .where(Slot.task_id == assignment.task_id)
        )
        found = {image_id(project, task, slot): (digest, suffix) for slot, digest, suffix in rows}
        for entry in _example_entries(project, session, assignment):
            found[_example_id(project, task, entry.id)] = (entry.image.digest, entry.image.suffix)
    return {image: project.images.copy(digest, suffix) for image, (digest, suffix) in found.items()}


def examples(project: Project, annotator: int, task: str) -> tuple[str, ...]:
    """Opaque ids of reference images of the class to learn from; none of them is a control image of any grid."""
    with project.reading() as session:
        require(session, annotator, ANNOTATORS)
        assignment = _own(session, annotator, task)
        chosen = _example_entries(project, session, assignment)
        return tuple(_example_id(project, task, entry.id) for entry in chosen)


def renew(project: Project, annotator: int, task: str) -> datetime:
    """Somebody is still at it: the lease begins anew. When it ends now; never later than four whole leases."""
    with project.writing() as session:
        require(session, annotator, ANNOTATORS, lock=True)
        assignment = _own(session, annotator, task, lock=True)
        if assignment.state == SUBMITTED:
            raise AnsweredError("this task is answered already")
        _check_lease(project, assignment)
        lease = timedelta(minutes=project.configuration.annotation.lease_minutes)
        latest = assignment.leased_at + _LEASES_AT_MOST * lease
        assignment.expires_at = max(assignment.expires_at, min(project.now() + lease, latest))
        return assignment.expires_at


def return_expired(project: Project) -> int:
    """Put tasks back whose time is over; how many. Called by ``next_task``, so that nobody has to."""
    with project.reading() as session:
        over = select(Assignment.id).where(Assignment.state == LEASED, Assignment.expires_at <= project.now())
        if session.scalars(over.limit(1)).first() is None:
            return 0
    with project.writing() as session:
        query = select(Assignment).where(Assignment.state == LEASED, Assignment.expires_at <= project.now())
        # In the order of tasks: two who do this at once can't wait for each other.
        query = query.order_by(Assignment.task_id).limit(_RETURNED_AT_ONCE).with_for_update(skip_locked=True)
        found = session.scalars(query).all()
        for assignment in found:
            _return_place(session, assignment)
        return len(found)


def progress(project: Project) -> list[ClassProgress]:
    """For each class with tasks, in the order of the classes."""
    counted = select(Assignment.task_id, Assignment.state, func.count().label("people")).join(Account)
    counted = counted.where(Account.excluded_at.is_(None)).group_by(Assignment.task_id, Assignment.state)
    by_task: dict[int, dict[str, int]] = {}
    with project.reading() as session:
        for task_id, state, people in session.execute(counted):
            by_task.setdefault(task_id, {})[state] = people
        tasks = session.execute(select(Task.id, Task.class_key, Task.wished)).all()
    rows: dict[str, list[tuple[int, int, int]]] = {}
    for task_id, key, wished in tasks:
        states = by_task.get(task_id, {})
        rows.setdefault(key, []).append((wished, states.get(SUBMITTED, 0), states.get(LEASED, 0)))
    return [_class_progress(key, rows[key]) for key in project.space.keys if key in rows]


def progress_of(project: Project, annotator: int) -> OwnProgress:
    with project.reading() as session:
        require(session, annotator, ANNOTATORS)
        done = select(func.count(func.distinct(Assignment.id)), func.count(Slot.id))
        done = done.join(Slot, Slot.task_id == Assignment.task_id)
        done = done.where(Assignment.account_id == annotator, Assignment.state == SUBMITTED)
        tasks, images = session.execute(done).one()
        left = select(func.count()).select_from(Task).where(Task.places_left > 0, ~_has_or_had(annotator))
        return OwnProgress(tasks, images, session.scalars(left).one())


def _class_progress(key: str, tasks: Collection[tuple[int, int, int]]) -> ClassProgress:
    finished = sum(answered >= wished for wished, answered, _ in tasks)
    wished, answered, in_hand = (sum(column) for column in zip(*tasks, strict=True))
    return ClassProgress(key, len(tasks), finished, wished, answered, in_hand)


def _held(session: Session, annotator: int) -> Assignment | None:
    """Those whose time is over have just been returned."""
    return session.scalars(
        select(Assignment).where(Assignment.account_id == annotator, Assignment.state == LEASED)
    ).first()


def _has_or_had(annotator: int) -> Exists:
    mine = exists().where(Assignment.task_id == Task.id, Assignment.account_id == annotator)
    return mine.where(Assignment.state.in_((LEASED, SUBMITTED)))


def _take(project: Project, session: Session, annotator: int, class_key: str | None) -> Assignment | None:
    """Take a place of a task that has one left and that nobody else is taking at this instant."""
    task = session.scalars(_open_tasks(annotator, class_key).with_for_update(skip_locked=True)).first()
    if task is None:
        return None
    task.places_left -= 1
    now = project.now()
    expires = now + timedelta(minutes=project.configuration.annotation.lease_minutes)
    had = select(Assignment).where(Assignment.task_id == task.id, Assignment.account_id == annotator)
    assignment = session.scalars(had).first()  # held once, and not answered in time
    if assignment is None:
        token = secrets.token_urlsafe(18)
        assignment = Assignment(token=token, task_id=task.id, account_id=annotator)
        session.add(assignment)
    assignment.state, assignment.leased_at, assignment.expires_at = LEASED, now, expires
    session.flush()
    return assignment


def _open_tasks(annotator: int, class_key: str | None) -> Select[Task]:
    """The task to be given out next: one that was begun, before a new one."""
    query = select(Task).where(Task.places_left > 0, ~_has_or_had(annotator))
    if class_key is not None:
        query = query.where(Task.class_key == class_key)
    return query.order_by(Task.places_left, Task.rank).limit(1)


def _own(session: Session, annotator: int, task: str, *, lock: bool = False) -> Assignment:
    query = select(Assignment).where(Assignment.token == task, Assignment.account_id == annotator)
    assignment = session.scalars(query.with_for_update() if lock else query).first()
    if assignment is None:
        raise UnknownTaskError("there is no such task for this account")
    return assignment


def _check_lease(project: Project, assignment: Assignment) -> None:
    if assignment.state == EXPIRED or assignment.expires_at <= project.now():
        raise _lease_expired()


def _lease_expired() -> LeaseExpiredError:
    return LeaseExpiredError("the time for this task is over, and it is back in the queue", hint="take a new task")


def _return_place(session: Session, assignment: Assignment) -> None:
    if assignment.state != LEASED:
        return
    assignment.state = EXPIRED
    task = session.scalars(select(Task).where(Task.id == assignment.task_id).with_for_update()).one()
    task.places_left += 1
    session.flush()


def _repeated(session: Session, assignment: Assignment, chosen: set[int], images: int) -> Receipt:
    before = set(session.scalars(select(Selection.slot_id).where(Selection.assignment_id == assignment.id)))
    if before != chosen:
        raise AnsweredError(
            "this task is answered already, and differently; the first answer stands",
            found=f"{len(chosen)} selected",
            expected=f"{len(before)} selected, as before",
        )
    assert assignment.submitted_at is not None
    return Receipt(assignment.token, images, len(before), assignment.submitted_at, repeated=True)


def _grid(project: Project, session: Session, assignment: Assignment) -> Grid:
    task = session.get_one(Task, assignment.task_id)
    definition = project.configuration.class_of(task.class_key)
    slots = session.scalars(select(Slot.id).where(Slot.task_id == task.id)).all()
    seed = project.configuration.seed
    shuffled = sorted(slots, key=lambda slot: _shuffle_key(seed, assignment.account_id, slot))
    return Grid(
        assignment.token, task.class_key, definition.title, definition.definition, definition.link,
        tuple(image_id(project, assignment.token, slot) for slot in shuffled), assignment.expires_at,
    )  # fmt: skip


def _slots_by_id(project: Project, session: Session, assignment: Assignment) -> dict[str, int]:
    slots = session.scalars(select(Slot.id).where(Slot.task_id == assignment.task_id))
    return {image_id(project, assignment.token, slot): slot for slot in slots}


def image_id(project: Project, task: str, slot: int) -> str:
    """A picture's opaque id: it differs between annotators and tasks, and can't be computed without the secret."""
    digest = hmac.digest(project.secret, f"{task}/{slot}".encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(digest[:15]).decode("ascii")


def _example_id(project: Project, task: str, entry: int) -> str:
    digest = hmac.digest(project.secret, f"{task}/example/{entry}".encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(digest[:15]).decode("ascii")


def _example_entries(project: Project, session: Session, assignment: Assignment) -> list[Entry]:
    """A reference that is planted in a grid would give itself away there."""
    planted = exists().where(Slot.entry_id == Entry.id)
    key = session.get_one(Task, assignment.task_id).class_key
    free = select(Entry).where(Entry.role == REFERENCE, Entry.class_key == key, ~planted)
    return list(session.scalars(free.order_by(Entry.id.desc()).limit(_EXAMPLES)))


def _shuffle_key(seed: int, annotator: int, slot: int) -> bytes:
    return hashlib.blake2b(f"{seed}/{annotator}/{slot}".encode(), digest_size=16).digest()
