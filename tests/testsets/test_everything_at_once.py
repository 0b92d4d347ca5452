"""Everything that changes a project, by many people at the same moment, on both databases."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import select

from shiftbench.testsets import annotation
from shiftbench.testsets.accounts import create_account, exclude
from shiftbench.testsets.collection import cancel, close, reopen, top_up
from shiftbench.testsets.database import Account, Task, repeated_after_deadlock
from shiftbench.testsets.digests import damaged_answers
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.freeze import DEFECTS, freeze
from shiftbench.testsets.frequencies import selection_frequencies
from shiftbench.testsets.keywords import set_keyword
from shiftbench.testsets.locks import alone
from shiftbench.testsets.pool.entries import import_images
from shiftbench.testsets.pool.suspects import Suspicion, add_suspicions
from shiftbench.testsets.project import Project
from shiftbench.testsets.review import finish_class, judge, mark, marked_images, suspicions, withdraw_mark
from shiftbench.testsets.revisions import sample, set_status
from shiftbench.testsets.sampling import make_sampling
from shiftbench.testsets.tasks import make_tasks
from shiftbench.testsets.verify import verify
from tests.testsets.conftest import NewProject
from tests.testsets.helpers import PETS, Clock, annotators, by_share, cifar, fill, on_both_databases, work
from tests.testsets.test_annotation import check_places
from tests.testsets.test_kept_counts import brute_force, kept

ROUNDS = 150


def _suspect(project: Project, entries: list[int]) -> None:
    with alone(project, "dedupe", lock="search"):
        add_suspicions(project, [Suspicion(entries[0], entries[1], {"l2": 0.25})])


def _action(project: Project, people: list[int], lead: int, reviewer: int, chance: random.Random) -> Callable[[], Any]:
    """Something that a lead or a reviewer does."""
    rows = selection_frequencies(project)
    entries = [row.entry for row in rows]
    candidates = [row.entry for row in rows if row.role == "candidate"]
    with project.reading() as session:
        tasks = chance.sample(list(session.scalars(select(Task.id))), 3)
    strategy = make_sampling("threshold", threshold=0, min_annotations=0)
    name = f"set{chance.randrange(3)}"
    key = chance.choice(PETS.keys)
    person = chance.choice(people)
    actions: list[Callable[[], Any]] = [
        lambda: exclude(project, person, "a test", by=lead),
        lambda: exclude(project, person, "a test", by=lead, back=True),
        lambda: cancel(project, tasks, "a test", by=lead),
        lambda: cancel(project, tasks, "a test", undo=True, by=lead),
        lambda: close(project, [key], by=lead),
        lambda: reopen(project, by=lead),
        lambda: top_up(project, chance.randrange(1, 6), by=lead),
        lambda: make_tasks(project),
        lambda: import_images(project, cifar("test", 7 + chance.randrange(8))),
        lambda: sample(project, name, strategy, per_class=1, by=lead),
        lambda: mark(project, chance.choice(candidates), "blacklist", "a test", by=reviewer),
        lambda: withdraw_mark(project, marked_images(project)[0].id, by=reviewer),
        lambda: finish_class(project, reviewer, name, key),
        lambda: freeze(project, name, allow=DEFECTS, by=lead),
        lambda: set_keyword(project, chance.sample(entries, 5), "tabby", by=reviewer),
        lambda: _suspect(project, chance.sample(candidates, 2)),
        lambda: judge(project, suspicions(project)[0].id, duplicate=chance.random() < 0.5, by=reviewer),
        lambda: set_status(project, name),
    ]
    return chance.choice(actions)


@on_both_databases
@pytest.mark.soak
def test_everything_at_once(new_project: NewProject) -> None:
    """Three leads and six annotators: nothing but refusals with a reason, and the counts are those of the answers."""
    project = new_project(annotators=3, lease_minutes=10)
    fill(project)
    people = annotators(project, 6)
    leads = [create_account(project, f"lead {i}", "lead").id for i in range(3)]
    reviewer = create_account(project, "rita", "reviewer").id
    clock = Clock()
    project.now = clock

    def annotate(person: int) -> None:
        chance = random.Random(person)
        for _ in range(ROUNDS):
            with suppress(WorkshopError):
                grid = annotation.next_task(project, person)
                clock.pass_minutes(chance.choice([0, 0, 4]))
                if grid is not None:
                    annotation.submit(project, person, grid.task, chance.sample(grid.images, 5))
                    if chance.random() < 0.3:
                        annotation.reopen(project, person, grid.task)

    def lead(account: int) -> None:
        chance = random.Random(account)
        for _ in range(ROUNDS):
            # There may be no mark or pair yet.
            with suppress(WorkshopError, IndexError):
                _action(project, people, account, reviewer, chance)()

    with ThreadPoolExecutor(9) as pool:
        jobs = [pool.submit(annotate, person) for person in people] + [pool.submit(lead, person) for person in leads]
        for job in jobs:
            job.result()
    check_places(project)
    assert verify(project) == []
    with project.reading() as session:
        tasks = list(session.scalars(select(Task.id)))
    cancel(project, tasks, "a test", undo=True)
    assert kept(project) == brute_force(project)


def test_a_deadlock_is_not_noticed(new_project: NewProject) -> None:
    """Two transactions that lock two accounts in opposite orders: PostgreSQL ends one of them, which is repeated."""
    project = new_project()
    people = annotators(project, 2)
    both = threading.Barrier(2)
    attempts: list[int] = []

    @repeated_after_deadlock
    def lock(order: list[int]) -> None:
        with project.writing() as session:
            attempts.append(order[0])
            for account in order:
                session.execute(select(Account).where(Account.id == account).with_for_update())
                # Both have their first lock before they ask for the second.
                if account == order[0]:
                    with suppress(threading.BrokenBarrierError):
                        both.wait(10)
        both.abort()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lock, [people, people[::-1]]))
    # What is repeated can meet the other transaction once more.
    assert len(attempts) >= 3 and set(attempts) == set(people)


def test_an_answer_that_is_withdrawn_meanwhile_is_no_damage(annotated: Project) -> None:
    """PostgreSQL shows each statement what was committed before it, so that two could see half of a change each."""
    clock = Clock()
    annotated.now = clock
    anna, bert = annotators_named(annotated)
    top_up(annotated, 5)
    work(annotated, [anna, bert], by_share)
    task = annotation.last_answer(annotated, bert)
    assert task is not None
    withdrawn: list[str] = []

    def withdraw(*_: object) -> None:
        if not withdrawn:
            withdrawn.append(task)
            annotation.reopen(annotated, bert, task)

    sa.event.listen(annotated.database.engine, "after_cursor_execute", withdraw)
    with annotated.writing() as session:
        assert damaged_answers(session) == []
    assert withdrawn


def annotators_named(project: Project) -> list[int]:
    return [create_account(project, name, "annotator").id for name in ("anna", "bert")]


def test_a_reader_sees_one_moment(annotated: Project) -> None:
    (anna,) = annotators_named(annotated)[:1]
    top_up(annotated, 4)
    before = kept(annotated)
    with annotated.reading() as session:
        first = session.execute(sa.text("SELECT sum(annotations) FROM entries")).scalar_one()
        work(annotated, [anna], by_share)
        assert session.execute(sa.text("SELECT sum(annotations) FROM entries")).scalar_one() == first
    assert kept(annotated) != before


#: SQLite has one writer at a time, who waits for nobody.
test_a_deadlock_is_not_noticed.__dict__["databases"] = ["postgresql"]
test_an_answer_that_is_withdrawn_meanwhile_is_no_damage.__dict__["databases"] = ["postgresql"]
on_both_databases(test_a_reader_sees_one_moment)
