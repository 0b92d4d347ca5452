"""The project's database: its tables, connections (SQLite with a write-ahead log, or PostgreSQL) and schema upgrades.

A *pool entry* is an image as a candidate or reference for one class. A *task* is a grid of entries (its *slots*) for
one class; an *assignment* is a task leased to one annotator, and *selected slots* are the images they chose. Images of
a submitted assignment that are not selected were seen and rejected.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from functools import wraps
from importlib import resources
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import JSON, CheckConstraint, ForeignKey, Index, Integer, String, Text, UniqueConstraint
from sqlalchemy.exc import ArgumentError, DatabaseError, OperationalError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship, sessionmaker

from shiftbench.errors import MissingExtraError
from shiftbench.testsets.errors import DamagedError, DatabaseUnreachableError, WorkshopError

#: States of an assignment.
LEASED = "leased"
SUBMITTED = "submitted"
EXPIRED = "expired"
#: Roles of an entry.
CANDIDATE = "candidate"
REFERENCE = "reference"
#: Shown in the audit log for entries without an account: the command line, a visitor whose request was refused, or the
#: server, which excludes people who fail the qualification.
LOCAL_LEAD = "lead at the command line"
VISITOR = "visitor"
SERVER = "server"


class UtcDateTime(sa.TypeDecorator[datetime]):
    """Datetimes in UTC. SQLite stores no time zone, so it is restored on reading."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        if value is None or dialect.name != "sqlite":
            return value
        return value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            return value.replace(tzinfo=UTC)
        return value.astimezone(UTC)


JsonObject = dict[str, Any]


def digest_of(*values: object) -> str:
    """A digest of JSON values, to notice damage; it is no protection against people who can write the database."""
    text = json.dumps(values, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(text.encode("ascii"), digest_size=16).hexdigest()


def counts_digest(role: str, class_key: str, image: str, selected: int, annotations: int) -> str:
    """The digest of a pool entry: the digest and extension of its image, and the counts of its answers."""
    # Whole pools are read at once, so this is not left to the slower JSON.
    text = f"{role}\0{class_key}\0{image}\0{selected}\0{annotations}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class Base(DeclarativeBase):
    """The common base of all tables."""

    # Constraints have names, so that migrations can refer to them on both databases.
    metadata = sa.MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {datetime: UtcDateTime, JsonObject: JSON, str: Text, bool: sa.Boolean}  # noqa: RUF012


class Numbered(Base):
    """A table whose rows are numbered."""

    __abstract__ = True

    id: Mapped[int] = mapped_column(Integer, primary_key=True)


class ProjectRow(Base):
    """The project that the database belongs to; the only row of its table."""

    __tablename__ = "project"

    uid: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str]
    #: HMAC key of the opaque ids that annotators see.
    secret: Mapped[str]
    made_at: Mapped[datetime]


class Image(Numbered):
    """An image file, stored once under the digest of its bytes."""

    __tablename__ = "images"

    digest: Mapped[str] = mapped_column(String(40), unique=True)
    suffix: Mapped[str] = mapped_column(String(8))
    width: Mapped[int]
    height: Mapped[int]
    size: Mapped[int]


