"""Real servers, as the command line starts them, on SQLite and on PostgreSQL."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from shiftbench.testsets.accounts import Role, invite
from shiftbench.testsets.configuration import Configuration
from shiftbench.testsets.project import VARIABLE, Project
from tests.testsets.conftest import PostgresServer
from tests.testsets.helpers import fill, small_configuration
from tests.testsets.web.visitors import Visitor

COMMAND = "import sys; from shiftbench.cli import main; sys.argv[0] = 'shiftbench'; main()"


def database_url(project: Project) -> str:
    """What opens the same database again."""
    url = project.database.url
    return "sqlite" if project.database.is_sqlite else url.render_as_string(hide_password=False)


@dataclass
class Server:
    """``shiftbench testset serve`` as a process of its own."""

    process: subprocess.Popen[str]
    address: str
    lead_link: str | None

    @classmethod
    def start(cls, project: Project, port: int = 0, *options: str) -> Server:
        arguments = ["testset", "serve", str(project.folder), "--port", str(port), *options]
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, VARIABLE: database_url(project), "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        assert process.stdout is not None
        link = None
        for line in process.stdout:
            link = link or _group(re.search(r"/join/([\w-]+)", line))
            found = re.search(r"^(https?://\S+)   \(", line)
            if found:
                return cls(process, found.group(1), link)
        raise AssertionError("the server did not start")

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def stop(self) -> str:
        """Ends it; what it had written since its address."""
        self.process.terminate()
        return self.process.communicate(timeout=30)[0]


def _group(found: re.Match[str] | None) -> str | None:
    return None if found is None else found.group(1)


@dataclass
class Site:
    """A project with its server."""

    project: Project
    server: Server

    def visitor(self) -> Visitor:
        return Visitor(self.server.address)

    def person(self, role: Role = "annotator", name: str = "") -> Visitor:
        """Somebody who has come in by a link."""
        visitor = self.visitor()
        visitor.join(invite(self.project, role, name).token)
        return visitor


@contextlib.contextmanager
def served(project: Project, *options: str) -> Iterator[Site]:
    server = Server.start(project, 0, *options)
    try:
        yield Site(project, server)
    finally:
        if server.process.poll() is None:
            server.stop()


def site_configuration() -> Configuration:
    return small_configuration().with_rules(annotators=40)


@pytest.fixture(scope="session")
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Shared by tests that leave no trace for each other: everybody is a new annotator, and tasks are plenty."""
    url = "sqlite"
    if request.param == "postgresql":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        url = postgres.new_database()
    project = Project.create(tmp_path_factory.mktemp("site") / "pets", site_configuration(), database=url)
    fill(project, 24, 14)
    with served(project) as made:
        yield made
    project.close()
