"""The first schema. It has nothing to run: new databases are created from ``database.py``."""

from __future__ import annotations

revision = "0001"
down_revision = None


def upgrade() -> None:
    pass
