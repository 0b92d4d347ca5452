"""A running collection of answers: close and reopen it, ask for more answers, cancel grids. Everything can be undone.

Leases that somebody holds when a class is closed may still be answered.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from shiftbench.testsets.accounts import LEADS, permit
from shiftbench.testsets.database import EXPIRED, LEASED, Assignment, Task, repeated_after_deadlock
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.frequencies import recount
from shiftbench.testsets.locks import alone
from shiftbench.testsets.project import Project, record


def close(project: Project, classes: Collection[str] | None = None, *, by: int | None = None) -> int:
    """Give out no more tasks, of some classes or at all; returns the number of tasks that were open."""
    return _set_closed(project, classes, by, closed=True)


def reopen(project: Project, classes: Collection[str] | None = None, *, by: int | None = None) -> int:
    """Give out tasks again; returns the number of tasks that were closed."""
    return _set_closed(project, classes, by, closed=False)


@repeated_after_deadlock
def _set_closed(project: Project, classes: Collection[str] | None, by: int | None, *, closed: bool) -> int:
    query = _tasks(project, classes)
    query = query.where(Task.closed_at.is_(None) if closed else Task.closed_at.is_not(None))
    action = "close" if closed else "reopen"
    with alone(project, action, by=by), project.writing() as session:
        permit(session, by, LEADS)
        tasks = session.scalars(query.with_for_update(key_share=True)).all()
        for task in tasks:
            task.closed_at = project.now() if closed else None
        record(project, session, action, by=by, classes=_named(classes), tasks=len(tasks))
        return len(tasks)


@repeated_after_deadlock
def top_up(project: Project, annotators: int, classes: Collection[str] | None = None, *, by: int | None = None) -> int:
    """Ask for so many annotators per grid, of some classes or of all; returns the number of changed tasks.

    Answers that were given are kept, also if there are more of them than are asked for now.
    """
    if annotators < 1:
        raise WorkshopError("invalid number of annotators", found=annotators, expected="at least 1")
    query = _tasks(project, classes).where(Task.wished != annotators)
    with alone(project, "top-up", by=by), project.writing() as session:
        permit(session, by, LEADS)
        tasks = session.scalars(query.with_for_update(key_share=True)).all()
        before = sorted({task.wished for task in tasks})
        for task in tasks:
            task.places_left += annotators - task.wished
            task.wished = annotators
        record(
            project,
            session,
            "top-up",
            by=by,
            classes=_named(classes),
            tasks=len(tasks),
            annotators=annotators,
            before=before,
        )
        return len(tasks)


@repeated_after_deadlock
def cancel(project: Project, tasks: Collection[int], because: str, *, undo: bool = False, by: int | None = None) -> int:
    """Withdraw grids that were made by mistake; returns how many were changed.

    Their answers are kept but no longer counted, and their candidates can be put into new grids. ``undo`` counts the
    answers again.
    """
    query = select(Task).where(Task.id.in_(tasks)).order_by(Task.id)
    action = "undo cancel" if undo else "cancel"
    with alone(project, action, by=by), project.writing() as session:
        permit(session, by, LEADS)
        # Whoever ends a lease locks the assignment before its task.
        leased = select(Assignment.id).where(Assignment.task_id.in_(tasks), Assignment.state == LEASED)
        session.execute(leased.order_by(Assignment.task_id).with_for_update(key_share=True))
        rows = session.scalars(query.with_for_update(key_share=True)).all()
        unknown = sorted(set(tasks) - {row.id for row in rows})
        if unknown:
            raise WorkshopError(
                "unknown task", found=unknown[0], hint="`shiftbench testset answers DIR -o FILE` lists them"
            )
        changed = [row for row in rows if (row.cancelled_at is None) != undo]
        for row in changed:
            row.cancelled_at = None if undo else project.now()
            if not undo:
                _end_leases(session, row)
        recount(session, [row.id for row in changed])
        record(project, session, action, by=by, tasks=[row.id for row in changed], because=because)
        return len(changed)


def _end_leases(session: Session, task: Task) -> None:
    """Return the grid that people hold; they get another."""
    query = select(Assignment).where(Assignment.task_id == task.id, Assignment.state == LEASED)
    for assignment in session.scalars(query.with_for_update(key_share=True)):
        assignment.state = EXPIRED
        task.places_left += 1


def _tasks(project: Project, classes: Collection[str] | None) -> Select[Task]:
    """The grids of some classes, or all, that were not cancelled."""
    query = select(Task).where(Task.cancelled_at.is_(None)).order_by(Task.id)
    if classes is None:
        return query
    unknown = sorted(set(classes) - set(project.space.keys))
    if unknown:
        raise WorkshopError(f"unknown class {unknown[0]!r}", expected="a class key of the project")
    return query.where(Task.class_key.in_(classes))


def _named(classes: Collection[str] | None) -> object:
    return "all" if classes is None else sorted(classes)
