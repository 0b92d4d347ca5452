"""Projects on SQLite and PostgreSQL: made, opened again, guarded against the wrong database."""

from __future__ import annotations

import base64
import hashlib
import hmac
import stat
from importlib import resources
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from shiftbench.testsets.accounts import create_account, people
from shiftbench.testsets.database import Base, Database, SelectedSlot, upgrade
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.project import Project
from shiftbench.testsets.recruiting import enter_as_worker, pay_table, read_arrival
from tests.raised import raises
from tests.testsets.conftest import NewProject, PostgresServer
from tests.testsets.helpers import small_configuration
from tests.testsets.schema_0001 import create_first_tables

#: Every test here runs on both databases.
DATABASES = ["sqlite", "postgresql"]


def test_made_and_opened_again(new_project: NewProject, database: str) -> None:
    project = new_project()
    create_account(project, "anna", "lead")
    again = Project.open(project.folder)
    assert again.configuration == project.configuration
    assert [person.name for person in people(again)] == ["anna"]
    assert again.secret == project.secret and len(again.secret) == 32
    again.close()
    with pytest.raises(WorkshopError, match="already"):
        Project.create(project.folder, small_configuration(), database=database)


def test_new_databases_have_the_tables(new_project: NewProject) -> None:
    assert _differences(new_project().database) == []


def test_databases_of_the_first_version_are_upgraded(new_project: NewProject) -> None:
    """Whatever migrations follow the first schema, they lead to the tables that the program expects."""
    project = new_project()
    with project.database.engine.begin() as connection:
        Base.metadata.drop_all(connection)
        create_first_tables(Operations(MigrationContext.configure(connection)))
        connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    upgrade(project.database)
    assert _differences(project.database) == []


def test_workers_of_the_second_version_keep_their_codes(new_project: NewProject) -> None:
    """Everything that a worker has done belongs to the assignment that was known of them, with the code they saw."""
    project = new_project()
    folder = resources.files("shiftbench.testsets").joinpath("migrations")
    config = Config()
    config.set_main_option("script_location", str(folder))
    moment = "'2026-01-01 00:00:00'"
    with project.database.engine.begin() as connection:
        Base.metadata.drop_all(connection)
        create_first_tables(Operations(MigrationContext.configure(connection)))
        connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))
        config.attributes["connection"] = connection
        command.upgrade(config, "0002")
        for statement in (
            f"INSERT INTO project VALUES ('{project.configuration.id}', 'pets', '{'ab' * 32}', {moment})",
            f"INSERT INTO accounts (id, name, role, made_at) VALUES (7, 'mturk A', 'annotator', {moment})",
            "INSERT INTO workers (id, account_id, platform, worker, details) "
            """VALUES (3, 7, 'mturk', 'A', '{"assignmentId": "one", "hitId": "h"}')""",
            "INSERT INTO tasks (id, class_key, wished, places_left, rank, made_at) "
            f"VALUES (1, 'cat', 3, 2, 'r', {moment})",
            "INSERT INTO assignments (id, token, task_id, account_id, state, leased_at, expires_at, submitted_at) "
            f"VALUES (1, 't', 1, 7, 'submitted', {moment}, {moment}, {moment})",
        ):
            connection.exec_driver_sql(statement)
    upgrade(project.database)
    assert _differences(project.database) == []
    (row,) = pay_table(Project.open(project.folder)).rows
    signature = hmac.digest(bytes.fromhex("ab" * 32), b"completed/7", hashlib.sha256)
    code = base64.b32encode(signature[:5]).decode()
    assert (row["worker"], row["assignment"], row["tasks"], row["code"]) == ("A", "one", 1, code)
    entry = enter_as_worker(project, read_arrival({"workerId": "A", "assignmentId": "two"}))
    assert entry.person.id == 7
    assert [row["assignment"] for row in pay_table(project).rows] == ["one", "two"]


def _differences(database: Database) -> list[object]:
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return list(compare_metadata(context, Base.metadata))


def test_upgrading_twice_changes_nothing(new_project: NewProject) -> None:
    project = new_project()
    upgrade(project.database)
    assert people(Project.open(project.folder)) == []


def test_a_database_of_a_later_version_is_refused(new_project: NewProject) -> None:
    project = new_project()
    with project.writing() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with raises(WorkshopError, found="schema version 9999") as caught:
        Project.open(project.folder)
    assert "9999" in str(caught.value) and caught.value.hint == "update shiftbench"


