"""The counts kept with images and answers equal those counted anew from single answers, whatever happened."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sqlalchemy import select

from shiftbench.testsets import annotation
from shiftbench.testsets.accounts import create_account, exclude
from shiftbench.testsets.annotation import Remarks, last_answer, next_task, reopen, submit
from shiftbench.testsets.database import Account, Assignment, PoolEntry, SelectedSlot, Slot, Task
from shiftbench.testsets.errors import LeaseExpiredError
from shiftbench.testsets.frequencies import (
    AnnotatorQuality,
    agreement_with_others,
    annotator_quality,
    pseudonym,
    quality_flags,
    write_answers,
)
from shiftbench.testsets.project import Project
from shiftbench.testsets.tasks import make_tasks
from tests.testsets.conftest import NewProject
from tests.testsets.helpers import Clock, annotators, by_share, entries_behind, fill, work

#: Every test here runs on both databases.
DATABASES = ["sqlite", "postgresql"]


def brute_force(project: Project) -> dict[int, tuple[int, int]]:
    """(selected, annotations) of each entry, one answer after another."""
    with project.reading() as session:
        gone = set(session.scalars(select(Account.id).where(Account.excluded_at.is_not(None))))
        selections = {tuple(row) for row in session.execute(select(SelectedSlot.assignment_id, SelectedSlot.slot_id))}
        keys = dict(session.execute(select(Task.id, Task.class_key)).all())
        slots = defaultdict(list)
        for slot, task, entry, key in session.execute(
            select(Slot.id, Slot.task_id, Slot.entry_id, PoolEntry.class_key).join(PoolEntry)
        ):
            if key == keys[task]:
                slots[task].append((slot, entry))
        done = session.scalars(select(Assignment).where(Assignment.state == "submitted")).all()
        counts = {entry: [0, 0] for entry in session.scalars(select(PoolEntry.id))}
    seen = set()
    for assignment in sorted(done, key=lambda assignment: (assignment.submitted_at, assignment.id)):
        for slot, entry in slots[assignment.task_id]:
            if assignment.account_id not in gone and (assignment.account_id, entry) not in seen:
                seen.add((assignment.account_id, entry))
                counts[entry][0] += (assignment.id, slot) in selections
                counts[entry][1] += 1
    return {entry: (yes, total) for entry, (yes, total) in counts.items()}


def kept(project: Project) -> dict[int, tuple[int, int]]:
    with project.reading() as session:
        rows = session.execute(select(PoolEntry.id, PoolEntry.selected, PoolEntry.annotations))
        return {entry: (yes, total) for entry, yes, total in rows}


def test_through_answers_exclusions_and_undone_answers(new_project: NewProject) -> None:
    project = new_project()
    fill(project, 20, 8)
    project.configuration = project.configuration.with_rules(references_per_class=8)
    make_tasks(project)  # references appear in several grids of their class
    people = annotators(project, 3)
    work(project, people, by_share)
    assert kept(project) == brute_force(project) and max(total for _, total in kept(project).values()) == 3
    exclude(project, people[0], "a test")
    assert kept(project) == brute_force(project)
    exclude(project, people[0], "a test", back=True)
    assert kept(project) == brute_force(project)
    task = last_answer(project, people[1])
    assert task is not None
    grid, before, _ = reopen(project, people[1], task)
    assert set(before) <= set(grid.images) and kept(project) == brute_force(project)
    again = next_task(project, people[1])
    assert again is not None and again.task == task
    submit(project, people[1], task, [image for image in grid.images if image not in before])
    assert kept(project) == brute_force(project)


def test_answers_are_final_after_the_lease(project: Project) -> None:
    clock = project.now = Clock()
    (anna,) = annotators(project, 1)
    grid = next_task(project, anna)
    assert grid is not None
    clock.pass_minutes(2)
    submit(project, anna, grid.task, grid.images[:2], remarks=Remarks(" blurred ", {grid.images[0], "x"}, ()))
    (row,) = annotator_quality(project)
    assert (row.seconds, row.selected, row.images) == (120, 2, len(grid.images))
    assert row.squares == pytest.approx((2 / len(grid.images)) ** 2)
    held = next_task(project, anna)
    _, selected, remarks = reopen(project, anna, grid.task)
    assert tuple(selected) == grid.images[:2] and remarks == Remarks("blurred", [grid.images[0]], [])
    assert held is not None and annotation.current_task(project, anna, grid.task).images == grid.images
    submit(project, anna, grid.task, [])
    clock.pass_minutes(60)
    assert last_answer(project, anna) is None
    with pytest.raises(LeaseExpiredError):
        reopen(project, anna, grid.task)


def test_flags_and_agreement(project: Project) -> None:
    clock = project.now = Clock()
    people = annotators(project, 3)
    for number, person in enumerate(people):
        while (grid := next_task(project, person)) is not None:
            clock.pass_minutes(0.5 if number else 0.01)
            behind = entries_behind(project, grid)
            good = [image for image in grid.images if behind[image].class_key == grid.class_key]
            submit(project, person, grid.task, good if number else [])
    flags = quality_flags(annotator_quality(project))
    assert all("controls" not in reason and "fast" not in reason for person in people[1:] for reason in flags[person])
    for reason, expected in zip(flags[people[0]], ("too fast", "too few", "fails controls"), strict=True):
        assert expected in reason
    # On images of the class, one of the two others agrees; the first agrees with nobody.
    assert [agreement_with_others(project, person) for person in people] == [0, 0.5, 0.5]


@pytest.mark.parametrize("grids", [1, 2, 5, 20])
def test_honest_annotators_are_rarely_flagged(grids: int) -> None:
    """Grids of 48 differ by 15 points, as classes do. 20 points alone flagged one in ten honest people of two grids."""
    random = np.random.default_rng(grids)
    flagged = plain = 0
    for _ in range(200):
        people = _people(random, random.beta(5, 5, (10, grids)))
        flagged += sum(map(bool, quality_flags(people).values()))
        shares = np.array([person.selected / person.images for person in people])
        plain += int((np.abs(shares - (shares.sum() - shares) / 9) > 0.2).sum())
    assert flagged <= 8, "4 of 1,000"
    assert plain > 100 or grids > 2


def test_people_who_select_everything_are_flagged() -> None:
    random = np.random.default_rng(0)
    rates = random.beta(5, 5, (10, 5))
    rates[0] = 1.0
    flags = quality_flags(_people(random, rates))
    assert [reason.partition(":")[0] for reason in flags[0]] == ["selects too many"] and not any(
        flags[i] for i in range(1, 10)
    )
    assert not any(quality_flags(_people(random, np.array([[1.0], [0.0]]))).values()), "two grids tell nothing"


def _people(random: np.random.Generator, rates: NDArray[np.float64]) -> list[AnnotatorQuality]:
    """Annotators who select images of grids at these rates."""
    selected = random.binomial(48, rates)
    squares = np.square(selected / 48).sum(axis=1)
    return [
        AnnotatorQuality(
            account=i,
            name=str(i),
            excluded=False,
            tasks=len(count),
            positives=0,
            positives_selected=0,
            negatives=0,
            negatives_left=0,
            images=48 * len(count),
            selected=int(count.sum()),
            seconds=1e6,
            squares=float(squares[i]),
        )
        for i, count in enumerate(selected)
    ]


def test_raw_answers(annotated: Project, tmp_path: Path) -> None:
    from pyarrow import parquet

    rows = parquet.read_table(write_answers(annotated, tmp_path / "a.parquet")).to_pylist()
    assert len(rows) == sum(row.images for row in annotator_quality(annotated))
    assert sum(row["selected"] for row in rows) == sum(row.selected for row in annotator_quality(annotated))
    with write_answers(annotated, tmp_path / "a.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == len(rows)


def test_answers_are_exported_without_names(annotated: Project, tmp_path: Path) -> None:
    """Pseudonyms tell annotators apart, are the same in every export, and differ between projects."""
    from pyarrow import parquet

    path = write_answers(annotated, tmp_path / "a.parquet")
    pseudonyms = {row["annotator"] for row in parquet.read_table(path).to_pylist()}
    named = parquet.read_table(write_answers(annotated, tmp_path / "b.parquet", names=True)).to_pylist()
    people = annotator_quality(annotated)
    assert {row["annotator"] for row in named} == {person.name for person in people}
    assert pseudonyms == {pseudonym(annotated, person.account) for person in people} and len(pseudonyms) == 3
    assert b"annotator 0" not in path.read_bytes()
    annotated.secret = b"another project"
    assert pseudonyms.isdisjoint(pseudonym(annotated, person.account) for person in people)


def test_no_cell_of_a_sheet_is_a_formula(project: Project, tmp_path: Path) -> None:
    """Names and comments come from strangers; spreadsheets run cells that begin with = + - @ when they open a file."""
    from pyarrow import parquet

    person = create_account(project, "=HYPERLINK(0)", "annotator").id
    grid = next_task(project, person)
    assert grid is not None
    submit(project, person, grid.task, [], remarks=Remarks("@SUM(1+1)\n-cmd|' /C calc'!A0"))
    with write_answers(project, tmp_path / "a.csv", names=True).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["annotator"] for row in rows} == {"'=HYPERLINK(0)"}
    assert all(not cell.startswith(("=", "+", "-", "@")) for row in rows for cell in row.values())
    exported = write_answers(project, tmp_path / "a.parquet", names=True)
    (kept,) = {row["annotator"] for row in parquet.read_table(exported).to_pylist()}
    assert kept == "=HYPERLINK(0)"
