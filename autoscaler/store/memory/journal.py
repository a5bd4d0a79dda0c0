"""Journal in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from autoscaler.domain.plan import Decision, Plan
from autoscaler.domain.snapshot import Snapshot
from autoscaler.store.memory.tables import Tables
from autoscaler.store.repositories.journal import Journal, JournalEntry, pruned


class MemoryJournal(Journal):
    """All decisions, and the snapshots of the last plans.

    A snapshot of many jobs takes some hundred kilobytes. Therefore only the last `inputs_kept`
    snapshots are kept; older ones count as pruned.
    """

    def __init__(self, tables: Tables, inputs_kept: int) -> None:
        self._lock = tables.lock
        self._inputs_kept = inputs_kept
        self._plan_count = 0
        self._plans: dict[int, tuple[float, Plan]] = {}
        self._inputs: dict[int, Snapshot] = {}
        self._entries: list[JournalEntry] = []

    def add(
        self,
        tick: int,
        now_seconds: float,
        snapshot: Snapshot,
        plan: Plan,
        decisions: Sequence[Decision],
    ) -> int:
        with self._lock:
            self._plan_count += 1
            plan_to_keep = replace(plan, decisions=tuple(decisions))
            self._plans[self._plan_count] = (now_seconds, plan_to_keep)
            self._inputs[self._plan_count] = snapshot
            self._inputs.pop(self._plan_count - self._inputs_kept, None)
            self._entries.extend(
                JournalEntry(self._plan_count, tick, now_seconds, decision)
                for decision in decisions
            )
            return self._plan_count

    def decisions(
        self, job: str | None = None, limit: int = 100, before_plan: int | None = None
    ) -> tuple[JournalEntry, ...]:
        with self._lock:
            latest_first: Iterable[JournalEntry] = reversed(self._entries)
            if job is not None:
                latest_first = (entry for entry in latest_first if entry.decision.job == job)
            if before_plan is not None:
                latest_first = (entry for entry in latest_first if entry.plan < before_plan)
            return tuple(islice(latest_first, limit))

    def latest(self, jobs: Collection[str]) -> Mapping[str, JournalEntry]:
        with self._lock:
            return {
                entry.decision.job: entry for entry in self._entries if entry.decision.job in jobs
            }

    def inputs(self, entry: JournalEntry) -> Snapshot:
        snapshot = self._inputs.get(entry.plan)
        if snapshot is None:
            raise pruned(entry)
        return snapshot

    def plan(self, entry: JournalEntry) -> Plan:
        kept = self._plans.get(entry.plan)
        if kept is None:
            raise pruned(entry)
        return kept[1]

    def prune(self, before_seconds: float) -> None:
        with self._lock:
            old_plans = {
                plan
                for plan, (at_seconds, _) in self._plans.items()
                if at_seconds < before_seconds
            }
            self._entries = [entry for entry in self._entries if entry.plan not in old_plans]
            for plan in old_plans:
                del self._plans[plan]
                self._inputs.pop(plan, None)