def test_foreign_keys_hold(new_project: NewProject) -> None:
    project = new_project()
    with pytest.raises(IntegrityError), project.writing() as session:
        session.add(SelectedSlot(assignment_id=1, slot_id=1))


def test_a_failed_block_leaves_nothing(new_project: NewProject) -> None:
    project = new_project()
    with pytest.raises(ZeroDivisionError), project.writing() as session:
        session.execute(text("UPDATE project SET name = 'other'"))
        _ = 1 / 0
    with project.reading() as session:
        assert session.execute(text("SELECT name FROM project")).scalar_one() == "pets"


def test_the_database_of_another_project_is_refused(new_project: NewProject, tmp_path: Path, database: str) -> None:
    project = new_project()
    if project.database.is_sqlite:
        second = Project.create(tmp_path / "other", small_configuration(), database=database)
        project.close()
        second.close()
        (tmp_path / "other" / "testset.sqlite").replace(project.folder / "testset.sqlite")
        with pytest.raises(WorkshopError, match="belongs to another project"):
            Project.open(project.folder)
    else:
        with pytest.raises(WorkshopError, match="already holds"):
            Project.create(tmp_path / "other", small_configuration(), database=database)


def test_sqlite_as_it_should_be(tmp_path: Path) -> None:
    project = Project.create(tmp_path / "pets", small_configuration())
    with project.reading() as session:
        assert session.execute(text("PRAGMA journal_mode")).scalar_one() == "wal"
        assert session.execute(text("PRAGMA foreign_keys")).scalar_one() == 1
        assert session.execute(text("PRAGMA synchronous")).scalar_one() == 2
    mode = (tmp_path / "pets" / "testset.sqlite").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600
    assert project.configuration.database == "sqlite"
    project.close()
    (tmp_path / "pets" / "testset.sqlite").unlink()
    with raises(WorkshopError, found="no testset.sqlite"):
        Project.open(tmp_path / "pets")


@pytest.mark.parametrize("name", ["a b", "100% ?x=1 #2", "ünï", "back\\slash"])
def test_folders_of_any_name(tmp_path: Path, name: str) -> None:
    project = Project.create(tmp_path / name, small_configuration())
    create_account(project, "anna", "lead")
    project.close()
    assert (tmp_path / name / "testset.sqlite").stat().st_size > 0
    again = Project.open(tmp_path / name)
    assert [person.name for person in people(again)] == ["anna"]
    again.close()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_made_half_and_opened(tmp_path: Path) -> None:
    """Killed after testset.toml was written and before the database was claimed: opening completes it."""
    project = Project.create(tmp_path / "pets", small_configuration())
    with project.writing() as session:
        session.execute(text("DELETE FROM project"))
    project.close()
    again = Project.open(tmp_path / "pets")
    assert len(again.secret) == 32
    again.close()


def test_the_password_is_nowhere(postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = postgres.new_database().replace("postgres@", "postgres:hunter2@")
    monkeypatch.setenv("SHIFTBENCH_DATABASE", url)
    project = Project.create(tmp_path / "pets", small_configuration())
    written = (tmp_path / "pets" / "testset.toml").read_text()
    assert "hunter2" not in written and "hunter2" not in project.database.shown
    assert "hunter2" not in repr(project.database) and "hunter2" not in repr(project.configuration)
    assert 'database = "postgresql+psycopg://postgres@/' in written
    project.close()
    Project.open(tmp_path / "pets").close()  # by the variable
    monkeypatch.delenv("SHIFTBENCH_DATABASE")
    Project.open(tmp_path / "pets").close()  # by the file: this server trusts everybody


def test_an_unreachable_database_is_said_without_password(tmp_path: Path) -> None:
    url = f"postgresql://lead:hunter2@/pets?host={tmp_path}"
    with pytest.raises(WorkshopError, match="cannot connect") as caught:
        Project.create(tmp_path / "pets", small_configuration(), database=url)
    assert "hunter2" not in str(caught.value)
    assert not (tmp_path / "pets" / "testset.toml").exists()


@pytest.mark.parametrize("url", ["mysql://root@localhost/x", "sqlite:////etc/passwd", "nonsense"])
def test_other_databases_are_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(WorkshopError, match="unsupported database"):
        Database(url, tmp_path)
