"""Values that are chosen once for a store and stay."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

from autoscaler.store.database import Database
from autoscaler.store.schema import SettingRow


class Settings:
    """The settings of one store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def controller_id(self) -> str:
        """The id of this deployment, made on the first call; its instances carry it as a tag."""
        return self.once("controller_id", lambda: str(uuid4()))

    def once(self, key: str, make: Callable[[], str]) -> str:
        """The value of `key`; the first call of all makes it. It is kept as it is, in clear."""
        with self._database.read() as session:
            known = session.get(SettingRow, key)
            if known is not None:
                return known.value
        with self._database.write() as session:
            row = session.get(SettingRow, key)
            if row is None:
                row = SettingRow(key=key, value=make())
                session.add(row)
            return row.value
