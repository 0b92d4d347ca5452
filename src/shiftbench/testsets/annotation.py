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
from typing import Any

from sqlalchemy import Exists, case, delete, exists, func, select
from sqlalchemy.orm import Session

from shiftbench.io.hashing import seeded_rank
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
    Worker,
)
from shiftbench.testsets.errors import (
    AnsweredError,
    LeaseExpiredError,
    MissingClassError,
    TooFastError,
    UnknownTaskError,
)
from shiftbench.testsets.frequencies import count_answer, recount
from shiftbench.testsets.project import Project, record

#: Expired leases returned in one transaction; leases that an active annotator may hold a task; examples of a class.
_RETURNED_AT_ONCE, _LEASES_AT_MOST, _EXAMPLES = 100, 4, 4
#: Seconds between attempts while other annotators are taking the open tasks.
_MOMENT = 0.01


@dataclass(frozen=True)
class AnnotationGrid:
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
    wanted = select(Task).where(Task.places_left > 0, ~_has_or_had(annotator))
    if class_key is not None:
        wanted = wanted.where(Task.class_key == class_key)
    wanted = wanted.order_by(Task.places_left, Task.rank).limit(1)
    while True:
        with project.writing() as session:
            require(session, annotator, ANNOTATORS, lock=True)
            assignment = _held(session, annotator)
            if assignment is None:
                task = session.scalars(wanted.with_for_update(skip_locked=True)).first()
                if task is not None:
                    assignment = _lease(project, session, annotator, task)
                elif session.scalars(wanted).first() is None:
                    return None
            if assignment is not None:
                return _grid(project, session, assignment)
        # All open tasks are locked by others and may have a place left afterwards. Waiting for the locks within the
        # transaction could deadlock.
        time.sleep(_MOMENT)


def _lease(project: Project, session: Session, annotator: int, task: Task) -> Assignment:
    task.places_left -= 1
    had = select(Assignment).where(Assignment.task_id == task.id, Assignment.account_id == annotator)
    assignment = session.scalars(had).first()  # leased before, but not answered in time
    if assignment is None:
        assignment = Assignment(token=secrets.token_urlsafe(18), task_id=task.id, account_id=annotator)
        session.add(assignment)
    assignment.state, assignment.leased_at = LEASED, project.now()
    lease = timedelta(minutes=project.configuration.annotation.lease_minutes)
    assignment.expires_at = assignment.leased_at + lease
    session.flush()
    return assignment


def current_task(project: Project, annotator: int, task: str) -> AnnotationGrid:
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
    labels: Mapping[str, str | None] = selected if isinstance(selected, Mapping) else dict.fromkeys(selected)
    with project.writing() as session:
        assignment = _own(session, annotator, task, lock=True)
        slots = _shown_slots(project, session, assignment)
        unknown = labels.keys() - slots.keys()
        if unknown:
            raise UnknownTaskError("a selected image does not belong to this task", found=min(unknown)[:40])
        labelling = not session.get_one(Task, assignment.task_id).class_key
        missing = [image for image in slots if labels.get(image) not in project.space.keys]
        if labelling and missing:
            raise MissingClassError("please choose a class for every image", expected=f"{len(missing)} more")
        chosen = {slots[image][0]: label if labelling else None for image, label in labels.items()}
        now, repeated = project.now(), assignment.state == SUBMITTED
        expired = not repeated and (assignment.state == EXPIRED or assignment.expires_at <= now)
        if repeated:
            before = _selected(session, assignment)
            if before != chosen:
                raise AnsweredError(
                    "this task is already answered differently; the first answer counts",
                    found=f"{len(chosen)} selected",
                    expected=f"{len(before)} selected, as before",
                )
        elif expired:
            _return_place(session, assignment)
        else:
            seconds = (now - assignment.leased_at).total_seconds()
            least = project.configuration.recruiting.minimum_seconds
            if seconds < least:
                expected = f"at least {least:g} seconds per task"
                raise TooFastError("please look at every image before you submit", expected=expected)
            assignment.state, assignment.submitted_at, assignment.seconds = SUBMITTED, now, seconds
            places = {key: slot for key, (slot, *_) in slots.items()}
            assignment.remarks = None if remarks is None else remarks.stored(places)
            assignment.images, assignment.selected = len(slots), len(chosen)
            positives = {slot for slot, _, control in slots.values() if control is True}
            negatives = {slot for slot, _, control in slots.values() if control is False}
            assignment.positives, assignment.positives_selected = len(positives), len(positives & chosen.keys())
            assignment.negatives, assignment.negatives_left = len(negatives), len(negatives - chosen.keys())
            rows = sorted(chosen.items())
            session.add_all(
                SelectedSlot(assignment_id=assignment.id, slot_id=slot, label=label) for slot, label in rows
            )
            own = {entry: slot in chosen for slot, entry, control in slots.values() if control is not False}
            count_answer(session, assignment, {} if labelling else own)
    if expired:  # outside the transaction, so that the returned place is committed
        raise _lease_expired()
    assert assignment.submitted_at is not None
    return Receipt(task, len(slots), len(chosen), assignment.submitted_at, repeated)


