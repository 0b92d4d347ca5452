"""The tables of a project.

A *pool entry* is an image as a candidate or reference for one class. A *task* is a grid of entries (its *slots*) for
one class; an *assignment* is a task leased to one annotator, and *selected slots* are the images they chose. Images of
a submitted assignment that are not selected were seen and rejected.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    CheckConstraint,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

#: States of an assignment.
LEASED, SUBMITTED, EXPIRED = "leased", "submitted", "expired"
#: Roles of an entry.
CANDIDATE, REFERENCE = "candidate", "reference"


class UtcDateTime(TypeDecorator[datetime]):
    """Datetimes in UTC. SQLite stores no time zone, so it is restored on reading."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None or dialect.name != "sqlite":
            return value
        return value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    # Constraints have names, so that migrations can refer to them on both databases.
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {datetime: UtcDateTime, dict[str, Any]: JSON, str: Text, bool: Boolean}  # noqa: RUF012


class ProjectRow(Base):
    """One row: the project that this database belongs to."""

    __tablename__ = "project"

    uid: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str]
    #: HMAC key of the opaque ids that annotators see.
    secret: Mapped[str]
    made_at: Mapped[datetime]


class Image(Base):
    """An image file, stored once under the digest of its bytes."""

    __tablename__ = "images"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    digest: Mapped[str] = mapped_column(String(40), unique=True)
    suffix: Mapped[str] = mapped_column(String(8))
    width: Mapped[int]
    height: Mapped[int]
    size: Mapped[int]


class PoolEntry(Base):
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

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
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
    extra: Mapped[dict[str, Any]]
    imported_at: Mapped[datetime]
    #: The answers that count: kept here by ``frequencies.recount``, so that pages need not count them.
    selected: Mapped[int] = mapped_column(default=0, server_default="0")
    annotations: Mapped[int] = mapped_column(default=0, server_default="0")

    image: Mapped[Image] = relationship(lazy="joined", innerjoin=True)


class Account(Base):
    __tablename__ = "accounts"
    __table_args__ = (CheckConstraint("role IN ('lead', 'annotator', 'reviewer')", name="role"),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    name: Mapped[str] = mapped_column(Text, unique=True)
    role: Mapped[str] = mapped_column(String(16))
    password: Mapped[str | None]
    made_at: Mapped[datetime]
    excluded_at: Mapped[datetime | None]
    excluded_because: Mapped[str | None]


class Worker(Base):
    """A person recruited by a crowd platform, tied to one account."""

    __tablename__ = "workers"
    __table_args__ = (UniqueConstraint("platform", "worker"),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), unique=True)
    platform: Mapped[str] = mapped_column(String(16))
    #: The platform's id of the person.
    worker: Mapped[str]
    #: Other ids of the platform: study and session, or HIT, assignment and where its form is submitted.
    details: Mapped[dict[str, Any]]


class Invitation(Base):
    """A personal link, tied to one account."""

    __tablename__ = "invitations"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    token_hash: Mapped[str] = mapped_column(String(64), unique=True)
    role: Mapped[str] = mapped_column(String(16))
    #: The name given by the lead.
    name: Mapped[str]
    account_id: Mapped[int | None] = mapped_column(ForeignKey("accounts.id"), unique=True)
    made_at: Mapped[datetime]
    expires_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]


class SignIn(Base):
    """A session of a signed-in account."""

    __tablename__ = "sign_ins"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    token_hash: Mapped[str] = mapped_column(String(64), unique=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), index=True)
    made_at: Mapped[datetime]
    expires_at: Mapped[datetime]


class AuditEntry(Base):
    """An entry of the audit log. Rows are added, never changed."""

    __tablename__ = "audit_log"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    at: Mapped[datetime]
    #: None: the command line.
    account_id: Mapped[int | None] = mapped_column(ForeignKey("accounts.id"))
    action: Mapped[str]
    details: Mapped[dict[str, Any]]


