"""Settings in a database."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy.orm import Session

from autoscaler.store.repositories.settings import Settings
from autoscaler.store.sql.database import Database
from autoscaler.store.sql.schema import SettingRow


class SqlSettings(Settings):
    """Repository on the table of settings."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def once(self, key: str, make: Callable[[], str]) -> str:
        with self._database.read() as session:
            known = session.get(SettingRow, key)
            if known is not None:
                return known.value
        with self._database.write() as session:
            row = session.get(SettingRow, key)
            if row is None:
                row = SettingRow(key=key, value=make())
                session.add(row)
                self._database.drop_after_commit(session, _cache_key(key))
            return row.value

    def _value(self, key: str) -> str | None:
        def load(session: Session) -> str | None:
            known = session.get(SettingRow, key)
            return None if known is None else known.value

        return self._database.cached(_cache_key(key), load)

    def _put(self, key: str, value: str) -> None:
        with self._database.write() as session:
            session.merge(SettingRow(key=key, value=value))
            self._database.drop_after_commit(session, _cache_key(key))

    def _drop(self, key: str) -> None:
        with self._database.write() as session:
            row = session.get(SettingRow, key)
            if row is not None:
                session.delete(row)
                self._database.drop_after_commit(session, _cache_key(key))


def _cache_key(key: str) -> tuple[str, str]:
    """Return the name of a setting among the values in memory."""
    return "setting", key
