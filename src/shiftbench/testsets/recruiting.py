"""People recruited by a crowd platform: one public link, one account per worker, completion codes, pay.

Prolific appends PROLIFIC_PID, STUDY_ID and SESSION_ID to the link; MTurk's ExternalQuestion appends workerId,
assignmentId, hitId and turkSubmitTo. Other platforms and mailing lists may pass ``worker``.
"""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from shiftbench.reports.table import Column, Table
from shiftbench.testsets.accounts import Person, new_account, start_session
from shiftbench.testsets.database import SUBMITTED, Account, Assignment, Worker
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.frequencies import annotator_quality, quality_flags
from shiftbench.testsets.project import Project, record

#: For each platform: the parameter with the worker's id, and the parameters with further details.
PLATFORMS = {
    "prolific": ("PROLIFIC_PID", ("STUDY_ID", "SESSION_ID")),
    "mturk": ("workerId", ("assignmentId", "hitId", "turkSubmitTo")),
    "link": ("worker", ()),
}
#: MTurk's assignment id while a worker only looks at a task.
PREVIEW = "ASSIGNMENT_ID_NOT_AVAILABLE"
#: Sites whose forms finish an assignment.
MTURK_SITES = ("https://www.mturk.com", "https://workersandbox.mturk.com")
#: The whole text must match, because the site becomes part of a header.
_LOCAL_SITE = re.compile(r"http://(localhost|127\.0\.0\.1)(:[0-9]{1,5})?")
#: Characters of a parameter that are kept.
_LONGEST = 200
#: Characters of a worker's id.
_LONGEST_WORKER = 64


@dataclass(frozen=True)
class Arrival:
    """What a platform says about the person who opens the link."""

    #: A key of ``PLATFORMS``.
    platform: str
    #: The platform's id of the person; "" while they only look at the task.
    worker: str
    #: The further parameters that were given.
    details: Mapping[str, str]

    @property
    def preview(self) -> bool:
        return self.details.get("assignmentId") == PREVIEW


def read_arrival(parameters: Mapping[str, str]) -> Arrival:
    """The platform, recognised by its parameters; raises WorkshopError if they name no worker."""
    for platform, (worker_parameter, detail_parameters) in PLATFORMS.items():
        details = {key: parameters[key][:_LONGEST] for key in detail_parameters if parameters.get(key)}
        worker = " ".join(parameters.get(worker_parameter, "").split())
        if 0 < len(worker) <= _LONGEST_WORKER and worker.isprintable():
            return Arrival(platform, worker, details)
        if details.get("assignmentId") == PREVIEW:
            return Arrival(platform, "", details)
    raise WorkshopError(
        "this link needs the id of the person who opens it",
        expected="a parameter " + ", ".join(worker_parameter for worker_parameter, _ in PLATFORMS.values()),
    )


def recruiting_token(project: Project) -> str:
    """The secret part of the public link; the same for everybody."""
    return base64.urlsafe_b64encode(project.sign("recruit")[:15]).decode("ascii")


def enter_as_worker(project: Project, arrival: Arrival) -> tuple[Person, str]:
    """(account, token of a new session). The same worker always gets the same account."""
    if arrival.preview or not arrival.worker:
        raise WorkshopError("accept the task on the platform first")
    with project.writing() as session:
        query = select(Worker).where(Worker.platform == arrival.platform, Worker.worker == arrival.worker)
        if session.scalars(query).first() is None:
            name = f"{arrival.platform} {arrival.worker}"
            # Somebody who clicks twice is added by the other request: then this one adds nothing.
            with suppress(IntegrityError), session.begin_nested():
                # The second name is for the case that the lead already gave the first to an account, which may have
                # another role and must not be handed to a worker.
                account = new_account(project, session, [name, f"{name} {secrets.token_hex(3)}"], "annotator")
                session.add(Worker(account_id=account.id, platform=arrival.platform, worker=arrival.worker, details={}))
                record(project, session, "recruit", by=account.id, platform=arrival.platform)
        worker = session.scalars(query.with_for_update()).one()
        worker.details = dict(arrival.details)
        session.flush()
        return start_session(project, session, worker.account_id)


@dataclass(frozen=True)
class WorkerStatus:
    """Where a recruited person stands; ``finished`` says why they get no further task."""

    platform: str
    #: Whether they passed the first task, or have not answered it yet.
    qualified: bool
    finished: str
    #: The completion code; "" before the first answer.
    code: str
    #: Where MTurk's form is submitted, and its assignment.
    submit_to: str
    assignment: str