class PoolEntry(Numbered):
    """An image as a candidate or reference for one class, with its metadata."""

    __tablename__ = "entries"
    __table_args__ = (
        UniqueConstraint("role", "image_id", "class_key"),
        CheckConstraint("role IN ('candidate', 'reference')", name="role"),
        Index(None, "role", "class_key"),
        Index(None, "source", "source_id"),
        # Covers the histograms of selection frequencies.
        Index(None, "class_key", "role", "selected", "annotations"),
    )

    role: Mapped[str] = mapped_column(String(16))
    image_id: Mapped[int] = mapped_column(ForeignKey("images.id"), index=True)
    class_key: Mapped[str]
    #: Where it comes from (a folder, dataset or service), and its id there.
    source: Mapped[str]
    source_id: Mapped[str]
    query: Mapped[str | None]
    keyword: Mapped[str | None]
    date: Mapped[str | None]
    licence: Mapped[str | None]
    author: Mapped[str | None]
    url: Mapped[str | None]
    extra: Mapped[JsonObject]
    imported_at: Mapped[datetime]
    #: The answers that count: kept here by ``frequencies.recount``, so that pages need not count them.
    selected: Mapped[int] = mapped_column(default=0, server_default="0")
    annotations: Mapped[int] = mapped_column(default=0, server_default="0")
    #: The :func:`counts_digest` of the row.
    digest: Mapped[str] = mapped_column(String(32), server_default="")

    image: Mapped[Image] = relationship(lazy="joined", innerjoin=True)
    #: The marks that were not withdrawn.
    marks: Mapped[list[Mark]] = relationship(
        primaryjoin="and_(Mark.entry_id == PoolEntry.id, Mark.withdrawn_at.is_(None))",
        order_by="Mark.id",
        viewonly=True,
    )


class Account(Numbered):
    """A person who signs in by a password or a link; excluded ones are kept."""

    __tablename__ = "accounts"
    __table_args__ = (CheckConstraint("role IN ('lead', 'annotator', 'reviewer')", name="role"),)

    name: Mapped[str] = mapped_column(Text, unique=True)
    role: Mapped[str] = mapped_column(String(16))
    password: Mapped[str | None]
    made_at: Mapped[datetime]
    excluded_at: Mapped[datetime | None]
    excluded_because: Mapped[str | None]


class Worker(Numbered):
    """A person who was recruited by a crowd platform, and their account."""

    __tablename__ = "workers"
    __table_args__ = (UniqueConstraint("platform", "worker"),)

    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), unique=True)
    platform: Mapped[str] = mapped_column(String(16))
    #: The platform's id of the person.
    worker: Mapped[str]
    #: The hash of the secret in the browser that the account is bound to. Worker ids are no secrets. None: the next
    #: browser that names the worker is bound.
    browser_hash: Mapped[str | None] = mapped_column(String(64))

    account: Mapped[Account] = relationship()


class PlatformAssignment(Numbered):
    """What a platform pays a worker for at once: an assignment of MTurk, or a submission of Prolific."""

    __tablename__ = "platform_assignments"
    __table_args__ = (UniqueConstraint("worker_id", "key"), UniqueConstraint("code"))

    worker_id: Mapped[int] = mapped_column(ForeignKey("workers.id"))
    #: The platform's id of it; "" if the platform has none.
    key: Mapped[str]
    #: Other ids of the platform: study, or HIT and where its form is submitted.
    details: Mapped[JsonObject]
    #: Shown to the worker after the first answer, unless the project has one code for everybody.
    code: Mapped[str] = mapped_column(String(16))
    made_at: Mapped[datetime]
    #: When its link was opened last. The answers of a worker count for the assignment that was opened last.
    opened_at: Mapped[datetime]
    #: When the worker said that they are done.
    finished_at: Mapped[datetime | None]

    worker: Mapped[Worker] = relationship()


class Invitation(Numbered):
    """A personal link; the account is created when it is first opened."""

    __tablename__ = "invitations"

    token_hash: Mapped[str] = mapped_column(String(64), unique=True)
    role: Mapped[str] = mapped_column(String(16))
    #: The name given by the lead.
    name: Mapped[str]
    account_id: Mapped[int | None] = mapped_column(ForeignKey("accounts.id"), unique=True)
    made_at: Mapped[datetime]
    expires_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]

    account: Mapped[Account | None] = relationship()

    def valid(self, now: datetime) -> bool:
        return self.revoked_at is None and self.expires_at > now


class SignIn(Numbered):
    """A session of somebody who signed in."""

    __tablename__ = "sign_ins"

    token_hash: Mapped[str] = mapped_column(String(64), unique=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), index=True)
    made_at: Mapped[datetime]
    expires_at: Mapped[datetime]


