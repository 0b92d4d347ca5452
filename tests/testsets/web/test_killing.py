"""``kill -9`` of the server while annotators submit: what was acknowledged is there afterwards, and only once."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import httpx
import pytest
from sqlalchemy import func, select

from shiftbench.testsets.accounts import invite
from shiftbench.testsets.database import Account, Assignment, SelectedSlot
from tests.testsets.conftest import NewProject
from tests.testsets.helpers import fill
from tests.testsets.web.conftest import Server
from tests.testsets.web.visitors import Visitor

#: Every test here runs on both databases.
DATABASES = ["sqlite", "postgresql"]

PEOPLE = 6
KILLS = 2


@dataclass
class Stubborn:
    """An annotator who answers on and on, repeats what was not acknowledged, and keeps the books."""

    address: str
    link: str
    server_up: threading.Event
    answered: threading.Semaphore
    acknowledged: dict[str, int] = field(default_factory=dict)
    interruptions: int = 0
    finished: bool = False

    def work(self) -> None:
        with Visitor(self.address) as visitor:
            while not self.finished:
                try:
                    self._answer_all(visitor)
                except httpx.TransportError:
                    self.interruptions += 1
                    self.server_up.wait(600)

    def _answer_all(self, visitor: Visitor) -> None:
        if "shiftbench-session" not in visitor.http.cookies:
            visitor.join(self.link)
        while (grid := visitor.get("/task")).is_grid:
            selected = grid.images[: len(self.acknowledged) % 4]
            answer = visitor.answer(selected, task=grid.task)
            assert answer.status == 303, (answer.status, answer.text)
            self.acknowledged[grid.task] = len(selected)
            self.answered.release()
        assert visitor.sheet.page == "done", visitor.sheet.text
        self.finished = True


@pytest.mark.reliability("kills")
def test_every_acknowledged_answer_survives(new_project: NewProject) -> None:
    project = new_project(annotators=PEOPLE, grid=10, references_per_class=3)
    fill(project, 12, 8)
    people = [invite(project, "annotator", f"p{i}").token for i in range(PEOPLE)]
    server = Server.start(project)
    server_up = threading.Event()
    answered = threading.Semaphore(0)
    stubborn = [Stubborn(server.address, token, server_up, answered) for token in people]
    threads = [threading.Thread(target=person.work, daemon=True) for person in stubborn]
    for thread in threads:
        thread.start()
    for _ in range(KILLS):
        assert all(answered.acquire(timeout=120) for _ in range(8))
        server_up.clear()
        server.kill()
        server = Server.start(project, server.port)
        server_up.set()
    for thread in threads:
        thread.join(600)
    server.stop()
    assert all(person.finished for person in stubborn) and sum(person.interruptions for person in stubborn) >= KILLS
    acknowledged = {task: count for person in stubborn for task, count in person.acknowledged.items()}
    with project.reading() as session:
        selected = func.count(SelectedSlot.slot_id)
        query = select(Assignment.token, Account.name, Assignment.task_id, selected).join(Account)
        query = query.outerjoin(SelectedSlot, SelectedSlot.assignment_id == Assignment.id)
        query = query.where(Assignment.state == "submitted").group_by(Assignment.id, Account.name)
        rows = session.execute(query).all()
    stored = {token: count for token, _, _, count in rows}
    assert stored.items() >= acknowledged.items()
    # An answer whose acknowledgement was lost may be there as well; nobody has answered a task twice.
    assert len(stored) - len(acknowledged) <= KILLS * PEOPLE
    assert len({(name, task) for _, name, task, _ in rows}) == len(rows) == len(stored)
    assert len(rows) == PEOPLE * len({task for _, _, task, _ in rows})
