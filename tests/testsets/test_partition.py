"""A test set whose database is on a host of its own: cut off, shut down, and the same answers afterwards."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shiftbench.testsets.errors import DatabaseUnreachableError
from shiftbench.testsets.frequencies import selection_frequencies
from shiftbench.testsets.project import Project
from shiftbench.testsets.verify import verify
from tests.hosts import Host, host
from tests.testsets.conftest import postgres_binaries, server_commands
from tests.testsets.helpers import annotators, by_share, fill, small_configuration, work

PORT = 5432
#: Shorter than the client waits for packets, and longer.
SHORT_CUT = 5
LONG_CUT = 45


@contextmanager
def database_on(there: Host) -> Iterator[str]:
    """The URL of a PostgreSQL server on a host."""
    binaries = postgres_binaries()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed")
    folder = Path(tempfile.mkdtemp(prefix="shiftbench-pg-"))
    try:
        server_commands(binaries, folder)(
            "initdb", "-D", "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"
        )
        with (folder / "data" / "pg_hba.conf").open("a") as access:
            access.write(f"host all postgres {there.here}/32 trust\n")
        server = [
            *("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--inh-caps=-all"),
            *(str(binaries / "postgres"), "-D", str(folder / "data"), "-p", str(PORT)),
            *("-c", f"listen_addresses={there.address}", "-c", f"unix_socket_directories={folder}"),
        ]
        with there.running(server, Path(f"{folder}.log"), PORT):
            yield f"postgresql+psycopg://postgres@{there.address}:{PORT}/postgres"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        Path(f"{folder}.log").unlink(missing_ok=True)


def patiently(step: Callable[[], object]) -> tuple[object, int]:
    """Repeat a step until the database can be reached: what it returns, and how often it could not be."""
    failures = 0
    limit = time.monotonic() + 300
    while time.monotonic() < limit:
        try:
            return step(), failures
        except DatabaseUnreachableError:
            failures += 1
            time.sleep(1)
    raise AssertionError("the database stays out of reach")


def outcome(project: Project) -> list[tuple[object, ...]]:
    rows = selection_frequencies(project)
    return sorted((row.role, row.class_key, row.digest, row.selected, row.annotations) for row in rows)


@pytest.mark.soak
@pytest.mark.reliability("kills")
@pytest.mark.parametrize("seconds", [SHORT_CUT, LONG_CUT])
def test_answers_of_a_database_that_is_cut_off(tmp_path: Path, seconds: float) -> None:
    """A short cut delays answers, a long one ends in an error after which the same people go on."""
    here = Project.create(tmp_path / "here", small_configuration(), database="sqlite")
    fill(here)
    work(here, annotators(here, 3), by_share)
    with host() as there, database_on(there) as url:
        project = Project.create(tmp_path / "there", small_configuration(), database=url)
        fill(project)
        people = annotators(project, 3)
        work(project, people[:1], by_share)
        there.cut()
        mending = threading.Timer(seconds, there.mend)
        mending.start()
        started = time.monotonic()
        _, failures = patiently(lambda: work(project, people, by_share))
        assert time.monotonic() - started >= seconds
        assert (failures > 0) == (seconds == LONG_CUT)
        mending.join()
        assert outcome(project) == outcome(here)
        assert verify(project) == []
        project.close()
    here.close()
