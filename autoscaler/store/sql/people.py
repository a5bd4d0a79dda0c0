"""People and their access tokens in a database."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import ColumnElement, or_, select, update

from autoscaler.domain.access import AccessToken, Person
from autoscaler.store.repositories.people import (
    KnownToken,
    People,
    PersonCheck,
    accept_person,
    unknown_person,
)
from autoscaler.store.sql.access_schema import AccessTokenRow, PersonRow
from autoscaler.store.sql.database import Database


class SqlPeople(People):
    """Repository on the tables of people and of access tokens."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def update(
        self, name: str, make: Callable[[Person | None], Person]
    ) -> tuple[Person | None, Person]:
        with self._database.write() as session:
            row = session.get(PersonRow, name)
            before = None if row is None else row.to(Person)
            after = make(before)
            session.merge(PersonRow(name=name, role=after.role, team=after.team))
            return before, after

    def get(self, name: str) -> Person | None:
        with self._database.read() as session:
            row = session.get(PersonRow, name)
            return None if row is None else row.to(Person)

    def all(self) -> tuple[Person, ...]:
        with self._database.read() as session:
            people = (row.to(Person) for row in session.scalars(select(PersonRow)))
            return tuple(sorted(people, key=lambda person: person.name))

    def remove(
        self, name: str, now_seconds: float, precondition: PersonCheck = accept_person
    ) -> bool:
        with self._database.write() as session:
            row = session.get(PersonRow, name)
            if row is None:
                return False
            precondition(row.to(Person))
            session.delete(row)
            session.execute(
                update(AccessTokenRow)
                .where(AccessTokenRow.person == name, _is_standing(now_seconds))
                .values(revoked_seconds=now_seconds)
            )
            return True

    def add_token(self, token: AccessToken, token_hash: str, replaced_seconds: float) -> None:
        with self._database.write() as session:
            if session.get(PersonRow, token.person) is None:
                raise unknown_person(token.person)
            session.execute(
                update(AccessTokenRow)
                .where(
                    AccessTokenRow.person == token.person,
                    AccessTokenRow.name == token.name,
                    _is_standing(replaced_seconds),
                )
                .values(revoked_seconds=replaced_seconds)
            )
            row = AccessTokenRow(hash=token_hash)
            row.take(token)
            session.merge(row)

    def tokens(self, person: str | None = None) -> tuple[AccessToken, ...]:
        rows = select(AccessTokenRow).order_by(
            AccessTokenRow.created_seconds, AccessTokenRow.person, AccessTokenRow.name
        )
        if person is not None:
            rows = rows.where(AccessTokenRow.person == person)
        with self._database.read() as session:
            return tuple(row.to(AccessToken) for row in session.scalars(rows))

    def revoke(self, person: str, name: str, now_seconds: float) -> bool:
        revoked = (
            update(AccessTokenRow)
            .where(
                AccessTokenRow.person == person,
                AccessTokenRow.name == name,
                _is_standing(now_seconds),
            )
            .values(revoked_seconds=now_seconds)
            .returning(AccessTokenRow.hash)
        )
        with self._database.write() as session:
            return bool(session.scalars(revoked).all())

    def of_token(self, token_hash: str) -> KnownToken | None:
        with self._database.read() as session:
            token = session.get(AccessTokenRow, token_hash)
            person = None if token is None else session.get(PersonRow, token.person)
            if token is None or person is None:
                return None
            return KnownToken(token.to(AccessToken), person.to(Person))

    def note_use(self, token_hash: str, now_seconds: float) -> None:
        used = update(AccessTokenRow).where(AccessTokenRow.hash == token_hash)
        with self._database.write(may_be_lost=True) as session:
            session.execute(used.values(used_seconds=now_seconds))


def _is_standing(at_seconds: float) -> ColumnElement[bool]:
    """Return the condition that a token is not revoked before a time."""
    revoked = AccessTokenRow.revoked_seconds
    return or_(revoked.is_(None), revoked > at_seconds)
