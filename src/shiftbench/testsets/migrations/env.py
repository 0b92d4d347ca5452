"""Alembic environment: runs the migrations on the connection opened by ``database.upgrade``.

A new database is created from ``database.py`` and stamped with the newest version. A change of the tables needs
a file in ``versions/`` that upgrades older databases, named by the next number; the tests migrate a database of the
first version and compare its schema with the tables, on SQLite and on PostgreSQL.
"""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"], target_metadata=None)
with context.begin_transaction():
    context.run_migrations()
