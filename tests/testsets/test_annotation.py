"""The annotators' service: leases, answers, opaque ids, and what is refused."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image as Pillow
from sqlalchemy import func, select

from shiftbench.testsets import annotation
from shiftbench.testsets.accounts import create_account, exclude
from shiftbench.testsets.database import Account, Assignment, Image, PoolEntry, SelectedSlot, Slot, Task
from shiftbench.testsets.errors import AnsweredError, LeaseExpiredError, NotAllowedError, UnknownTaskError
from shiftbench.testsets.project import Project
from tests.raised import raises
from tests.testsets.conftest import NewProject
from tests.testsets.helpers import Clock, annotators, entries_behind, fill, work

#: Every test here runs on both databases.
DATABASES = ["sqlite", "postgresql"]


def check_places(project: Project) -> None:
    """The count on each task is what the assignments say."""
    with project.reading() as session:
        taken = select(Assignment.task_id, func.count()).join(Account)
        taken = taken.where(Assignment.state.in_(("leased", "submitted")), Account.excluded_at.is_(None))
        counts = dict(session.execute(taken.group_by(Assignment.task_id)).all())
        for task in session.scalars(select(Task)):
            assert task.places_left == task.wished - counts.get(task.id, 0)


def test_each_image_gets_the_wished_number_of_different_annotators(project: Project) -> None:
    work(project, annotators(project, 5))
    with project.reading() as session:
        pairs = session.execute(
            select(Slot.entry_id, Assignment.account_id)
            .join(Assignment, Assignment.task_id == Slot.task_id)
            .join(PoolEntry, PoolEntry.id == Slot.entry_id)
            .where(PoolEntry.role == "candidate")
        ).all()
    people: dict[int, list[int]] = {}
    for entry, account in pairs:
        people.setdefault(entry, []).append(account)
    assert len(people) == 21
    assert all(
        len(annotators_of_image) == len(set(annotators_of_image)) == 3 for annotators_of_image in people.values()
    )
    assert all(row.answered == row.places and row.finished_tasks == row.tasks for row in annotation.progress(project))
    check_places(project)


def test_a_task_in_hand_is_given_again(project: Project) -> None:
    (anna,) = annotators(project, 1)
    grid = annotation.next_task(project, anna)
    assert grid is not None and annotation.next_task(project, anna) == grid
    assert annotation.current_task(project, anna, grid.task) == grid
    check_places(project)


def test_the_class_that_is_asked_for(project: Project) -> None:
    anna, ben = annotators(project, 2)
    for person in (anna, ben):
        while (grid := annotation.next_task(project, person, class_key="dog")) is not None:
            assert (grid.class_key, grid.class_name) == ("dog", "dog")
            annotation.submit(project, person, grid.task, [])
    rows = {row.class_key: row for row in annotation.progress(project)}
    assert rows["dog"].answered == 2 * rows["dog"].tasks and rows["cat"].answered == 0


def test_begun_tasks_go_first(project: Project) -> None:
    """All of one task's places are taken before another is begun."""
    grids = [annotation.next_task(project, person) for person in annotators(project, 6)]
    with project.reading() as session:
        tasks = session.scalars(select(Assignment.task_id).order_by(Assignment.id)).all()
    assert all(grid is not None for grid in grids)
    assert [count for _, count in sorted(Counter(tasks).items())] == [3, 3]


def test_order_and_ids_are_each_annotators_own(project: Project) -> None:
    grids = [annotation.next_task(project, person) for person in annotators(project, 3)]
    orders = []
    for grid in grids:
        assert grid is not None
        behind = entries_behind(project, grid)
        orders.append([behind[image].id for image in grid.images])
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(orders[2])
    assert orders[0] != orders[1] != orders[2] != orders[0]
    ids = [image for grid in grids if grid for image in grid.images]
    assert len(set(ids)) == len(ids) and all(len(image) == 20 for image in ids)


def test_controls_can_not_be_told_by_their_place(new_project: NewProject) -> None:
    """Over many grids a control stands at every place about as often: chi-squared, 0.1 % level."""
    from scipy.stats import chisquare

    project = new_project(annotators=40, references_per_class=0)
    fill(project, candidates=10)
    counts = np.zeros(16)
    for person in annotators(project, 40):
        grid = annotation.next_task(project, person, class_key="cat")
        assert grid is not None and len(grid.images) == 16
        behind = entries_behind(project, grid)
        counts += [behind[image].role == "reference" for image in grid.images]
    assert chisquare(counts).pvalue > 0.001