class AuditEntry(Numbered):
    """An entry of the audit log. Rows are added, never changed."""

    __tablename__ = "audit_log"

    at: Mapped[datetime]
    #: None for entries without an account, which :attr:`who` names.
    account_id: Mapped[int | None] = mapped_column(ForeignKey("accounts.id"))
    action: Mapped[str]
    details: Mapped[JsonObject]

    account: Mapped[Account | None] = relationship()

    @property
    def who(self) -> str:
        if self.account:
            return self.account.name
        without_account = {"refused": VISITOR, "disqualify": SERVER}
        return without_account.get(self.action, LOCAL_LEAD)


class Task(Numbered):
    """A grid of one class; without a class (""), the annotator chooses one for each image.

    ``places_left`` is ``wished`` minus the annotators who hold or have answered it.
    """

    __tablename__ = "tasks"
    __table_args__ = (Index(None, "places_left", "rank"),)

    class_key: Mapped[str]
    wished: Mapped[int]
    places_left: Mapped[int]
    #: The order in which tasks are given out.
    rank: Mapped[str] = mapped_column(String(16))
    made_at: Mapped[datetime]
    #: Since when it is not given out any more.
    closed_at: Mapped[datetime | None]
    #: Since when its answers do not count, because it was made by mistake.
    cancelled_at: Mapped[datetime | None]


class Slot(Numbered):
    """One image of a grid. Its purpose follows from its entry's role and class."""

    __tablename__ = "slots"
    __table_args__ = (UniqueConstraint("task_id", "entry_id"),)

    task_id: Mapped[int] = mapped_column(ForeignKey("tasks.id"))
    entry_id: Mapped[int] = mapped_column(ForeignKey("entries.id"), index=True)


class ControlCounts:
    """Sums over the control images of answers, of the class and of others."""

    @property
    def controls(self: Any) -> int:
        return int(self.positives + self.negatives)

    @property
    def right(self: Any) -> int:
        return int(self.positives_selected + self.negatives_left)


class Assignment(ControlCounts, Numbered):
    """A task leased to an annotator, and the answer once it is submitted."""

    __tablename__ = "assignments"
    __table_args__ = (
        UniqueConstraint("task_id", "account_id"),
        CheckConstraint("state IN ('leased', 'submitted', 'expired')", name="state"),
        Index(None, "state", "expires_at"),
        Index(None, "account_id", "state"),
    )

    #: The opaque id that the annotator sees.
    token: Mapped[str] = mapped_column(String(64), unique=True)
    task_id: Mapped[int] = mapped_column(ForeignKey("tasks.id"))
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    #: What a recruited worker answered it for.
    platform_assignment_id: Mapped[int | None] = mapped_column(ForeignKey("platform_assignments.id"), index=True)
    state: Mapped[str] = mapped_column(String(16))
    leased_at: Mapped[datetime]
    expires_at: Mapped[datetime]
    submitted_at: Mapped[datetime | None]
    #: What the annotator reports: {"comment": text, "unsure": [slot, ...], "problem": [slot, ...]}.
    remarks: Mapped[JsonObject | None] = mapped_column(JSON)
    #: Of a submitted answer: how long it took, images seen and selected, and controls of the class and of others.
    seconds: Mapped[float] = mapped_column(sa.Float, default=0.0, server_default="0")
    images: Mapped[int] = mapped_column(default=0, server_default="0")
    selected: Mapped[int] = mapped_column(default=0, server_default="0")
    positives: Mapped[int] = mapped_column(default=0, server_default="0")
    positives_selected: Mapped[int] = mapped_column(default=0, server_default="0")
    negatives: Mapped[int] = mapped_column(default=0, server_default="0")
    negatives_left: Mapped[int] = mapped_column(default=0, server_default="0")
    #: Of a submitted answer: the digest of everything that belongs to it.
    digest: Mapped[str] = mapped_column(String(32), default="", server_default="")

    task: Mapped[Task] = relationship()


class SelectedSlot(Base):
    """An image that was selected in an answer."""

    __tablename__ = "selections"

    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignments.id"), primary_key=True)
    slot_id: Mapped[int] = mapped_column(ForeignKey("slots.id"), primary_key=True, index=True)
    #: In a grid without a class: the class that was chosen.
    label: Mapped[str | None]


