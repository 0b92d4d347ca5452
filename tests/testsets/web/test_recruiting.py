"""One public link for crowd platforms: accounts, limits, codes and pay, with a stand-in for MTurk."""

from __future__ import annotations

import hmac
import re
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode

import pytest
from sqlalchemy import func, select

from shiftbench.testsets.accounts import find_person
from shiftbench.testsets.annotation import next_task, submit
from shiftbench.testsets.configuration import write_configuration
from shiftbench.testsets.database import PoolEntry, Task
from shiftbench.testsets.errors import TooFastError, WorkshopError
from shiftbench.testsets.project import Project, audit_log
from shiftbench.testsets.recruiting import (
    enter_as_worker,
    link_signature,
    mturk_site,
    pay_table,
    read_arrival,
    recruiting_token,
    signing_key,
    worker_status,
)
from tests.testsets.conftest import NewProject
from tests.testsets.helpers import Clock, entries_behind, fill
from tests.testsets.web.conftest import Site, served
from tests.testsets.web.visitors import Sheet, Visitor


def recruiting_project(new_project: NewProject, **rules: Any) -> Project:
    project = new_project()
    fill(project)
    project.configuration = replace(
        project.configuration, recruiting=replace(project.configuration.recruiting, **rules)
    )
    write_configuration(project.folder, project.configuration)
    return project


