"""People recruited by a crowd platform: one public link, one account per worker, completion codes, pay.

Prolific appends PROLIFIC_PID, STUDY_ID and SESSION_ID to the link; MTurk's ExternalQuestion appends workerId,
assignmentId, hitId and turkSubmitTo. Other platforms and mailing lists may pass ``worker``.

A worker may come several times, each time for another assignment: answers, completion code and pay belong to the
assignment. The ids in a link are no secrets, so an account is bound to the browser of its first visit. Platforms that
can sign a link prove the ids; a signed link lets its worker in from any browser.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import quote

from sqlalchemy import delete, func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from shiftbench.extend.tables import Column, Table
from shiftbench.testsets.accounts import LEADS, Person, new_account, permit, start_session
from shiftbench.testsets.configuration import Recruiting
from shiftbench.testsets.database import SUBMITTED, Account, Assignment, PlatformAssignment, SignIn, Worker
from shiftbench.testsets.errors import NotAllowedError, WorkshopError
from shiftbench.testsets.frequencies import annotator_quality, quality_flags
from shiftbench.testsets.project import Project, record


@dataclass(frozen=True)
class Platform:
    """The names of the parameters that a platform appends to the link."""

    worker: str
    #: What it pays for at once; "" if it has no such id.
    assignment: str = ""
    details: tuple[str, ...] = ()

    @property
    def parameters(self) -> tuple[str, ...]:
        names = (self.worker, self.assignment, *self.details)
        return tuple(name for name in names if name)


PLATFORMS = {
    "prolific": Platform("PROLIFIC_PID", "SESSION_ID", ("STUDY_ID",)),
    "mturk": Platform("workerId", "assignmentId", ("hitId", "turkSubmitTo")),
    "link": Platform("worker"),
}
#: MTurk's assignment id while a worker only looks at a task.
PREVIEW = "ASSIGNMENT_ID_NOT_AVAILABLE"
#: Sites whose forms finish an assignment.
MTURK_SITES = ("https://www.mturk.com", "https://workersandbox.mturk.com")
#: The whole text must match, because the site becomes part of a header.
_LOCAL_SITE = re.compile(r"http://(localhost|127\.0\.0\.1)(:[0-9]{1,5})?")
#: The parameter with the signature of a link.
SIGNATURE = "signature"
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
    #: The platform's id of what it pays for; "" if there is none.
    assignment: str
    #: The further parameters that were given.
    details: Mapping[str, str]
    #: The signature of the link, or "".
    signature: str = ""

    @property
    def preview(self) -> bool:
        return self.assignment == PREVIEW

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters of the link, for the form that repeats them."""
        platform = PLATFORMS[self.platform]
        values = {platform.worker: self.worker, **self.details}
        if self.assignment:
            values[platform.assignment] = self.assignment
        if self.signature:
            values[SIGNATURE] = self.signature
        return values


def read_arrival(parameters: Mapping[str, str]) -> Arrival:
    """The platform, recognised by its parameters; raises WorkshopError if they name no worker."""
    for name, platform in PLATFORMS.items():
        details = {key: parameters[key][:_LONGEST] for key in platform.details if parameters.get(key)}
        assignment = parameters.get(platform.assignment, "")[:_LONGEST]
        worker = " ".join(parameters.get(platform.worker, "").split())
        if 0 < len(worker) <= _LONGEST_WORKER and worker.isprintable():
            return Arrival(name, worker, assignment, details, parameters.get(SIGNATURE, "")[:_LONGEST])
        if assignment == PREVIEW:
            return Arrival(name, "", assignment, details)
    raise WorkshopError(
        "this link needs the id of the person who opens it",
        expected="a parameter " + ", ".join(platform.worker for platform in PLATFORMS.values()),
    )


def recruiting_token(project: Project) -> str:
    """The secret part of the public link; the same for everybody."""
    return base64.urlsafe_b64encode(project.sign("recruit")[:15]).decode("ascii")


def signing_key(project: Project) -> str:
    """The key with which a platform signs links: the text of this key, as hexadecimal digits."""
    return project.sign("signed links").hex()


