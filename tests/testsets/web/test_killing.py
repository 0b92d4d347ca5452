"""``kill -9`` of the server while annotators submit: what was acknowledged is there afterwards, and only once."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import httpx
from sqlalchemy import func, select

from shiftbench.testsets.accounts import invite
from shiftbench.testsets.database.tables import Account, Assignment, Selection
from shiftbench.testsets.project import Project
from tests.testsets.conftest import NewProject
from tests.testsets.helpers import fill
from tests.testsets.web.conftest import Server
from tests.testsets.web.visitors import Visitor

PEOPLE, KILLS = 6, 2


@dataclass
class Stubborn:
    """An annotator who answers on and on, repeats what was not acknowledged, and keeps the books."""

    address: str
    link: str
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
                    time.sleep(0.05)

    def _answer_all(self, visitor: Visitor) -> None:
        if "shiftbench-session" not in visitor.http.cookies:
            visitor.join(self.link)
        while (grid := visitor.get("/task")).is_grid:
            chosen = grid.images[: len(self.acknowledged) % 4]
            answer = visitor.answer(chosen, task=grid.task)
            assert answer.status == 303, (answer.status, answer.text)
            self.acknowledged[grid.task] = len(chosen)
        assert "Nothing is left" in visitor.sheet.text, visitor.sheet.text
        self.finished = True


def answered(project: Project) -> int:
    with project.reading() as session:
        query = select(func.count()).select_from(Assignment).where(Assignment.state == "submitted")
        return session.scalars(query).one()


def wait_for(project: Project, answers: int) -> None:
    until = time.monotonic() + 120
    while answered(project) < answers:
        assert time.monotonic() < until, f"{answered(project)} answers only"
        time.sleep(0.01)


def test_every_acknowledged_answer_survives(new_project: NewProject) -> None:
    project = new_project(annotators=PEOPLE, grid=10, references_per_class=3)
    fill(project, 12, 8)
    people = [invite(project, "annotator", f"p{i}").token for i in range(PEOPLE)]
    server = Server.start(project)
    stubborn = [Stubborn(server.address, token) for token in people]
    threads = [threading.Thread(target=one.work, daemon=True) for one in stubborn]
    for thread in threads:
        thread.start()
    for kill in range(KILLS):
        wait_for(project, 8 * (kill + 1))
        server.kill()
        server = Server.start(project, server.port)
    for thread in threads:
        thread.join(120)
    server.stop()
    assert all(one.finished for one in stubborn) and sum(one.interruptions for one in stubborn) >= KILLS
    acknowledged = {task: count for one in stubborn for task, count in one.acknowledged.items()}
    with project.reading() as session:
        chosen = func.count(Selection.slot_id)
        query = select(Assignment.token, Account.name, Assignment.task_id, chosen).join(Account)
        query = query.outerjoin(Selection, Selection.assignment_id == Assignment.id)
        query = query.where(Assignment.state == "submitted").group_by(Assignment.id, Account.name)
        rows = session.execute(query).all()
    stored = {token: count for token, _, _, count in rows}
    assert stored.items() >= acknowledged.items()
    # An answer whose acknowledgement was lost may be there as well; nobody has answered a task twice.
    assert len(stored) - len(acknowledged) <= KILLS * PEOPLE
    assert len({(name, task) for _, name, task, _ in rows}) == len(rows) == len(stored)
    assert len(rows) == PEOPLE * len({task for _, _, task, _ in rows})
