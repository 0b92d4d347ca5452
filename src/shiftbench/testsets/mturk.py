"""Amazon Mechanical Turk through its API: HITs for the answers that are missing, and approval of what was submitted.

MTurk is the record of the HITs: they carry the id of the project, and each request has a token, so that a repeated
command does not pay twice.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from sqlalchemy import func, select

from shiftbench.extend.tables import Column, Table
from shiftbench.testsets.database import LEASED, SUBMITTED, Assignment, PlatformAssignment, Task, Worker
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.locks import alone
from shiftbench.testsets.project import Project, note
from shiftbench.testsets.recruiting import completion_code

SITES = {
    "production": "https://mturk-requester.us-east-1.amazonaws.com",
    "sandbox": "https://mturk-requester-sandbox.us-east-1.amazonaws.com",
}
#: A server on this machine, which takes the place of MTurk in tests.
_LOCAL = re.compile(r"http://(localhost|127\.0\.0\.1)(:[0-9]{1,5})?/?")
_REGION = "us-east-1"
_QUESTION = "http://mechanicalturk.amazonaws.com/AWSMechanicalTurkDataSchemas/2006-07-14/ExternalQuestion.xsd"
#: MTurk charges more for HITs with ten assignments or more, and a worker may take only one assignment of a HIT.
_ASSIGNMENTS_PER_HIT = 9
#: States of a HIT in which workers can take it, or have taken all its assignments.
_OPEN = ("Assignable", "Unassignable")
_DAY_SECONDS = 86_400


#: A request or an answer of the API.
Json = dict[str, Any]


class ListPages(Protocol):
    """The pages of a list."""

    def paginate(self, **request: object) -> Iterator[Json]: ...


class MTurkClient(Protocol):
    """What is used of the client of MTurk's API."""

    def create_hit(self, **request: object) -> Json: ...

    def approve_assignment(self, **request: object) -> Json: ...

    def reject_assignment(self, **request: object) -> Json: ...

    def get_paginator(self, operation: str) -> ListPages: ...


@dataclass(frozen=True)
class HitRules:
    """What workers read in MTurk's list, and how long they have."""

    title: str = "Select the images that show a class"
    description: str = "In a grid of small images, select those that show the class that is named above it."
    keywords: str = "images, labelling"
    minutes: float = 60.0
    days: float = 7.0
    #: Days after which MTurk approves an assignment by itself.
    approval_days: float = 7.0


def mturk_client(site: str) -> MTurkClient:
    """A client of MTurk's API, for a name in ``SITES`` or the address of a server on this machine."""
    import boto3

    if site not in SITES and not _LOCAL.fullmatch(site):
        raise WorkshopError("unknown site of MTurk", found=site, expected="production or sandbox")
    return cast(MTurkClient, boto3.client("mturk", region_name=_REGION, endpoint_url=SITES.get(site, site)))


@contextmanager
def _mturk_errors() -> Iterator[None]:
    """Inside, what the client library raises becomes a WorkshopError: no credentials, no network, a refusal."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as problem:
        raise WorkshopError(
            "MTurk did not do what was asked",
            found=problem,
            hint="your AWS credentials belong into the variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or into "
            "~/.aws/credentials; the same command goes on where this one ended",
        ) from problem


def missing_answers(project: Project) -> int:
    """Answers that open grids still need, including those that somebody is working on."""
    opened = Task.closed_at.is_(None) & Task.cancelled_at.is_(None)
    held = select(func.count()).select_from(Assignment).join(Task).where(Assignment.state == LEASED)
    places = select(func.sum(Task.places_left)).where(opened, Task.places_left > 0)
    with project.reading() as session:
        return int(session.scalars(places).one() or 0) + session.scalars(held.where(opened)).one()


def hit_requests(project: Project, address: str, rules: HitRules, *, outstanding: int = 0) -> list[Json]:
    """Arguments of ``create_hit``, for as many assignments as answers are missing beyond the outstanding ones.

    ``address`` is the public link. Raises WorkshopError if the reward of an assignment is not known in advance.
    """
    recruiting = project.configuration.recruiting
    if not recruiting.tasks_per_assignment or not recruiting.pay_per_task or recruiting.currency != "USD":
        raise WorkshopError(
            "MTurk needs the reward of an assignment in advance",
            found=f"tasks_per_assignment {recruiting.tasks_per_assignment}, pay_per_task "
            f"{recruiting.pay_per_task:g} {recruiting.currency}",
            expected="tasks_per_assignment and pay_per_task above 0, in USD",
            hint="set them in [recruiting] of testset.toml",
        )
    if not address.startswith("https://"):
        raise WorkshopError("MTurk only shows pages with HTTPS", found=address, expected="https://...")
    needed = math.ceil(missing_answers(project) / recruiting.tasks_per_assignment) - outstanding
    requests: list[Json] = []
    while needed > 0:
        assignments = min(needed, _ASSIGNMENTS_PER_HIT)
        requests.append(
            {
                "Title": rules.title,
                "Description": rules.description,
                "Keywords": rules.keywords,
                "Reward": f"{recruiting.tasks_per_assignment * recruiting.pay_per_task:.2f}",
                "MaxAssignments": assignments,
                "AssignmentDurationInSeconds": round(60 * rules.minutes),
                "LifetimeInSeconds": round(_DAY_SECONDS * rules.days),
                "AutoApprovalDelayInSeconds": round(_DAY_SECONDS * rules.approval_days),
                "Question": _external_question(address),
                "RequesterAnnotation": _annotation(project),
            }
        )
        needed -= assignments
    return requests


def _external_question(address: str) -> str:
    """The page in MTurk's frame; a height of 0 fills the window."""
    return (
        f'<ExternalQuestion xmlns="{_QUESTION}"><ExternalURL>{escape(address)}</ExternalURL>'
        "<FrameHeight>0</FrameHeight></ExternalQuestion>"
    )


