"""Repository of decisions with their inputs, so that each decision can be reproduced."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from autoscaler.domain.errors import StoreError
from autoscaler.domain.plan import Decision, Plan
from autoscaler.domain.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A decision, with its plan number, its tick, and its time in seconds since the epoch."""

    plan: int
    tick: int
    at_seconds: float
    decision: Decision


class Journal(ABC):
    """Decisions of one store, with their plans and snapshots."""

    @abstractmethod
    def add(
        self,
        tick: int,
        now_seconds: float,
        snapshot: Snapshot,
        plan: Plan,
        decisions: Sequence[Decision],
    ) -> int:
        """Store a plan with its snapshot, and a subset of its decisions; return its number."""

    @abstractmethod
    def decisions(
        self, job: str | None = None, limit: int = 100, before_plan: int | None = None
    ) -> tuple[JournalEntry, ...]:
        """Return at most `limit` decisions of one job, or of all if None, the latest first.

        With `before_plan`, only those of earlier plans; a plan has one decision for each job.
        """

    @abstractmethod
    def latest(self, jobs: Collection[str]) -> Mapping[str, JournalEntry]:
        """Return the latest decision of each of these jobs that has one, by job."""

    @abstractmethod
    def inputs(self, entry: JournalEntry) -> Snapshot:
        """Return the snapshot that the policy had for the decision.

        Raises:
            StoreError: the plan was pruned.
        """

    @abstractmethod
    def plan(self, entry: JournalEntry) -> Plan:
        """Return the plan of the decision, with the stored decisions of that plan.

        Raises:
            StoreError: the plan was pruned.
        """

    @abstractmethod
    def prune(self, before_seconds: float) -> None:
        """Delete plans made before `before_seconds`, with their decisions and snapshots."""


def pruned(entry: JournalEntry) -> StoreError:
    """Return the error for an entry whose plan or snapshot is no longer stored."""
    return StoreError(f"plan {entry.plan} was pruned: keep the journal for longer")
