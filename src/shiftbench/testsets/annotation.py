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
import secrets
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Exists, and_, case, delete, exists, func, select
from sqlalchemy.orm import Session

from shiftbench.extend.io import seeded_rank
from shiftbench.testsets.accounts import ANNOTATORS, require
from shiftbench.testsets.configuration import ClassDefinition
from shiftbench.testsets.database import (
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
    repeated_after_deadlock,
)
from shiftbench.testsets.digests import answer_digest
from shiftbench.testsets.errors import (
    AnsweredError,
    LeaseExpiredError,
    MissingClassError,
    TooFastError,
    UnknownTaskError,
)
from shiftbench.testsets.frequencies import count_answer, recount
from shiftbench.testsets.project import Project, record
from shiftbench.testsets.recruiting import current_assignment, most_tasks_left

#: Expired leases returned in one transaction.
_RETURNED_AT_ONCE = 100
#: Leases for which an active annotator may hold a task.
_MAX_LEASES = 4
#: Seconds between attempts while other annotators are taking the open tasks.
_RETRY_SECONDS = 0.01
#: Characters of a comment that are stored.
_LONGEST_COMMENT = 2000


@dataclass(frozen=True)
class AnnotationGrid:
    """What an annotator sees: images, and the class to select them for."""

    #: Opaque id of the task, valid for this annotator only.
    task: str
    #: Empty if the annotator chooses a class for each image.
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
    #: Images of the grid, and how many of them were selected.
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
            "comment": self.comment.strip()[:_LONGEST_COMMENT],
            "unsure": sorted(slots[image] for image in self.unsure if image in slots),
            "problem": sorted(slots[image] for image in self.problem if image in slots),
        }
        return {key: value for key, value in values.items() if value} or None


@dataclass(frozen=True)
class ClassProgress:
    """How far the annotation of a class is."""

    class_key: str
    tasks: int
    finished_tasks: int
    #: Required answers, submitted ones (of annotators who count), and currently leased.
    places: int
    answered: int
    in_hand: int
    #: Tasks that are not given out any more.
    closed: int

    @property
    def share(self) -> float:
        return min(1.0, self.answered / self.places) if self.places else 1.0


@dataclass(frozen=True)
class OwnProgress:
    """What one annotator has done, and how many tasks are left for them."""

    answered_tasks: int
    answered_images: int
    #: Tasks with an open place that they have not answered.
    open_tasks: int
    #: Mean time of their answers; 0 before the first.
    seconds: float = 0.0

    @property
    def minutes_left(self) -> int:
        """Estimated from their own answers."""
        return round(self.seconds * self.open_tasks / 60)


@repeated_after_deadlock
def next_task(project: Project, annotator: int, *, class_key: str | None = None) -> AnnotationGrid | None:
    """The task that the annotator holds, or a new one; None if none is left for them.

    ``class_key`` restricts the class. Tasks with the fewest open places come first, so that images are finished early.
    """
    return_expired(project)
    open_tasks = select(Task).where(_is_open(), ~_has_or_had(annotator))
    if class_key is not None:
        open_tasks = open_tasks.where(Task.class_key == class_key)
    best_task = open_tasks.order_by(Task.places_left, Task.rank).limit(1)
    while True:
        with project.writing() as session:
            require(session, annotator, ANNOTATORS, lock=True)
            assignment = _held(session, annotator)
            if assignment is None:
                task = session.scalars(best_task.with_for_update(skip_locked=True, key_share=True)).first()
                if task is not None:
                    assignment = _lease(project, session, annotator, task)
                elif session.scalars(best_task).first() is None:
                    return None
            if assignment is not None:
                return _grid(project, session, assignment)
        # All open tasks are locked by others and may have a place left afterwards. Waiting for the locks within the
        # transaction could deadlock.
        time.sleep(_RETRY_SECONDS)


