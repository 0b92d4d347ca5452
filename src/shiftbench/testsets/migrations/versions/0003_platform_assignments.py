"""Work of recruited people is counted per assignment of their platform, and their accounts are bound to a browser."""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

#: The platforms' parameters with the id of an assignment.
_KEYS = ("assignmentId", "SESSION_ID")


def upgrade() -> None:
    op.create_table(
        "platform_assignments",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.Integer(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.Column("code", sa.String(length=16), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True)),
        sa.ForeignKeyConstraint(["worker_id"], ["workers.id"], name="fk_platform_assignments_worker_id"),
        sa.PrimaryKeyConstraint("id", name="pk_platform_assignments"),
        sa.UniqueConstraint("worker_id", "key", name="uq_platform_assignments_worker_id_key"),
        sa.UniqueConstraint("code", name="uq_platform_assignments_code"),
    )
    # Plain statements, which both databases know: copying a table, as Alembic does for SQLite, would drop one that
    # others refer to.
    op.execute(
        "ALTER TABLE assignments ADD COLUMN platform_assignment_id INTEGER "
        "CONSTRAINT fk_assignments_platform_assignment_id REFERENCES platform_assignments (id)"
    )
    op.create_index("ix_assignments_platform_assignment_id", "assignments", ["platform_assignment_id"])
    _move_details()
    op.execute("ALTER TABLE workers DROP COLUMN details")
    op.add_column("workers", sa.Column("browser_hash", sa.String(length=64)))


def _move_details() -> None:
    """Everything that a worker has done so far belongs to the only assignment that is known of them."""
    connection = op.get_bind()
    workers = sa.table("workers", sa.column("id"), sa.column("account_id"), sa.column("details", sa.JSON()))
    assignments = sa.table("assignments", sa.column("account_id"), sa.column("platform_assignment_id"))
    platform_assignments = sa.table(
        "platform_assignments",
        sa.column("id"),
        sa.column("worker_id"),
        sa.column("key"),
        sa.column("details", sa.JSON()),
        sa.column("code"),
        sa.column("made_at", sa.DateTime(timezone=True)),
        sa.column("opened_at", sa.DateTime(timezone=True)),
    )
    secret = connection.execute(sa.text("SELECT secret FROM project")).scalar() or ""
    now = datetime.now(UTC)
    if connection.dialect.name == "sqlite":
        now = now.replace(tzinfo=None)
    for number, worker in enumerate(connection.execute(sa.select(workers)).all(), start=1):
        details = dict(worker.details)
        keys = [details.pop(name) for name in _KEYS if name in details]
        connection.execute(
            platform_assignments.insert().values(
                id=number,
                worker_id=worker.id,
                key=keys[0] if keys else "",
                details=details,
                code=_account_code(secret, worker.account_id),
                made_at=now,
                opened_at=now,
            )
        )
        of_worker = assignments.c.account_id == worker.account_id
        connection.execute(assignments.update().where(of_worker).values(platform_assignment_id=number))
    if connection.dialect.name == "postgresql":
        op.execute(
            "SELECT setval(pg_get_serial_sequence('platform_assignments', 'id'), "
            "(SELECT COALESCE(MAX(id), 0) + 1 FROM platform_assignments), false)"
        )


def _account_code(secret: str, account: int) -> str:
    """The completion code that the worker has already seen."""
    signature = hmac.digest(bytes.fromhex(secret), f"completed/{account}".encode(), hashlib.sha256)
    return base64.b32encode(signature[:5]).decode("ascii")