def reopen(project: Project, annotator: int, task: str) -> tuple[AnnotationGrid, dict[str, str | None], Remarks]:
    """Withdraw the annotator's own answer while its lease lasts; returns the grid, what was selected, as what, and the
    remarks. A task that they hold meanwhile is returned to the queue.
    """
    with project.writing() as session:
        assignment = _own(session, annotator, task, lock=True)
        if assignment.expires_at <= project.now() or assignment.state == EXPIRED:
            raise _lease_expired()
        before = _selected(session, assignment)
        if assignment.state == SUBMITTED:
            held = _held(session, annotator)
            if held is not None:
                _return_place(session, held)
            session.execute(delete(SelectedSlot).where(SelectedSlot.assignment_id == assignment.id))
            assignment.state, assignment.submitted_at = LEASED, None
            recount(session, [assignment.task_id])
            record(project, session, "withdraw answer", by=annotator, assignment=assignment.id)
        grid, slots = _grid(project, session, assignment), _shown_slots(project, session, assignment)
        said: dict[str, Any] = assignment.remarks or {}
        unsure, problem = (
            [image for image in grid.images if slots[image][0] in said.get(kind, ())] for kind in ("unsure", "problem")
        )
        selected = {image: before[slots[image][0]] for image in grid.images if slots[image][0] in before}
        return grid, selected, Remarks(said.get("comment", ""), unsure, problem)


def last_answer(project: Project, annotator: int) -> str | None:
    """The task that the annotator answered last, if the answer can still be withdrawn."""
    mine = select(Assignment.token).where(Assignment.account_id == annotator, Assignment.state == SUBMITTED)
    newest = Assignment.submitted_at.desc(), Assignment.id.desc()
    with project.reading() as session:
        return session.scalars(mine.where(Assignment.expires_at > project.now()).order_by(*newest).limit(1)).first()


def give_back(project: Project, annotator: int, task: str) -> None:
    with project.writing() as session:
        assignment = _own(session, annotator, task, lock=True)
        if assignment.state == SUBMITTED:
            raise AnsweredError("this task is already answered")
        _return_place(session, assignment)


def shown_images(project: Project, annotator: int, task: str) -> dict[str, Path]:
    """The files of a task by opaque id: the grid and the examples. Always the small copies without EXIF."""
    with project.reading() as session:
        assignment = _own(session, annotator, task)
        rows = session.execute(
            select(Slot.id, Image.digest, Image.suffix)
            .join(PoolEntry, PoolEntry.id == Slot.entry_id)
            .join(Image, Image.id == PoolEntry.image_id)
            .where(Slot.task_id == assignment.task_id)
        )
        found = {image_id(project, task, slot): (digest, suffix) for slot, digest, suffix in rows}
        for name, entry in _examples(project, session, assignment).items():
            found[name] = (entry.image.digest, entry.image.suffix)
    return {image: project.images.copy(digest, suffix) for image, (digest, suffix) in found.items()}


def examples(project: Project, annotator: int, task: str) -> tuple[str, ...]:
    """Opaque ids of example images: references of the class that are not used as controls in any grid."""
    with project.reading() as session:
        return tuple(_examples(project, session, _own(session, annotator, task)))


def renew(project: Project, annotator: int, task: str) -> datetime:
    """Extend the lease of an active annotator, up to four leases in total; returns the new end."""
    with project.writing() as session:
        assignment = _own(session, annotator, task, lock=True)
        _check_held(project, assignment)
        lease = timedelta(minutes=project.configuration.annotation.lease_minutes)
        latest = assignment.leased_at + _LEASES_AT_MOST * lease
        assignment.expires_at = max(assignment.expires_at, min(project.now() + lease, latest))
        return assignment.expires_at


def return_expired(project: Project) -> int:
    """Return tasks with expired leases to the queue; the number of tasks. Called by ``next_task``."""
    over = select(Assignment).where(Assignment.state == LEASED, Assignment.expires_at <= project.now())
    with project.reading() as session:
        if session.scalars(over.limit(1)).first() is None:
            return 0
    with project.writing() as session:
        # Ordered by task to rule out deadlocks.
        query = over.order_by(Assignment.task_id).limit(_RETURNED_AT_ONCE).with_for_update(skip_locked=True)
        found = session.scalars(query).all()
        for assignment in found:
            _return_place(session, assignment)
        return len(found)


def progress(project: Project) -> list[ClassProgress]:
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
    return [rows[key] for key in ("", *project.space.keys) if key in rows]