def worker_status(project: Project, account: int) -> WorkerStatus | None:
    """None if the account was not recruited."""
    rules = project.configuration.recruiting
    with project.reading() as session:
        worker = session.scalars(select(Worker).where(Worker.account_id == account)).first()
        if worker is None:
            return None
        query = select(Assignment).where(Assignment.account_id == account, Assignment.state == SUBMITTED)
        assignments = session.scalars(query.order_by(Assignment.submitted_at, Assignment.id)).all()
        excluded = session.get_one(Account, account).excluded_at is not None
    # The first task is the qualification; until it is answered, everybody is qualified.
    qualified = not assignments or assignments[0].right >= rules.qualification * assignments[0].controls
    # If several reasons apply, the last one is shown.
    finished = ""
    if excluded:
        finished = "There are no further tasks for you."
    if not qualified:
        finished = "The first task was a qualification; there are no further tasks for you."
    if rules.tasks_per_worker and len(assignments) >= rules.tasks_per_worker:
        finished = "You have answered all tasks that one person may answer."
    site = mturk_site(worker.details)
    return WorkerStatus(
        platform=worker.platform,
        qualified=qualified,
        finished=finished,
        code=completion_code(project, account) if assignments else "",
        submit_to=f"{site}/mturk/externalSubmit" if site else "",
        assignment=worker.details.get("assignmentId", ""),
    )


def mturk_site(details: Mapping[str, str]) -> str:
    """The site that takes the assignment: one of MTurk's, or a server on this machine that replaces it in tests.

    >>> mturk_site({"turkSubmitTo": "https://www.mturk.com/"}), mturk_site({"turkSubmitTo": "https://evil.example"})
    ('https://www.mturk.com', '')
    """
    site = details.get("turkSubmitTo", "").rstrip("/")
    return site if site in MTURK_SITES or _LOCAL_SITE.fullmatch(site) else ""


def frame_sites(arrival: Arrival) -> tuple[str, ...]:
    """The sites that may show the first page in a frame."""
    return (*MTURK_SITES, mturk_site(arrival.details))


def completion_code(project: Project, account: int) -> str:
    """The configured code, or one that only this project can make for this account."""
    if project.configuration.recruiting.completion_code:
        return project.configuration.recruiting.completion_code
    return base64.b32encode(project.sign(f"completed/{account}")[:5]).decode("ascii")


def pay_table(project: Project) -> Table:
    """What each recruited person did, and what they are owed for it."""
    rules = project.configuration.recruiting
    with project.reading() as session:
        workers = {row.account_id: row for row in session.scalars(select(Worker).order_by(Worker.id))}
    annotators = annotator_quality(project)
    flags = quality_flags(annotators)
    rows: list[dict[str, Any]] = []
    for annotator in annotators:
        worker = workers.get(annotator.account)
        if worker is None:
            continue
        pay = annotator.tasks * rules.pay_per_task
        per_hour = None
        if annotator.seconds:
            per_hour = 3600 * annotator.tasks * rules.pay_per_task / annotator.seconds
        rows.append(
            {
                "platform": worker.platform,
                "worker": worker.worker,
                "assignment": worker.details.get("assignmentId", ""),
                "tasks": annotator.tasks,
                "minutes": annotator.seconds / 60,
                "accuracy": annotator.accuracy,
                "flags": "; ".join(flags[annotator.account]),
                "excluded": "excluded" if annotator.excluded else "",
                "code": completion_code(project, annotator.account),
                "pay": pay,
                "per_hour": per_hour,
            }
        )
    columns = [
        Column("platform", "platform"),
        Column("worker", "worker"),
        Column("tasks", "tasks", "count"),
        Column("minutes", "minutes", "number", places=1),
        Column("accuracy", "controls correct %", "number", places=1, times=100),
        Column("pay", f"pay, {rules.currency}", "number", places=2),
        Column("per_hour", "per hour", "number", places=2, optional=True),
        Column("code", "code"),
        Column("assignment", "assignment", optional=True),
        Column("flags", "flags"),
        Column("excluded", ""),
    ]
    total_tasks = sum(row["tasks"] for row in rows)
    total_pay = sum(row["pay"] for row in rows)
    lead = [
        f"{len(rows)} of {len(workers)} recruited people answered; "
        f"{total_tasks:,} tasks, {total_pay:,.2f} {rules.currency}"
    ]
    return Table(columns, rows, title="Recruited annotators", lead=lead)