class MTurk(HTTPServer):
    """Speaks what MTurk expects of an ExternalQuestion: a form posted to /mturk/externalSubmit."""

    def __init__(self) -> None:
        received: list[tuple[str, dict[str, str]]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                received.append((self.path, {name: values[0] for name, values in parse_qs(body).items()}))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.received = received
        self.address = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


def test_a_worker_of_mturk_from_preview_to_pay(new_project: NewProject) -> None:
    project = recruiting_project(new_project, tasks_per_worker=2, pay_per_task=0.25)
    platform = MTurk()
    link = f"/recruit/{recruiting_token(project)}"
    with served(project, "--recruit") as site, site.visitor() as worker:
        preview = worker.get(f"{link}?assignmentId=ASSIGNMENT_ID_NOT_AVAILABLE&hitId=h")
        assert preview.status == 200 and "preview" in preview.text and 'id="begin"' not in preview.text
        policy = preview.headers["content-security-policy"]
        assert "frame-ancestors https://www.mturk.com" in policy and "frame-ancestors 'none'" not in policy
        parameters = {"workerId": "A1B2", "assignmentId": "as-1", "hitId": "h", "turkSubmitTo": platform.address}
        frame = worker.get(f"{link}?{urlencode(parameters)}")
        assert 'id="begin"' not in frame.text and 'target="_blank"' in frame.text  # cookies are not kept in a frame
        assert f" {platform.address}" in frame.headers["content-security-policy"].partition("frame-ancestors")[2]
        worker.get(f"{link}?{urlencode(parameters)}&tab=1")
        assert worker.post(link, parameters).headers["location"] == "/task"
        for number in (1, 2):
            grid = worker.get("/task")
            assert f"Task {number} of at most 2 " in grid.text  # though there are more grids
            assert grid.is_grid and "frame-ancestors 'none'" in grid.headers["content-security-policy"]
            worker.answer(grid.images[:2])
        done = worker.get("/task")
        assert not done.is_grid and f"form-action 'self' {platform.address}" in done.headers["content-security-policy"]
        action = re.search(r'action="(http[^"]+)"', done.text)
        assert action and action[1] == f"{platform.address}/mturk/externalSubmit"
        fields = dict(re.findall(r'name="(assignmentId|code|tasks)" value="([^"]*)"', done.text))
        worker.http.post(action[1], data=fields)
        (row,) = pay_table(project).rows
        sent = {"assignmentId": "as-1", "code": row["code"], "tasks": "2"}
        assert platform.received == [("/mturk/externalSubmit", sent)]
        assert (row["worker"], row["tasks"], row["pay"]) == ("A1B2", 2, 0.5)
        with site.person("lead") as lead:
            assert "A1B2" in lead.http.get("/lead/workers.csv").text
            assert worker.get("/lead/workers.csv").status == 403
    platform.shutdown()


def test_the_link_of_prolific(new_project: NewProject) -> None:
    project = recruiting_project(new_project, tasks_per_worker=1, completion_code="C0DE")
    link = f"/recruit/{recruiting_token(project)}"
    with served(project, "--recruit") as site, site.visitor() as worker, site.visitor() as again:
        assert worker.get(f"{link}?PROLIFIC_PID=p%3Cb%3E1&STUDY_ID=s&SESSION_ID=x").status == 200
        assert "p&lt;b&gt;1" in worker.sheet.text
        parameters = {"PROLIFIC_PID": "p<b>1", "STUDY_ID": "s", "SESSION_ID": "x"}
        assert worker.post(link, parameters).status == 303
        worker.answer(worker.get("/task").images[:1])
        assert "submissions/complete?cc=C0DE" in worker.get("/task").text
        # Somebody else who knows the id of the worker does not become the worker.
        again.get(f"{link}?{urlencode(parameters)}")
        assert again.post(link, parameters).status == 403 and again.get("/task").status == 303
        assert worker.get(f"{link}?nothing=1").status == 400
        assert worker.get("/recruit/wrong?PROLIFIC_PID=p").status == 404


def _arrive(visitor: Visitor, link: str, **parameters: str) -> Sheet:
    """Open a link of MTurk in a tab of its own and agree."""
    visitor.get(f"{link}?{urlencode(parameters)}&tab=1")
    return visitor.post(link, parameters)


def _code(page: Sheet) -> str | None:
    match = re.search(r'id="code"><code>(\w+)</code>', page.text)
    return match[1] if match else None


def test_every_assignment_needs_its_own_work(new_project: NewProject) -> None:
    """One HIT is one grid, and a worker takes several: each has its code and its row, none is forgotten."""
    project = recruiting_project(new_project, tasks_per_assignment=1, pay_per_task=0.25)
    link = f"/recruit/{recruiting_token(project)}"
    codes = []
    paid_task = None
    with served(project, "--recruit") as site, site.visitor() as worker:
        for hit in ("one", "two"):
            _arrive(worker, link, workerId="A1", assignmentId=hit)
            grid = worker.get("/task")
            assert grid.is_grid and "Task 1 of at most 1 " in grid.text
            # The answer for the first assignment may be paid by now.
            assert 'id="undo"' not in grid.text
            if paid_task is not None:
                assert worker.post(f"/tasks/{paid_task}/undo").status == 409
                worker.get("/task")
            paid_task = grid.task
            worker.answer(grid.images[:1])
            done = worker.get("/task")
            assert not done.is_grid and 'id="undo"' in done.text
            codes.append(_code(done))
        _arrive(worker, link, workerId="A1", assignmentId="three")
        assert worker.get("/task").is_grid
        worker.post("/finish")
        assert _code(worker.follow()) is None and "no completion code" in worker.sheet.text
        # The first link again shows the first code.
        _arrive(worker, link, workerId="A1", assignmentId="one")
        assert _code(worker.get("/task")) == codes[0]
    assert None not in codes and codes[0] != codes[1]
    rows = {row["assignment"]: (row["tasks"], row["pay"], row["code"]) for row in pay_table(project).rows}
    assert rows == {"one": (1, 0.25, codes[0]), "two": (1, 0.25, codes[1]), "three": (0, 0, "")}


def test_whoever_stops_gets_the_code_for_what_was_done(new_project: NewProject) -> None:
    project = recruiting_project(new_project)
    link = f"/recruit/{recruiting_token(project)}"
    with served(project, "--recruit") as site, site.visitor() as worker:
        _arrive(worker, link, workerId="A1", assignmentId="one")
        worker.answer(worker.get("/task").images[:1])
        assert 'id="finish"' in worker.get("/task").text
        worker.post("/finish")
        done = worker.follow()
        assert _code(done) == pay_table(project).rows[0]["code"]
        with project.reading() as session:  # the grid in hand went back to the queue
            assert sum(session.scalars(select(Task.places_left))) == 3 * 3 - 1
        worker.post("/finish", {"continue": "yes"})
        assert worker.follow().is_grid


def test_a_worker_who_lost_the_browser_is_let_in_by_the_lead(new_project: NewProject) -> None:
    project = recruiting_project(new_project)
    link = f"/recruit/{recruiting_token(project)}"
    with served(project, "--recruit") as site, site.visitor() as old, site.visitor() as new, site.visitor() as thief:
        _arrive(old, link, workerId="A1", assignmentId="one")
        task = old.get("/task").task
        assert _arrive(new, link, workerId="A1", assignmentId="one").status == 403
        account = find_person(project, "mturk A1").id
        with site.person("lead") as lead:
            assert 'id="release"' in lead.get(f"/lead/annotators/{account}").text
            lead.post(f"/lead/accounts/{account}/release")
        assert old.get("/task").status == 303  # signed out
        assert _arrive(new, link, workerId="A1", assignmentId="one").status == 303
        assert new.get("/task").task == task
        assert _arrive(thief, link, workerId="A1", assignmentId="two").status == 403
        assert _arrive(old, link, workerId="A1", assignmentId="one").status == 403
    actions = [line.action for line in audit_log(project)]
    assert {"release browser", "bind browser", "refused"} <= set(actions)


def test_signed_links(new_project: NewProject) -> None:
    """Nobody enters by the id of another worker; who has the signature may change the browser."""
    project = recruiting_project(new_project, signed_links=True, completion_url="https://other.example/?cc={code}")
    link = f"/recruit/{recruiting_token(project)}"
    signed = {"worker": "w 1", "signature": link_signature(project, "w 1")}
    with served(project, "--recruit") as site, site.visitor() as worker, site.visitor() as again:
        assert _enter(again, link, worker="w 1").status == 403
        assert _enter(again, link, worker="w 2", signature=signed["signature"]).status == 403
        assert _enter(worker, link, **signed).status == 303
        worker.answer(worker.get("/task").images[:1])
        worker.post("/finish")
        assert f'href="https://other.example/?cc={_code(worker.follow())}"' in worker.sheet.text
        assert _enter(again, link, **signed).status == 303
    key = signing_key(project).encode()
    assert signed["signature"] == hmac.new(key, b"w 1\n", "sha256").hexdigest()


def _enter(visitor: Visitor, link: str, **parameters: str) -> Sheet:
    """Open a link and send its form as the page has it."""
    visitor.get(f"{link}?{urlencode(parameters)}")
    fields = dict(re.findall(r'type="hidden" name="(worker|signature)" value="([^"]*)"', visitor.sheet.text))
    return visitor.post(link, fields)


def test_closed_without_the_option(site: Site) -> None:
    with site.visitor() as visitor:
        assert visitor.get(f"/recruit/{recruiting_token(site.project)}?worker=w").status == 404


def test_qualification_and_minimum_time(new_project: NewProject) -> None:
    project = recruiting_project(new_project, qualification=0.9, minimum_seconds=20)
    clock = project.now = Clock()
    for name, good in (("careful", True), ("careless", False)):
        person = enter_as_worker(project, read_arrival({"worker": name})).person
        grid = next_task(project, person.id)
        assert grid is not None
        behind = entries_behind(project, grid)
        selected = [image for image in grid.images if (behind[image].class_key == grid.class_key) == good]
        clock.pass_minutes(0.2)
        with pytest.raises(TooFastError):
            submit(project, person.id, grid.task, selected)
        clock.pass_minutes(0.2)
        submit(project, person.id, grid.task, selected)
        status = worker_status(project, person.id)
        assert status is not None and bool(status.finished) != good and len(status.code) == 8


def test_a_failed_qualification_is_not_answered_again(new_project: NewProject) -> None:
    """Undo is for those who may go on; after the first answer the others know that it was a test."""
    project = recruiting_project(new_project, qualification=1.0)
    link = f"/recruit/{recruiting_token(project)}"
    with served(project, "--recruit") as site, site.visitor() as worker:
        worker.get(f"{link}?worker=w")
        worker.post(link, {"worker": "w"})
        grid = worker.get("/task")
        worker.answer(grid.images)  # the negative controls, too
        done = worker.get("/task")
        assert 'id="undo"' not in done.text and "Check again" not in done.text and 'id="code"' in done.text
        assert worker.post(f"/tasks/{grid.task}/undo").status == 403
        with project.reading() as session:  # the answer does not count, and the place in the grid is free again
            assert session.scalars(select(func.max(PoolEntry.annotations))).one() == 0
            assert set(session.scalars(select(Task.places_left))) == {3}
        worker.get(f"{link}?worker=w")
        worker.post(link, {"worker": "w"})
        assert worker.get("/task").text == done.text  # whoever comes back still gets the code
    assert [line.who for line in audit_log(project) if line.action == "disqualify"] == ["server"]


@pytest.mark.parametrize(
    "given", ["https://evil.example", "http://localhost:80 *", "http://127.0.0.1;script-src *", "http://localhost@evil"]
)
def test_only_mturk_takes_assignments(given: str) -> None:
    """The site becomes part of the content security policy."""
    assert mturk_site({"turkSubmitTo": given}) == ""
    assert mturk_site({"turkSubmitTo": "http://localhost:8080/"}) == "http://localhost:8080"


def test_a_lecture_hall_may_come_at_once(new_project: NewProject) -> None:
    project = recruiting_project(new_project)
    link = f"/recruit/{recruiting_token(project)}"
    with served(project, "--recruit") as site, site.visitor() as hall:
        for number in range(30):
            hall.get(f"{link}?worker=w{number}")
            assert hall.post(link, {"worker": f"w{number}"}).status == 303


@pytest.mark.parametrize("parameters", [{}, {"worker": ""}, {"workerId": "x" * 65}, {"PROLIFIC_PID": "a\x00b"}])
def test_arrivals_without_an_id(parameters: dict[str, str]) -> None:
    with pytest.raises(WorkshopError, match="needs the id"):
        read_arrival(parameters)


def test_too_fast_an_answer_keeps_the_selection(new_project: NewProject) -> None:
    project = recruiting_project(new_project, minimum_seconds=3600)
    with served(project, "--recruit") as site, site.person() as worker:
        grid = worker.get("/task")
        selected = grid.images[:2]
        refused = worker.post(f"/tasks/{grid.task}/answer", {"image": selected})
        assert refused.status == 400 and "at least 3600 seconds" in refused.text
        assert re.findall(r'value="([\w-]+)"[^>]* checked', refused.text) == selected
