"""Annotation: lease a task, answer it, report progress.

    grid = next_task(project, annotator)              # a grid of 48 opaque ids, or None if no task is left
    path = shown_images(project, annotator, grid.task)[grid.images[0]]
    receipt = submit(project, annotator, grid.task, selected=[grid.images[3], grid.images[7]])

``annotator`` is an account id, and every function checks its permissions. Image and task ids are opaque and specific to
one annotator, so that control images are indistinguishable from candidates and nobody can answer for somebody else.
All functions are safe to call from many threads and processes at once.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy import Exists, Select, case, delete, exists, func, select
from sqlalchemy.orm import Session

from shiftbench.io.hashing import seeded_rank
from shiftbench.testsets.accounts import ANNOTATORS, require
from shiftbench.testsets.audit import record
from shiftbench.testsets.database.tables import (
    EXPIRED,
    LEASED,
    REFERENCE,
    SUBMITTED,
    Account,
    Assignment,
    Image,
    PoolEntry,
    SelectedSlot,
    Slot,
    Task,
)
from shiftbench.testsets.errors import AnsweredError, LeaseExpiredError, TooFastError, UnknownTaskError
from shiftbench.testsets.frequencies import recount
from shiftbench.testsets.project import Project

#: Expired leases returned in one transaction.
_RETURNED_AT_ONCE = 100
#: Seconds between attempts while other annotators are taking the open tasks.
_MOMENT = 0.01
#: How many leases an active annotator may hold a task.
_LEASES_AT_MOST = 4
_EXAMPLES = 4


@dataclass(frozen=True)
class AnnotationGrid:
    """A task as seen by one annotator."""

    #: Opaque id of the task, valid for this annotator only.
    task: str
    class_key: str
    class_name: str
    definition: str
    link: str
    #: Opaque ids of the images, in an order specific to this annotator.
    images: tuple[str, ...]
    expires_at: datetime


@dataclass(frozen=True)
class Receipt:
    """Confirms that an answer is committed to the database."""

    task: str
    images: int
    selected: int
    submitted_at: datetime
    #: The same answer was stored before; nothing changed.
    repeated: bool


@dataclass(frozen=True)
class Remarks:
    """What an annotator reports with an answer; images by their opaque ids."""

    comment: str = ""
    unsure: Collection[str] = ()
    problem: Collection[str] = ()

    def stored(self, slots: Mapping[str, int]) -> dict[str, object] | None:
        """As in the database: without unknown images; None if nothing was reported."""
        values = {
            "comment": self.comment.strip()[:2000],
            "unsure": sorted(slots[image] for image in self.unsure if image in slots),
            "problem": sorted(slots[image] for image in self.problem if image in slots),
        }
        return {key: value for key, value in values.items() if value} or None


@dataclass(frozen=True)
class ClassProgress:
    class_key: str
    tasks: int
    finished_tasks: int
    #: Required answers, submitted ones (of annotators who count), and currently leased.
    places: int
    answered: int
    in_hand: int

    @property
    def share(self) -> float:
        return min(1.0, self.answered / self.places) if self.places else 1.0


@dataclass(frozen=True)
class OwnProgress:
    """What one annotator has done, and how many tasks are left for them."""

    answered_tasks: int
    answered_images: int
    open_tasks: int
    #: Mean time of their answers; 0 before the first.
    seconds: float = 0.0

    @property
    def minutes_left(self) -> int:
        """Estimated from their own answers."""
        return round(self.seconds * self.open_tasks / 60)


def next_task(project: Project, annotator: int, *, class_key: str | None = None) -> AnnotationGrid | None:
    """The task that the annotator holds, or a new one; None if none is left for them.

    ``class_key`` restricts the class. Tasks with the fewest open places come first, so that images are finished early.
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
        # All open tasks are locked by others and may have a place left afterwards. Waiting for the locks within the
        # transaction could deadlock.
        time.sleep(_MOMENT)


def current_task(project: Project, annotator: int, task: str) -> AnnotationGrid:
    """The grid of a task that the annotator holds, in the same order as before."""
    with project.reading() as session:
        require(session, annotator, ANNOTATORS)
        assignment = _own(session, annotator, task)
        if assignment.state == SUBMITTED:
            raise AnsweredError("this task is already answered")
        _check_lease(project, assignment)
        return _grid(project, session, assignment)


