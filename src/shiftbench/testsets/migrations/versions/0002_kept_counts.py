"""Kept counts of answers, near-duplicates of images outside the pool, searches that were made, recruited people."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_COUNTS = ("images", "selected", "positives", "positives_selected", "negatives", "negatives_left")


def upgrade() -> None:
    for column in ("selected", "annotations"):
        op.add_column("entries", _count(column))
    op.create_index(
        "ix_entries_class_key_role_selected_annotations", "entries", ["class_key", "role", "selected", "annotations"]
    )
    op.add_column("selections", sa.Column("label", sa.Text()))
    op.add_column("assignments", sa.Column("remarks", sa.JSON()))
    op.add_column("assignments", sa.Column("seconds", sa.Float(), nullable=False, server_default="0"))
    for column in _COUNTS:
        op.add_column("assignments", _count(column))
    with op.batch_alter_table("near_pairs") as table:
        table.alter_column("other_id", existing_type=sa.Integer(), nullable=True)
        table.add_column(sa.Column("other_image_id", sa.Integer()))
        table.add_column(sa.Column("other_name", sa.Text()))
        table.create_foreign_key("fk_near_pairs_other_image_id", "images", ["other_image_id"], ["id"])
        table.create_unique_constraint("uq_near_pairs_entry_id_other_image_id", ["entry_id", "other_image_id"])
    op.create_table(
        "searches",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("source", sa.Text()),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("images", sa.Integer(), nullable=False),
        sa.Column("last_entry", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("options", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_searches"),
        sa.UniqueConstraint("name", name="uq_searches_name"),
    )
    op.create_table(
        "workers",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("account_id", sa.Integer(), nullable=False),
        sa.Column("platform", sa.String(length=16), nullable=False),
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_workers_account_id"),
        sa.PrimaryKeyConstraint("id", name="pk_workers"),
        sa.UniqueConstraint("account_id", name="uq_workers_account_id"),
        sa.UniqueConstraint("platform", "worker", name="uq_workers_platform_worker"),
    )
    _count_answers()
    _dismiss_one_file_in_two_classes()


def _count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer(), nullable=False, server_default="0")


def _count_answers() -> None:
    """As ``frequencies.recount`` and ``annotation.submit`` keep them from now on."""
    op.execute(
        """
        CREATE TEMPORARY TABLE counted AS
        SELECT entry_id, SUM(chosen) AS selected, COUNT(*) AS annotations FROM (
            SELECT s.entry_id, CASE WHEN x.slot_id IS NULL THEN 0 ELSE 1 END AS chosen, ROW_NUMBER() OVER (
                PARTITION BY s.entry_id, a.account_id ORDER BY a.submitted_at, a.id) AS turn
            FROM slots s JOIN tasks t ON t.id = s.task_id JOIN entries e ON e.id = s.entry_id
            JOIN assignments a ON a.task_id = t.id JOIN accounts p ON p.id = a.account_id
            LEFT JOIN selections x ON x.assignment_id = a.id AND x.slot_id = s.id
            WHERE a.state = 'submitted' AND p.excluded_at IS NULL AND e.class_key = t.class_key
        ) AS votes WHERE turn = 1 GROUP BY entry_id
        """
    )
    op.execute(
        """
        UPDATE entries SET selected = (SELECT selected FROM counted WHERE entry_id = entries.id),
            annotations = (SELECT annotations FROM counted WHERE entry_id = entries.id)
        WHERE id IN (SELECT entry_id FROM counted)
        """
    )
    op.execute("DROP TABLE counted")
    own = "e.class_key = t.class_key"
    for column, condition in {
        "images": "1 = 1",
        "selected": "x.slot_id IS NOT NULL",
        "positives": f"e.role = 'reference' AND {own}",
        "positives_selected": f"e.role = 'reference' AND {own} AND x.slot_id IS NOT NULL",
        "negatives": f"e.role = 'reference' AND NOT {own}",
        "negatives_left": f"e.role = 'reference' AND NOT {own} AND x.slot_id IS NULL",
    }.items():
        op.execute(
            f"""
            UPDATE assignments SET {column} = (
                SELECT COUNT(*) FROM slots s JOIN tasks t ON t.id = s.task_id JOIN entries e ON e.id = s.entry_id
                LEFT JOIN selections x ON x.assignment_id = assignments.id AND x.slot_id = s.id
                WHERE s.task_id = assignments.task_id AND {condition}
            ) WHERE state = 'submitted'
            """
        )
    sqlite = op.get_bind().dialect.name == "sqlite"
    took = (
        "(julianday(submitted_at) - julianday(leased_at)) * 86400"
        if sqlite
        else "EXTRACT(EPOCH FROM submitted_at - leased_at)"
    )
    op.execute(f"UPDATE assignments SET seconds = {took} WHERE state = 'submitted'")


def _dismiss_one_file_in_two_classes() -> None:
    """One file with two candidate classes was queued as a pair of near-duplicates."""
    op.execute(
        """
        UPDATE near_pairs SET state = 'dismissed' WHERE state = 'open' AND id IN (
            SELECT p.id FROM near_pairs p JOIN entries a ON a.id = p.entry_id JOIN entries b ON b.id = p.other_id
            WHERE a.image_id = b.image_id)
        """
    )
