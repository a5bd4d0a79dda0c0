"""Tokens in a database."""

from __future__ import annotations

from sqlalchemy import ColumnElement, select, update

from autoscaler.store.repositories.tokens import Tokens
from autoscaler.store.sql.database import Database
from autoscaler.store.sql.instances import instance_row
from autoscaler.store.sql.schema import JoinTokenRow, PersonRow


class SqlTokens(Tokens):
    """Repository on the tables of join tokens and people."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def issue(self, token_hash: str, instance: str, expires_seconds: float) -> None:
        with self._database.write() as session:
            instance_row(session, instance)
            row = session.get(JoinTokenRow, token_hash)
            if row is None:
                row = JoinTokenRow(
                    hash=token_hash, instance=instance, expires_seconds=expires_seconds
                )
                session.add(row)
            row.expires_seconds = max(row.expires_seconds, expires_seconds)

    def is_good(self, token_hash: str, now_seconds: float) -> bool:
        matching = select(JoinTokenRow.hash).where(*_conditions_of_good(token_hash, now_seconds))
        with self._database.read() as session:
            return session.scalar(matching) is not None

    def burn(self, token_hash: str, now_seconds: float) -> bool:
        unused = update(JoinTokenRow).where(*_conditions_of_good(token_hash, now_seconds))
        used = unused.values(burned_seconds=now_seconds).returning(JoinTokenRow.hash)
        with self._database.write() as session:
            return session.scalar(used) is not None

    def set_person(self, name: str, token_hash: str) -> None:
        with self._database.write() as session:
            session.merge(PersonRow(name=name, token_hash=token_hash))

    def person(self, token_hash: str) -> str | None:
        names = select(PersonRow.name).where(PersonRow.token_hash == token_hash)
        with self._database.read() as session:
            return session.scalar(names)


def _conditions_of_good(token_hash: str, now_seconds: float) -> tuple[ColumnElement[bool], ...]:
    return (
        JoinTokenRow.hash == token_hash,
        JoinTokenRow.burned_seconds.is_(None),
        JoinTokenRow.expires_seconds > now_seconds,
    )