class Task(Base):
    """A grid of one class. ``places_left`` is ``wished`` minus the annotators who hold or have answered it."""

    __tablename__ = "tasks"
    __table_args__ = (Index(None, "places_left", "rank"),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    class_key: Mapped[str]
    wished: Mapped[int]
    places_left: Mapped[int]
    #: The order in which tasks are given out.
    rank: Mapped[str] = mapped_column(String(16))
    made_at: Mapped[datetime]


class Slot(Base):
    """One image of a grid. Its purpose follows from its entry's role and class."""

    __tablename__ = "slots"
    __table_args__ = (UniqueConstraint("task_id", "entry_id"),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    task_id: Mapped[int] = mapped_column(ForeignKey("tasks.id"))
    entry_id: Mapped[int] = mapped_column(ForeignKey("entries.id"), index=True)

    entry: Mapped[PoolEntry] = relationship()


class Assignment(Base):
    """A task leased to one annotator."""

    __tablename__ = "assignments"
    __table_args__ = (
        UniqueConstraint("task_id", "account_id"),
        CheckConstraint("state IN ('leased', 'submitted', 'expired')", name="state"),
        Index(None, "state", "expires_at"),
        Index(None, "account_id", "state"),
    )

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    #: The opaque id that the annotator sees.
    token: Mapped[str] = mapped_column(String(64), unique=True)
    task_id: Mapped[int] = mapped_column(ForeignKey("tasks.id"))
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    state: Mapped[str] = mapped_column(String(16))
    leased_at: Mapped[datetime]
    expires_at: Mapped[datetime]
    submitted_at: Mapped[datetime | None]
    #: What the annotator reports: {"comment": text, "unsure": [slot, ...], "problem": [slot, ...]}.
    remarks: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    #: Of a submitted answer: how long it took, images seen and selected, and controls of the class and of others.
    seconds: Mapped[float] = mapped_column(Float, default=0.0, server_default="0")
    images: Mapped[int] = mapped_column(default=0, server_default="0")
    selected: Mapped[int] = mapped_column(default=0, server_default="0")
    positives: Mapped[int] = mapped_column(default=0, server_default="0")
    positives_selected: Mapped[int] = mapped_column(default=0, server_default="0")
    negatives: Mapped[int] = mapped_column(default=0, server_default="0")
    negatives_left: Mapped[int] = mapped_column(default=0, server_default="0")

    task: Mapped[Task] = relationship()


class SelectedSlot(Base):
    __tablename__ = "selections"

    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignments.id"), primary_key=True)
    slot_id: Mapped[int] = mapped_column(ForeignKey("slots.id"), primary_key=True, index=True)


class Search(Base):
    """A dataset that candidates were compared with, and up to which pool entry. The pool itself has no source."""

    __tablename__ = "searches"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    name: Mapped[str] = mapped_column(Text, unique=True)
    #: What opens it again; None: the candidates themselves and the references.
    source: Mapped[str | None]
    fingerprint: Mapped[str]
    images: Mapped[int]
    last_entry: Mapped[int]
    at: Mapped[datetime]
    #: Descriptors, neighbours and thresholds.
    options: Mapped[dict[str, Any]]


class NearPair(Base):
    """A candidate and a similar image, of the pool or of another dataset, to be judged by a person."""

    __tablename__ = "near_pairs"
    __table_args__ = (
        UniqueConstraint("entry_id", "other_id"),
        UniqueConstraint("entry_id", "other_image_id"),
        CheckConstraint("state IN ('open', 'dismissed', 'confirmed')", name="state"),
        Index(None, "state"),
    )

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    entry_id: Mapped[int] = mapped_column(ForeignKey("entries.id"))
    other_id: Mapped[int | None] = mapped_column(ForeignKey("entries.id"))
    #: An image that is not in the pool: its file, its dataset and its id there.
    other_image_id: Mapped[int | None] = mapped_column(ForeignKey("images.id"))
    other_name: Mapped[str | None]
    distances: Mapped[dict[str, Any]]
    state: Mapped[str] = mapped_column(String(16), default="open")
    decided_by: Mapped[int | None] = mapped_column(ForeignKey("accounts.id"))
    decided_at: Mapped[datetime | None]

    entry: Mapped[PoolEntry] = relationship(foreign_keys=[entry_id])
    other: Mapped[PoolEntry | None] = relationship(foreign_keys=[other_id])
    other_image: Mapped[Image | None] = relationship(foreign_keys=[other_image_id])


class Mark(Base):
    """Excludes a candidate from all sets. Withdrawn marks are kept."""

    __tablename__ = "marks"
    __table_args__ = (CheckConstraint("kind IN ('blacklist', 'near-duplicate')", name="kind"),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    entry_id: Mapped[int] = mapped_column(ForeignKey("entries.id"), index=True)
    kind: Mapped[str] = mapped_column(String(16))
    note: Mapped[str]
    made_by: Mapped[int | None] = mapped_column(ForeignKey("accounts.id"))
    made_at: Mapped[datetime]
    withdrawn_at: Mapped[datetime | None]


class Revision(Base):
    """A sample of candidates: revision 1, 2, ... of a named set. A frozen one is final."""

    __tablename__ = "revisions"
    __table_args__ = (UniqueConstraint("set_name", "number"),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    set_name: Mapped[str] = mapped_column(String(64))
    number: Mapped[int]
    made_at: Mapped[datetime]
    made_by: Mapped[int | None] = mapped_column(ForeignKey("accounts.id"))
    #: strategy, options, per_class, seed
    sampling: Mapped[dict[str, Any]]
    report: Mapped[dict[str, Any]]
    note: Mapped[str]
    frozen_at: Mapped[datetime | None]
    fingerprint: Mapped[str | None]


class RevisionImage(Base):
    __tablename__ = "revision_images"

    revision_id: Mapped[int] = mapped_column(ForeignKey("revisions.id"), primary_key=True)
    entry_id: Mapped[int] = mapped_column(ForeignKey("entries.id"), primary_key=True, index=True)
    position: Mapped[int]
    #: The bin or keyword it was drawn for, and whether it replaces one that ran out of images.
    drawn_for: Mapped[str]
    fallback: Mapped[bool]

    entry: Mapped[PoolEntry] = relationship()


class ClassReview(Base):
    """All images of a class in a revision have been reviewed."""

    __tablename__ = "class_reviews"

    revision_id: Mapped[int] = mapped_column(ForeignKey("revisions.id"), primary_key=True)
    class_key: Mapped[str] = mapped_column(Text, primary_key=True)
    account_id: Mapped[int | None] = mapped_column(ForeignKey("accounts.id"))
    at: Mapped[datetime]
