"""Locks between the people who change a project at the same time, on both databases.

Answers, marks and accounts are safe by the rows that they lock. Commands that read the whole pool before they write,
such as making grids and sampling, run one at a time. A lock ends with its process, however the process ends.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC
from pathlib import Path
from typing import Literal

import sqlalchemy as sa

from shiftbench.extend.io import file_lock
from shiftbench.testsets.database import LOCAL_LEAD, Account
from shiftbench.testsets.errors import ProjectBusyError
from shiftbench.testsets.project import Project

#: What only one command at a time may change: grids and sets, suspected near-duplicates, or the images of the pool.
LockName = Literal["sets", "search", "import"]
#: Seconds for which a command waits for another before it gives up.
PATIENCE = 10.0
#: Seconds between attempts.
_RETRY_SECONDS = 0.1
#: The first key of our advisory locks in PostgreSQL; the second is made from the schema and the name of the lock.
_ADVISORY_KEY = 7305817
_SECOND_KEY = "hashtext(current_schema() || :name)"
#: Characters of the owner's description that PostgreSQL keeps with a connection.
_LONGEST_OWNER = 63


@contextmanager
def alone(project: Project, action: str, *, by: int | None = None, lock: LockName = "sets") -> Iterator[None]:
    """Change the project while nobody else holds the same lock.

    Waits a little for others. Raises ProjectBusyError, which names the other command, who runs it and since when.
    """
    owner = f"{action} by {_name(project, by)} since {project.now().astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    if project.database.is_sqlite:
        held = _file_lock(project.folder / f"{lock}.lock", owner, action)
    else:
        held = _advisory_lock(project, lock, owner, action)
    with held:
        yield


def _name(project: Project, by: int | None) -> str:
    """The name of an account; that of the command line has none."""
    if by is None:
        return LOCAL_LEAD
    with project.reading() as session:
        account = session.get(Account, by)
        return account.name if account else f"account {by}"


@contextmanager
def _file_lock(path: Path, owner: str, action: str) -> Iterator[None]:
    """A lock on a file beside the database, which contains the description of its owner."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with file_lock(path, wait=False) as acquired:
            if acquired:
                with suppress(OSError):
                    path.write_text(owner, encoding="utf-8", newline="\n")
                yield
                return
        if time.monotonic() > deadline:
            text = ""
            with suppress(OSError):
                text = path.read_text(encoding="utf-8")
            raise _busy(action, text)
        time.sleep(_RETRY_SECONDS)


@contextmanager
def _advisory_lock(project: Project, lock: LockName, owner: str, action: str) -> Iterator[None]:
    """An advisory lock of PostgreSQL; the name of its connection describes its owner."""
    keys = {"key": _ADVISORY_KEY, "name": f"/{lock}"}
    deadline = time.monotonic() + PATIENCE
    engine = project.database.engine.execution_options(isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        acquire = sa.text(f"SELECT pg_try_advisory_lock(:key, {_SECOND_KEY})")
        while not connection.execute(acquire, keys).scalar_one():
            if time.monotonic() > deadline:
                raise _busy(action, _advisory_owner(connection, keys))
            time.sleep(_RETRY_SECONDS)
        try:
            name = {"owner": owner.encode("ascii", "replace").decode()[:_LONGEST_OWNER]}
            connection.execute(sa.text("SELECT set_config('application_name', :owner, false)"), name)
            yield
        finally:
            # The connection goes back to the pool.
            connection.execute(sa.text("RESET application_name"))
            connection.execute(sa.text(f"SELECT pg_advisory_unlock(:key, {_SECOND_KEY})"), keys)


def _advisory_owner(connection: sa.Connection, keys: dict[str, object]) -> str:
    """The description of who holds a lock; "" if it has just been released."""
    query = sa.text(
        "SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid) "
        "WHERE locktype = 'advisory' AND granted AND classid = :key "
        # PostgreSQL shows the second key as an unsigned number.
        f"AND objid::bigint = ({_SECOND_KEY}::bigint & 4294967295)"
    )
    return str(connection.execute(query, keys).scalars().first() or "")


def _busy(action: str, owner: str) -> ProjectBusyError:
    return ProjectBusyError(
        f"somebody else is changing the project, so {action!r} was not begun",
        found=owner or "a command that has just ended",
        hint="wait until it has ended, and try again",
    )
