"""Real servers, as the command line starts them, on SQLite and on PostgreSQL."""

from __future__ import annotations

import contextlib
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from shiftbench.testsets.accounts import Role, invite
from shiftbench.testsets.configuration import Configuration
from shiftbench.testsets.project import VARIABLE, Project
from tests.processes import start_command
from tests.testsets.conftest import PostgresServer
from tests.testsets.helpers import fill, small_configuration
from tests.testsets.web.visitors import Visitor


def database_url(project: Project) -> str:
    """What opens the same database again."""
    url = project.database.url
    return "sqlite" if project.database.is_sqlite else url.render_as_string(hide_password=False)


@dataclass
class Server:
    """``shiftbench testset serve`` as a process of its own."""

    process: ForkServerProcess
    output: Path
    address: str
    lead_link: str | None

    @classmethod
    def start(cls, project: Project, port: int = 0, *options: str) -> Server:
        output = Path(tempfile.mkstemp(prefix="serve-", dir=project.folder.parent)[1])
        words = ("testset", "serve", project.folder, "--port", port, *options)
        process = start_command(*words, output=output, env={VARIABLE: database_url(project)})
        while not (match := re.search(r"^(https?://\S+)   \(press", printed := output.read_text(), re.MULTILINE)):
            assert process.exitcode is None, f"the server did not start: {printed}"
            time.sleep(0.01)
        return cls(process, output, match.group(1), _group(re.search(r"/join/([\w-]+)", printed)))

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def kill(self) -> None:
        self.process.kill()
        self.process.join(300)

    def stop(self) -> str:
        """Ends it; what it had written since its address."""
        self.process.terminate()
        self.process.join(300)
        assert self.process.exitcode is not None, "the server does not stop"
        return self.output.read_text().partition("(press")[2]


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
        if server.process.exitcode is None:
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
    with served(project) as new_site:
        yield new_site
    project.close()
