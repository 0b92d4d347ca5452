"""A project: one folder with configuration, images and database; and its audit log.

pets/testset.toml        name, classes with their definitions, annotation rules
pets/testset.sqlite      the database, unless it is PostgreSQL
pets/images/ab/cdef...   original images, stored once under the digest of their bytes
pets/copies/ab/cdef...   what annotators see: small, re-encoded, without EXIF
pets/frozen/NAME/        frozen test sets, ready for evaluation
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from sqlalchemy import func, select
from sqlalchemy.orm import Session, joinedload

from shiftbench import LabelSpace
from shiftbench.testsets.configuration import FILE, Configuration, read_configuration, write_configuration
from shiftbench.testsets.database import (
    REFERENCE,
    AuditEntry,
    Database,
    Image,
    PoolEntry,
    ProjectRow,
    upgrade,
    without_password,
)
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
        self.folder = folder
        self.configuration = configuration
        self.database = database
        rules = configuration.annotation
        self.images = ImageStore(folder, rules.copy_pixels, rules.copy_fit, self._common_reference_size)
        #: The clock; replaced in tests, so that leases expire without waiting.
        self.now: Callable[[], datetime] = utc_now

    @classmethod
    def create(cls, folder: str | Path, configuration: Configuration, *, database: str | None = None) -> Project:
        """Create the folder and the tables. A password in the database URL is not written to ``testset.toml``."""
        folder = Path(folder)
        if (folder / FILE).exists():
            raise WorkshopError(f"{folder} is already a test-set project", hint="choose another folder")
        # The command line comes first, then the environment, which may hold a password.
        url = database or os.environ.get(VARIABLE) or configuration.database
        folder.mkdir(parents=True, exist_ok=True)
        connected = Database(url, folder)
        if connected.is_sqlite:
            # The file contains password hashes, so only its owner may read it.
            (folder / "testset.sqlite").touch(mode=0o600)
        upgrade(connected)
        with connected.reading() as session:
            if session.scalars(select(ProjectRow)).first() is not None:
                raise WorkshopError(
                    f"the database {connected.shown} already holds a test-set project",
                    hint="create an empty database for each project",
                )
        stored = replace(configuration, database=without_password(url))
        write_configuration(folder, stored)
        return cls(folder, stored, connected)._claimed()

    @classmethod
    def open(cls, folder: str | Path, *, database: str | None = None) -> Project:
        """The database is ``database``, else the variable SHIFTBENCH_DATABASE, else that of ``testset.toml``."""
        folder = Path(folder)
        configuration = read_configuration(folder)
        connected = Database(database or os.environ.get(VARIABLE) or configuration.database, folder)
        if connected.is_sqlite and not (folder / "testset.sqlite").is_file():
            raise WorkshopError(f"missing database in {folder}", found="no testset.sqlite")
        upgrade(connected)
        return cls(folder, configuration, connected)._claimed()

    def _claimed(self) -> Project:
        """A database belongs to the first project that opens it."""
        uid = self.configuration.id
        name = self.configuration.name
        with self.writing() as session:
            owner = session.scalars(select(ProjectRow)).first()
            if owner is None:
                session.add(ProjectRow(uid=uid, name=name, secret=secrets.token_hex(32), made_at=utc_now()))
            elif owner.uid != uid:
                raise WorkshopError(
                    f"the database {self.database.shown} belongs to another project",
                    found=f"{owner.name} ({owner.uid})",
                    expected=f"{name} ({uid})",
                    hint="check SHIFTBENCH_DATABASE and `database` in testset.toml",
                )
        return self

    @property
    def space(self) -> LabelSpace:
        return self.configuration.space

    @cached_property
    def secret(self) -> bytes:
        """The HMAC key of the opaque ids that annotators see."""
        with self.reading() as session:
            return bytes.fromhex(session.scalars(select(ProjectRow.secret)).one())

    def sign(self, text: str) -> bytes:
        """What only this project can make of a text: opaque ids, codes and tokens."""
        return hmac.digest(self.secret, text.encode("utf-8", "replace"), hashlib.sha256)

    def _common_reference_size(self) -> tuple[int, int] | None:
        """The width and height that most references have; None if there are none."""
        query = select(Image.width, Image.height).join(PoolEntry, PoolEntry.image_id == Image.id)
        query = query.where(PoolEntry.role == REFERENCE).group_by(Image.width, Image.height)
        query = query.order_by(func.count().desc(), Image.width.desc(), Image.height.desc())
        with self.reading() as session:
            row = session.execute(query.limit(1)).first()
        return None if row is None else (row.width, row.height)

    def reading(self) -> AbstractContextManager[Session]:
        """A transaction that only reads."""
        return self.database.reading()

    def writing(self) -> AbstractContextManager[Session]:
        """One transaction, committed or rolled back as a whole."""
        return self.database.writing()

    def close(self) -> None:
        """Close the database."""
        self.database.close()


def record(project: Project, session: Session, action: str, *, by: int | None = None, **details: object) -> None:
    """Add an audit entry within the transaction that it documents: both are committed, or neither."""
    session.add(AuditEntry(at=project.now(), account_id=by, action=action, details=details))


def note(project: Project, action: str, *, by: int | None = None, **details: object) -> None:
    """Add an audit entry in a transaction of its own, for requests that changed nothing."""
    with project.writing() as session:
        record(project, session, action, by=by, **details)


def audit_log(project: Project, *, last: int = 100) -> list[AuditEntry]:
    """The newest entries first: one for everything that affects what a set contains."""
    query = select(AuditEntry).options(joinedload(AuditEntry.account)).order_by(AuditEntry.id.desc()).limit(last)
    with project.reading() as session:
        return list(session.scalars(query))