class Search(Numbered):
    """A dataset that candidates were compared with, and up to which pool entry. The pool itself has no source."""

    __tablename__ = "searches"

    name: Mapped[str] = mapped_column(Text, unique=True)
    #: What opens it again; None: the candidates themselves and the references.
    source: Mapped[str | None]
    fingerprint: Mapped[str]
    images: Mapped[int]
    last_entry: Mapped[int]
    at: Mapped[datetime]
    #: Descriptors, neighbours and thresholds.
    options: Mapped[JsonObject]


class NearPair(Numbered):
    """A candidate and a similar image, of the pool or of another dataset, to be judged by a person."""

    __tablename__ = "near_pairs"
    __table_args__ = (
        UniqueConstraint("entry_id", "other_id"),
        UniqueConstraint("entry_id", "other_image_id"),
        CheckConstraint("state IN ('open', 'dismissed', 'confirmed')", name="state"),
        Index(None, "state"),
    )

    entry_id: Mapped[int] = mapped_column(ForeignKey("entries.id"))
    other_id: Mapped[int | None] = mapped_column(ForeignKey("entries.id"))
    #: An image that is not in the pool: its file, its dataset and its id there.
    other_image_id: Mapped[int | None] = mapped_column(ForeignKey("images.id"))
    other_name: Mapped[str | None]
    distances: Mapped[JsonObject]
    state: Mapped[str] = mapped_column(String(16), default="open")
    decided_by: Mapped[int | None] = mapped_column(ForeignKey("accounts.id"))
    decided_at: Mapped[datetime | None]

    entry: Mapped[PoolEntry] = relationship(foreign_keys=[entry_id])
    other: Mapped[PoolEntry | None] = relationship(foreign_keys=[other_id])
    other_image: Mapped[Image | None] = relationship(foreign_keys=[other_image_id])

    @property
    def resembles(self) -> str:
        """The role and class of the other image, or its dataset and id."""
        if self.other:
            return f"{self.other.role}, {self.other.class_key}"
        return str(self.other_name)


class Mark(Numbered):
    """Excludes a candidate from all sets. Withdrawn marks are kept."""

    __tablename__ = "marks"
    __table_args__ = (CheckConstraint("kind IN ('blacklist', 'near-duplicate')", name="kind"),)

    entry_id: Mapped[int] = mapped_column(ForeignKey("entries.id"), index=True)
    kind: Mapped[str] = mapped_column(String(16))
    note: Mapped[str]
    made_by: Mapped[int | None] = mapped_column(ForeignKey("accounts.id"))
    made_at: Mapped[datetime]
    withdrawn_at: Mapped[datetime | None]

    entry: Mapped[PoolEntry] = relationship()
    maker: Mapped[Account | None] = relationship()


class Revision(Numbered):
    """A sample of candidates: revision 1, 2, ... of a named set. A frozen one is final."""

    __tablename__ = "revisions"
    __table_args__ = (UniqueConstraint("set_name", "number"),)

    set_name: Mapped[str] = mapped_column(String(64))
    number: Mapped[int]
    made_at: Mapped[datetime]
    made_by: Mapped[int | None] = mapped_column(ForeignKey("accounts.id"))
    #: strategy, options, per_class, seed
    sampling: Mapped[JsonObject]
    report: Mapped[JsonObject]
    note: Mapped[str]
    frozen_at: Mapped[datetime | None]
    fingerprint: Mapped[str | None]

    @property
    def images(self) -> int:
        return int(self.report["images"])


class RevisionImage(Base):
    """An image of a revision, at its place in the set's random order."""

    __tablename__ = "revision_images"

    revision_id: Mapped[int] = mapped_column(ForeignKey("revisions.id"), primary_key=True)
    entry_id: Mapped[int] = mapped_column(ForeignKey("entries.id"), primary_key=True, index=True)
    position: Mapped[int]
    #: The bin or keyword it was drawn for, and whether it replaces one that ran out of images.
    drawn_for: Mapped[str]
    fallback: Mapped[bool]


