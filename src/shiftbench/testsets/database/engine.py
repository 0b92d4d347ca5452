"""Database connections: SQLite with a write-ahead log, or PostgreSQL; and schema upgrades."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import resources
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, OperationalError
from sqlalchemy.orm import Session, sessionmaker

from shiftbench.testsets.database.tables import Base
from shiftbench.testsets.errors import WorkshopError

#: How long a writer waits for another.
_BUSY_SECONDS = 60
_BEGIN = "shiftbench_begin"


class Database:
    """``with database.reading() as session`` and ``with database.writing() as session``.

    A writing block is one transaction: it is committed at the end, or rolled back.
    """

    def __init__(self, url: str, folder: Path) -> None:
        self.url = full_url(url, folder)
        #: The URL without its password, for messages.
        self.shown = self.url.render_as_string(hide_password=True)
        self.is_sqlite = self.url.drivername.startswith("sqlite")
        self.engine = _engine(self.url)
        # SQLite allows one writer at a time and lets others poll; a lock within the process is fairer.
        self._turn: AbstractContextManager[Any] = threading.RLock() if self.is_sqlite else nullcontext()
        self._read = sessionmaker(self.engine, expire_on_commit=False)
        # Taking the lock only at the first write could fail if another transaction has changed what was read here.
        immediate = self.engine.execution_options(**{_BEGIN: "BEGIN IMMEDIATE"})
        self._write = sessionmaker(immediate, expire_on_commit=False)

    @contextmanager
    def reading(self) -> Iterator[Session]:
        with self._read() as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        with self._turn, self._write.begin() as session:
            yield session

    @contextmanager
    def schema_change(self) -> Iterator[Connection]:
        """A transaction with exclusive access to the schema."""
        try:
            with self._turn, self.engine.execution_options(**{_BEGIN: "BEGIN IMMEDIATE"}).begin() as connection:
                if not self.is_sqlite:
                    connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7305816)")
                yield connection
        except OperationalError as error:
            raise WorkshopError(
                f"cannot connect to the database {self.shown}", found=str(error.orig).strip().splitlines()[0],
                hint="check that the server is running; SHIFTBENCH_DATABASE may hold the full URL with its password",
            ) from None  # fmt: skip

    def close(self) -> None:
        self.engine.dispose()


def full_url(url: str, folder: Path) -> URL:
    """``sqlite`` is the file in the project's folder; ``postgres://`` and similar schemes get their driver.

    >>> full_url("sqlite", Path("pets"))
    sqlite+pysqlite:///pets/testset.sqlite
    >>> full_url("postgres://lead:secret@localhost/pets", Path("pets"))
    postgresql+psycopg://lead:***@localhost/pets
    """
    if url == "sqlite":
        return URL.create("sqlite+pysqlite", database=str(folder / "testset.sqlite"))
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise _unknown(url.partition(":")[0]) from None
    if parsed.drivername in ("postgres", "postgresql", "postgresql+psycopg"):
        return parsed.set(drivername="postgresql+psycopg")
    raise _unknown(parsed.drivername)


def without_password(url: str) -> str:
    """The URL as it may be written to a file.

    >>> without_password("postgresql+psycopg://lead:secret@db/pets")
    'postgresql+psycopg://lead@db/pets'
    """
    if url == "sqlite":
        return url
    parsed = make_url(url)
    # set(password=None) means "as it was"
    return parsed._replace(password=None).render_as_string(hide_password=False)


def _unknown(scheme: str) -> WorkshopError:
    return WorkshopError(
        "unsupported database",
        found=f"{scheme}:...",
        expected="sqlite, or postgresql+psycopg://USER:PASSWORD@HOST/DATABASE",
    )


def _engine(url: URL) -> Engine:
    if not url.drivername.startswith("sqlite"):
        try:
            return create_engine(url, pool_pre_ping=True, pool_size=16, max_overflow=32)
        except ModuleNotFoundError as error:
            from shiftbench.errors import MissingExtraError

            raise MissingExtraError(str(error.name), "postgres", "a PostgreSQL database") from error
    engine = create_engine(url, connect_args={"timeout": _BUSY_SECONDS}, pool_size=16, max_overflow=64)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, record: object) -> None:
    connection.isolation_level = None  # the driver must not begin transactions on its own
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get(_BEGIN, "BEGIN"))


def upgrade(database: Database) -> None:
    """Create the tables of an empty database, or run missing migrations; refuse one of a later shiftbench version."""
    config = Config()
    with resources.as_file(resources.files("shiftbench.testsets").joinpath("migrations")) as folder:
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        known = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
        with database.schema_change() as connection:
            config.attributes["connection"] = connection
            found = MigrationContext.configure(connection).get_current_revision()
            if found is None:
                Base.metadata.create_all(connection)
                command.stamp(config, "head")
            elif found not in known:
                raise WorkshopError(
                    f"the database {database.shown} was written by a later version of shiftbench",
                    found=f"schema version {found}",
                    expected=f"at most {known[0]}",
                    hint="update shiftbench",
                )
            elif found != known[0]:
                command.upgrade(config, "head")