def link_signature(project: Project, worker: str, assignment: str = "") -> str:
    """HMAC-SHA256 of ``worker`` and ``assignment``, joined by a line break, as hexadecimal digits."""
    return hmac.new(signing_key(project).encode(), f"{worker}\n{assignment}".encode(), hashlib.sha256).hexdigest()


def _is_signed(project: Project, arrival: Arrival) -> bool:
    expected = link_signature(project, arrival.worker, arrival.assignment)
    return hmac.compare_digest(expected.encode(), arrival.signature.encode("utf-8", "replace"))


@dataclass(frozen=True)
class WorkerEntry:
    """A worker who has signed in."""

    person: Person
    #: The token of the new session.
    session: str
    #: The secret of the browser that the account is bound to.
    browser: str


def enter_as_worker(project: Project, arrival: Arrival, browser: str = "") -> WorkerEntry:
    """Sign a worker in. The same worker always gets the same account, and each assignment its own record.

    ``browser`` is the secret of the browser, if it has one. Raises NotAllowedError if the account is bound to another
    browser, because everybody can write any worker id into a link. A signed link is accepted from any browser.
    """
    if arrival.preview or not arrival.worker:
        raise WorkshopError("accept the task on the platform first")
    signed = _is_signed(project, arrival)
    if project.configuration.recruiting.signed_links and not signed:
        raise NotAllowedError(
            "this link is not signed for this worker",
            hint="open the link that you were sent, without changing it",
        )
    browser = browser or secrets.token_urlsafe(32)
    browser_hash = hashlib.sha256(browser.encode("utf-8", "surrogatepass")).hexdigest()
    with project.writing() as session:
        worker = _worker(project, session, arrival, browser_hash)
        if worker.browser_hash is None or (signed and worker.browser_hash != browser_hash):
            worker.browser_hash = browser_hash
            record(project, session, "bind browser", by=worker.account_id)
        if not hmac.compare_digest(worker.browser_hash, browser_hash):
            raise NotAllowedError(
                "this worker has begun in another browser",
                hint="continue in the browser of your first visit, or ask the contact of the project to reopen your "
                "account",
            )
        _open_assignment(project, session, worker, arrival)
        person, token = start_session(project, session, worker.account_id)
        return WorkerEntry(person, token, browser)


def _worker(project: Project, session: Session, arrival: Arrival, browser_hash: str) -> Worker:
    """The worker who arrives, locked; a new one gets an account and is bound to the browser."""
    query = select(Worker).where(Worker.platform == arrival.platform, Worker.worker == arrival.worker)
    if session.scalars(query).first() is None:
        name = f"{arrival.platform} {arrival.worker}"
        # Somebody who clicks twice is added by the other request: then this one adds nothing.
        with suppress(IntegrityError), session.begin_nested():
            # The second name is for the case that the lead already gave the first to an account, which may have
            # another role and must not be handed to a worker.
            account = new_account(project, session, [name, f"{name} {secrets.token_hex(3)}"], "annotator")
            session.add(
                Worker(
                    account_id=account.id,
                    platform=arrival.platform,
                    worker=arrival.worker,
                    browser_hash=browser_hash,
                )
            )
            record(project, session, "recruit", by=account.id, platform=arrival.platform)
    return session.scalars(query.with_for_update()).one()


def _open_assignment(project: Project, session: Session, worker: Worker, arrival: Arrival) -> None:
    """Let the worker's next answers count for the assignment that the link names."""
    query = select(PlatformAssignment).where(PlatformAssignment.worker_id == worker.id)
    assignment = session.scalars(query.where(PlatformAssignment.key == arrival.assignment)).first()
    if assignment is None:
        assignment = PlatformAssignment(
            worker_id=worker.id,
            key=arrival.assignment,
            details=dict(arrival.details),
            code=base64.b32encode(secrets.token_bytes(5)).decode("ascii"),
            made_at=project.now(),
        )
        session.add(assignment)
    assignment.opened_at = project.now()
    session.flush()