def submit(
    project: Project, annotator: int, task: str, selected: Iterable[str], *, remarks: Remarks | None = None
) -> Receipt:
    """Store an answer atomically. Repeating the same answer changes nothing; a different one is refused."""
    chosen_ids = set(selected)
    expired = False
    with project.writing() as session:
        require(session, annotator, ANNOTATORS, lock=True)
        assignment = _own(session, annotator, task, lock=True)
        slots = _shown_slots(project, session, assignment)
        unknown = chosen_ids - slots.keys()
        if unknown:
            raise UnknownTaskError("a selected image does not belong to this task", found=min(unknown)[:40])
        chosen = {slots[image].slot for image in chosen_ids}
        if assignment.state == SUBMITTED:
            return _repeated(session, assignment, chosen, len(slots))
        if assignment.state == EXPIRED or assignment.expires_at <= project.now():
            expired = True
            _return_place(session, assignment)
        else:
            _check_time(project, assignment)
            _store(project, session, assignment, slots, chosen, remarks)
    if expired:  # outside the transaction, so that the returned place is committed
        raise _lease_expired()
    assert assignment.submitted_at is not None
    return Receipt(task, len(slots), len(chosen), assignment.submitted_at, repeated=False)


def _check_time(project: Project, assignment: Assignment) -> None:
    least = project.configuration.recruiting.minimum_seconds
    if (project.now() - assignment.leased_at).total_seconds() < least:
        raise TooFastError(
            "please look at every image before you submit", expected=f"at least {least:g} seconds per task",
            hint="go back in the browser; your selection is still there",
        )  # fmt: skip


def _store(
    project: Project,
    session: Session,
    assignment: Assignment,
    slots: Mapping[str, _ShownSlot],
    chosen: set[int],
    remarks: Remarks | None,
) -> None:
    now = project.now()
    assignment.state, assignment.submitted_at = SUBMITTED, now
    assignment.seconds = (now - assignment.leased_at).total_seconds()
    assignment.remarks = None if remarks is None else remarks.stored({key: one.slot for key, one in slots.items()})
    assignment.images, assignment.selected = len(slots), len(chosen)
    positives = [one.slot for one in slots.values() if one.control is True]
    negatives = [one.slot for one in slots.values() if one.control is False]
    assignment.positives, assignment.positives_selected = len(positives), len(chosen.intersection(positives))
    assignment.negatives, assignment.negatives_left = len(negatives), len(set(negatives) - chosen)
    session.add_all(SelectedSlot(assignment_id=assignment.id, slot_id=slot) for slot in sorted(chosen))
    recount(session, [assignment.task_id])


def reopen(project: Project, annotator: int, task: str) -> tuple[AnnotationGrid, tuple[str, ...]]:
    """Withdraw the annotator's own answer while its lease lasts; returns the grid and what was selected.

    A task that they hold meanwhile is returned to the queue.
    """
    with project.writing() as session:
        require(session, annotator, ANNOTATORS, lock=True)
        assignment = _own(session, annotator, task, lock=True)
        if assignment.expires_at <= project.now() or assignment.state == EXPIRED:
            raise _lease_expired()
        before = set(session.scalars(select(SelectedSlot.slot_id).where(SelectedSlot.assignment_id == assignment.id)))
        if assignment.state == SUBMITTED:
            held = _held(session, annotator)
            if held is not None:
                _return_place(session, held)
            session.execute(delete(SelectedSlot).where(SelectedSlot.assignment_id == assignment.id))
            assignment.state, assignment.submitted_at = LEASED, None
            recount(session, [assignment.task_id])
            record(project, session, "withdraw answer", by=annotator, assignment=assignment.id)
        grid = _grid(project, session, assignment)
        slots = _shown_slots(project, session, assignment)
        return grid, tuple(image for image in grid.images if slots[image].slot in before)


def last_answer(project: Project, annotator: int) -> str | None:
    """The task that the annotator answered last, if the answer can still be withdrawn."""
    mine = select(Assignment.token).where(Assignment.account_id == annotator, Assignment.state == SUBMITTED)
    mine = mine.where(Assignment.expires_at > project.now()).order_by(
        Assignment.submitted_at.desc(), Assignment.id.desc()
    )
    with project.reading() as session:
        return session.scalars(mine.limit(1)).first()


def give_back(project: Project, annotator: int, task: str) -> None:
    """Return a task unanswered; it may be assigned again."""
    with project.writing() as session:
        require(session, annotator, ANNOTATORS, lock=True)
        assignment = _own(session, annotator, task, lock=True)
        if assignment.state == SUBMITTED:
            raise AnsweredError("this task is already answered")
        _return_place(session, assignment)


