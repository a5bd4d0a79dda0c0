"""Offers that a cloud refused, and until when they are not asked for again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import delete, select

from autoscaler.store.database import Database
from autoscaler.store.schema import RefusalRow


@dataclass(frozen=True, slots=True)
class Refusal:
    """`in_a_row` waves of launches of an offer were refused since one was accepted."""

    offer: str
    error_kind: str
    in_a_row: int
    until_seconds: float


class Capacity:
    """What is known of the capacity behind the offers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def refused(
        self, offer: str, error_kind: str, now_seconds: float, until_seconds: float
    ) -> Refusal:
        """Keep away from an offer until then.

        Refusals that come while it is kept away from already belong to one wave of launches and
        count once, so that a back-off that doubles with `in_a_row` does not jump.
        """
        with self._database.write() as session:
            row = session.get(RefusalRow, offer)
            if row is None:
                row = RefusalRow(offer=offer, in_a_row=1, until_seconds=until_seconds)
                session.add(row)
            elif row.until_seconds <= now_seconds:
                row.in_a_row += 1
            row.error_kind = error_kind
            row.until_seconds = max(row.until_seconds, until_seconds)
            return row.to(Refusal)

    def accepted(self, offer: str) -> None:
        """A launch of the offer succeeded: what was refused before is forgotten."""
        with self._database.write() as session:
            session.execute(delete(RefusalRow).where(RefusalRow.offer == offer))

    def refusals(self) -> Mapping[str, Refusal]:
        """The refusals of each offer since it was last accepted, also those that are over."""
        with self._database.read() as session:
            return {row.offer: row.to(Refusal) for row in session.scalars(select(RefusalRow))}

    def unavailable(self, now_seconds: float) -> frozenset[str]:
        """The offers that are not to be asked for now."""
        offers = select(RefusalRow.offer).where(RefusalRow.until_seconds > now_seconds)
        with self._database.read() as session:
            return frozenset(session.scalars(offers))
