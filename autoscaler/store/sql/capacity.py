"""Refusals in a database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from autoscaler.store.repositories.capacity import Capacity, Refusal, Refuse
from autoscaler.store.sql.database import Database
from autoscaler.store.sql.schema import RefusalRow

_KEY: Final = "refusals"


class SqlCapacity(Capacity):
    """Repository on the table of refusals."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def accepted(self, offer: str) -> None:
        with self._database.write() as session:
            session.execute(delete(RefusalRow).where(RefusalRow.offer == offer))
            self._database.drop_after_commit(session, _KEY)

    def refusals(self) -> Mapping[str, Refusal]:
        return self._database.cached(
            _KEY,
            lambda session: {
                row.offer: row.to(Refusal) for row in session.scalars(select(RefusalRow))
            },
        )

    def unavailable(self, now_seconds: float) -> frozenset[str]:
        return frozenset(
            offer for offer, refusal in self.refusals().items() if refusal.holds(now_seconds)
        )

    def _change(self, offer: str, refuse: Refuse) -> Refusal:
        with self._database.write() as session:
            return keep_refusal(self._database, session, offer, refuse)


def keep_refusal(database: Database, session: Session, offer: str, refuse: Refuse) -> Refusal:
    """Store and return the result of `refuse` for the known refusal of an offer."""
    database.drop_after_commit(session, _KEY)
    row = session.get(RefusalRow, offer)
    refusal = refuse(None if row is None else row.to(Refusal))
    if row is None:
        row = RefusalRow()
        session.add(row)
    row.take(refusal)
    return refusal