def shown_images(project: Project, annotator: int, task: str) -> dict[str, Path]:
    """The files of a task by opaque id: the grid and the examples. Always the small copies without EXIF."""
    with project.reading() as session:
        require(session, annotator, ANNOTATORS)
        assignment = _own(session, annotator, task)
        rows = session.execute(
            select(Slot.id, Image.digest, Image.suffix)
            .join(PoolEntry, PoolEntry.id == Slot.entry_id)
            .join(Image, Image.id == PoolEntry.image_id)
            .where(Slot.task_id == assignment.task_id)
        )
        found = {image_id(project, task, slot): (digest, suffix) for slot, digest, suffix in rows}
        for entry in _example_entries(project, session, assignment):
            found[_example_id(project, task, entry.id)] = (entry.image.digest, entry.image.suffix)
    return {image: project.images.copy(digest, suffix) for image, (digest, suffix) in found.items()}


def examples(project: Project, annotator: int, task: str) -> tuple[str, ...]:
    """Opaque ids of example images: references of the class that are not used as controls in any grid."""
    with project.reading() as session:
        require(session, annotator, ANNOTATORS)
        assignment = _own(session, annotator, task)
        chosen = _example_entries(project, session, assignment)
        return tuple(_example_id(project, task, entry.id) for entry in chosen)


def renew(project: Project, annotator: int, task: str) -> datetime:
    """Extend the lease of an active annotator, up to four leases in total; returns the new end."""
    with project.writing() as session:
        require(session, annotator, ANNOTATORS, lock=True)
        assignment = _own(session, annotator, task, lock=True)
        if assignment.state == SUBMITTED:
            raise AnsweredError("this task is already answered")
        _check_lease(project, assignment)
        lease = timedelta(minutes=project.configuration.annotation.lease_minutes)
        latest = assignment.leased_at + _LEASES_AT_MOST * lease
        assignment.expires_at = max(assignment.expires_at, min(project.now() + lease, latest))
        return assignment.expires_at


def return_expired(project: Project) -> int:
    """Return tasks with expired leases to the queue; the number of tasks. Called by ``next_task``."""
    with project.reading() as session:
        over = select(Assignment.id).where(Assignment.state == LEASED, Assignment.expires_at <= project.now())
        if session.scalars(over.limit(1)).first() is None:
            return 0
    with project.writing() as session:
        query = select(Assignment).where(Assignment.state == LEASED, Assignment.expires_at <= project.now())
        # Ordered by task to rule out deadlocks.
        query = query.order_by(Assignment.task_id).limit(_RETURNED_AT_ONCE).with_for_update(skip_locked=True)
        found = session.scalars(query).all()
        for assignment in found:
            _return_place(session, assignment)
        return len(found)


def progress(project: Project) -> list[ClassProgress]:
    """The progress of each class that has tasks, in class order."""
    held = func.sum(case((Assignment.state == LEASED, 1), else_=0))
    done = func.sum(case((Assignment.state == SUBMITTED, 1), else_=0))
    counted = select(Assignment.task_id, done.label("done"), held.label("held")).join(Account)
    people = counted.where(Account.excluded_at.is_(None)).group_by(Assignment.task_id).subquery()
    finished = func.sum(case((people.c.done >= Task.wished, 1), else_=0))
    sums = [func.coalesce(func.sum(value), 0) for value in (Task.wished, people.c.done, people.c.held)]
    query = select(Task.class_key, func.count(), func.coalesce(finished, 0), *sums)
    query = query.outerjoin(people, people.c.task_id == Task.id).group_by(Task.class_key)
    with project.reading() as session:
        rows = {row[0]: ClassProgress(row[0], *(int(value) for value in row[1:])) for row in session.execute(query)}
    return [rows[key] for key in project.space.keys if key in rows]


def progress_of(project: Project, annotator: int) -> OwnProgress:
    with project.reading() as session:
        require(session, annotator, ANNOTATORS)
        done = select(func.count(), func.coalesce(func.sum(Assignment.images), 0), func.avg(Assignment.seconds))
        done = done.where(Assignment.account_id == annotator, Assignment.state == SUBMITTED)
        tasks, images, seconds = session.execute(done).one()
        left = select(func.count()).select_from(Task).where(Task.places_left > 0, ~_has_or_had(annotator))
        return OwnProgress(tasks, int(images), session.scalars(left).one(), float(seconds or 0))


def _held(session: Session, annotator: int) -> Assignment | None:
    """Expired ones have just been returned."""
    return session.scalars(
        select(Assignment).where(Assignment.account_id == annotator, Assignment.state == LEASED)
    ).first()


def _has_or_had(annotator: int) -> Exists:
    mine = exists().where(Assignment.task_id == Task.id, Assignment.account_id == annotator)
    return mine.where(Assignment.state.in_((LEASED, SUBMITTED)))


