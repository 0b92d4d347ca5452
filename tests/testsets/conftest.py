"""Projects on both databases: SQLite, and a real PostgreSQL that is started for the tests."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text

from shiftbench.datasets.arrays import ArrayDataset
from shiftbench.datasets.catalogue import open_named
from shiftbench.testsets.configuration import Configuration
from shiftbench.testsets.database import Base, Database, upgrade
from shiftbench.testsets.project import Project
from tests.testsets.helpers import annotators, by_share, fill, small_configuration, work


@pytest.fixture(scope="session")
def cifar() -> ArrayDataset:
    dataset = open_named("cifar-10-test")
    assert isinstance(dataset, ArrayDataset)
    return dataset


def postgres_binaries() -> Path | None:
    """The folder of the newest installed server."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("initdb")
    return installed[-1].parent if installed else Path(on_path).parent if on_path else None


@dataclass
class PostgresServer:
    """A server of our own, on a socket in a folder of its own; it listens on no port."""

    folder: Path
    _numbers: Iterator[int]

    def new_database(self) -> str:
        """An empty schema, for PostgreSQL as good as a database of its own and made in no time."""
        name = f"test_{next(self._numbers)}"
        with psycopg.connect(f"host={self.folder} user=postgres dbname=postgres", autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        return f"postgresql+psycopg://postgres@/postgres?host={self.folder}&options=-csearch_path%3D{name}"


def server_commands(binaries: Path, folder: Path) -> Callable[..., None]:
    """A function that runs commands of the server, in a folder that belongs to the server's user."""
    # The server refuses to run as root.
    person = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
    if person is not None:
        os.chown(folder, person.pw_uid, person.pw_gid)

    def run(*command: str) -> None:
        user = None if person is None else person.pw_uid
        group = None if person is None else person.pw_gid
        done = subprocess.run(
            [str(binaries / command[0]), *command[1:]],
            user=user,
            group=group,
            cwd=folder,
            timeout=300,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            extra_groups=None if person is None else [],
        )
        assert done.returncode == 0, done.stderr

    return run


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    binaries = postgres_binaries()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed")
    folder = Path(tempfile.mkdtemp(prefix="shiftbench-pg-"))
    run = server_commands(binaries, folder)
    data = str(folder / "data")
    run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
    options = f"-c listen_addresses='' -c unix_socket_directories='{folder}' -c fsync=off -c max_connections=300"
    run("pg_ctl", "-D", data, "-o", options, "-l", str(folder / "log"), "-w", "start")
    try:
        yield PostgresServer(folder, itertools.count(1))
    finally:
        run("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
        shutil.rmtree(folder, ignore_errors=True)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests run on SQLite; those of modules with ``DATABASES``, and those marked so, on each of these."""
    kinds = metafunc.function.__dict__.get("databases") or getattr(metafunc.module, "DATABASES", ["sqlite"])
    for name in sorted({"database", "site"} & set(metafunc.fixturenames)):
        metafunc.parametrize(name, kinds, indirect=True, scope="session" if name == "site" else None)


@pytest.fixture
def database(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return "sqlite"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database()


NewProject = Callable[..., Project]


@pytest.fixture
def new_project(tmp_path: Path, database: str) -> Iterator[NewProject]:
    """Makes a project on the database under test; given rules replace the small default ones."""
    projects: list[Project] = []

    def make(configuration: Configuration | None = None, **rules: float) -> Project:
        project_configuration = (configuration or small_configuration()).with_rules(**rules)
        projects.append(Project.create(tmp_path / f"project-{len(projects)}", project_configuration, database=database))
        return projects[-1]

    yield make
    for project in projects:
        project.close()


class Templates:
    """Projects that many tests begin with, made once on each database, and copied."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[str, tuple[Path, str]] = {}

    def copy(self, folder: Path, database: str, new_database: Callable[[], str], *, answered: bool) -> Project:
        """21 candidates and 21 references in three grids, on request with three answers to each."""
        name = f"{database.partition('+')[0]}-{'answered' if answered else 'open'}"
        if name not in self._made:
            url = new_database()
            project = Project.create(self._folder / name, small_configuration(), database=url)
            fill(project)
            if answered:
                work(project, annotators(project, 3), by_share)
            project.close()
            self._made[name] = (project.folder, url)
        source, url = self._made[name]
        shutil.copytree(source, folder)
        if database != "sqlite":
            _copy_rows(url, database, folder)
        return Project.open(folder, database=database)


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Templates:
    return Templates(tmp_path_factory.mktemp("templates"))


@pytest.fixture
def copied(
    tmp_path: Path, database: str, templates: Templates, request: pytest.FixtureRequest
) -> Iterator[Callable[[bool], Project]]:
    projects: list[Project] = []

    def new_database() -> str:
        return "sqlite" if database == "sqlite" else request.getfixturevalue("postgres").new_database()

    def copy(answered: bool) -> Project:
        projects.append(templates.copy(tmp_path / "copied", database, new_database, answered=answered))
        return projects[-1]

    yield copy
    for project in projects:
        project.close()


@pytest.fixture
def project(copied: Callable[[bool], Project]) -> Project:
    """A project with 21 candidates and 21 references in three grids, and nobody yet to answer them."""
    return copied(False)


@pytest.fixture
def annotated(copied: Callable[[bool], Project]) -> Project:
    """The same with three answers to each grid."""
    return copied(True)


def _copy_rows(old: str, new: str, folder: Path) -> None:
    target = Database(new, folder)
    upgrade(target)
    schema = old.rpartition("%3D")[2]
    with target.engine.begin() as connection:
        for table in Base.metadata.sorted_tables:
            connection.execute(text(f"INSERT INTO {table.name} SELECT * FROM {schema}.{table.name}"))
            if "id" in table.columns:
                connection.execute(
                    text(f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), max(id)) FROM {table.name}")
                )
    target.close()
