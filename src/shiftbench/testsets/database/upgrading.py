"""Bringing the tables of a database to what this version knows."""

from __future__ import annotations

from importlib import resources

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from shiftbench.testsets.database.engine import Database
from shiftbench.testsets.errors import WorkshopError


def upgrade(database: Database) -> None:
    """Run the migrations that the database lacks; a database of a later shiftbench is refused."""
    config = Config()
    with resources.as_file(resources.files("shiftbench.testsets").joinpath("migrations")) as folder:
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        with database.schema_change() as connection:
            if _is_behind(connection, ScriptDirectory.from_config(config), database.shown):
                config.attributes["connection"] = connection
                command.upgrade(config, "head")


def _is_behind(connection: Connection, scripts: ScriptDirectory, shown: str) -> bool:
    found = MigrationContext.configure(connection).get_current_revision()
    known = [script.revision for script in scripts.walk_revisions()]
    if found is not None and found not in known:
        raise WorkshopError(
            f"the database {shown} was made by a later version of shiftbench",
            found=f"tables of version {found}",
            expected=f"at most {known[0]}",
            hint="update shiftbench",
        )
    return found != known[0]
