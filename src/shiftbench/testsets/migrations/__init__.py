"""Alembic's migrations of a project's database; run by ``database.upgrading``.

A change of ``database/tables.py`` needs a file in ``versions/`` that brings older databases along, named by the next
number; the tests compare what the migrations make with what the tables say, on SQLite and on PostgreSQL.
"""