def progress_of(project: Project, annotator: int) -> OwnProgress:
    with project.reading() as session:
        done = select(func.count(), func.coalesce(func.sum(Assignment.images), 0), func.avg(Assignment.seconds))
        done = done.where(Assignment.account_id == annotator, Assignment.state == SUBMITTED)
        tasks, images, seconds = session.execute(done).one()
        left = session.scalars(
            select(func.count()).select_from(Task).where(Task.places_left > 0, ~_has_or_had(annotator))
        ).one()
        most = project.configuration.recruiting.tasks_per_worker
        if most and session.scalars(select(Worker.id).where(Worker.account_id == annotator)).first() is not None:
            left = min(left, max(0, most - tasks - 1))  # beside the one in hand
        return OwnProgress(tasks, int(images), left, float(seconds or 0))


def _held(session: Session, annotator: int) -> Assignment | None:
    mine = select(Assignment).where(Assignment.account_id == annotator, Assignment.state == LEASED)
    return session.scalars(mine).first()  # expired ones have just been returned


def _has_or_had(annotator: int) -> Exists:
    mine = exists().where(Assignment.task_id == Task.id, Assignment.account_id == annotator)
    return mine.where(Assignment.state.in_((LEASED, SUBMITTED)))


def _own(session: Session, annotator: int, task: str, *, lock: bool = False) -> Assignment:
    require(session, annotator, ANNOTATORS, lock=lock)
    query = select(Assignment).where(Assignment.token == task, Assignment.account_id == annotator)
    assignment = session.scalars(query.with_for_update() if lock else query).first()
    if assignment is None:
        raise UnknownTaskError("unknown task")
    return assignment


def _check_held(project: Project, assignment: Assignment) -> None:
    if assignment.state == SUBMITTED:
        raise AnsweredError("this task is already answered")
    if assignment.state == EXPIRED or assignment.expires_at <= project.now():
        raise _lease_expired()


def _lease_expired() -> LeaseExpiredError:
    return LeaseExpiredError("the lease of this task has expired", hint="take a new task")


def _return_place(session: Session, assignment: Assignment) -> None:
    if assignment.state == LEASED:
        assignment.state = EXPIRED
        task = session.scalars(select(Task).where(Task.id == assignment.task_id).with_for_update()).one()
        task.places_left += 1
        session.flush()


def _selected(session: Session, assignment: Assignment) -> dict[int, str | None]:
    query = select(SelectedSlot.slot_id, SelectedSlot.label).where(SelectedSlot.assignment_id == assignment.id)
    return dict(session.execute(query).all())


def _grid(project: Project, session: Session, assignment: Assignment) -> AnnotationGrid:
    task = session.get_one(Task, assignment.task_id)
    definition = project.configuration.class_of(task.class_key) if task.class_key else ClassDefinition("")
    slots = session.scalars(select(Slot.id).where(Slot.task_id == task.id)).all()
    seed = project.configuration.seed
    shuffled = sorted(slots, key=lambda slot: seeded_rank(seed, assignment.account_id, slot))
    return AnnotationGrid(
        assignment.token,
        task.class_key,
        definition.title,
        definition.definition,
        definition.link,
        tuple(image_id(project, assignment.token, slot) for slot in shuffled),
        assignment.expires_at,
    )


def _shown_slots(project: Project, session: Session, assignment: Assignment) -> dict[str, tuple[int, int, bool | None]]:
    """The slot and entry of each image, and whether it belongs to the class if it is a control image."""
    query = select(Slot.id, PoolEntry.id, PoolEntry.role, PoolEntry.class_key == Task.class_key)
    query = query.select_from(Slot).join(PoolEntry).join(Task).where(Slot.task_id == assignment.task_id)
    return {
        image_id(project, assignment.token, slot): (slot, entry, bool(own) if role == REFERENCE else None)
        for slot, entry, role, own in session.execute(query)
    }


def image_id(project: Project, task: str, slot: int | str) -> str:
    """The opaque id of an image, different for every annotator and task; needs the project's secret."""
    return base64.urlsafe_b64encode(project.sign(f"{task}/{slot}")[:15]).decode("ascii")


def _examples(project: Project, session: Session, assignment: Assignment) -> dict[str, PoolEntry]:
    """References that are used as controls would be recognised there, so they are not shown as examples."""
    planted = exists().where(Slot.entry_id == PoolEntry.id)
    key = session.get_one(Task, assignment.task_id).class_key
    free = select(PoolEntry).where(PoolEntry.role == REFERENCE, PoolEntry.class_key == key, ~planted)
    found = session.scalars(free.order_by(PoolEntry.id.desc()).limit(_EXAMPLES))
    return {image_id(project, assignment.token, f"example/{entry.id}"): entry for entry in found}