def _take(project: Project, session: Session, annotator: int, class_key: str | None) -> Assignment | None:
    """Lease a task that has a place left and is not locked by somebody else."""
    task = session.scalars(_open_tasks(annotator, class_key).with_for_update(skip_locked=True)).first()
    if task is None:
        return None
    task.places_left -= 1
    now = project.now()
    expires = now + timedelta(minutes=project.configuration.annotation.lease_minutes)
    had = select(Assignment).where(Assignment.task_id == task.id, Assignment.account_id == annotator)
    assignment = session.scalars(had).first()  # leased before, but not answered in time
    if assignment is None:
        token = secrets.token_urlsafe(18)
        assignment = Assignment(token=token, task_id=task.id, account_id=annotator)
        session.add(assignment)
    assignment.state, assignment.leased_at, assignment.expires_at = LEASED, now, expires
    session.flush()
    return assignment


def _open_tasks(annotator: int, class_key: str | None) -> Select[Task]:
    """The task to assign next: the one with the fewest open places."""
    query = select(Task).where(Task.places_left > 0, ~_has_or_had(annotator))
    if class_key is not None:
        query = query.where(Task.class_key == class_key)
    return query.order_by(Task.places_left, Task.rank).limit(1)


def _own(session: Session, annotator: int, task: str, *, lock: bool = False) -> Assignment:
    query = select(Assignment).where(Assignment.token == task, Assignment.account_id == annotator)
    assignment = session.scalars(query.with_for_update() if lock else query).first()
    if assignment is None:
        raise UnknownTaskError("unknown task")
    return assignment


def _check_lease(project: Project, assignment: Assignment) -> None:
    if assignment.state == EXPIRED or assignment.expires_at <= project.now():
        raise _lease_expired()


def _lease_expired() -> LeaseExpiredError:
    return LeaseExpiredError("the lease of this task has expired", hint="take a new task")


def _return_place(session: Session, assignment: Assignment) -> None:
    if assignment.state != LEASED:
        return
    assignment.state = EXPIRED
    task = session.scalars(select(Task).where(Task.id == assignment.task_id).with_for_update()).one()
    task.places_left += 1
    session.flush()


def _repeated(session: Session, assignment: Assignment, chosen: set[int], images: int) -> Receipt:
    before = set(session.scalars(select(SelectedSlot.slot_id).where(SelectedSlot.assignment_id == assignment.id)))
    if before != chosen:
        raise AnsweredError(
            "this task is already answered differently; the first answer counts",
            found=f"{len(chosen)} selected",
            expected=f"{len(before)} selected, as before",
        )
    assert assignment.submitted_at is not None
    return Receipt(assignment.token, images, len(before), assignment.submitted_at, repeated=True)


def _grid(project: Project, session: Session, assignment: Assignment) -> AnnotationGrid:
    task = session.get_one(Task, assignment.task_id)
    definition = project.configuration.class_of(task.class_key)
    slots = session.scalars(select(Slot.id).where(Slot.task_id == task.id)).all()
    seed = project.configuration.seed
    shuffled = sorted(slots, key=lambda slot: seeded_rank(seed, assignment.account_id, slot))
    return AnnotationGrid(
        assignment.token, task.class_key, definition.title, definition.definition, definition.link,
        tuple(image_id(project, assignment.token, slot) for slot in shuffled), assignment.expires_at,
    )  # fmt: skip


@dataclass(frozen=True)
class _ShownSlot:
    slot: int
    #: Whether it belongs to the class, if it is a control image.
    control: bool | None


def _shown_slots(project: Project, session: Session, assignment: Assignment) -> dict[str, _ShownSlot]:
    query = select(Slot.id, PoolEntry.role, PoolEntry.class_key == Task.class_key).join(PoolEntry).join(Task)
    return {
        image_id(project, assignment.token, slot): _ShownSlot(slot, bool(own) if role == REFERENCE else None)
        for slot, role, own in session.execute(query.where(Slot.task_id == assignment.task_id))
    }


def image_id(project: Project, task: str, slot: int) -> str:
    """The opaque id of an image, different for every annotator and task; needs the project's secret."""
    digest = hmac.digest(project.secret, f"{task}/{slot}".encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(digest[:15]).decode("ascii")


def _example_id(project: Project, task: str, entry: int) -> str:
    digest = hmac.digest(project.secret, f"{task}/example/{entry}".encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(digest[:15]).decode("ascii")


def _example_entries(project: Project, session: Session, assignment: Assignment) -> list[PoolEntry]:
    """References that are used as controls would be recognised there, so they are not shown as examples."""
    planted = exists().where(Slot.entry_id == PoolEntry.id)
    key = session.get_one(Task, assignment.task_id).class_key
    free = select(PoolEntry).where(PoolEntry.role == REFERENCE, PoolEntry.class_key == key, ~planted)
    return list(session.scalars(free.order_by(PoolEntry.id.desc()).limit(_EXAMPLES)))