def _annotation(project: Project) -> str:
    """What marks a HIT as one of this project's; workers do not see it."""
    return f"shiftbench {project.configuration.id}"


def project_hits(project: Project, client: MTurkClient) -> list[Json]:
    """The HITs of this project, as MTurk lists them."""
    hits = []
    for page in client.get_paginator("list_hits").paginate():
        hits += [hit for hit in page["HITs"] if hit.get("RequesterAnnotation") == _annotation(project)]
    return hits


def publish_hits(project: Project, client: MTurkClient, address: str, rules: HitRules) -> list[Json]:
    """Create the HITs whose assignments are missing; returns them as MTurk describes them."""
    with alone(project, "hits"), _mturk_errors():
        hits = project_hits(project, client)
        outstanding = 0
        for hit in hits:
            if hit["HITStatus"] in _OPEN:
                outstanding += hit["NumberOfAssignmentsAvailable"] + hit["NumberOfAssignmentsPending"]
        created = []
        requests = hit_requests(project, address, rules, outstanding=outstanding)
        for number, request in enumerate(requests, start=len(hits)):
            # MTurk refuses a second HIT with the same token.
            token = f"{project.configuration.id}-{number}"
            created.append(client.create_hit(UniqueRequestToken=token, **request)["HIT"])
        assignments = sum(hit["MaxAssignments"] for hit in created)
        note(project, "publish hits", by=None, hits=len(created), assignments=assignments)
        return created


@dataclass(frozen=True)
class Settlement:
    """One submitted assignment, and what should become of it."""

    assignment: str
    worker: str
    #: "approve", or "reject" if nothing was done for it here.
    decision: str
    reason: str


def settle(project: Project, client: MTurkClient, *, approve: bool = False, reject: bool = False) -> list[Settlement]:
    """Compare every submitted assignment with the work that was done here.

    ``approve`` approves assignments with answered tasks by the same worker, and ``reject`` rejects the others, with the
    reason as feedback; without them nothing is sent to MTurk. Answers that do not count are paid, too.
    """
    settlements = []
    with _mturk_errors():
        for submitted in _submitted(project, client):
            settlement = _settlement(project, submitted)
            settlements.append(settlement)
            if approve and settlement.decision == "approve":
                client.approve_assignment(AssignmentId=settlement.assignment)
            if reject and settlement.decision == "reject":
                client.reject_assignment(AssignmentId=settlement.assignment, RequesterFeedback=settlement.reason)
    if approve or reject:
        counts = {name: sum(row.decision == name for row in settlements) for name in ("approve", "reject")}
        note(project, "settle", by=None, approved=counts["approve"] * approve, rejected=counts["reject"] * reject)
    return settlements


def _submitted(project: Project, client: MTurkClient) -> Iterator[Json]:
    """Submitted assignments of the project's HITs that nobody has approved or rejected."""
    paginator = client.get_paginator("list_assignments_for_hit")
    for hit in project_hits(project, client):
        for page in paginator.paginate(HITId=hit["HITId"], AssignmentStatuses=["Submitted"]):
            yield from page["Assignments"]


def _settlement(project: Project, submitted: Json) -> Settlement:
    """What should become of one submitted assignment.

    It is approved if its own worker answered a task for it and sent its code. One key may stand in links of several
    workers, so that a mismatch with one of them does not decide.
    """
    key = submitted["AssignmentId"]
    query = select(PlatformAssignment).join(Worker)
    query = query.where(Worker.platform == "mturk", PlatformAssignment.key == key)
    reason = "no task was answered for this assignment"
    with project.reading() as session:
        for assignment in session.scalars(query):
            answers = select(func.count()).select_from(Assignment)
            answers = answers.where(Assignment.platform_assignment_id == assignment.id, Assignment.state == SUBMITTED)
            tasks = session.scalars(answers).one()
            if assignment.worker.worker != submitted["WorkerId"]:
                # Somebody wrote this assignment into a link of theirs.
                reason = "the tasks of this assignment were answered by another worker"
            elif tasks and _answered_code(submitted["Answer"]) != completion_code(project, assignment):
                reason = "the completion code is not that of the assignment"
            elif tasks:
                return Settlement(key, submitted["WorkerId"], "approve", f"{tasks} answered")
    return Settlement(key, submitted["WorkerId"], "reject", reason)


def _answered_code(answer: str) -> str:
    """The field ``code`` of a submitted form, which MTurk returns as XML."""
    # Workers fill the fields in, but MTurk writes the XML; a document type would be no answer of MTurk's.
    if "<!DOCTYPE" in answer or "<!ENTITY" in answer:
        return ""
    try:
        elements = list(ElementTree.fromstring(answer))
    except ElementTree.ParseError:
        return ""
    for element in elements:
        fields = {}
        for child in element:
            # The tag of an element begins with its name space in braces.
            field_name = child.tag.rpartition("}")[2]
            fields[field_name] = (child.text or "").strip()
        if fields.get("QuestionIdentifier") == "code":
            return fields.get("FreeText", "")
    return ""


def settlement_table(settlements: list[Settlement]) -> Table:
    """What should become of each submitted assignment."""
    rows = [vars(settlement) for settlement in settlements]
    columns = [Column(name, name) for name in ("assignment", "worker", "decision", "reason")]
    approved = sum(settlement.decision == "approve" for settlement in settlements)
    lead = [f"{approved} of {len(rows)} submitted assignments to approve"]
    return Table(columns, rows, title="Submitted assignments", lead=lead)