class ClassReview(Base):
    """All images of a class in a revision have been reviewed."""

    __tablename__ = "class_reviews"

    revision_id: Mapped[int] = mapped_column(ForeignKey("revisions.id"), primary_key=True)
    class_key: Mapped[str] = mapped_column(Text, primary_key=True)
    account_id: Mapped[int | None] = mapped_column(ForeignKey("accounts.id"))
    at: Mapped[datetime]


#: How long a writer waits for another.
_BUSY_SECONDS = 60
#: The execution option of a connection that holds its statement for beginning a transaction.
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
        self._turn: AbstractContextManager[object] = threading.RLock() if self.is_sqlite else nullcontext()
        # A reader of several tables sees one moment, as with SQLite: otherwise an answer that somebody stores between
        # two queries would look like damage, or give a card numbers that do not belong together.
        snapshot = self.engine if self.is_sqlite else self.engine.execution_options(isolation_level="REPEATABLE READ")
        self._read = sessionmaker(snapshot, expire_on_commit=False)
        # Taking the lock only at the first write could fail if another transaction has changed what was read here.
        immediate = self.engine.execution_options(**{_BEGIN: "BEGIN IMMEDIATE"})
        self._write = sessionmaker(immediate, expire_on_commit=False)

    @contextmanager
    def reading(self) -> Iterator[Session]:
        with _errors_named(self.shown), self._read() as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        with _errors_named(self.shown), self._turn, self._write.begin() as session:
            yield session

    def close(self) -> None:
        self.engine.dispose()


#: How often a transaction is tried that PostgreSQL ends because of a deadlock.
_MOST_ATTEMPTS = 5
#: What PostgreSQL calls a deadlock.
_DEADLOCK = "40P01"
P = ParamSpec("P")
R = TypeVar("R")


def repeated_after_deadlock(change: Callable[P, R]) -> Callable[P, R]:
    """Repeat a function that is one transaction if PostgreSQL ended it because of a deadlock.

    Locks are taken in one order wherever the order is known in advance. A lead's command that changes many grids may
    still meet an answer to one of them; PostgreSQL then ends one of the two transactions, which nobody should notice.
    """

    @wraps(change)
    def repeated(*arguments: P.args, **options: P.kwargs) -> R:
        for _ in range(_MOST_ATTEMPTS - 1):
            try:
                return change(*arguments, **options)
            except OperationalError as error:
                if getattr(error.orig, "sqlstate", None) != _DEADLOCK:
                    raise
        return change(*arguments, **options)

    return repeated


#: What SQLite says of a file whose pages or texts are damaged.
_DAMAGE_MESSAGES = ("malformed", "not a database", "Could not decode to UTF-8", "database corruption", "out of memory")


@contextmanager
def _errors_named(shown: str) -> Iterator[None]:
    """Turn the errors of a damaged database into DamagedError, and those of one out of reach into UnreachableError."""
    try:
        yield
    except DatabaseError as error:
        # PostgreSQL gives each of its errors a state; one without was raised by the client, for want of a server.
        if error.connection_invalidated or getattr(error.orig, "sqlstate", "") is None:
            raise unreachable(shown, error) from error
        if any(message in str(error.orig) for message in _DAMAGE_MESSAGES):
            raise damaged_error(str(error.orig).splitlines()[0]) from error
        raise
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        # A value that cannot be read, such as a time: the error comes from within the library that reads the rows.
        if isinstance(error, UnicodeDecodeError) or _comes_from_reading_rows(error):
            raise damaged_error(f"a value that cannot be read: {error}") from error
        raise


def _comes_from_reading_rows(error: BaseException) -> bool:
    trace = error.__traceback__
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        if module.startswith(("sqlalchemy.engine.result", "sqlalchemy.engine.cursor", "sqlalchemy.orm.loading")):
            return True
        trace = trace.tb_next
    return False