def _lease(project: Project, session: Session, annotator: int, task: Task) -> Assignment:
    """Give a task to an annotator for the configured time."""
    task.places_left -= 1
    # The annotator may have held this task before without answering it in time.
    query = select(Assignment).where(Assignment.task_id == task.id, Assignment.account_id == annotator)
    assignment = session.scalars(query).first()
    if assignment is None:
        assignment = Assignment(token=secrets.token_urlsafe(18), task_id=task.id, account_id=annotator)
        session.add(assignment)
    assignment.state = LEASED
    assignment.platform_assignment_id = None
    assignment.leased_at = project.now()
    assignment.expires_at = assignment.leased_at + _lease_time(project)
    session.flush()
    return assignment


def _lease_time(project: Project) -> timedelta:
    return timedelta(minutes=project.configuration.annotation.lease_minutes)


def current_task(project: Project, annotator: int, task: str) -> AnnotationGrid:
    """The grid of a task that the annotator holds; raises if it is answered or its lease has expired."""
    with project.reading() as session:
        assignment = _own(session, annotator, task)
        _check_held(project, assignment)
        return _grid(project, session, assignment)


def submit(
    project: Project,
    annotator: int,
    task: str,
    selected: Iterable[str] | Mapping[str, str],
    *,
    remarks: Remarks | None = None,
) -> Receipt:
    """Store an answer atomically: the selected images, or the class of each image of a grid without a class.

    Repeating the same answer changes nothing; a different one is refused.
    """
    # The answer may be read twice.
    answer = selected if isinstance(selected, Mapping) else list(selected)
    return _submit(project, annotator, task, answer, remarks)


@repeated_after_deadlock
def _submit(
    project: Project,
    annotator: int,
    task: str,
    selected: Collection[str] | Mapping[str, str],
    remarks: Remarks | None,
) -> Receipt:
    """As :func:`submit`."""
    with project.writing() as session:
        assignment = _own(session, annotator, task, lock=True)
        slots = _shown_slots(project, session, assignment)
        labelling = not session.get_one(Task, assignment.task_id).class_key
        answer = _checked_answer(project, slots, selected, labelling=labelling)
        now = project.now()
        repeated = assignment.state == SUBMITTED
        expired = not repeated and (assignment.state == EXPIRED or assignment.expires_at <= now)
        if repeated:
            _check_repeated(session, assignment, answer)
        elif expired:
            _return_place(session, assignment)
        else:
            _check_duration(project, assignment, now)
            _store_answer(session, assignment, slots, answer, now)
            assignment.remarks = None
            if remarks is not None:
                assignment.remarks = remarks.stored({image: slot.id for image, slot in slots.items()})
            entries = {slot.id: slot.entry for slot in slots.values()}
            assignment.digest = answer_digest(assignment, entries, answer)
            counted = {}
            # Negative controls show other classes; they have no selection frequency for this one.
            if not labelling:
                counted = {slot.entry: slot.id in answer for slot in slots.values() if slot.control is not False}
            count_answer(session, assignment, counted)
    # Raised outside the transaction, so that the returned place is committed.
    if expired:
        raise _lease_expired()
    assert assignment.submitted_at is not None
    return Receipt(task, len(slots), len(answer), assignment.submitted_at, repeated)


def _checked_answer(
    project: Project,
    slots: Mapping[str, _ShownSlot],
    selected: Iterable[str] | Mapping[str, str],
    *,
    labelling: bool,
) -> dict[int, str | None]:
    """The selected slots, with the class of each if the annotator had to choose one.

    Raises UnknownTaskError for images of other tasks, and MissingClassError if an image has no class.
    """
    labels: Mapping[str, str | None] = selected if isinstance(selected, Mapping) else dict.fromkeys(selected)
    unknown = labels.keys() - slots.keys()
    if unknown:
        raise UnknownTaskError("a selected image does not belong to this task", found=min(unknown)[:40])
    if not labelling:
        return {slots[image].id: None for image in labels}
    missing = [image for image in slots if labels.get(image) not in project.space.keys]
    if missing:
        raise MissingClassError("please choose a class for every image", expected=f"{len(missing)} more")
    return {slots[image].id: label for image, label in labels.items()}


