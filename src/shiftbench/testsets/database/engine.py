"""Connecting: SQLite with a write-ahead log, or PostgreSQL; one way to read and one to write."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, OperationalError
from sqlalchemy.orm import Session, sessionmaker

from shiftbench.testsets.errors import WorkshopError

#: How long a writer waits for another one.
_BUSY_SECONDS = 60
_BEGIN = "shiftbench_begin"


class Database:
    """``with database.reading() as session`` and ``with database.writing() as session``.

    A writing block is one transaction: it is committed at its end, or leaves nothing behind.
    """

    def __init__(self, url: str, folder: Path) -> None:
        self.url = full_url(url, folder)
        #: The URL without its password, for people.
        self.shown = self.url.render_as_string(hide_password=True)
        self.is_sqlite = self.url.drivername.startswith("sqlite")
        self.engine = _engine(self.url)
        # SQLite lets one writer in at a time and has the others poll; a queue within the process is fairer.
        self._turn: AbstractContextManager[Any] = threading.RLock() if self.is_sqlite else nullcontext()
        self._read = sessionmaker(self.engine, expire_on_commit=False)
        # Asking for the lock at the first write only could fail, after another has written what was read here.
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
        """A transaction that nobody else changes the tables in."""
        try:
            with self._turn, self.engine.execution_options(**{_BEGIN: "BEGIN IMMEDIATE"}).begin() as connection:
                if not self.is_sqlite:
                    connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7305816)")
                yield connection
        except OperationalError as error:
            raise WorkshopError(
                f"the database {self.shown} can't be reached", found=str(error.orig).strip().splitlines()[0],
                hint="check that the server runs; SHIFTBENCH_DATABASE may carry the whole URL with its password",
            ) from None  # fmt: skip

    def close(self) -> None:
        self.engine.dispose()


def full_url(url: str, folder: Path) -> URL:
    """``sqlite`` is the file in the project's folder; ``postgres://`` and the like get their driver.

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
    """What may be written into a file.

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
        "the database can't be used",
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
    connection.isolation_level = None  # the driver shall not begin transactions on its own
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get(_BEGIN, "BEGIN"))
