"""Migrations by Alembic, for databases that have tables already, and for PostgreSQL."""

from __future__ import annotations

from functools import cache

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, inspect

from autoscaler.domain.errors import StoreError


def upgrade(connection: Connection, found: str | None, name: str) -> None:
    """Run the migrations that are missing in a database of version `found`; None: of no version.

    Raises:
        StoreError: the database holds something else, or tables of a version that this code
            does not know.
    """
    _refuse_foreign(_scripts(), connection, found, name)
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


@cache
def _scripts() -> ScriptDirectory:
    """Return the migrations of the package, which are read once."""
    return ScriptDirectory.from_config(_config())


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", "autoscaler.store:migrations")
    return config


def _refuse_foreign(
    scripts: ScriptDirectory, connection: Connection, found: str | None, name: str
) -> None:
    if found is None:
        if inspect(connection).get_table_names():
            raise StoreError(f"store {name} holds the tables of another program: name another")
        return
    try:
        scripts.get_revision(found)
    except CommandError as error:
        raise StoreError(
            f"store {name} has tables of version {found}, this Castor knows those up to "
            f"{scripts.get_current_head()}: install the newer Castor that wrote it, "
            "or name another store"
        ) from error