def _check_repeated(session: Session, assignment: Assignment, answer: Mapping[int, str | None]) -> None:
    """Raise AnsweredError if an answer is not the stored one."""
    stored = _selected(session, assignment)
    if stored != answer:
        raise AnsweredError(
            "this task is already answered differently; the first answer counts",
            found=f"{len(answer)} selected",
            expected=f"{len(stored)} selected, as before",
        )


def _check_duration(project: Project, assignment: Assignment, now: datetime) -> None:
    """Raise TooFastError if an answer came sooner than the configuration allows."""
    least = project.configuration.recruiting.minimum_seconds
    if (now - assignment.leased_at).total_seconds() < least:
        raise TooFastError(
            "please look at every image before you submit", expected=f"at least {least:g} seconds per task"
        )


def _store_answer(
    session: Session,
    assignment: Assignment,
    slots: Mapping[str, _ShownSlot],
    answer: Mapping[int, str | None],
    now: datetime,
) -> None:
    """Store the selected slots and the counts of an answer with its assignment."""
    positives = {slot.id for slot in slots.values() if slot.control is True}
    negatives = {slot.id for slot in slots.values() if slot.control is False}
    assignment.state = SUBMITTED
    if assignment.platform_assignment_id is None:
        # An answer that was withdrawn and given again stays with the platform's assignment that it was given for.
        platform_assignment = current_assignment(session, assignment.account_id)
        assignment.platform_assignment_id = platform_assignment.id if platform_assignment else None
    assignment.submitted_at = now
    assignment.seconds = (now - assignment.leased_at).total_seconds()
    assignment.images = len(slots)
    assignment.selected = len(answer)
    assignment.positives = len(positives)
    assignment.positives_selected = len(positives & answer.keys())
    assignment.negatives = len(negatives)
    assignment.negatives_left = len(negatives - answer.keys())
    for slot, label in sorted(answer.items()):
        session.add(SelectedSlot(assignment_id=assignment.id, slot_id=slot, label=label))


class WithdrawnAnswer(NamedTuple):
    """An answer that its annotator may change and send again."""

    grid: AnnotationGrid
    #: The label of each image that was selected.
    selected: dict[str, str | None]
    remarks: Remarks


@repeated_after_deadlock
def reopen(project: Project, annotator: int, task: str) -> WithdrawnAnswer:
    """Withdraw the annotator's own answer while its lease lasts.

    A task that they hold meanwhile is returned to the queue.
    """
    with project.writing() as session:
        assignment = _own(session, annotator, task, lock=True)
        if assignment.expires_at <= project.now() or assignment.state == EXPIRED:
            raise _lease_expired()
        answer = _selected(session, assignment)
        if assignment.state == SUBMITTED:
            if not _of_present_assignment(session, assignment):
                raise AnsweredError("this answer belongs to an assignment that you have completed")
            # An annotator holds one task at a time.
            held = _held(session, annotator)
            if held is not None:
                _return_place(session, held)
            session.execute(delete(SelectedSlot).where(SelectedSlot.assignment_id == assignment.id))
            assignment.state = LEASED
            assignment.submitted_at = None
            recount(session, [assignment.task_id])
            record(project, session, "withdraw answer", by=annotator, assignment=assignment.id)
        grid = _grid(project, session, assignment)
        slots = _shown_slots(project, session, assignment)
        selected = {image: answer[slots[image].id] for image in grid.images if slots[image].id in answer}
        stored_remarks: dict[str, Any] = assignment.remarks or {}
        # Remarks are stored by slot, and a page knows its images.
        unsure_slots = stored_remarks.get("unsure", ())
        problem_slots = stored_remarks.get("problem", ())
        remarks = Remarks(
            comment=stored_remarks.get("comment", ""),
            unsure=[image for image in grid.images if slots[image].id in unsure_slots],
            problem=[image for image in grid.images if slots[image].id in problem_slots],
        )
        return WithdrawnAnswer(grid, selected, remarks)


