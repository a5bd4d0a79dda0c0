"""Journal in a database."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from sqlalchemy import ColumnElement, delete, func, insert, select, update
from sqlalchemy.orm import Session

from autoscaler.domain.plan import Decision, Plan
from autoscaler.domain.snapshot import Snapshot
from autoscaler.store.records.snapshots import (
    Cut,
    PlanDocument,
    SnapshotCutter,
    join,
    pieces_of,
    read_document,
)
from autoscaler.store.repositories.journal import Journal, JournalEntry, pruned
from autoscaler.store.sql.cache import after_commit
from autoscaler.store.sql.database import Database
from autoscaler.store.sql.schema import DecisionRow, JobRow, PieceRow, PlanRow

USE_SECONDS: Final = 3600.0
"""The stored time of the last use of a piece is at most this old."""
_KEYS_AT_ONCE: Final = 10_000  # SQLite takes at most 32,766 values in a statement
_MOST_KEYS_FACTOR: Final = 4


class SqlJournal(Journal):
    """Repository on the tables of plans, decisions, and pieces of snapshots."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._memory = _Memory()
        self._epoch: int | None = None

    def add(
        self,
        tick: int,
        now_seconds: float,
        snapshot: Snapshot,
        plan: Plan,
        decisions: Sequence[Decision],
    ) -> int:
        epoch = self._database.epoch
        if epoch is None or epoch != self._epoch:  # another process may have pruned pieces
            self._epoch, self._memory = epoch, _Memory()
        memory = self._memory
        cut = memory.cutter.cut(snapshot, plan)
        with self._database.write() as session:
            if not memory.store_pieces(session, cut, now_seconds):
                cut = SnapshotCutter().cut(snapshot, plan)
                memory.store_pieces(session, cut, now_seconds)
            row = PlanRow(tick=tick, at_seconds=now_seconds, document=cut.document)
            session.add(row)
            session.flush()
            rows = [
                {"plan": row.id, "job": decision.job, "decision": decision}
                for decision in decisions
            ]
            if rows:
                session.execute(insert(DecisionRow), rows)
            after_commit(session, partial(memory.keep, cut, now_seconds))
            return row.id

    def decisions(
        self, job: str | None = None, limit: int = 100, before_plan: int | None = None
    ) -> tuple[JournalEntry, ...]:
        rows = select(DecisionRow, PlanRow).join(PlanRow, PlanRow.id == DecisionRow.plan)
        if job is not None:
            rows = rows.where(DecisionRow.job == job)
        if before_plan is not None:
            rows = rows.where(DecisionRow.plan < before_plan)
        with self._database.read() as session:
            results = session.execute(rows.order_by(DecisionRow.id.desc()).limit(limit))
            return tuple(
                JournalEntry(plan.id, plan.tick, plan.at_seconds, decision.decision)
                for decision, plan in results
            )

    def latest(self, jobs: Collection[str]) -> Mapping[str, JournalEntry]:
        # One look into the index for each job, however many decisions it has.
        latest_id = (
            select(func.max(DecisionRow.id)).where(DecisionRow.job == JobRow.id).scalar_subquery()
        )
        rows = (
            select(DecisionRow.decision, PlanRow.id, PlanRow.tick, PlanRow.at_seconds)
            .join(PlanRow, PlanRow.id == DecisionRow.plan)
            .where(DecisionRow.id.in_(select(latest_id).where(JobRow.id.in_(jobs))))
        )
        with self._database.read() as session:
            return {
                decision.job: JournalEntry(plan, tick, at_seconds, decision)
                for decision, plan, tick, at_seconds in session.execute(rows)
            }

    def inputs(self, entry: JournalEntry) -> Snapshot:
        with self._database.read() as session:
            document = _read_plan(session, entry)
            base = {} if document.base is None else _contents(session, [document.base])
            keys = pieces_of(document, base.get(document.base or ""))
            return join(document, {**base, **_contents(session, keys)})

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
            session.execute(delete(PieceRow).where(is_unused(before_seconds)))


def is_unused(before_seconds: float) -> ColumnElement[bool]:
    """Return whether no plan made at `before_seconds` or later uses a piece."""
    return PieceRow.used_seconds < before_seconds - USE_SECONDS


class _Memory:
    """Memory of this process, the only writer, of the pieces that are stored."""

    def __init__(self) -> None:
        self.cutter = SnapshotCutter()
        self._used_seconds: dict[str, float] = {}

    def keep(self, cut: Cut, now_seconds: float) -> None:
        """Remember a cut that has been committed."""
        self.cutter.keep(cut)
        used_seconds = self._used_seconds
        used_seconds |= {key: now_seconds for key in self._due(cut, now_seconds)}
        if len(used_seconds) > _MOST_KEYS_FACTOR * len(cut.used):
            self._used_seconds = {key: used_seconds[key] for key in cut.used}

    def store_pieces(self, session: Session, cut: Cut, now_seconds: float) -> bool:
        """Store the pieces of a cut that are not stored, and the time of use of the others.

        Returns False if the cut refers to pieces that are neither stored nor in it.
        """
        due = self._due(cut, now_seconds)
        stored = set(_values(session, PieceRow.sha256, due))
        missing = due - stored
        if not missing <= cut.pieces.keys():
            return False
        used = [{"sha256": key, "used_seconds": now_seconds} for key in stored]
        new = [
            {"sha256": key, "content": cut.pieces[key], "used_seconds": now_seconds}
            for key in missing
        ]
        if used:
            session.execute(update(PieceRow), used)
        if new:
            session.execute(insert(PieceRow), new)
        return True

    def _due(self, cut: Cut, now_seconds: float) -> set[str]:
        """Return the pieces of a cut whose stored time of use is too old, or unknown."""
        fresh_seconds = now_seconds - USE_SECONDS
        known = self._used_seconds
        return {key for key in cut.used if known.get(key, -math.inf) <= fresh_seconds}


def _contents(session: Session, keys: Iterable[str]) -> dict[str, bytes]:
    """Return the contents of pieces by key."""
    rows = _values(session, PieceRow, keys)
    return {row.sha256: row.content for row in rows}


def _values(session: Session, selected: Any, keys: Iterable[str]) -> Iterator[Any]:
    """Yield rows, or a column of them, of the pieces with these keys."""
    ordered = sorted(keys)
    for first in range(0, len(ordered), _KEYS_AT_ONCE):
        some = ordered[first : first + _KEYS_AT_ONCE]
        yield from session.scalars(select(selected).where(PieceRow.sha256.in_(some)))


def _read_plan(session: Session, entry: JournalEntry) -> PlanDocument:
    row = session.get(PlanRow, entry.plan)
    if row is None:
        raise pruned(entry)
    return read_document(row.document)
