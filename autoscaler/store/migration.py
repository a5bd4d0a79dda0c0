"""Bring the tables of a database to the version of this code."""

from __future__ import annotations

from functools import cache

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, inspect

from autoscaler.domain.errors import StoreError
from autoscaler.store.database import Database


def migrate(database: Database) -> str:
    """Run the migrations that are missing, all in one transaction; return the version reached.

    Raises:
        StoreError: the database holds something else, or tables of a version that this code
            does not know.
    """
    scripts = _scripts()
    with database.read() as session:
        found = _version(session.connection())
    head = scripts.get_current_head()
    assert head is not None, "the package holds at least one migration"
    if found != head:
        with database.write() as session:
            # Another process may have migrated since the first look.
            connection = session.connection()
            _refuse_foreign(scripts, connection, database.name)
            config = _config()
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    return head


@cache
def _scripts() -> ScriptDirectory:
    """Return the migrations of the package, which are read once."""
    return ScriptDirectory.from_config(_config())


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", "autoscaler.store:migrations")
    return config


def _version(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _refuse_foreign(scripts: ScriptDirectory, connection: Connection, name: str) -> None:
    found = _version(connection)
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
