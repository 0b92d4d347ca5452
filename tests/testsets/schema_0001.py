"""The tables of the first schema version, from which the migrations are tested. Never changed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic.operations import Operations


def create_first_tables(op: Operations) -> None:
    op.create_table(
        "accounts",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("password", sa.Text(), nullable=True),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("excluded_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("excluded_because", sa.Text(), nullable=True),
        sa.CheckConstraint("role IN ('lead', 'annotator', 'reviewer')", name=op.f("ck_accounts_role")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_accounts")),
        sa.UniqueConstraint("name", name=op.f("uq_accounts_name")),
    )
    op.create_table(
        "images",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=40), nullable=False),
        sa.Column("suffix", sa.String(length=8), nullable=False),
        sa.Column("width", sa.Integer(), nullable=False),
        sa.Column("height", sa.Integer(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_images")),
        sa.UniqueConstraint("digest", name=op.f("uq_images_digest")),
    )
    op.create_table(
        "project",
        sa.Column("uid", sa.String(length=64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_project")),
    )
    op.create_table(
        "tasks",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("class_key", sa.Text(), nullable=False),
        sa.Column("wished", sa.Integer(), nullable=False),
        sa.Column("places_left", sa.Integer(), nullable=False),
        sa.Column("rank", sa.String(length=16), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tasks")),
    )
    op.create_index(op.f("ix_tasks_places_left_rank"), "tasks", ["places_left", "rank"], unique=False)
    op.create_table(
        "assignments",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("token", sa.String(length=64), nullable=False),
        sa.Column("task_id", sa.Integer(), nullable=False),
        sa.Column("account_id", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("leased_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("submitted_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("state IN ('leased', 'submitted', 'expired')", name=op.f("ck_assignments_state")),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_assignments_account_id")),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_assignments_task_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_assignments")),
        sa.UniqueConstraint("task_id", "account_id", name=op.f("uq_assignments_task_id_account_id")),
        sa.UniqueConstraint("token", name=op.f("uq_assignments_token")),
    )
    op.create_index(op.f("ix_assignments_account_id_state"), "assignments", ["account_id", "state"], unique=False)
    op.create_index(op.f("ix_assignments_state_expires_at"), "assignments", ["state", "expires_at"], unique=False)
    op.create_table(
        "audit_log",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("account_id", sa.Integer(), nullable=True),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_audit_log_account_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_log")),
    )
    op.create_table(
        "entries",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("image_id", sa.Integer(), nullable=False),
        sa.Column("class_key", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("source_id", sa.Text(), nullable=False),
        sa.Column("query", sa.Text(), nullable=True),
        sa.Column("keyword", sa.Text(), nullable=True),
        sa.Column("date", sa.Text(), nullable=True),
        sa.Column("licence", sa.Text(), nullable=True),
        sa.Column("author", sa.Text(), nullable=True),
        sa.Column("url", sa.Text(), nullable=True),
        sa.Column("extra", sa.JSON(), nullable=False),
        sa.Column("imported_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("role IN ('candidate', 'reference')", name=op.f("ck_entries_role")),
        sa.ForeignKeyConstraint(["image_id"], ["images.id"], name=op.f("fk_entries_image_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_entries")),
        sa.UniqueConstraint("role", "image_id", "class_key", name=op.f("uq_entries_role_image_id_class_key")),
    )
    op.create_index(op.f("ix_entries_image_id"), "entries", ["image_id"], unique=False)
    op.create_index(op.f("ix_entries_role_class_key"), "entries", ["role", "class_key"], unique=False)
    op.create_index(op.f("ix_entries_source_source_id"), "entries", ["source", "source_id"], unique=False)
    op.create_table(
        "invitations",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("account_id", sa.Integer(), nullable=True),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_invitations_account_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_invitations")),
        sa.UniqueConstraint("account_id", name=op.f("uq_invitations_account_id")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_invitations_token_hash")),
    )
    op.create_table(
        "revisions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("set_name", sa.String(length=64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("made_by", sa.Integer(), nullable=True),
        sa.Column("sampling", sa.JSON(), nullable=False),
        sa.Column("report", sa.JSON(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("frozen_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("fingerprint", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["made_by"], ["accounts.id"], name=op.f("fk_revisions_made_by")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_revisions")),
        sa.UniqueConstraint("set_name", "number", name=op.f("uq_revisions_set_name_number")),
    )
    op.create_table(
        "sign_ins",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("account_id", sa.Integer(), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_sign_ins_account_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sign_ins")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_sign_ins_token_hash")),
    )
    op.create_index(op.f("ix_sign_ins_account_id"), "sign_ins", ["account_id"], unique=False)
    op.create_table(
        "class_reviews",
        sa.Column("revision_id", sa.Integer(), nullable=False),
        sa.Column("class_key", sa.Text(), nullable=False),
        sa.Column("account_id", sa.Integer(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_class_reviews_account_id")),
        sa.ForeignKeyConstraint(["revision_id"], ["revisions.id"], name=op.f("fk_class_reviews_revision_id")),
        sa.PrimaryKeyConstraint("revision_id", "class_key", name=op.f("pk_class_reviews")),
    )
    op.create_table(
        "marks",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("entry_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("made_by", sa.Integer(), nullable=True),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("withdrawn_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("kind IN ('blacklist', 'near-duplicate')", name=op.f("ck_marks_kind")),
        sa.ForeignKeyConstraint(["entry_id"], ["entries.id"], name=op.f("fk_marks_entry_id")),
        sa.ForeignKeyConstraint(["made_by"], ["accounts.id"], name=op.f("fk_marks_made_by")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_marks")),
    )
    op.create_index(op.f("ix_marks_entry_id"), "marks", ["entry_id"], unique=False)
    op.create_table(
        "near_pairs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("entry_id", sa.Integer(), nullable=False),
        sa.Column("other_id", sa.Integer(), nullable=False),
        sa.Column("distances", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("decided_by", sa.Integer(), nullable=True),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("state IN ('open', 'dismissed', 'confirmed')", name=op.f("ck_near_pairs_state")),
        sa.ForeignKeyConstraint(["decided_by"], ["accounts.id"], name=op.f("fk_near_pairs_decided_by")),
        sa.ForeignKeyConstraint(["entry_id"], ["entries.id"], name=op.f("fk_near_pairs_entry_id")),
        sa.ForeignKeyConstraint(["other_id"], ["entries.id"], name=op.f("fk_near_pairs_other_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_near_pairs")),
        sa.UniqueConstraint("entry_id", "other_id", name=op.f("uq_near_pairs_entry_id_other_id")),
    )
    op.create_index(op.f("ix_near_pairs_state"), "near_pairs", ["state"], unique=False)
    op.create_table(
        "revision_images",
        sa.Column("revision_id", sa.Integer(), nullable=False),
        sa.Column("entry_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("drawn_for", sa.Text(), nullable=False),
        sa.Column("fallback", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["entry_id"], ["entries.id"], name=op.f("fk_revision_images_entry_id")),
        sa.ForeignKeyConstraint(["revision_id"], ["revisions.id"], name=op.f("fk_revision_images_revision_id")),
        sa.PrimaryKeyConstraint("revision_id", "entry_id", name=op.f("pk_revision_images")),
    )
    op.create_index(op.f("ix_revision_images_entry_id"), "revision_images", ["entry_id"], unique=False)
    op.create_table(
        "slots",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("task_id", sa.Integer(), nullable=False),
        sa.Column("entry_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["entry_id"], ["entries.id"], name=op.f("fk_slots_entry_id")),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_slots_task_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_slots")),
        sa.UniqueConstraint("task_id", "entry_id", name=op.f("uq_slots_task_id_entry_id")),
    )
    op.create_index(op.f("ix_slots_entry_id"), "slots", ["entry_id"], unique=False)
    op.create_table(
        "selections",
        sa.Column("assignment_id", sa.Integer(), nullable=False),
        sa.Column("slot_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["assignment_id"], ["assignments.id"], name=op.f("fk_selections_assignment_id")),
        sa.ForeignKeyConstraint(["slot_id"], ["slots.id"], name=op.f("fk_selections_slot_id")),
        sa.PrimaryKeyConstraint("assignment_id", "slot_id", name=op.f("pk_selections")),
    )
    op.create_index(op.f("ix_selections_slot_id"), "selections", ["slot_id"], unique=False)
