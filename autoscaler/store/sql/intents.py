"""Intents in a database."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import exists, select
from sqlalchemy.orm import aliased

from autoscaler.domain.intent import LONGEST_WAIT_SECONDS, Intent, IntentKind, IntentState
from autoscaler.store.repositories.intents import Intents, unknown_intent
from autoscaler.store.sql.database import Database
from autoscaler.store.sql.schema import IntentRow


class SqlIntents(Intents):
    """Repository on the table of intents."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def pending(self, now_seconds: float) -> tuple[Intent, ...]:
        launch = aliased(IntentRow)
        launch_is_open = exists().where(
            launch.instance == IntentRow.instance,
            launch.kind == IntentKind.LAUNCH,
            launch.state == IntentState.PENDING,
        )
        due = select(IntentRow).where(
            IntentRow.state == IntentState.PENDING,
            (IntentRow.not_before_seconds <= now_seconds)
            | (IntentRow.not_before_seconds > now_seconds + LONGEST_WAIT_SECONDS),
            (IntentRow.kind == IntentKind.LAUNCH) | ~launch_is_open,
        )
        with self._database.read() as session:
            return tuple(row.to(Intent) for row in session.scalars(due.order_by(IntentRow.id)))

    def of_instance(self, instance: str) -> tuple[Intent, ...]:
        rows = select(IntentRow).where(IntentRow.instance == instance).order_by(IntentRow.id)
        with self._database.read() as session:
            return tuple(row.to(Intent) for row in session.scalars(rows))

    def _change(self, intent: int, change: Callable[[Intent], Intent]) -> None:
        with self._database.write() as session:
            row = session.get(IntentRow, intent)
            if row is None:
                raise unknown_intent(intent)
            row.take(change(row.to(Intent)))
