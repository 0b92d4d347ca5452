"""Digests of answers and of the counts of pool entries, by which damage is noticed."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

#: Rows that are updated at once.
_BATCH = 1000
_COUNTS = ("images", "selected", "positives", "positives_selected", "negatives", "negatives_left")


def upgrade() -> None:
    for table in ("entries", "assignments"):
        op.add_column(table, sa.Column("digest", sa.String(length=32), nullable=False, server_default=""))
    _seal_entries()
    _seal_answers()


def _seal_entries() -> None:
    query = sa.text(
        "SELECT entries.id, role, class_key, images.digest || images.suffix, selected, annotations "
        "FROM entries JOIN images ON images.id = entries.image_id"
    )
    digests = {}
    for number, *values in op.get_bind().execute(query):
        text = "\0".join(map(str, values))
        digests[number] = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    _store(sa.table("entries", sa.column("id"), sa.column("digest")), digests)


def _seal_answers() -> None:
    connection = op.get_bind()
    slots: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for task, slot, entry in connection.execute(sa.text("SELECT task_id, id, entry_id FROM slots")):
        slots[task].append((slot, entry))
    selected: dict[int, list[tuple[int, str | None]]] = defaultdict(list)
    for answer, slot, label in connection.execute(sa.text("SELECT assignment_id, slot_id, label FROM selections")):
        selected[answer].append((slot, label))
    assignments = sa.table(
        "assignments",
        *(sa.column(name) for name in ("id", "task_id", "account_id", "state", "seconds", *_COUNTS, "digest")),
        sa.column("submitted_at", sa.DateTime(timezone=True)),
        sa.column("remarks", sa.JSON()),
    )
    digests = {}
    for row in connection.execute(sa.select(assignments).where(assignments.c.state == "submitted")):
        counts = [getattr(row, name) for name in _COUNTS]
        digests[row.id] = _digest(
            row.task_id,
            row.account_id,
            _utc(row.submitted_at).isoformat(),
            row.seconds,
            counts[:4],
            counts[4:],
            row.remarks,
            sorted(slots[row.task_id]),
            sorted(selected[row.id]),
        )
    _store(assignments, digests)


def _utc(moment: datetime) -> datetime:
    """SQLite stores no time zone."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _digest(*values: Any) -> str:
    """As the program computed digests when this migration was written."""
    text = json.dumps(values, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(text.encode("ascii"), digest_size=16).hexdigest()


def _store(table: sa.TableClause, digests: dict[int, str]) -> None:
    statement = table.update().where(table.c.id == sa.bindparam("row")).values(digest=sa.bindparam("value"))
    values = [{"row": number, "value": digest} for number, digest in digests.items()]
    for start in range(0, len(values), _BATCH):
        op.get_bind().execute(statement, values[start : start + _BATCH])
