"""The project's database: tables, connection, upgrades. SQLite in the folder, or PostgreSQL by URL."""
