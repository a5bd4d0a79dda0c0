"""Journal in a database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from autoscaler.domain.plan import Decision, Plan
from autoscaler.domain.snapshot import Snapshot
from autoscaler.store.records.snapshots import PlanDocument, cut, join, read_document
from autoscaler.store.repositories.journal import Journal, JournalEntry, pruned
from autoscaler.store.sql.database import Database
from autoscaler.store.sql.schema import DecisionRow, PieceRow, PlanRow


class SqlJournal(Journal):
    """Repository on the tables of plans, decisions, and pieces of snapshots."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self,
        tick: int,
        now_seconds: float,
        snapshot: Snapshot,
        plan: Plan,
        decisions: Sequence[Decision],
    ) -> None:
        document, pieces = cut(snapshot, plan)
        with self._database.write() as session:
            row = PlanRow(tick=tick, at_seconds=now_seconds, document=document)
            session.add(row)
            session.flush()
            session.add_all(
                DecisionRow(plan=row.id, job=decision.job, decision=decision)
                for decision in decisions
            )
            for key, content in pieces.items():
                _store_piece(session, key, content, now_seconds)

    def decisions(self, job: str | None = None, limit: int = 100) -> tuple[JournalEntry, ...]:
        rows = select(DecisionRow, PlanRow).join(PlanRow, PlanRow.id == DecisionRow.plan)
        if job is not None:
            rows = rows.where(DecisionRow.job == job)
        with self._database.read() as session:
            results = session.execute(rows.order_by(DecisionRow.id.desc()).limit(limit))
            return tuple(
                JournalEntry(plan.id, plan.tick, plan.at_seconds, decision.decision)
                for decision, plan in results
            )

    def inputs(self, entry: JournalEntry) -> Snapshot:
        with self._database.read() as session:
            document = _read_plan(session, entry)
            keys = {document.market, *document.models}
            pieces = session.scalars(select(PieceRow).where(PieceRow.sha256.in_(keys)))
            return join(document, {piece.sha256: piece.content for piece in pieces})

    def plan(self, entry: JournalEntry) -> Plan:
        rows = select(DecisionRow).where(DecisionRow.plan == entry.plan).order_by(DecisionRow.id)
        with self._database.read() as session:
            plan = _read_plan(session, entry).plan
            return replace(plan, decisions=tuple(row.decision for row in session.scalars(rows)))

    def prune(self, before_seconds: float) -> None:
        old_plans = select(PlanRow.id).where(PlanRow.at_seconds < before_seconds)
        with self._database.write() as session:
            session.execute(delete(DecisionRow).where(DecisionRow.plan.in_(old_plans)))
            session.execute(delete(PlanRow).where(PlanRow.at_seconds < before_seconds))
            session.execute(delete(PieceRow).where(PieceRow.used_seconds < before_seconds))


def _store_piece(session: Session, key: str, content: bytes, now_seconds: float) -> None:
    row = session.get(PieceRow, key)
    if row is None:
        session.add(PieceRow(sha256=key, content=content, used_seconds=now_seconds))
    else:
        row.used_seconds = max(row.used_seconds, now_seconds)


def _read_plan(session: Session, entry: JournalEntry) -> PlanDocument:
    row = session.get(PlanRow, entry.plan)
    if row is None:
        raise pruned(entry)
    return read_document(row.document)