def last_answer(project: Project, annotator: int) -> str | None:
    """The task that the annotator answered last, if the answer can still be withdrawn."""
    query = select(Assignment).where(Assignment.account_id == annotator, Assignment.state == SUBMITTED)
    query = query.order_by(Assignment.submitted_at.desc(), Assignment.id.desc()).limit(1)
    query = query.where(Assignment.expires_at > project.now())
    with project.reading() as session:
        assignment = session.scalars(query).first()
        if assignment is None or not _of_present_assignment(session, assignment):
            return None
        return assignment.token


def _of_present_assignment(session: Session, assignment: Assignment) -> bool:
    """Whether a recruited worker still works on what an answer is paid for; what others answer is not paid."""
    paid_for = assignment.platform_assignment_id
    if paid_for is None:
        return True
    present = current_assignment(session, assignment.account_id)
    return present is not None and present.id == paid_for


@repeated_after_deadlock
def give_back(project: Project, annotator: int, task: str) -> None:
    """Return a task to the queue; raises AnsweredError if it is answered."""
    with project.writing() as session:
        assignment = _own(session, annotator, task, lock=True)
        if assignment.state == SUBMITTED:
            raise AnsweredError("this task is already answered")
        _return_place(session, assignment)


@repeated_after_deadlock
def give_back_held(project: Project, annotator: int) -> None:
    """Return the task that the annotator holds, if any."""
    with project.writing() as session:
        assignment = _held(session, annotator)
        if assignment is not None:
            _return_place(session, assignment)


def shown_images(project: Project, annotator: int, task: str) -> dict[str, Path]:
    """The files of a task by opaque id: the grid and the examples. Always the small copies without EXIF."""
    copies = {}
    with project.reading() as session:
        assignment = _own(session, annotator, task)
        rows = session.execute(
            select(Slot.id, Image.digest, Image.suffix)
            .join(PoolEntry, PoolEntry.id == Slot.entry_id)
            .join(Image, Image.id == PoolEntry.image_id)
            .where(Slot.task_id == assignment.task_id)
        ).all()
        example_entries = _examples(project, session, assignment)
    for slot, digest, suffix in rows:
        copies[image_id(project, task, slot)] = project.images.copy(digest, suffix)
    for image, entry in example_entries.items():
        copies[image] = project.images.copy(entry.image.digest, entry.image.suffix)
    return copies


def examples(project: Project, annotator: int, task: str) -> tuple[str, ...]:
    """Opaque ids of example images: references of the class that are not used as controls in any grid."""
    with project.reading() as session:
        return tuple(_examples(project, session, _own(session, annotator, task)))


@repeated_after_deadlock
def renew(project: Project, annotator: int, task: str) -> datetime:
    """Extend the lease of an active annotator, up to four leases in total; returns the new end."""
    with project.writing() as session:
        assignment = _own(session, annotator, task, lock=True)
        _check_held(project, assignment)
        lease = _lease_time(project)
        latest = assignment.leased_at + _MAX_LEASES * lease
        assignment.expires_at = max(assignment.expires_at, min(project.now() + lease, latest))
        return assignment.expires_at


@repeated_after_deadlock
def return_expired(project: Project) -> int:
    """Return tasks with expired leases to the queue; the number of tasks. Called by ``next_task``."""
    expired = select(Assignment).where(Assignment.state == LEASED, Assignment.expires_at <= project.now())
    # Usually nothing has expired, and reading first does not make writers wait.
    with project.reading() as session:
        if session.scalars(expired.limit(1)).first() is None:
            return 0
    with project.writing() as session:
        # Ordered by task to rule out deadlocks; what somebody else is returning right now is skipped.
        query = expired.order_by(Assignment.task_id).limit(_RETURNED_AT_ONCE)
        query = query.with_for_update(skip_locked=True, key_share=True)
        assignments = session.scalars(query).all()
        for assignment in assignments:
            _return_place(session, assignment)
        return len(assignments)


