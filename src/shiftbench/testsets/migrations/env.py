"""Alembic environment: runs the migrations on the connection opened by ``database.engine.upgrade``.

A change of ``database/tables.py`` needs a file in ``versions/`` that upgrades older databases, named by the next
number; the tests compare the migrated schema with the tables, on SQLite and on PostgreSQL.
"""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"], target_metadata=None)
with context.begin_transaction():
    context.run_migrations()
