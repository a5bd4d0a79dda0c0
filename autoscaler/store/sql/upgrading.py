"""Migrations by Alembic, for PostgreSQL and for SQLite databases that have tables already."""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, inspect

from autoscaler.domain.errors import StoreError
from autoscaler.store.sql.sqlite_copy import copy_sqlite

_log = logging.getLogger(__name__)


def upgrade(connection: Connection, found: str | None, name: str, keeps_copy: bool = True) -> None:
    """Run the missing migrations in a database of version `found`; None for no version.

    If `keeps_copy`, an SQLite file is copied first, to `castor.db.v0012` for the version 0012 that
    it has. The copy is a whole store: the earlier Castor can serve it. A server's databases have
    their own backups.

    Raises:
        StoreError: the database holds tables of another program, or of a version that this code
            does not know; or the copy can't be written.
    """
    require_known_version(connection, found, name)
    if keeps_copy and found is not None and connection.dialect.name == "sqlite":
        _back_up(Path(connection.engine.url.database or ""), found)
    config = alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _back_up(database: Path, version: str) -> None:
    copy = database.with_name(f"{database.name}.v{version}")
    partial = copy.with_name(f".{copy.name}.partial")
    try:
        partial.unlink(missing_ok=True)
        copy_sqlite(database, partial)
        partial.replace(copy)
    except OSError as error:
        raise StoreError(
            f"{database} is not upgraded, because its backup {copy} can't be written: "
            f"{error.strerror}"
        ) from error
    _log.warning("the tables of %s change now; a backup of before: %s", database, copy)


@cache
def _scripts() -> ScriptDirectory:
    """Return the migrations of the package, read once per process."""
    return ScriptDirectory.from_config(alembic_config())


def alembic_config() -> Config:
    """Return the configuration of Alembic with the migrations of this package."""
    config = Config()
    config.set_main_option("script_location", "autoscaler.store.sql:migrations")
    return config


def require_known_version(connection: Connection, found: str | None, name: str) -> None:
    """Check that a database is empty, or holds tables of a version that this code can migrate.

    Raises:
        StoreError: it holds tables of another program, or of an unknown version.
    """
    scripts = _scripts()
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