def test_copies_tell_nothing(project: Project) -> None:
    """Every picture of a grid comes as the same kind of file of the same size, with no metadata."""
    (anna,) = annotators(project, 1)
    grid = annotation.next_task(project, anna)
    assert grid is not None
    kinds = set()
    files = annotation.shown_images(project, anna, grid.task)
    for image in grid.images:
        path = files[image]
        with Pillow.open(path) as picture:
            kinds.add(
                (
                    path.suffix,
                    picture.format,
                    picture.size,
                    picture.mode,
                    tuple(sorted(picture.info)),
                    len(picture.getexif()),
                )
            )
    assert len(kinds) == 1


def test_the_same_answer_twice_is_one(project: Project) -> None:
    (anna,) = annotators(project, 1)
    grid = annotation.next_task(project, anna)
    assert grid is not None
    first = annotation.submit(project, anna, grid.task, grid.images[:5])
    again = annotation.submit(project, anna, grid.task, [*reversed(grid.images[:5]), grid.images[0]])
    assert (first.selected, first.images, first.repeated) == (5, len(grid.images), False)
    assert again.repeated and (again.selected, again.submitted_at) == (5, first.submitted_at)
    with raises(AnsweredError, found="4 selected"):
        annotation.submit(project, anna, grid.task, grid.images[:4])
    with pytest.raises(AnsweredError):
        annotation.current_task(project, anna, grid.task)
    with pytest.raises(AnsweredError):
        annotation.give_back(project, anna, grid.task)
    with project.reading() as session:
        assert session.scalars(select(func.count()).select_from(SelectedSlot)).one() == 5
    check_places(project)


def test_none_selected_is_an_answer(project: Project) -> None:
    (anna,) = annotators(project, 1)
    grid = annotation.next_task(project, anna)
    assert grid is not None and annotation.submit(project, anna, grid.task, []).selected == 0
    assert annotation.progress_of(project, anna).answered_tasks == 1


def test_forged_and_foreign_ids_look_the_same(project: Project) -> None:
    anna, ben = annotators(project, 2)
    mine = annotation.next_task(project, anna)
    bens_grid = annotation.next_task(project, ben)
    assert mine is not None and bens_grid is not None
    messages = set()
    for task in (bens_grid.task, "forged", "", "'; DROP TABLE tasks; --"):
        with pytest.raises(UnknownTaskError) as caught:
            annotation.submit(project, anna, task, [])
        messages.add(str(caught.value))
        with pytest.raises(UnknownTaskError):
            annotation.shown_images(project, anna, task)
        with pytest.raises(UnknownTaskError):
            annotation.current_task(project, anna, task)
        with pytest.raises(UnknownTaskError):
            annotation.give_back(project, anna, task)
    assert len(messages) == 1
    for image in (bens_grid.images[0], "forged", "../../testset.sqlite"):
        assert image not in annotation.shown_images(project, anna, mine.task)
        with pytest.raises(UnknownTaskError, match="does not belong"):
            annotation.submit(project, anna, mine.task, [mine.images[0], image])
    assert annotation.submit(project, anna, mine.task, mine.images[:1]).repeated is False


def test_leases_expire_and_the_task_returns(new_project: NewProject) -> None:
    project = new_project(annotators=1, references_per_class=3)
    fill(project, candidates=5)
    clock = Clock()
    project.now = clock
    anna, ben = annotators(project, 2)
    grids = []
    grid = annotation.next_task(project, anna, class_key="cat")
    assert grid is not None
    assert annotation.next_task(project, ben, class_key="cat") is None  # one place, and it is taken
    clock.pass_minutes(9.9)
    assert annotation.next_task(project, ben, class_key="cat") is None
    clock.pass_minutes(0.1)
    with pytest.raises(LeaseExpiredError):
        annotation.current_task(project, anna, grid.task)
    grids.append(annotation.next_task(project, ben, class_key="cat"))
    assert grids[0] is not None and grids[0].task != grid.task
    with pytest.raises(LeaseExpiredError, match="take a new task"):
        annotation.submit(project, anna, grid.task, grid.images[:1])
    assert annotation.submit(project, ben, grids[0].task, []).repeated is False
    check_places(project)


def test_a_late_answer_returns_the_task_by_itself(project: Project) -> None:
    clock = Clock()
    project.now = clock
    (anna,) = annotators(project, 1)
    grid = annotation.next_task(project, anna)
    assert grid is not None
    clock.pass_minutes(11)
    for _ in range(2):
        with pytest.raises(LeaseExpiredError):
            annotation.submit(project, anna, grid.task, [])
    check_places(project)
    again = annotation.next_task(project, anna)
    assert again is not None
    while again is not None and again.class_key != grid.class_key:
        annotation.submit(project, anna, again.task, [])
        again = annotation.next_task(project, anna)
    assert again is not None and annotation.submit(project, anna, again.task, []).repeated is False
    check_places(project)


