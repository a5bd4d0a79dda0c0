"""Ledger in a database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, case, func, or_, select
from sqlalchemy.orm import Session

from autoscaler.domain.spending import EntryKind, LedgerEntry
from autoscaler.store.repositories.ledger import PERIOD_MARGIN_SECONDS, LedgerLines
from autoscaler.store.sql.database import Database
from autoscaler.store.sql.job_facts import FactCache, batches, grouped
from autoscaler.store.sql.schema import LedgerRow

# Columns in the order of the fields: a row of the session for each line takes twice the time.
_LINES: Final = select(
    *(LedgerRow.__table__.columns[field.name] for field in fields(LedgerEntry))
).order_by(LedgerRow.id)
_LAST: Final = ("last line of the ledger",)


class SqlLedgerLines(LedgerLines):
    """Repository on the table of the ledger."""

    def __init__(self, database: Database, facts: FactCache) -> None:
        self._database = database
        self._facts = facts

    def after(self, number: int) -> tuple[tuple[LedgerEntry, ...], int]:
        lines: list[LedgerEntry] = []

        def load(session: Session) -> int:
            """Read the lines; return the number of the last line of all."""
            rows = session.execute(_LINES.add_columns(LedgerRow.id).where(LedgerRow.id > number))
            last = 0
            for *values, row_id in rows:
                lines.append(LedgerEntry(*values))
                last = row_id
            return last or session.scalar(select(func.max(LedgerRow.id))) or 0

        last = self._database.cached(_LAST, load)
        if number < last and not lines:
            with self._database.read() as session:
                last = load(session)
        return tuple(lines), max(number, last)

    def entries(self, job: str | None = None) -> tuple[LedgerEntry, ...]:
        if job is None:
            with self._database.read() as session:
                return _entries(session, _LINES)

        return self._facts.of_job("ledger", job, _by_payer)

    def of_jobs(self, jobs: Collection[str]) -> tuple[LedgerEntry, ...]:
        lines: dict[int, LedgerEntry] = {}
        with self._database.read() as session:
            for some in batches(jobs):  # an instance that jobs passed on may be in several
                rows = session.execute(_paid_by(some).add_columns(LedgerRow.id))
                lines |= {row_id: LedgerEntry(*values) for *values, row_id in rows}
        return tuple(lines[row_id] for row_id in sorted(lines))

    def of_period(
        self, jobs: Collection[str], from_seconds: float, until_seconds: float
    ) -> tuple[LedgerEntry, ...]:
        of_jobs = select(LedgerRow.instance).where(LedgerRow.job.in_(jobs))
        of_period = of_jobs.group_by(LedgerRow.instance).having(
            func.min(LedgerRow.at_seconds) < until_seconds,
            or_(
                func.max(LedgerRow.at_seconds + LedgerRow.minimum_billed_seconds)
                >= from_seconds - PERIOD_MARGIN_SECONDS,
                _last(EntryKind.OPEN) > func.coalesce(_last(EntryKind.CLOSE), -1.0),
            ),
        )
        with self._database.read() as session:
            return _entries(session, _LINES.where(LedgerRow.instance.in_(of_period)))


def add_line(database: Database, session: Session, line: LedgerEntry) -> None:
    """Store a line, and drop from memory the lines of all jobs that paid for its instance."""
    row = LedgerRow()
    row.take(line)
    session.add(row)
    jobs = {line.job, *session.scalars(_payers(line.instance))}
    database.drop_after_commit(session, _LAST, *(("ledger", job) for job in jobs))


def _payers(instance: str) -> Select[str]:
    return select(LedgerRow.job).where(LedgerRow.instance == instance).distinct()


def _paid_by(jobs: Collection[str]) -> Select[Any]:
    """Return all lines of the instances that any of some jobs has ever paid for."""
    paid_instances = select(LedgerRow.instance).where(LedgerRow.job.in_(jobs))
    return _LINES.where(LedgerRow.instance.in_(paid_instances))


def _last(kind: EntryKind) -> ColumnElement[float]:
    """Return the time of the last line of a kind, of rows that are grouped."""
    return func.max(case((LedgerRow.kind == kind, LedgerRow.at_seconds)))


def _by_payer(session: Session, jobs: Sequence[str]) -> Mapping[str, tuple[LedgerEntry, ...]]:
    """Return, for each of some jobs, all lines of the instances that it has ever paid for."""
    lines, asked = _entries(session, _paid_by(jobs)), set(jobs)
    payers: dict[str, set[str]] = defaultdict(set)
    for line in lines:
        if line.job in asked:
            payers[line.instance].add(line.job)
    return grouped(jobs, ((payer, line) for line in lines for payer in payers[line.instance]))


def _entries(session: Session, lines: Select[Any]) -> tuple[LedgerEntry, ...]:
    return tuple(LedgerEntry(*values) for values in session.execute(lines))
