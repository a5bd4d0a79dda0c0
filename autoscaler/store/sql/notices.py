"""Notices in a database."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from autoscaler.domain.notice import LASTING, Delivery, DeliveryState, NoticeKey, UserNotice
from autoscaler.store.repositories.notices import KnownNotice, UserNotices
from autoscaler.store.sql.database import Database
from autoscaler.store.sql.notice_schema import DeliveryRow, NoticeRow


class SqlNotices(UserNotices):
    """Repository on the tables of notices and deliveries."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, notice: UserNotice, targets: Collection[str]) -> bool:
        key, at_seconds = notice.key, notice.at_seconds
        with self._database.write() as session:
            if session.scalar(_of(key)) is not None:
                return False
            row = NoticeRow(
                kind=key.kind,
                subject=key.subject,
                episode=key.episode,
                ended_seconds=None if key.kind in LASTING else at_seconds,
                notice=notice,
            )
            session.add(row)
            session.flush()
            for target in targets:
                session.add(
                    DeliveryRow(
                        notice=row.id,
                        target=target,
                        state=DeliveryState.WAITING,
                        attempts=0,
                        next_seconds=at_seconds,
                    )
                )
            return True

    def end(self, key: NoticeKey, now_seconds: float) -> None:
        with self._database.write() as session:
            row = session.scalar(_of(key))
            if row is not None and row.ended_seconds is None:
                row.ended_seconds = now_seconds

    def known(self) -> tuple[KnownNotice, ...]:
        columns = select(
            NoticeRow.kind, NoticeRow.subject, NoticeRow.episode, NoticeRow.ended_seconds
        ).order_by(NoticeRow.id)
        with self._database.read() as session:
            return tuple(
                KnownNotice(NoticeKey(kind, subject, episode), ended_seconds is None)
                for kind, subject, episode, ended_seconds in session.execute(columns)
            )

    def waiting(self, target: str, limit: int = 100) -> tuple[Delivery, ...]:
        rows = _WITH_NOTICES.where(
            DeliveryRow.state == DeliveryState.WAITING, DeliveryRow.target == target
        ).order_by(DeliveryRow.next_seconds, DeliveryRow.id)
        with self._database.read() as session:
            return _deliveries(session, rows.limit(limit))

    def latest(self, limit: int = 100, below: int | None = None) -> tuple[Delivery, ...]:
        rows = _WITH_NOTICES.order_by(DeliveryRow.id.desc()).limit(limit)
        if below is not None:
            rows = rows.where(DeliveryRow.id < below)
        with self._database.read() as session:
            return _deliveries(session, rows)

    def record(self, delivery: Delivery) -> None:
        with self._database.write() as session:
            row = session.get_one(DeliveryRow, delivery.number)
            row.state, row.attempts = delivery.state, delivery.attempts
            row.next_seconds, row.error = delivery.next_seconds, delivery.error
            row.done_seconds = delivery.done_seconds

    def give_up_others(
        self, targets: Collection[str], error: str, now_seconds: float
    ) -> tuple[Delivery, ...]:
        waiting = _WITH_NOTICES.where(
            DeliveryRow.state == DeliveryState.WAITING, DeliveryRow.target.not_in(targets)
        ).order_by(DeliveryRow.id)
        with self._database.write() as session:
            dropped = session.execute(waiting).all()
            for row, _ in dropped:
                row.state, row.error = DeliveryState.GIVEN_UP, error
                row.done_seconds = now_seconds
            return tuple(_delivery(row, notice) for row, notice in dropped)


_WITH_NOTICES = select(DeliveryRow, NoticeRow.notice).join(
    NoticeRow, NoticeRow.id == DeliveryRow.notice
)


def _of(key: NoticeKey) -> Any:
    """Return the query of the row of a notice."""
    return select(NoticeRow).where(
        NoticeRow.kind == key.kind,
        NoticeRow.subject == key.subject,
        NoticeRow.episode == key.episode,
    )


def _deliveries(session: Session, rows: Any) -> tuple[Delivery, ...]:
    return tuple(_delivery(row, notice) for row, notice in session.execute(rows))


def _delivery(row: DeliveryRow, notice: UserNotice) -> Delivery:
    return Delivery(
        row.id,
        row.target,
        notice,
        row.state,
        row.attempts,
        row.next_seconds,
        row.error,
        row.done_seconds,
    )