def test_given_back(project: Project) -> None:
    (anna,) = annotators(project, 1)
    grid = annotation.next_task(project, anna)
    assert grid is not None
    annotation.give_back(project, anna, grid.task)
    annotation.give_back(project, anna, grid.task)
    check_places(project)
    with pytest.raises(LeaseExpiredError):
        annotation.submit(project, anna, grid.task, [])


def test_a_lease_is_renewed_while_somebody_is_at_it(project: Project) -> None:
    clock = Clock()
    project.now = clock
    anna, ben = annotators(project, 2)
    grid = annotation.next_task(project, anna)
    assert grid is not None
    begun = clock.moment
    for _ in range(10):
        clock.pass_minutes(5)
        if clock.moment >= begun + timedelta(minutes=40):
            break
        end = annotation.renew(project, anna, grid.task)
        assert end == min(clock.moment + timedelta(minutes=10), begun + timedelta(minutes=40))
    with pytest.raises(LeaseExpiredError):  # four leases are the most
        annotation.renew(project, anna, grid.task)
    with pytest.raises(UnknownTaskError):
        annotation.renew(project, ben, grid.task)
    bens_grid = annotation.next_task(project, ben)
    assert bens_grid is not None
    annotation.submit(project, ben, bens_grid.task, [])
    with pytest.raises(AnsweredError):
        annotation.renew(project, ben, bens_grid.task)
    check_places(project)


def test_examples_are_references_that_are_no_controls(project: Project) -> None:
    (anna,) = annotators(project, 1)
    grid = annotation.next_task(project, anna)
    assert grid is not None
    example_ids = annotation.examples(project, anna, grid.task)
    files = annotation.shown_images(project, anna, grid.task)
    assert example_ids and set(files) == {*grid.images, *example_ids} and not set(example_ids) & set(grid.images)
    with project.reading() as session:
        planted = set(session.scalars(select(Image.digest).join(PoolEntry).join(Slot)))
    assert not {files[image].parent.name + files[image].stem for image in example_ids} & planted


def test_who_may_annotate(project: Project) -> None:
    reviewer = create_account(project, "r", "reviewer")
    lead = create_account(project, "l", "lead")
    (anna,) = annotators(project, 1)
    grid = annotation.next_task(project, anna)
    assert grid is not None
    for account in (reviewer.id, 999):
        with pytest.raises(NotAllowedError):
            annotation.next_task(project, account)
        with pytest.raises(NotAllowedError):
            annotation.submit(project, account, grid.task, [])
        with pytest.raises(NotAllowedError):
            annotation.shown_images(project, account, grid.task)
    assert annotation.next_task(project, lead.id) is not None
    exclude(project, anna, "asleep")
    with pytest.raises(NotAllowedError, match="excluded"):
        annotation.submit(project, anna, grid.task, [])
    check_places(project)


def test_progress(project: Project) -> None:
    anna, ben = annotators(project, 2)
    rows = annotation.progress(project)
    assert [row.class_key for row in rows] == ["cat", "dog", "frog"]
    tasks = sum(row.tasks for row in rows)
    assert annotation.progress_of(project, anna) == annotation.OwnProgress(0, 0, tasks)
    grid = annotation.next_task(project, anna)
    assert grid is not None
    assert annotation.progress_of(project, anna).open_tasks == tasks - 1
    annotation.submit(project, anna, grid.task, [])
    annas_progress = annotation.progress_of(project, anna)
    assert (annas_progress.answered_tasks, annas_progress.answered_images, annas_progress.open_tasks) == (
        1,
        len(grid.images),
        tasks - 1,
    )
    assert annas_progress.seconds > 0
    assert annotation.progress_of(project, ben) == annotation.OwnProgress(0, 0, tasks)
    assert sum(row.answered for row in annotation.progress(project)) == 1


def test_the_clock_moves_on(project: Project) -> None:
    """Moments come back from the database as they went in, in UTC."""
    clock = Clock()
    project.now = clock
    (anna,) = annotators(project, 1)
    expiries = []
    while (grid := annotation.next_task(project, anna)) is not None:
        assert (grid.expires_at - clock.moment).total_seconds() == 600
        receipt = annotation.submit(project, anna, grid.task, [])
        assert receipt.submitted_at == clock.moment and receipt.submitted_at.utcoffset() is not None
        expiries.append(grid.expires_at)
        clock.pass_minutes(1)
    assert all(a < b for a, b in pairwise(expiries))
