"""Tokens of instances in a database."""

from __future__ import annotations

from sqlalchemy import ColumnElement, and_, delete, func, or_, select, update

from autoscaler.store.repositories.tokens import REPEAT_SECONDS, NodeToken, Tokens
from autoscaler.store.sql.access_schema import JoinTokenRow, NodeTokenRow
from autoscaler.store.sql.database import Database
from autoscaler.store.sql.instances import instance_row


class SqlTokens(Tokens):
    """Repository on the tables of join tokens and node tokens."""

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

    def is_good(self, token_hash: str, now_seconds: float, key_hash: str | None = None) -> bool:
        matching = select(JoinTokenRow.hash).where(_is_good(token_hash, now_seconds, key_hash))
        with self._database.read() as session:
            return session.scalar(matching) is not None

    def burn(self, token_hash: str, now_seconds: float, key_hash: str | None = None) -> bool:
        used = (
            update(JoinTokenRow)
            .where(_is_good(token_hash, now_seconds, key_hash))
            .values(
                burned_seconds=func.coalesce(JoinTokenRow.burned_seconds, now_seconds),
                key_hash=key_hash,
            )
            .returning(JoinTokenRow.hash)
        )
        with self._database.write() as session:
            return session.scalar(used) is not None

    def put_node(
        self, token_hash: str, token: NodeToken, presented_hash: str | None = None
    ) -> None:
        with self._database.write() as session:
            instance_row(session, token.instance)
            session.execute(
                delete(NodeTokenRow).where(
                    NodeTokenRow.instance == token.instance,
                    NodeTokenRow.hash != (presented_hash or ""),
                )
            )
            row = NodeTokenRow(hash=token_hash)
            row.take(token)
            session.add(row)

    def node(self, token_hash: str) -> NodeToken | None:
        with self._database.read() as session:
            row = session.get(NodeTokenRow, token_hash)
            return None if row is None else row.to(NodeToken)

    def has_node(self, instance: str) -> bool:
        hashes = select(NodeTokenRow.hash).where(NodeTokenRow.instance == instance)
        with self._database.read() as session:
            return session.scalar(hashes.limit(1)) is not None


def _is_good(token_hash: str, now_seconds: float, key_hash: str | None) -> ColumnElement[bool]:
    """Return the condition that a join token may be used, for the first time or again."""
    is_unused = and_(
        JoinTokenRow.burned_seconds.is_(None), JoinTokenRow.expires_seconds > now_seconds
    )
    if key_hash is None:
        return and_(JoinTokenRow.hash == token_hash, is_unused)
    is_repeated = and_(
        JoinTokenRow.key_hash == key_hash,
        JoinTokenRow.burned_seconds > now_seconds - REPEAT_SECONDS,
    )
    return and_(JoinTokenRow.hash == token_hash, or_(is_unused, is_repeated))
