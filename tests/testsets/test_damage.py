"""Damage to the database is noticed, named, and never changes a selection frequency silently."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from sqlalchemy import text

from shiftbench.errors import ShiftbenchError
from shiftbench.testsets.accounts import exclude
from shiftbench.testsets.database import counts_digest
from shiftbench.testsets.errors import DamagedError
from shiftbench.testsets.frequencies import annotator_quality, selection_frequencies, write_answers
from shiftbench.testsets.project import Project
from shiftbench.testsets.verify import verify
from tests.commands import call


def _change(project: Project, statement: str) -> None:
    with project.writing() as session:
        session.execute(text(statement))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET selected = selected + 1 WHERE id = 3",
        "UPDATE entries SET annotations = annotations + 1 WHERE id = 3",
        "UPDATE entries SET class_key = 'dof' WHERE id = 3",
        "UPDATE entries SET digest = 'x' WHERE id = 3",
    ],
)
def test_changed_counts_are_not_read(annotated: Project, statement: str) -> None:
    assert verify(annotated) == []
    _change(annotated, statement)
    with pytest.raises(DamagedError) as refused:
        selection_frequencies(annotated)
    assert str(refused.value.found).endswith(": 3")
    assert ("pool entry", "3") in {(damage.kind, damage.which) for damage in verify(annotated)}


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE assignments SET seconds = seconds + 1 WHERE id = 2",
        "UPDATE assignments SET selected = selected + 1 WHERE id = 2",
        "UPDATE assignments SET submitted_at = '2020-01-01 00:00:00.000000' WHERE id = 2",
        "DELETE FROM selections WHERE assignment_id = 2",
    ],
)
def test_changed_answers_are_not_read(annotated: Project, tmp_path: Path, statement: str) -> None:
    _change(annotated, statement)
    assert ("answer", "2") in {(damage.kind, damage.which) for damage in verify(annotated)}
    with pytest.raises(DamagedError):
        write_answers(annotated, tmp_path / "answers.csv")
    with pytest.raises(DamagedError):
        exclude(annotated, annotator_quality(annotated)[0].account, "counts the answers anew")


def test_counts_that_are_not_those_of_the_answers(annotated: Project) -> None:
    """An entry with a valid digest, but without its last answer."""
    row = next(row for row in selection_frequencies(annotated) if row.annotations)
    digest = counts_digest(row.role, row.class_key, row.file_name, 0, 1)
    _change(annotated, f"UPDATE entries SET selected = 0, annotations = 1, digest = '{digest}' WHERE id = {row.entry}")
    (damage,) = verify(annotated)
    assert damage.which == str(row.entry) and "0 of 1" in damage.what


def test_missing_and_changed_images_are_named(annotated: Project) -> None:
    paths = sorted((annotated.folder / "images").rglob("*.png"))
    paths[0].chmod(0o600)
    paths[0].write_bytes(b"something else")
    paths[1].unlink()
    assert {damage.which for damage in verify(annotated)} == {str(paths[0]), str(paths[1])}
    assert call("testset", "verify", annotated.folder).exit_code == 1


def test_flipped_bits_are_noticed(annotated: Project, tmp_path: Path) -> None:
    """Flips anywhere in the file: the same frequencies, or an error of the package."""
    _change(annotated, "UPDATE project SET name = name")
    annotated.close()
    annotated.database.close()
    source = annotated.folder / "testset.sqlite"
    with Project.open(annotated.folder).database.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    data = source.read_bytes()
    expected = selection_frequencies(Project.open(annotated.folder))
    generator = random.Random(0)
    noticed = 0
    for number in range(60):
        folder = tmp_path / f"flipped-{number}"
        folder.mkdir()
        shutil.copy(annotated.folder / "testset.toml", folder)
        damaged = bytearray(data)
        damaged[generator.randrange(len(damaged))] ^= 1 << generator.randrange(8)
        (folder / "testset.sqlite").write_bytes(damaged)
        try:
            project = Project.open(folder)
            rows = selection_frequencies(project)
        except ShiftbenchError:
            noticed += 1
            continue
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        project.close()
        assert rows == expected, number
    assert noticed > 0
