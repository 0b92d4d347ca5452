"""Many at once, on both databases: no place twice, no answer lost or doubled, none too many; and kill -9."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from shiftbench.testsets import accounts, annotation, locks
from shiftbench.testsets.accounts import create_account, enter_by_link, exclude, invite, people
from shiftbench.testsets.database import Assignment, PoolEntry, SelectedSlot, Slot, Task
from shiftbench.testsets.errors import FrozenError, LeaseExpiredError, NotAllowedError, ProjectBusyError, WorkshopError
from shiftbench.testsets.freeze import DEFECTS, freeze, require_frozen
from shiftbench.testsets.frequencies import selection_frequencies
from shiftbench.testsets.pool.entries import import_images
from shiftbench.testsets.pool.suspects import Suspicion, add_suspicions
from shiftbench.testsets.project import Project
from shiftbench.testsets.recruiting import enter_as_worker, read_arrival
from shiftbench.testsets.review import finish_class, judge, mark, marked_images, suspicions, undo_judgement
from shiftbench.testsets.revisions import sample, set_status
from shiftbench.testsets.sampling import make_sampling
from shiftbench.testsets.tasks import make_tasks
from tests.testsets.conftest import NewProject
from tests.testsets.helpers import Clock, annotators, cifar, fill
from tests.testsets.test_annotation import check_places
from tests.testsets.test_kept_counts import brute_force, kept

#: Every test here runs on both databases.
DATABASES = ["sqlite", "postgresql"]


def answers(project: Project) -> list[tuple[int, int]]:
    with project.reading() as session:
        query = select(Assignment.task_id, Assignment.account_id).where(Assignment.state == "submitted")
        return [(task, account) for task, account in session.execute(query)]


def test_many_ask_at_once(new_project: NewProject) -> None:
    """Twelve threads, seven wished annotators: exactly seven answers a task, each of another person."""
    project = new_project(annotators=7)
    fill(project)
    people = annotators(project, 12)

    def annotate(person: int) -> int:
        done = 0
        while (grid := annotation.next_task(project, person)) is not None:
            annotation.submit(project, person, grid.task, grid.images[: person % 5])
            done += 1
        return done

    with ThreadPoolExecutor(12) as pool:
        done = list(pool.map(annotate, people))
    submitted = answers(project)
    tasks = {task for task, _ in submitted}
    assert sum(done) == len(submitted) == len(set(submitted)) == 7 * len(tasks)
    assert set(Counter(task for task, _ in submitted).values()) == {7}
    assert kept(project) == brute_force(project)
    check_places(project)


def test_one_annotator_in_many_tabs_holds_one_task(project: Project) -> None:
    (anna,) = annotators(project, 1)
    with ThreadPoolExecutor(8) as pool:
        grids = list(pool.map(lambda _: annotation.next_task(project, anna), range(8)))
    assert len({grid.task for grid in grids if grid is not None}) == 1 and None not in grids
    check_places(project)


def test_many_join_at_once_under_one_name(new_project: NewProject) -> None:
    project = new_project()
    links = [invite(project, "annotator", "Anna") for _ in range(4)]
    with ThreadPoolExecutor(8) as pool:
        entered = list(pool.map(lambda link: enter_by_link(project, link.token)[0], [*links, *links]))
    assert len({person.id for person in entered}) == len({person.name for person in entered}) == 4
    assert [person.id for person in entered[:4]] == [person.id for person in entered[4:]]


def test_people_who_join_do_not_wait_for_each_other(new_project: NewProject) -> None:
    """While one is being stored, others join: with 200 people at once, a queue took seconds."""
    project = new_project()
    link = invite(project, "annotator", "Anna")
    arrival = read_arrival({"PROLIFIC_PID": "p1"})
    with project.writing() as session, ThreadPoolExecutor(2) as pool:
        accounts.new_account(project, session, ["Zoe"], "annotator")
        invited = pool.submit(enter_by_link, project, link.token)
        recruited = pool.submit(enter_as_worker, project, arrival)
        assert invited.result(60)[0].name == "Anna"
        assert recruited.result(60).person.name == "prolific p1"


#: SQLite has one writer at a time.
test_people_who_join_do_not_wait_for_each_other.__dict__["databases"] = ["postgresql"]


def test_what_one_reviewer_sends_twice_happens_once(annotated: Project) -> None:
    """Double clicks: undoing the one mark, verdict or review must leave nothing behind."""
    project = annotated
    rita = create_account(project, "rita", "reviewer").id
    rows = selection_frequencies(project)
    new, old = ([row.entry for row in rows if row.role == role] for role in ("candidate", "reference"))
    add_suspicions(project, [Suspicion(new[0], old[0], {"l2": 0.25})])
    (pair,) = suspicions(project)
    sample(project, "set", make_sampling("threshold", threshold=0, min_annotations=1), per_class=1)
    with ThreadPoolExecutor(8) as pool:
        for send in (
            lambda _: mark(project, new[1], "blacklist", "blurred", by=rita),
            lambda _: judge(project, pair.id, duplicate=True, by=rita),
            lambda _: finish_class(project, rita, "set", "cat"),
        ):
            list(pool.map(send, range(8)))
    assert sorted(mark.entry_id for mark in marked_images(project)) == sorted(new[:2])
    assert set_status(project, "set").reviewed_classes == ("cat",)
    undo_judgement(project, pair.id, by=rita)
    assert [mark.entry_id for mark in marked_images(project)] == [new[1]]


def test_a_worker_who_clicks_twice_gets_one_account(new_project: NewProject) -> None:
    """And never that of somebody else, whatever the lead called them."""
    project = new_project()
    lead = create_account(project, "link 7", "lead")
    with ThreadPoolExecutor(8) as pool:
        arrival = read_arrival({"worker": "7"})
        entered = list(pool.map(lambda _: enter_as_worker(project, arrival, "a browser").person, range(8)))
    assert len({person.id for person in entered}) == 1
    assert entered[0].id != lead.id and entered[0].role == "annotator"


def test_the_same_answer_from_many_tabs_is_one(project: Project) -> None:
    (anna,) = annotators(project, 1)
    grid = annotation.next_task(project, anna)
    assert grid is not None
    with ThreadPoolExecutor(8) as pool:
        receipts = list(pool.map(lambda _: annotation.submit(project, anna, grid.task, grid.images[:6]), range(8)))
    assert [receipt.repeated for receipt in receipts].count(False) == 1
    with project.reading() as session:
        assert session.scalars(select(func.count()).select_from(SelectedSlot)).one() == 6


def test_leases_expiring_under_everybodys_hands(new_project: NewProject) -> None:
    """Half the grids are left until they expire, while others ask, exclude and readmit: the counts stay true."""
    project = new_project(annotators=4, lease_minutes=10)
    fill(project)
    people = annotators(project, 8)
    clock = Clock()
    project.now = clock

    def annotate(person: int) -> None:
        chance = random.Random(person)
        for _ in range(25):
            try:
                grid = annotation.next_task(project, person)
                if grid is not None and chance.random() < 0.5:
                    annotation.submit(project, person, grid.task, [])
                else:
                    clock.pass_minutes(3)
                if chance.random() < 0.1:
                    exclude(project, person, "a test")
            except NotAllowedError:
                exclude(project, person, "a test", back=True)
            except LeaseExpiredError:
                continue

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(annotate, person) for person in people]:
            done.result()
    check_places(project)
    submitted = answers(project)
    assert len(submitted) == len(set(submitted))
    with project.reading() as session:
        assert min(session.scalars(select(Task.places_left))) >= -4


def test_two_leads_who_exclude_each_other_do_not_deadlock(new_project: NewProject, monkeypatch: Any) -> None:
    """The second waits for the first and is then refused: an excluded lead excludes nobody."""
    project = new_project()
    leads = [create_account(project, name, "lead").id for name in ("Anna", "Bo")]
    if not project.database.is_sqlite:  # there, one writes at a time
        both = threading.Barrier(2)
        find_by_id = accounts.find_by_id

        def find_when_both_are_here(*arguments: Any, **options: Any) -> Any:
            with suppress(threading.BrokenBarrierError):
                both.wait(1)
            return find_by_id(*arguments, **options)

        monkeypatch.setattr(accounts, "find_by_id", find_when_both_are_here)

    def exclude_other(mine: int, other: int) -> bool:
        try:
            exclude(project, other, "a quarrel", by=mine)
        except NotAllowedError:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(exclude_other, leads, leads[::-1])) == [False, True]
    assert sorted(person.excluded for person in people(project)) == [False, True]


@pytest.mark.reliability("kills")
def test_kill_in_the_middle_of_answers(new_project: NewProject, database: str) -> None:
    """Every answer that was acknowledged is there after kill -9, whole, and the rest can be done."""
    project = new_project(annotators=6)
    fill(project)
    people = annotators(project, 6)
    acknowledged: dict[str, int] = {}
    for number, person in enumerate(people[:3]):
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.testsets.kill_target", str(project.folder), str(person)],
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(1 + number % 3)]
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.read().splitlines()
        process.wait()
        for line in lines:
            if line.strip():
                token, count = line.split()
                acknowledged[token] = int(count)
    assert len(acknowledged) >= 3
    with project.reading() as session:
        for task, selected in acknowledged.items():
            row = session.scalars(select(Assignment).where(Assignment.token == task)).one()
            query = select(func.count()).select_from(SelectedSlot).where(SelectedSlot.assignment_id == row.id)
            assert row.state == "submitted" and session.scalars(query).one() == selected
    check_places(project)
    for person in people:
        while (grid := annotation.next_task(project, person)) is not None:
            annotation.submit(project, person, grid.task, [])
    assert all(row.answered == row.places for row in annotation.progress(project))
    check_places(project)


def _at_once(count: int, action: Callable[[], object]) -> list[object]:
    """The results, or errors, of several calls that begin at the same moment."""
    start = threading.Barrier(count)

    def call(_: int) -> object:
        start.wait(60)
        try:
            return action()
        except WorkshopError as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(call, range(count)))


def test_leads_who_make_tasks_at_once_make_them_once(new_project: NewProject) -> None:
    project = new_project()
    import_images(project, cifar("test", 7))
    import_images(project, cifar("train", 7), "reference")
    results = _at_once(4, lambda: make_tasks(project).candidates)
    assert sorted(results) == [0, 0, 0, 21]  # type: ignore[type-var]
    with project.reading() as session:
        grids = Counter(session.scalars(select(Slot.entry_id).join(PoolEntry).where(PoolEntry.role == "candidate")))
    assert set(grids.values()) == {1}


def test_leads_who_sample_and_freeze_at_once(annotated: Project) -> None:
    strategy = make_sampling("threshold", threshold=0, min_annotations=3)
    sampled = _at_once(4, lambda: sample(annotated, "set", strategy, per_class=2)[1])
    assert sorted(sampled) == [False, False, False, True]  # type: ignore[type-var]
    frozen = _at_once(4, lambda: freeze(annotated, "set", allow=DEFECTS).fingerprint)
    assert sum(isinstance(result, str) for result in frozen) == 1
    assert sum(isinstance(result, FrozenError) for result in frozen) == 3
    assert require_frozen(annotated, "set").fingerprint in frozen


def test_whoever_is_at_it_is_named(annotated: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "PATIENCE", 0.2)
    anna = create_account(annotated, "anna", "lead").id
    with locks.alone(annotated, "freeze easy", by=anna):
        with pytest.raises(ProjectBusyError) as refused:
            make_tasks(annotated)
        assert str(refused.value.found).startswith("freeze easy by anna since 20")
        with locks.alone(annotated, "dedupe", lock="search"):
            pass
    make_tasks(annotated)
    with locks.alone(annotated, "import of flickr", by=anna, lock="import"):
        with pytest.raises(ProjectBusyError) as refused:
            import_images(annotated, cifar("test", 1, annotated.space))
        assert str(refused.value.found).startswith("import of flickr by anna since 20")
    import_images(annotated, cifar("test", 1, annotated.space))
