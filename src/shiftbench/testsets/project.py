"""A project: one folder with configuration, images and database.

pets/testset.toml        name, classes with their definitions, annotation rules
pets/testset.sqlite      the database, unless it is PostgreSQL
pets/images/ab/cdef...   original images, stored once under the digest of their bytes
pets/copies/ab/cdef...   what annotators see: small, re-encoded, without EXIF
pets/frozen/NAME/        frozen test sets, ready for evaluation
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from shiftbench.labels.space import LabelSpace
from shiftbench.testsets.configuration import FILE, Configuration, read_configuration, write_configuration
from shiftbench.testsets.database.engine import Database, upgrade, without_password
from shiftbench.testsets.database.tables import ProjectRow
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.pool.images import ImageStore

#: Environment variable that overrides the database URL of ``testset.toml``; the place for a password.
VARIABLE = "SHIFTBENCH_DATABASE"


def utc_now() -> datetime:
    return datetime.now(UTC)


class Project:
    """Opened by ``Project.open(folder)``, created by ``Project.create(folder, configuration)``.

    Everything else in the workshop is a function with a project as its first argument.

    Args:
        folder: Folder of the project.
        configuration: The content of ``testset.toml``.
        database: The opened database.
    """

    def __init__(self, folder: Path, configuration: Configuration, database: Database) -> None:
        self.folder, self.configuration, self.database = folder, configuration, database
        self.images = ImageStore(folder, configuration.annotation.copy_pixels, configuration.annotation.copy_fit)
        #: The clock; replaced in tests, so that leases expire without waiting.
        self.now: Callable[[], datetime] = utc_now
        self._secret: bytes | None = None

    @classmethod
    def create(cls, folder: str | Path, configuration: Configuration, *, database: str | None = None) -> Project:
        """Create the folder and the tables. A password in the database URL is not written to ``testset.toml``."""
        folder = Path(folder)
        if (folder / FILE).exists():
            raise WorkshopError(f"{folder} is already a test-set project", hint="choose another folder")
        url = database or os.environ.get(VARIABLE) or configuration.database
        folder.mkdir(parents=True, exist_ok=True)
        connected = Database(url, folder)
        if connected.is_sqlite:  # contains password hashes: readable by the owner only
            (folder / "testset.sqlite").touch(mode=0o600)
        upgrade(connected)
        _check_free(connected)
        stored = replace(configuration, database=without_password(url))
        write_configuration(folder, stored)
        _claim(connected, stored)
        return cls(folder, stored, connected)

    @classmethod
    def open(cls, folder: str | Path, *, database: str | None = None) -> Project:
        """The database is ``database``, else the variable SHIFTBENCH_DATABASE, else that of ``testset.toml``."""
        folder = Path(folder)
        configuration = read_configuration(folder)
        connected = Database(database or os.environ.get(VARIABLE) or configuration.database, folder)
        if connected.is_sqlite and not (folder / "testset.sqlite").is_file():
            raise WorkshopError(f"missing database in {folder}", found="no testset.sqlite")
        upgrade(connected)
        _claim(connected, configuration)
        return cls(folder, configuration, connected)

    @property
    def space(self) -> LabelSpace:
        return self.configuration.space

    @property
    def secret(self) -> bytes:
        """The HMAC key of the opaque ids that annotators see."""
        if self._secret is None:
            with self.reading() as session:
                self._secret = bytes.fromhex(session.scalars(select(ProjectRow.secret)).one())
        return self._secret

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A transaction that only reads."""
        with self.database.reading() as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """One transaction, committed or rolled back as a whole."""
        with self.database.writing() as session:
            yield session

    def close(self) -> None:
        """Close the database."""
        self.database.close()


def _check_free(database: Database) -> None:
    with database.reading() as session:
        if session.scalars(select(ProjectRow)).first() is not None:
            raise WorkshopError(
                f"the database {database.shown} already holds a test-set project",
                hint="create an empty database for each project",
            )


def _claim(database: Database, configuration: Configuration) -> None:
    """A database belongs to the first project that opens it."""
    with database.reading() as session:
        owner = session.scalars(select(ProjectRow)).first()
    if owner is None:
        with database.writing() as session:
            made = ProjectRow(
                uid=configuration.id, name=configuration.name, secret=secrets.token_hex(32), made_at=utc_now()
            )
            session.add(made)
    elif owner.uid != configuration.id:
        raise WorkshopError(
            f"the database {database.shown} belongs to another project",
            found=f"{owner.name} ({owner.uid})",
            expected=f"{configuration.name} ({configuration.id})",
            hint="check SHIFTBENCH_DATABASE and `database` in testset.toml",
        )