def release_browser(project: Project, account: int, *, by: int | None = None) -> None:
    """Let a worker who lost the browser of the first visit continue in another: the next visit binds it.

    All sessions of the account end. Raises WorkshopError if the account was not recruited.
    """
    with project.writing() as session:
        permit(session, by, LEADS)
        worker = session.scalars(select(Worker).where(Worker.account_id == account).with_for_update()).first()
        if worker is None:
            raise WorkshopError("only recruited workers are bound to a browser", found=f"account {account}")
        worker.browser_hash = None
        session.execute(delete(SignIn).where(SignIn.account_id == account))
        record(project, session, "release browser", by=by, account=account)


def is_bound(project: Project, account: int) -> bool | None:
    """Whether a worker's account is bound to a browser; None if the account was not recruited."""
    with project.reading() as session:
        worker = session.scalars(select(Worker).where(Worker.account_id == account)).first()
        return None if worker is None else worker.browser_hash is not None


def current_assignment(session: Session, account: int) -> PlatformAssignment | None:
    """The assignment that a worker opened last; None if the account was not recruited."""
    query = select(PlatformAssignment).join(Worker).where(Worker.account_id == account)
    query = query.order_by(PlatformAssignment.opened_at.desc(), PlatformAssignment.id.desc())
    return session.scalars(query.limit(1)).first()


def set_finished(project: Project, account: int, *, finished: bool) -> None:
    """Record that a worker stops, or goes on with the present assignment."""
    with project.writing() as session:
        assignment = current_assignment(session, account)
        if assignment is None:
            raise WorkshopError("only recruited workers finish an assignment", found=f"account {account}")
        assignment.finished_at = project.now() if finished else None
        action = "finish assignment" if finished else "continue assignment"
        record(project, session, action, by=account, assignment=assignment.key)


@dataclass(frozen=True)
class WorkerStatus:
    """Where a recruited person stands; ``finished`` says why they get no further task."""

    platform: str
    #: Whether they passed the first task, or have not answered it yet.
    qualified: bool
    #: Whether their controls stay above the limit.
    reliable: bool
    finished: str
    #: Whether they stopped by themselves and may go on.
    may_continue: bool
    #: Answers for the present assignment.
    answered: int
    #: The completion code of the assignment; "" before its first answer.
    code: str
    #: The page of another platform that takes people back; "" if there is none.
    completion_url: str
    #: Where MTurk's form is submitted, and its assignment.
    submit_to: str
    assignment: str


def worker_status(project: Project, account: int) -> WorkerStatus | None:
    """None if the account was not recruited."""
    rules = project.configuration.recruiting
    with project.reading() as session:
        assignment = current_assignment(session, account)
        if assignment is None:
            return None
        query = select(Assignment).where(Assignment.account_id == account, Assignment.state == SUBMITTED)
        answers = session.scalars(query.order_by(Assignment.submitted_at, Assignment.id)).all()
        excluded = session.get_one(Account, account).excluded_at is not None
        platform = assignment.worker.platform
        worker = assignment.worker.worker
    # The first task is the qualification; until it is answered, everybody is qualified.
    qualified = not answers or answers[0].right >= rules.qualification * answers[0].controls
    answered = sum(answer.platform_assignment_id == assignment.id for answer in answers)
    reliable = _is_reliable(rules, answers)
    passed = qualified and reliable
    finished = _reason_to_stop(rules, len(answers), answered, excluded=excluded, passed=passed)
    code = completion_code(project, assignment) if answered else ""
    stopped = assignment.finished_at is not None
    site = mturk_site(assignment.details)
    return WorkerStatus(
        platform=platform,
        qualified=qualified,
        reliable=reliable,
        finished=finished or ("You have finished." if stopped else ""),
        may_continue=stopped and not finished,
        answered=answered,
        code=code,
        completion_url=_return_address(rules, code, worker, assignment.key) if code else "",
        submit_to=f"{site}/mturk/externalSubmit" if site else "",
        assignment=assignment.key,
    )


def _is_reliable(rules: Recruiting, answers: Sequence[Assignment]) -> bool:
    """Whether the controls of all answers stay above the limit, which holds from the second answer on."""
    if len(answers) < 2:
        return True
    controls = sum(answer.controls for answer in answers)
    return sum(answer.right for answer in answers) >= rules.control_limit * controls


