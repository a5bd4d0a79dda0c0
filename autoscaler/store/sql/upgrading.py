"""Migrations by Alembic, for PostgreSQL and for SQLite databases that have tables already."""

from __future__ import annotations

from functools import cache

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, inspect

from autoscaler.domain.errors import StoreError


def upgrade(connection: Connection, found: str | None, name: str) -> None:
    """Run the missing migrations in a database of version `found`; None for no version.

    Raises:
        StoreError: the database holds tables of another program, or of a version that this code
            does not know.
    """
    _require_known_version(_scripts(), connection, found, name)
    config = alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


@cache
def _scripts() -> ScriptDirectory:
    """Return the migrations of the package, read once per process."""
    return ScriptDirectory.from_config(alembic_config())


def alembic_config() -> Config:
    """Return the configuration of Alembic with the migrations of this package."""
    config = Config()
    config.set_main_option("script_location", "autoscaler.store.sql:migrations")
    return config


def _require_known_version(
    scripts: ScriptDirectory, connection: Connection, found: str | None, name: str
) -> None:
    if found is None:
        if inspect(connection).get_table_names():
            raise StoreError(
                f"store {name} holds the tables of another program: name another store"
            )
        return
    try:
        scripts.get_revision(found)
    except CommandError as error:
        raise StoreError(
            f"store {name} has tables of version {found}, and this Castor supports versions up to "
            f"{scripts.get_current_head()}: install the newer Castor that wrote it, "
            "or name another store"
        ) from error
