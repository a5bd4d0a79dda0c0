"""Answers to requests with an idempotency key, in a database."""

from __future__ import annotations

from sqlalchemy import delete

from autoscaler.store.repositories.answers import (
    KEPT_SECONDS,
    KeptAnswer,
    KeptAnswers,
    answered_already,
)
from autoscaler.store.sql.database import Database
from autoscaler.store.sql.schema import KeptAnswerRow


class SqlAnswers(KeptAnswers):
    """Repository on the table of kept answers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, key_hash: str, now_seconds: float) -> KeptAnswer | None:
        with self._database.read() as session:
            row = session.get(KeptAnswerRow, key_hash)
            is_kept = row is not None and row.at_seconds >= now_seconds - KEPT_SECONDS
            return row.to(KeptAnswer) if row is not None and is_kept else None

    def keep(self, key_hash: str, answer: KeptAnswer) -> None:
        oldest_seconds = answer.at_seconds - KEPT_SECONDS
        with self._database.write() as session:
            session.execute(delete(KeptAnswerRow).where(KeptAnswerRow.at_seconds < oldest_seconds))
            if session.get(KeptAnswerRow, key_hash) is not None:
                raise answered_already()
            row = KeptAnswerRow(key_hash=key_hash)
            row.take(answer)
            session.add(row)
