"""Owners of studies, programs and bundles in a database."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from autoscaler.domain.access import Owner
from autoscaler.store.repositories.owners import OwnedKind, Owners
from autoscaler.store.sql.access_schema import OwnerRow
from autoscaler.store.sql.database import Database


class SqlOwners(Owners):
    """Repository on the table of owners."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def claim(self, kind: OwnedKind, name: str, owner: Owner) -> Owner:
        with self._database.write() as session:
            rows = _rows(session, kind, name)
            if rows:
                return rows[0].to(Owner)
            session.add(OwnerRow(kind=kind, name=name, person=owner.person, team=owner.team))
            return owner

    def share(self, kind: OwnedKind, name: str, owner: Owner) -> None:
        with self._database.write() as session:
            for row in _rows(session, kind, name):
                if row.person == owner.person:
                    row.team = owner.team
                    return
            session.add(OwnerRow(kind=kind, name=name, person=owner.person, team=owner.team))

    def of(self, kind: OwnedKind, name: str) -> tuple[Owner, ...]:
        with self._database.read() as session:
            return tuple(row.to(Owner) for row in _rows(session, kind, name))

    def all(self, kind: OwnedKind) -> Mapping[str, tuple[Owner, ...]]:
        with self._database.read() as session:
            rows = select(OwnerRow).where(OwnerRow.kind == kind).order_by(OwnerRow.id)
            owners: dict[str, tuple[Owner, ...]] = {}
            for row in session.scalars(rows):
                owners[row.name] = (*owners.get(row.name, ()), row.to(Owner))
            return owners

    def release(self, kind: OwnedKind, name: str) -> None:
        with self._database.write() as session:
            session.execute(delete(OwnerRow).where(OwnerRow.kind == kind, OwnerRow.name == name))


def _rows(session: Session, kind: OwnedKind, name: str) -> list[OwnerRow]:
    rows = select(OwnerRow).where(OwnerRow.kind == kind, OwnerRow.name == name)
    return list(session.scalars(rows.order_by(OwnerRow.id)))
