"""Tasks can be closed and cancelled."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    for column in ("closed_at", "cancelled_at"):
        op.add_column("tasks", sa.Column(column, sa.DateTime(timezone=True)))