def progress(project: Project) -> list[ClassProgress]:
    """The progress of every class with tasks, in the order of the classes; tasks without a class come first."""
    leased = func.sum(case((Assignment.state == LEASED, 1), else_=0))
    submitted = func.sum(case((Assignment.state == SUBMITTED, 1), else_=0))
    by_task = select(Assignment.task_id, submitted.label("submitted"), leased.label("leased")).join(Account)
    by_task = by_task.where(Account.excluded_at.is_(None)).group_by(Assignment.task_id)
    counts = by_task.subquery()
    finished = func.sum(case((counts.c.submitted >= Task.wished, 1), else_=0))
    query = select(
        Task.class_key,
        func.count(),
        func.coalesce(finished, 0),
        func.coalesce(func.sum(Task.wished), 0),
        func.coalesce(func.sum(counts.c.submitted), 0),
        func.coalesce(func.sum(counts.c.leased), 0),
        func.sum(case((Task.closed_at.is_not(None), 1), else_=0)),
    )
    query = query.outerjoin(counts, counts.c.task_id == Task.id).where(Task.cancelled_at.is_(None))
    query = query.group_by(Task.class_key)
    by_class = {}
    with project.reading() as session:
        for class_key, *numbers in session.execute(query):
            by_class[class_key] = ClassProgress(class_key, *map(int, numbers))
    return [by_class[key] for key in ("", *project.space.keys) if key in by_class]


def progress_of(project: Project, annotator: int) -> OwnProgress:
    """What an annotator has done, and what is left for them; of a recruited worker, for the present assignment."""
    submitted = select(func.count(), func.coalesce(func.sum(Assignment.images), 0), func.avg(Assignment.seconds))
    submitted = submitted.where(Assignment.account_id == annotator, Assignment.state == SUBMITTED)
    open_tasks = select(func.count()).select_from(Task).where(_is_open(), ~_has_or_had(annotator))
    with project.reading() as session:
        tasks, images, seconds = session.execute(submitted).one()
        tasks_left = session.scalars(open_tasks).one()
        platform_assignment = current_assignment(session, annotator)
        if platform_assignment is not None:
            in_all = tasks
            for_assignment = submitted.where(Assignment.platform_assignment_id == platform_assignment.id)
            tasks, images, seconds = session.execute(for_assignment).one()
            most = most_tasks_left(project.configuration.recruiting, in_all, tasks)
            if most is not None:
                # The task in hand is one of those that a worker may answer, but it is not open.
                tasks_left = min(tasks_left, max(0, most - 1))
        return OwnProgress(tasks, int(images), tasks_left, float(seconds or 0))


def _held(session: Session, annotator: int) -> Assignment | None:
    """The task that an annotator holds. An expired one may be among them until it is returned."""
    query = select(Assignment).where(Assignment.account_id == annotator, Assignment.state == LEASED)
    return session.scalars(query).first()


def _is_open() -> ColumnElement[bool]:
    """Whether a task may be given out."""
    return and_(Task.places_left > 0, Task.closed_at.is_(None), Task.cancelled_at.is_(None))


def _has_or_had(annotator: int) -> Exists:
    """Whether the annotator holds a task or has answered it."""
    assigned = exists().where(Assignment.task_id == Task.id, Assignment.account_id == annotator)
    return assigned.where(Assignment.state.in_((LEASED, SUBMITTED)))


def _own(session: Session, annotator: int, task: str, *, lock: bool = False) -> Assignment:
    """The assignment of a task to this annotator; raises UnknownTaskError if it is somebody else's."""
    require(session, annotator, ANNOTATORS, lock=lock)
    query = select(Assignment).where(Assignment.token == task, Assignment.account_id == annotator)
    if lock:
        query = query.with_for_update(key_share=True)
    assignment = session.scalars(query).first()
    if assignment is None:
        raise UnknownTaskError("unknown task")
    return assignment


