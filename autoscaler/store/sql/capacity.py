"""Refusals in a database."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from autoscaler.store.repositories.capacity import (
    LONGEST_REFUSAL_SECONDS,
    Capacity,
    Refusal,
    Refuse,
)
from autoscaler.store.sql.database import Database
from autoscaler.store.sql.schema import RefusalRow


class SqlCapacity(Capacity):
    """Repository on the table of refusals."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def accepted(self, offer: str) -> None:
        with self._database.write() as session:
            session.execute(delete(RefusalRow).where(RefusalRow.offer == offer))

    def refusals(self) -> Mapping[str, Refusal]:
        with self._database.read() as session:
            return {row.offer: row.to(Refusal) for row in session.scalars(select(RefusalRow))}

    def unavailable(self, now_seconds: float) -> frozenset[str]:
        offers = select(RefusalRow.offer).where(
            RefusalRow.until_seconds > now_seconds,
            RefusalRow.until_seconds <= now_seconds + LONGEST_REFUSAL_SECONDS,
        )
        with self._database.read() as session:
            return frozenset(session.scalars(offers))

    def _change(self, offer: str, refuse: Refuse) -> Refusal:
        with self._database.write() as session:
            return keep_refusal(session, offer, refuse)


def keep_refusal(session: Session, offer: str, refuse: Refuse) -> Refusal:
    """Store and return the result of `refuse` for the known refusal of an offer."""
    row = session.get(RefusalRow, offer)
    refusal = refuse(None if row is None else row.to(Refusal))
    if row is None:
        row = RefusalRow()
        session.add(row)
    row.take(refusal)
    return refusal
