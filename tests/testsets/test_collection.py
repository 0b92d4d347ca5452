"""Closing, reopening, topping up and cancelling: what is given out, what counts, and that everything can be undone."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from shiftbench.testsets.accounts import create_account
from shiftbench.testsets.annotation import next_task, progress, submit
from shiftbench.testsets.collection import cancel, close, reopen, top_up
from shiftbench.testsets.database import Task
from shiftbench.testsets.errors import LeaseExpiredError, NotAllowedError, WorkshopError
from shiftbench.testsets.frequencies import selection_frequencies
from shiftbench.testsets.project import Project, audit_log
from shiftbench.testsets.tasks import make_tasks
from shiftbench.testsets.verify import verify
from tests.testsets.helpers import annotators, by_share, work

#: Every test here runs on both databases.
DATABASES = ["sqlite", "postgresql"]


def _task_of(project: Project, class_key: str) -> int:
    with project.reading() as session:
        return session.scalars(select(Task.id).where(Task.class_key == class_key)).one()


def test_closed_classes_are_not_given_out(project: Project) -> None:
    anna, bert = annotators(project, 2)
    held = next_task(project, anna, class_key="cat")
    assert held is not None
    assert close(project, ["cat", "dog"]) == 2 and close(project, ["cat"]) == 0
    submit(project, anna, held.task, [])  # what somebody holds may be answered
    grid = next_task(project, bert)
    assert grid is not None and grid.class_key == "frog"
    submit(project, bert, grid.task, [])
    assert next_task(project, bert) is None
    assert {row.class_key: row.closed for row in progress(project)} == {"cat": 1, "dog": 1, "frog": 0}
    assert reopen(project) == 2 and next_task(project, bert) is not None
    assert [line.action for line in audit_log(project)][:3] == ["reopen", "close", "close"]


def test_more_answers_to_existing_grids(annotated: Project) -> None:
    (anna,) = annotators_named(annotated, "anna")
    assert next_task(annotated, anna) is None
    assert top_up(annotated, 4, ["cat"]) == 1 and top_up(annotated, 4, ["cat"]) == 0
    assert work(annotated, [anna], by_share) == 1
    assert max(row.annotations for row in selection_frequencies(annotated) if row.class_key == "cat") == 4
    assert top_up(annotated, 3) == 1
    assert next_task(annotated, *annotators_named(annotated, "bert")) is None
    with pytest.raises(WorkshopError):
        top_up(annotated, 0)
    with pytest.raises(WorkshopError):
        top_up(annotated, 3, ["catt"])


def annotators_named(project: Project, *names: str) -> list[int]:
    return [create_account(project, name, "annotator").id for name in names]


def test_a_cancelled_grid_does_not_count(annotated: Project) -> None:
    before = selection_frequencies(annotated)
    task = _task_of(annotated, "cat")
    assert cancel(annotated, [task], "wrong definition") == 1
    cats = [row for row in selection_frequencies(annotated) if row.class_key == "cat" and row.role == "candidate"]
    assert all(row.annotations == 0 for row in cats) and verify(annotated) == []
    assert "cat" not in {row.class_key for row in progress(annotated)}
    assert cancel(annotated, [task], "it was right", undo=True) == 1
    assert selection_frequencies(annotated) == before
    cancel(annotated, [task], "wrong after all")
    assert make_tasks(annotated).candidates == len(cats)  # in new grids
    with pytest.raises(WorkshopError):
        cancel(annotated, [999], "no such grid")


def test_who_holds_a_cancelled_grid_gets_another(project: Project) -> None:
    (anna,) = annotators(project, 1)
    held = next_task(project, anna, class_key="cat")
    assert held is not None
    cancel(project, [_task_of(project, "cat")], "a mistake")
    with pytest.raises(LeaseExpiredError):
        submit(project, anna, held.task, [])
    grid = next_task(project, anna)
    assert grid is not None and grid.class_key != "cat"


def test_only_leads_steer_the_collection(project: Project) -> None:
    (anna,) = annotators(project, 1)
    with pytest.raises(NotAllowedError):
        close(project, by=anna)
    with pytest.raises(NotAllowedError):
        reopen(project, by=anna)
    with pytest.raises(NotAllowedError):
        top_up(project, 5, by=anna)
    with pytest.raises(NotAllowedError):
        cancel(project, [1], "a joke", by=anna)
