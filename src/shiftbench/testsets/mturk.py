"""Amazon Mechanical Turk through its API: HITs for the answers that are missing, and approval of what was submitted.

MTurk is the record of the HITs: they carry the id of the project, and each request has a token, so that a repeated
command does not pay twice. A qualification of the project's own keeps excluded workers away from its HITs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol, cast
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from sqlalchemy import func, select

from shiftbench.extend.tables import Column, Table
from shiftbench.testsets.database import LEASED, SUBMITTED, Account, Assignment, PlatformAssignment, Task, Worker
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
_DAY_SECONDS = 86_400
#: MTurk's own qualifications: the share of a worker's assignments that were approved, and their number.
_APPROVED_PERCENT = "000000000000000000L0"
_APPROVED_COUNT = "00000000000000000040"
#: A date in the past takes a HIT off the list.
_PAST = datetime(2015, 1, 1, tzinfo=UTC)


#: A request or an answer of the API.
Json = dict[str, Any]


class ListPages(Protocol):
    """The pages of a list."""

    def paginate(self, **request: object) -> Iterator[Json]: ...


class MTurkClient(Protocol):
    """What is used of the client of MTurk's API."""

    def create_hit(self, **request: object) -> Json: ...

    def update_expiration_for_hit(self, **request: object) -> Json: ...

    def create_qualification_type(self, **request: object) -> Json: ...

    def associate_qualification_with_worker(self, **request: object) -> Json: ...

    def disassociate_qualification_from_worker(self, **request: object) -> Json: ...

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
    #: The least share of a worker's earlier assignments that were approved, in percent, and the least number of them.
    approved_percent: int = 0
    approved_count: int = 0

    @property
    def requirements(self) -> list[Json]:
        """What MTurk has to know of workers before they see the HITs."""
        least = {_APPROVED_PERCENT: self.approved_percent, _APPROVED_COUNT: self.approved_count}
        return [
            _requirement(qualification, "GreaterThanOrEqualTo", IntegerValues=[value])
            for qualification, value in least.items()
            if value
        ]


def _requirement(qualification: str, comparator: str, **values: object) -> Json:
    """A condition for seeing and accepting a HIT."""
    return {
        "QualificationTypeId": qualification,
        "Comparator": comparator,
        "ActionsGuarded": "DiscoverPreviewAndAccept",
        **values,
    }


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


def needed_assignments(project: Project) -> int:
    """How many assignments the missing answers are."""
    return math.ceil(missing_answers(project) / max(1, project.configuration.recruiting.tasks_per_assignment))


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
    needed = needed_assignments(project) - outstanding
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
                "QualificationRequirements": rules.requirements,
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


@dataclass(frozen=True)
class HitChanges:
    """What changed at MTurk."""

    #: New HITs, as MTurk describes them.
    created: list[Json]
    #: HITs that nobody can accept any more, because their answers are not needed.
    withdrawn: list[Json]
    #: Workers who were kept away from the project's HITs, or let in again.
    kept_away: int
    let_in: int


def publish_hits(project: Project, client: MTurkClient, address: str, rules: HitRules) -> HitChanges:
    """Offer as many assignments as answers are missing: create HITs, or withdraw those that are not needed.

    Whoever has accepted an assignment of a withdrawn HIT can still submit it.
    """
    with alone(project, "hits"), _mturk_errors():
        exclusion = _exclusion_type(project, client)
        kept_away, let_in = _keep_away(project, client, exclusion)
        hits = project_hits(project, client)
        available = {hit["HITId"]: _available(hit) for hit in hits}
        outstanding = sum(available.values()) + sum(hit["NumberOfAssignmentsPending"] for hit in hits)
        requests = hit_requests(project, address, rules, outstanding=outstanding)
        created = []
        for number, request in enumerate(requests, start=len(hits)):
            request["QualificationRequirements"].append(_requirement(exclusion, "DoesNotExist"))
            # MTurk refuses a second HIT with the same token.
            token = f"{project.configuration.id}-{number}"
            created.append(client.create_hit(UniqueRequestToken=token, **request)["HIT"])
        withdrawn = []
        surplus = outstanding - needed_assignments(project)
        for hit in reversed(hits):
            # A HIT is withdrawn as a whole.
            if 0 < available[hit["HITId"]] <= surplus:
                client.update_expiration_for_hit(HITId=hit["HITId"], ExpireAt=_PAST)
                surplus -= available[hit["HITId"]]
                withdrawn.append(hit)
        note(
            project,
            "publish hits",
            by=None,
            hits=len(created),
            assignments=sum(hit["MaxAssignments"] for hit in created),
            withdrawn=len(withdrawn),
            kept_away=kept_away,
            let_in=let_in,
        )
        return HitChanges(created, withdrawn, kept_away, let_in)


def _available(hit: Json) -> int:
    """Assignments of a HIT that workers can still accept."""
    return int(hit["NumberOfAssignmentsAvailable"]) if hit["HITStatus"] == "Assignable" else 0


def _exclusion_type(project: Project, client: MTurkClient) -> str:
    """The id of the qualification that excluded workers get; it is created before the first HIT."""
    name = f"Excluded from {_annotation(project)}"
    pages = client.get_paginator("list_qualification_types").paginate(
        Query=name, MustBeRequestable=False, MustBeOwnedByCaller=True
    )
    for page in pages:
        for qualification in page["QualificationTypes"]:
            if qualification["Name"] == name:
                return str(qualification["QualificationTypeId"])
    created = client.create_qualification_type(
        Name=name, Description="The answers of these workers did not count.", QualificationTypeStatus="Active"
    )
    return str(created["QualificationType"]["QualificationTypeId"])


def _keep_away(project: Project, client: MTurkClient, qualification: str) -> tuple[int, int]:
    """Give the qualification to excluded workers, and take it from those who were readmitted; returns how many."""
    query = select(Worker.worker).join(Account, Account.id == Worker.account_id)
    query = query.where(Worker.platform == "mturk", Account.excluded_at.is_not(None))
    with project.reading() as session:
        excluded = set(session.scalars(query))
    holders: set[str] = set()
    paginator = client.get_paginator("list_workers_with_qualification_type")
    for page in paginator.paginate(QualificationTypeId=qualification, Status="Granted"):
        holders.update(holder["WorkerId"] for holder in page["Qualifications"])
    for worker in sorted(excluded - holders):
        client.associate_qualification_with_worker(
            QualificationTypeId=qualification, WorkerId=worker, IntegerValue=1, SendNotification=False
        )
    for worker in sorted(holders - excluded):
        client.disassociate_qualification_from_worker(QualificationTypeId=qualification, WorkerId=worker)
    return len(excluded - holders), len(holders - excluded)


@dataclass(frozen=True)
class Settlement:
    """One submitted assignment, and what should become of it."""

    assignment: str
    worker: str
    #: "approve", or "reject" if nothing was done for it here.
    decision: str
    reason: str


def settle(
    project: Project,
    client: MTurkClient,
    *,
    approve: bool = False,
    reject: bool = False,
    overturn: Collection[str] = (),
) -> list[Settlement]:
    """Compare every submitted assignment with the work that was done here.

    ``approve`` approves assignments with answered tasks by the same worker, and ``reject`` rejects the others, with the
    reason as feedback; without them nothing is sent to MTurk. Answers that do not count are paid, too. ``overturn``
    approves these assignments although they were rejected, which MTurk allows for 30 days.
    """
    settlements = []
    with _mturk_errors():
        for assignment in overturn:
            client.approve_assignment(AssignmentId=assignment, OverrideRejection=True)
            note(project, "overturn rejection", by=None, assignment=assignment)
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
