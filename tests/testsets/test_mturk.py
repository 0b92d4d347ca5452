"""MTurk's API by its client library, against a local server that speaks it. MTurk itself was never reached."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shiftbench.testsets.accounts import exclude, find_person
from shiftbench.testsets.annotation import next_task, submit
from shiftbench.testsets.collection import close, reopen, top_up
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.mturk import HitRules, hit_requests, missing_answers, mturk_client, publish_hits, settle
from shiftbench.testsets.project import Project, audit_log
from shiftbench.testsets.recruiting import enter_as_worker, read_arrival, worker_status
from tests.commands import answer
from tests.testsets.conftest import NewProject
from tests.testsets.helpers import entries_behind
from tests.testsets.mturk_service import MTurkService
from tests.testsets.web.test_recruiting import recruiting_project

LINK = "https://pets.lab.example/recruit/token"


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[MTurkService]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    server = MTurkService()
    yield server
    server.shutdown()


def work(project: Project, service: MTurkService, worker: str) -> str:
    """Accept a HIT, answer its grid, and submit the code; returns the assignment."""
    address, assignment = service.take(worker)
    assert address == LINK
    browser = f"browser of {worker}"
    arrival = read_arrival({"workerId": worker, "assignmentId": assignment})
    person = enter_as_worker(project, arrival, browser).person
    grid = next_task(project, person.id)
    assert grid is not None
    submit(project, person.id, grid.task, grid.images[:3])
    status = worker_status(project, person.id)
    assert status is not None and status.finished
    service.submit(assignment, status.code)
    return assignment


def test_hits_from_publication_to_approval(new_project: NewProject, service: MTurkService) -> None:
    """As many assignments as answers are missing: after an exclusion and a top-up, only what they add."""
    project = recruiting_project(new_project, tasks_per_assignment=1, pay_per_task=0.25)
    client = mturk_client(service.address)
    assert missing_answers(project) == 9  # three grids for three annotators
    [hit] = publish_hits(project, client, LINK, HitRules()).created
    assert (hit["MaxAssignments"], hit["Reward"]) == (9, "0.25")
    assert publish_hits(project, client, LINK, HitRules()).created == []
    for worker in ("A", "B", "C"):
        work(project, service, worker)
    # A worker takes only one assignment of a HIT, and further HITs come with further answers.
    exclude(project, find_person(project, "mturk A").id, "selects everything")
    top_up(project, 5)
    created = publish_hits(project, client, LINK, HitRules()).created
    # One answer no longer counts, and three grids want two more.
    assert sum(hit["MaxAssignments"] for hit in created) == 1 + 3 * 2
    second = work(project, service, "B")
    assert missing_answers(project) == 3 * 5 - 3

    # Somebody submits without work, somebody the code of another, and somebody an assignment of another worker.
    _, idle = service.take("D")
    service.submit(idle, "")
    code = json.loads(json.dumps(service.assignments[second]["Answer"])).split("<FreeText>")[1].partition("<")[0]
    _, thief = service.take("E")
    service.submit(thief, code)
    wrong = work(project, service, "F")
    service.assignments[wrong]["Answer"] = service.assignments[second]["Answer"]
    settlements = {row.assignment: row.decision for row in settle(project, client)}
    assert {key for key, decision in settlements.items() if decision == "reject"} == {idle, thief, wrong}
    assert len(settlements) == 7 and {
        assignment["AssignmentStatus"] for assignment in service.assignments.values()
    } == {"Submitted"}
    settle(project, client, approve=True, reject=True)
    assert service.assignments[second]["AssignmentStatus"] == "Approved"
    assert service.assignments[idle]["AssignmentStatus"] == "Rejected"
    assert "no task" in service.assignments[idle]["RequesterFeedback"]
    assert settle(project, client, approve=True, reject=True) == []
    # The worker has shown that the code was sent with a mistake.
    assert settle(project, client, overturn=[wrong]) == []
    assert service.assignments[wrong]["AssignmentStatus"] == "Approved"
    with pytest.raises(WorkshopError, match="MTurk"):
        settle(project, client, overturn=[wrong])
    assert {"publish hits", "settle", "overturn rejection"} <= {line.action for line in audit_log(project)}


def test_excluded_workers_do_not_see_the_hits(new_project: NewProject, service: MTurkService) -> None:
    project = recruiting_project(new_project, tasks_per_assignment=1, pay_per_task=0.25)
    client = mturk_client(service.address)
    publish_hits(project, client, LINK, HitRules())
    # Another project of the same lab has a qualification with nearly the same name.
    client.create_qualification_type(Name="Excluded from others", Description="", QualificationTypeStatus="Active")
    for worker in ("A", "B"):
        work(project, service, worker)
    exclude(project, find_person(project, "mturk A").id, "selects everything")
    second = publish_hits(project, client, LINK, HitRules())
    assert (second.kept_away, second.let_in, len(service.qualifications)) == (1, 0, 2)
    with pytest.raises(LookupError):
        service.take("A")
    work(project, service, "B")
    exclude(project, find_person(project, "mturk A").id, "a mistake of ours", back=True)
    third = publish_hits(project, client, LINK, HitRules())
    assert (third.kept_away, third.let_in) == (0, 1)
    assert all(service.may_see("A", hit) for hit in service.hits.values())


def test_hits_that_are_not_needed_are_withdrawn(new_project: NewProject, service: MTurkService) -> None:
    """After a class is closed, and after all are; who is at it may submit, and reopening offers the rest again."""
    project = recruiting_project(new_project, tasks_per_assignment=1, pay_per_task=0.25)
    top_up(project, 8)
    client = mturk_client(service.address)
    assert len(publish_hits(project, client, LINK, HitRules()).created) == 3  # 24 answers: 9, 9 and 6
    work(project, service, "A")
    _, begun = service.take("B")
    browser = "browser of B"
    person = enter_as_worker(project, read_arrival({"workerId": "B", "assignmentId": begun}), browser).person
    grid = next_task(project, person.id)
    assert grid is not None
    # 8 of 24 answers are not needed now: the last HIT has six assignments, and the one before it nine.
    close(project, [key for key in project.space.keys if key != grid.class_key][:1])
    publication = publish_hits(project, client, LINK, HitRules())
    assert [hit["MaxAssignments"] for hit in publication.withdrawn] == [6] and not publication.created
    close(project)
    assert len(publish_hits(project, client, LINK, HitRules()).withdrawn) == 2
    assert publish_hits(project, client, LINK, HitRules()).withdrawn == []
    with pytest.raises(LookupError):
        service.take("C")
    submit(project, person.id, grid.task, grid.images[:3])
    status = worker_status(project, person.id)
    assert status is not None
    service.submit(begun, status.code)
    decisions = {row.assignment: row.decision for row in settle(project, client)}
    assert decisions[begun] == "approve"
    reopen(project)
    created = publish_hits(project, client, LINK, HitRules()).created
    assert sum(hit["MaxAssignments"] for hit in created) == missing_answers(project) == 22


def test_only_experienced_workers(new_project: NewProject, service: MTurkService) -> None:
    project = recruiting_project(new_project, tasks_per_assignment=1, pay_per_task=0.25)
    client = mturk_client(service.address)
    publish_hits(project, client, LINK, HitRules(approved_percent=95, approved_count=500))
    service.records |= {"new": (20, 100), "careless": (900, 90), "good": (500, 95)}
    for worker in ("new", "careless"):
        with pytest.raises(LookupError):
            service.take(worker)
    service.take("good")


def test_a_crash_between_two_hits_pays_nothing_twice(new_project: NewProject, service: MTurkService) -> None:
    project = recruiting_project(new_project, tasks_per_assignment=1, pay_per_task=0.25)
    top_up(project, 10)
    client = mturk_client(service.address)
    requests = hit_requests(project, LINK, HitRules())
    assert [request["MaxAssignments"] for request in requests] == [9, 9, 9, 3]
    # The first was created before the crash.
    client.create_hit(UniqueRequestToken=f"{project.configuration.id}-0", **requests[0])
    publish_hits(project, client, LINK, HitRules())
    assert sum(hit["MaxAssignments"] for hit in service.hits.values()) == 30


def test_the_commands(new_project: NewProject, service: MTurkService, tmp_path: Path) -> None:
    project = recruiting_project(new_project, tasks_per_assignment=2, pay_per_task=0.3)
    requests = tmp_path / "hits.jsonl"
    assert answer("testset", "hits", project.folder, LINK, "-o", requests)["assignments"] == 5
    [request] = [json.loads(line) for line in requests.read_text().splitlines()]
    assert request["Reward"] == "0.60" and not service.hits
    answer("testset", "hits", project.folder, LINK, "--site", service.address)
    assert len(service.hits) == 1
    _, assignment = service.take("A")
    service.submit(assignment, "")
    shown = answer("testset", "settle", project.folder, service.address)
    assert shown["rows"][0]["decision"] == "reject"


@pytest.mark.parametrize(
    "rules",
    [{"tasks_per_assignment": 0}, {"pay_per_task": 0.0}, {"currency": "EUR"}],
    ids=lambda rules: next(iter(rules)),
)
def test_an_unknown_reward_is_refused(new_project: NewProject, rules: dict[str, float]) -> None:
    project = recruiting_project(new_project, **{"tasks_per_assignment": 1, "pay_per_task": 0.25, **rules})
    with pytest.raises(WorkshopError, match="reward"):
        hit_requests(project, LINK, HitRules())


def test_only_mturk_gets_credentials() -> None:
    with pytest.raises(WorkshopError):
        mturk_client("https://evil.example")


def test_a_standing_limit_on_controls(new_project: NewProject) -> None:
    """Good for a grid, then careless: the second answer ends the work, though the first would have passed."""
    project = recruiting_project(new_project, control_limit=0.8)
    person = enter_as_worker(project, read_arrival({"worker": "w"})).person
    for careful in (True, False):
        grid = next_task(project, person.id)
        assert grid is not None
        behind = entries_behind(project, grid)
        selected = [image for image in grid.images if (behind[image].class_key == grid.class_key) == careful]
        submit(project, person.id, grid.task, selected)
        status = worker_status(project, person.id)
        assert status is not None and status.reliable == careful and bool(status.finished) != careful
    project.configuration = replace(
        project.configuration, recruiting=replace(project.configuration.recruiting, control_limit=0.4)
    )
    status = worker_status(project, person.id)
    assert status is not None and status.reliable


def test_failures_of_the_service_are_explained(
    new_project: NewProject, service: MTurkService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, a lead without credentials was asked to report a bug."""
    project = recruiting_project(new_project, tasks_per_assignment=1, pay_per_task=0.25)
    service.call = lambda operation, body: (400, {"__type": "RequestError", "message": "no money"})  # type: ignore[method-assign]
    with pytest.raises(WorkshopError, match="no money"):
        settle(project, mturk_client(service.address))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "none")
    with pytest.raises(WorkshopError, match="credentials") as error:
        publish_hits(project, mturk_client(service.address), LINK, HitRules())
    assert "AWS_ACCESS_KEY_ID" in str(error.value.hint)