def _check_held(project: Project, assignment: Assignment) -> None:
    """Raise AnsweredError or LeaseExpiredError unless the annotator still holds the task."""
    if assignment.state == SUBMITTED:
        raise AnsweredError("this task is already answered")
    if assignment.state == EXPIRED or assignment.expires_at <= project.now():
        raise _lease_expired()


def _lease_expired() -> LeaseExpiredError:
    return LeaseExpiredError("the lease of this task has expired", hint="take a new task")


def _return_place(session: Session, assignment: Assignment) -> None:
    """End a lease, so that somebody else can take the task; nothing happens if it has ended."""
    if assignment.state == LEASED:
        assignment.state = EXPIRED
        task = session.scalars(select(Task).where(Task.id == assignment.task_id).with_for_update(key_share=True)).one()
        task.places_left += 1
        session.flush()


def _selected(session: Session, assignment: Assignment) -> dict[int, str | None]:
    """The selected slots of an answer, with the class that was chosen for each, if there was a choice."""
    query = select(SelectedSlot.slot_id, SelectedSlot.label).where(SelectedSlot.assignment_id == assignment.id)
    return dict(session.execute(query).all())


def _grid(project: Project, session: Session, assignment: Assignment) -> AnnotationGrid:
    """The grid of an assignment, in the order of its annotator."""
    task = session.get_one(Task, assignment.task_id)
    definition = project.configuration.class_of(task.class_key) if task.class_key else ClassDefinition("")
    slots = session.scalars(select(Slot.id).where(Slot.task_id == task.id)).all()
    seed = project.configuration.seed
    shuffled = sorted(slots, key=lambda slot: seeded_rank(seed, assignment.account_id, slot))
    return AnnotationGrid(
        task=assignment.token,
        class_key=task.class_key,
        class_name=definition.title,
        definition=definition.definition,
        link=definition.link,
        images=tuple(image_id(project, assignment.token, slot) for slot in shuffled),
        expires_at=assignment.expires_at,
    )


@dataclass(frozen=True)
class _ShownSlot:
    """A slot of a grid, and its pool entry."""

    id: int
    entry: int
    #: Whether a control image belongs to the class; None for candidates.
    control: bool | None


def _shown_slots(project: Project, session: Session, assignment: Assignment) -> dict[str, _ShownSlot]:
    """The slots of a grid by the opaque ids of their images."""
    query = select(Slot.id, PoolEntry.id, PoolEntry.role, PoolEntry.class_key == Task.class_key)
    query = query.select_from(Slot).join(PoolEntry).join(Task).where(Slot.task_id == assignment.task_id)
    slots = {}
    for slot, entry, role, of_class in session.execute(query):
        control = bool(of_class) if role == REFERENCE else None
        slots[image_id(project, assignment.token, slot)] = _ShownSlot(slot, entry, control)
    return slots


def image_id(project: Project, task: str, slot: int | str) -> str:
    """The opaque id of an image, different for every annotator and task; needs the project's secret."""
    return base64.urlsafe_b64encode(project.sign(f"{task}/{slot}")[:15]).decode("ascii")


def _examples(project: Project, session: Session, assignment: Assignment) -> dict[str, PoolEntry]:
    """References that are used as controls would be recognised there, so they are not shown as examples."""
    in_a_grid = exists().where(Slot.entry_id == PoolEntry.id)
    key = session.get_one(Task, assignment.task_id).class_key
    query = select(PoolEntry).where(PoolEntry.role == REFERENCE, PoolEntry.class_key == key, ~in_a_grid)
    entries = session.scalars(query.order_by(PoolEntry.id.desc()).limit(project.configuration.annotation.examples))
    return {image_id(project, assignment.token, f"example/{entry.id}"): entry for entry in entries}
