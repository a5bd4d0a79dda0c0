"""Retention in a database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from sqlalchemy import ColumnElement, Select, and_, delete, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from autoscaler.domain.access import BROWSER_TOKEN, LOGIN_TOKEN
from autoscaler.domain.intent import IntentState
from autoscaler.store.repositories.retention import MOST_ROWS, Retention
from autoscaler.store.sql.access_schema import AccessTokenRow, JoinTokenRow, NodeTokenRow
from autoscaler.store.sql.cache import after_commit
from autoscaler.store.sql.database import Database
from autoscaler.store.sql.journal import is_unused
from autoscaler.store.sql.notice_schema import DeliveryRow, NoticeRow
from autoscaler.store.sql.schema import (
    DecisionRow,
    DurationRow,
    EventRow,
    FailureRow,
    InstanceRow,
    IntentRow,
    JobRow,
    ModelsRow,
    NoiseRow,
    ObservationRow,
    PieceRow,
    PlanRow,
    SampleRow,
)
from autoscaler.store.sql.study_schema import IncarnationRow, LeaseRow, TrialCallRow, TrialRow

Key: TypeAlias = "InstrumentedAttribute[Any]"
Rule: TypeAlias = tuple[Key, Callable[[float], "Select[Any]"]]

# Free pages that one call gives back (4 KiB each), and the part of a file that stays free, because
# new rows need it soon.
_PAGES: Final = 500
_FREE_PART: Final = 0.1


def _of_old_jobs(column: Key) -> Callable[[float], Select[Any]]:
    """Return the query of values of a column in rows of jobs that ended before a time."""

    def query(before_seconds: float) -> Select[Any]:
        table = column.class_
        is_old = JobRow.ended_seconds < before_seconds
        return select(column).join(JobRow, JobRow.id == table.job).where(is_old)

    return query


def _where(column: Key, condition: Callable[[float], ColumnElement[bool]]) -> Rule:
    return column, lambda before_seconds: select(column).where(condition(before_seconds))


def _finished_intents(before_seconds: float) -> Select[Any]:
    is_over = InstanceRow.ended_seconds < before_seconds
    return (
        select(IntentRow.id)
        .join(InstanceRow, InstanceRow.id == IntentRow.instance)
        .where(is_over, IntentRow.state != IntentState.PENDING)
    )


def _trials_of_ended_studies(before_seconds: float) -> Select[Any]:
    is_at_work = or_(JobRow.ended_seconds.is_(None), JobRow.ended_seconds >= before_seconds)
    studies_at_work = (
        select(TrialRow.study).join(JobRow, JobRow.id == TrialRow.job).where(is_at_work)
    )
    return select(TrialRow.id).where(TrialRow.study.not_in(studies_at_work))


def _is_old_login(before_seconds: float) -> ColumnElement[bool]:
    is_login = or_(
        *(
            AccessTokenRow.name.startswith(start, autoescape=True)
            for start in (LOGIN_TOKEN, BROWSER_TOKEN)
        )
    )
    return and_(is_login, AccessTokenRow.expires_seconds < before_seconds)


# Columns by which rows are deleted, and the queries of their values: rows that refer to others
# before these. A column that is no key stands for the few rows of one job.
_RULES: Final[tuple[Rule, ...]] = (
    (
        DecisionRow.id,
        lambda before_seconds: (
            select(DecisionRow.id)
            .join(PlanRow, PlanRow.id == DecisionRow.plan)
            .where(PlanRow.at_seconds < before_seconds)
        ),
    ),
    (
        PlanRow.id,
        lambda before_seconds: select(PlanRow.id).where(
            PlanRow.at_seconds < before_seconds,
            ~select(DecisionRow.id).where(DecisionRow.plan == PlanRow.id).exists(),
        ),
    ),
    _where(PieceRow.sha256, is_unused),
    (
        DeliveryRow.id,
        lambda before_seconds: (
            select(DeliveryRow.id)
            .join(NoticeRow, NoticeRow.id == DeliveryRow.notice)
            .where(NoticeRow.ended_seconds < before_seconds)
        ),
    ),
    _where(
        NoticeRow.id,
        lambda before_seconds: and_(
            NoticeRow.ended_seconds < before_seconds,
            ~select(DeliveryRow.id).where(DeliveryRow.notice == NoticeRow.id).exists(),
        ),
    ),
    _where(EventRow.id, lambda before_seconds: EventRow.at_seconds < before_seconds),
    (TrialCallRow.id, _of_old_jobs(TrialCallRow.id)),
    (IncarnationRow.job, _of_old_jobs(IncarnationRow.job)),
    (FailureRow.id, _of_old_jobs(FailureRow.id)),
    (NoiseRow.id, _of_old_jobs(NoiseRow.id)),
    (SampleRow.id, _of_old_jobs(SampleRow.id)),
    (ObservationRow.job, _of_old_jobs(ObservationRow.job)),
    (DurationRow.job, _of_old_jobs(DurationRow.job)),
    (ModelsRow.job, _of_old_jobs(ModelsRow.job)),
    (TrialRow.id, _trials_of_ended_studies),
    (IntentRow.id, _finished_intents),
    _where(
        JoinTokenRow.hash, lambda before_seconds: JoinTokenRow.expires_seconds < before_seconds
    ),
    _where(
        NodeTokenRow.hash, lambda before_seconds: NodeTokenRow.expires_seconds < before_seconds
    ),
    _where(AccessTokenRow.hash, _is_old_login),
    _where(LeaseRow.study, lambda before_seconds: LeaseRow.until_seconds < before_seconds),
)


class SqlRetention(Retention):
    """Deletion of rows by their keys, each table in a transaction of its own."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def prune(self, before_seconds: float, most_rows: int = MOST_ROWS) -> bool:
        is_more_left = False
        for column, query in _RULES:
            with self._database.read() as session:
                values = session.scalars(query(before_seconds).distinct().limit(most_rows)).all()
            if not values:
                continue
            is_more_left |= len(values) == most_rows
            with self._database.write(may_be_lost=True) as session:
                session.execute(
                    delete(column.class_).where(column.in_(values)),
                    execution_options={"synchronize_session": False},
                )
                after_commit(session, self._database.cache.clear)
        return is_more_left or self._give_back_space()

    def _give_back_space(self) -> bool:
        """Shrink the file by a few pages; return whether it has more free pages than it needs."""
        if not self._has_free_space():
            return False
        with self._database.write(may_be_lost=True) as session:
            session.connection().exec_driver_sql(f"PRAGMA incremental_vacuum({_PAGES})")
        return self._has_free_space()

    def _has_free_space(self) -> bool:
        with self._database.read() as session:
            if session.connection().dialect.name != "sqlite":
                return False
            free_pages = _pragma(session, "freelist_count")
            can_shrink = _pragma(session, "auto_vacuum") != 0
            return can_shrink and free_pages > _FREE_PART * _pragma(session, "page_count")


def _pragma(session: Session, name: str) -> int:
    value = session.connection().exec_driver_sql(f"PRAGMA {name}").scalar_one()
    return int(value)