def _return_address(rules: Recruiting, code: str, worker: str, assignment: str) -> str:
    """The configured page of a platform, with the ids of the worker."""
    address = rules.completion_url
    for name, value in (("code", code), ("worker", worker), ("assignment", assignment)):
        address = address.replace(f"{{{name}}}", quote(value, safe=""))
    return address


def _reason_to_stop(rules: Recruiting, in_all: int, answered: int, *, excluded: bool, passed: bool) -> str:
    """Why a worker gets no further task; "" if they may go on. ``answered`` counts the present assignment."""
    if rules.tasks_per_worker and in_all >= rules.tasks_per_worker:
        return "You have answered all tasks that one person may answer."
    if not passed and in_all == 1:
        return "The first task was a qualification; there are no further tasks for you."
    if excluded or not passed:
        return "There are no further tasks for you."
    if rules.tasks_per_assignment and answered >= rules.tasks_per_assignment:
        return "You have answered all tasks of this assignment."
    return ""


def most_tasks_left(rules: Recruiting, in_all: int, answered: int) -> int | None:
    """How many more tasks the limits let a worker answer; None without limits."""
    limits = []
    if rules.tasks_per_worker:
        limits.append(rules.tasks_per_worker - in_all)
    if rules.tasks_per_assignment:
        limits.append(rules.tasks_per_assignment - answered)
    return max(0, min(limits)) if limits else None


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


def completion_code(project: Project, assignment: PlatformAssignment) -> str:
    """The configured code, or that of the assignment."""
    return project.configuration.recruiting.completion_code or assignment.code


def pay_table(project: Project) -> Table:
    """What each recruited person did for each assignment, and what they are owed for it."""
    rules = project.configuration.recruiting
    work_done = select(
        Assignment.platform_assignment_id,
        func.count(),
        func.sum(Assignment.seconds),
        func.sum(Assignment.positives + Assignment.negatives),
        func.sum(Assignment.positives_selected + Assignment.negatives_left),
    )
    work_done = work_done.where(Assignment.state == SUBMITTED).group_by(Assignment.platform_assignment_id)
    query = select(PlatformAssignment, Worker).join(Worker).order_by(PlatformAssignment.id)
    with project.reading() as session:
        counts = {number: values for number, *values in session.execute(work_done)}
        assignments = session.execute(query).all()
    annotators = annotator_quality(project)
    flags = quality_flags(annotators)
    excluded = {annotator.account for annotator in annotators if annotator.excluded}
    rows: list[dict[str, object]] = []
    total_tasks = 0
    total_pay = 0.0
    people = set()
    for assignment, worker in assignments:
        tasks, seconds, controls, right = counts.get(assignment.id, (0, 0.0, 0, 0))
        pay = tasks * rules.pay_per_task
        total_tasks += int(tasks)
        total_pay += float(pay)
        if tasks:
            people.add(worker.id)
        rows.append(
            {
                "platform": worker.platform,
                "worker": worker.worker,
                "assignment": assignment.key,
                "tasks": tasks,
                "minutes": seconds / 60,
                "accuracy": right / controls if controls else None,
                "flags": "; ".join(flags.get(worker.account_id, ())),
                "excluded": "excluded" if worker.account_id in excluded else "",
                "code": completion_code(project, assignment) if tasks else "",
                "pay": pay,
                "per_hour": 3600 * pay / seconds if seconds else None,
            }
        )
    columns = [
        Column("platform", "platform"),
        Column("worker", "worker"),
        Column("assignment", "assignment"),
        Column("tasks", "tasks", "count"),
        Column("minutes", "minutes", "number", places=1),
        Column("accuracy", "controls correct %", "number", places=1, times=100),
        Column("pay", f"pay, {rules.currency}", "number", places=2),
        Column("per_hour", "per hour", "number", places=2, optional=True),
        Column("code", "code"),
        Column("flags", "flags"),
        Column("excluded", ""),
    ]
    lead = [
        f"{len(people)} recruited people answered, in {len(rows)} assignments; "
        f"{total_tasks:,} tasks, {total_pay:,.2f} {rules.currency}"
    ]
    notes = ["pay is due for answered tasks; assignments without a task have no code"]
    return Table(columns, rows, title="Recruited annotators", lead=lead, notes=notes)
