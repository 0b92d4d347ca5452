"""Selection frequencies, agreement and controls, counted again by hand from what was submitted."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from pathlib import Path

import krippendorff
import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest
from scipy.stats import binomtest
from sqlalchemy import text

from shiftbench.testsets import annotation
from shiftbench.testsets.accounts import exclude
from shiftbench.testsets.database import Database, upgrade
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.frequencies import (
    annotator_quality,
    class_summaries,
    selection_frequencies,
    write_frequencies,
)
from shiftbench.testsets.project import Project
from tests.raised import raises
from tests.testsets.conftest import NewProject
from tests.testsets.helpers import Habit, annotators, by_share, entries_behind, fill, truthful, work
from tests.testsets.schema_0001 import create_first_tables

#: (annotator, entry, class of the grid, class of the entry, role, selected), in the order of submission.
Answer = tuple[int, int, str, str, str, bool]


def answer_all(project: Project, people: list[int], habit: Habit) -> list[Answer]:
    book: list[Answer] = []
    for person in people:
        while (grid := annotation.next_task(project, person)) is not None:
            behind = entries_behind(project, grid)
            selected = {image for image in grid.images if habit(person, behind[image], grid.class_key)}
            annotation.submit(project, person, grid.task, selected)
            for image in grid.images:
                entry = behind[image]
                book.append((person, entry.id, grid.class_key, entry.class_key, entry.role, image in selected))
    return book


def by_hand(book: list[Answer], without: int | None = None) -> dict[int, dict[int, bool]]:
    """For each entry in grids of its own class, each person's first answer."""
    votes: dict[int, dict[int, bool]] = defaultdict(dict)
    for person, entry, task_class, own_class, _, selected in book:
        if task_class == own_class and person != without:
            votes[entry].setdefault(person, selected)
    return votes


def test_counted_by_hand(new_project: NewProject) -> None:
    project = new_project(annotators=4, references_per_class=0)
    fill(project, candidates=30, references=4)  # few references: they are in several grids of their class
    book = answer_all(project, annotators(project, 4), by_share)
    votes = by_hand(book)
    rows = {row.entry: row for row in selection_frequencies(project)}
    assert len(rows) == 102
    for entry, row in rows.items():
        answers = votes.get(entry, {})
        assert (row.selected, row.annotations) == (sum(answers.values()), len(answers))
        assert row.frequency == (sum(answers.values()) / len(answers) if answers else None)
    doubled = [
        entry for entry in votes if sum(book_row[1] == entry for book_row in book if book_row[2] == book_row[3]) > 4
    ]
    assert doubled, "no reference was met twice: the test is not what it says"


def test_intervals_are_clopper_pearson(new_project: NewProject) -> None:
    project = new_project()
    fill(project, candidates=4)
    work(project, annotators(project, 3), by_share)
    for row in selection_frequencies(project):
        if row.annotations:
            exact = binomtest(row.selected, row.annotations).proportion_ci(0.9, "exact")
            assert row.interval(0.9) == pytest.approx((exact.low, exact.high), abs=1e-9)


def test_excluded_annotators_do_not_count(new_project: NewProject) -> None:
    project = new_project()
    fill(project, candidates=6)
    people = annotators(project, 3)
    book = answer_all(project, people, by_share)
    exclude(project, people[1], "a robot")
    votes = by_hand(book, without=people[1])
    for row in selection_frequencies(project):
        answers = votes.get(row.entry, {})
        assert (row.selected, row.annotations) == (sum(answers.values()), len(answers))


def test_agreement_is_krippendorffs(project: Project) -> None:
    people = annotators(project, 3)
    book = answer_all(project, people, by_share)
    votes = by_hand(book)
    rows = selection_frequencies(project)
    for summary in class_summaries(project):
        entries = [row.entry for row in rows if summary.class_key in ("all", row.class_key) and row.entry in votes]
        table = [[votes[entry].get(person, math.nan) for entry in entries] for person in people]
        expected = krippendorff.alpha(reliability_data=np.array(table, dtype=float), level_of_measurement="nominal")
        assert summary.agreement.alpha == pytest.approx(expected)
        assert summary.candidates + summary.references == len(entries)
    assert [summary.class_key for summary in class_summaries(project)] == ["cat", "dog", "frog", "all"]