def unreachable(shown: str, error: DatabaseError) -> DatabaseUnreachableError:
    """The error about a database that does not answer."""
    return DatabaseUnreachableError(
        f"cannot connect to the database {shown}",
        found=str(error.orig).strip().splitlines()[0],
        hint="check that the server is running, then repeat the command; SHIFTBENCH_DATABASE may hold the full URL "
        "with its password",
    )


def damaged_error(found: str) -> DamagedError:
    return DamagedError(
        "the database is damaged",
        found=found,
        expected="rows as the program wrote them",
        hint="`shiftbench testset verify DIR` names the damage; restore the database from a backup",
    )


def full_url(url: str, folder: Path) -> sa.URL:
    """``sqlite`` is the file in the project's folder; ``postgres://`` and similar schemes get their driver.

    >>> full_url("sqlite", Path("pets"))
    sqlite+pysqlite:///pets/testset.sqlite
    >>> full_url("postgres://lead:secret@localhost/pets", Path("pets"))
    postgresql+psycopg://lead:***@localhost/pets
    """
    if url == "sqlite":
        return sa.URL.create("sqlite+pysqlite", database=str(folder / "testset.sqlite"))
    try:
        parsed = sa.make_url(url)
        scheme = parsed.drivername
        if scheme in ("postgres", "postgresql", "postgresql+psycopg"):
            return parsed.set(drivername="postgresql+psycopg")
    except ArgumentError:
        scheme = url.partition(":")[0]
    expected = "sqlite, or postgresql+psycopg://USER:PASSWORD@HOST/DATABASE"
    raise WorkshopError("unsupported database", found=f"{scheme}:...", expected=expected)


def without_password(url: str) -> str:
    """The URL as it may be written to a file."""
    if url == "sqlite":
        return url
    parsed = sa.make_url(url)
    # set(password=None) would keep the password.
    return parsed._replace(password=None).render_as_string(hide_password=False)


#: Options of PostgreSQL's client: without them, a page waits a quarter of an hour for a server that has vanished.
_CONNECTION_LIMITS = {
    "connect_timeout": 10,
    "tcp_user_timeout": 30_000,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}


def _engine(url: sa.URL) -> sa.Engine:
    """Connections that are kept for reuse; those of SQLite begin transactions explicitly."""
    if not url.drivername.startswith("sqlite"):
        # What the URL states is kept.
        limits = {key: value for key, value in _CONNECTION_LIMITS.items() if key not in url.query}
        try:
            return sa.create_engine(url, pool_pre_ping=True, pool_size=16, max_overflow=32, connect_args=limits)
        except ModuleNotFoundError as error:
            raise MissingExtraError(str(error.name), "postgres", "a PostgreSQL database") from error
    engine = sa.create_engine(url, connect_args={"timeout": _BUSY_SECONDS}, pool_size=16, max_overflow=64)

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, record: object) -> None:
        # The driver must not begin transactions on its own.
        connection.isolation_level = None
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            connection.execute(f"PRAGMA {pragma}")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get(_BEGIN, "BEGIN"))

    return engine


def upgrade(database: Database) -> None:
    """Create the tables of an empty database, or run missing migrations; refuse one of a later shiftbench version."""
    config = Config()
    with resources.as_file(resources.files("shiftbench.testsets").joinpath("migrations")) as folder:
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        # The newest version comes first.
        versions = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
        try:
            with database.writing() as session:
                connection = session.connection()
                if not database.is_sqlite:
                    # Two processes must not upgrade the schema at once; writers of SQLite exclude each other anyway.
                    connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7305816)")
                config.attributes["connection"] = connection
                version = MigrationContext.configure(connection).get_current_revision()
                if version is None:
                    Base.metadata.create_all(connection)
                    command.stamp(config, "head")
                elif version not in versions:
                    raise WorkshopError(
                        f"the database {database.shown} was written by a later version of shiftbench",
                        found=f"schema version {version}",
                        expected=f"at most {versions[0]}",
                        hint="update shiftbench",
                    )
                elif version != versions[0]:
                    command.upgrade(config, "head")
        except OperationalError as error:
            raise unreachable(database.shown, error) from None