def test_control_accuracy(project: Project) -> None:
    """A careful person, one who selects everything, one who selects nothing."""
    careful, eager, idle = annotators(project, 3)
    habits: dict[int, Habit] = {careful: truthful, eager: lambda *_: True, idle: lambda *_: False}
    book = [row for person in habits for row in answer_all(project, [person], habits[person])]
    quality = {annotator.account: annotator for annotator in annotator_quality(project)}
    for person in habits:
        controls = [row for row in book if row[0] == person and row[4] == "reference"]
        belong = [row for row in controls if row[2] == row[3]]
        negatives = [row for row in controls if row[2] != row[3]]
        annotator = quality[person]
        assert (annotator.positives, annotator.positives_selected) == (len(belong), sum(row[5] for row in belong))
        assert (annotator.negatives, annotator.negatives_left) == (len(negatives), sum(not row[5] for row in negatives))
        assert annotator.tasks == 3 and annotator.negatives == 9
    assert quality[careful].accuracy == 1.0
    assert quality[eager].negatives_left == 0 and quality[idle].positives_selected == 0
    assert annotator_quality(project)[-1].account == careful
    exclude(project, eager, "selects everything")
    assert {annotator.account: annotator.excluded for annotator in annotator_quality(project)}[eager]


def test_export(new_project: NewProject, tmp_path: Path) -> None:
    project = new_project()
    fill(project, candidates=4)
    work(project, annotators(project, 3), by_share)
    rows = selection_frequencies(project)
    loaded = json.loads(write_frequencies(project, tmp_path / "f.json").read_text())
    tables = [
        pyarrow.parquet.read_table(write_frequencies(project, tmp_path / "f.parquet")).to_pylist(),
        pyarrow.csv.read_csv(write_frequencies(project, tmp_path / "f.csv")).to_pylist(),
    ]
    for table in (loaded, *tables):
        assert [row["image"] for row in table] == [row.digest for row in rows]
        assert [row["frequency"] for row in table] == [row.frequency for row in rows]
        assert [row["selected"] for row in table] == [row.selected for row in rows]
        assert {row["role"] for row in table} == {"candidate", "reference"}
    unanswered = [row for row in tables[0] if row["annotations"] == 0]
    assert unanswered and all(row["frequency"] is None and row["low"] is None for row in unanswered)
    with raises(WorkshopError, found="f.xlsx"):
        write_frequencies(project, tmp_path / "f.xlsx")


def test_nothing_yet(new_project: NewProject) -> None:
    project = new_project()
    assert selection_frequencies(project) == [] and class_summaries(project) == [] and annotator_quality(project) == []


def test_projects_of_the_first_version_get_their_counts(annotated: Project, tmp_path: Path) -> None:
    """The rows of a project in the first schema, upgraded: the counts are those of a project of today."""
    from alembic.operations import Operations
    from alembic.runtime.migration import MigrationContext

    old = Database("sqlite", tmp_path)
    with old.engine.begin() as connection:
        create_first_tables(Operations(MigrationContext.configure(connection)))
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"))
        connection.execute(text("INSERT INTO alembic_version VALUES ('0001')"))
        tables = connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'table'")).scalars().all()
        columns = {
            name: [row[1] for row in connection.execute(text(f"PRAGMA table_info({name})"))]
            for name in tables
            if name != "alembic_version"
        }
    raw = old.engine.raw_connection()
    raw.execute("PRAGMA foreign_keys = OFF")
    raw.execute(f"ATTACH '{annotated.folder / 'testset.sqlite'}' AS new")
    for name, values in columns.items():
        raw.execute(f"INSERT INTO main.{name} SELECT {', '.join(values)} FROM new.{name}")
    raw.commit()
    raw.close()
    upgrade(old)
    counts = "SELECT id, images, selected, positives, positives_selected, negatives, negatives_left FROM assignments"
    for query in ("SELECT id, selected, annotations FROM entries", counts):
        with old.reading() as session, annotated.reading() as today:
            rows = session.execute(text(query)).all()
            assert rows == today.execute(text(query)).all() and sum(row[1] for row in rows) > 0
    old.close()
