"""Every decision, with all that it was made of: what was decided can be made again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from autoscaler.domain.errors import StoreError
from autoscaler.domain.plan import Decision, Plan
from autoscaler.domain.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One decision, made at `at_seconds` in that tick as part of the plan of that number."""

    plan: int
    tick: int
    at_seconds: float
    decision: Decision


class Journal(ABC):
    """The decisions of one store, and the snapshots behind them."""

    @abstractmethod
    def add(
        self,
        tick: int,
        now_seconds: float,
        snapshot: Snapshot,
        plan: Plan,
        decisions: Sequence[Decision],
    ) -> None:
        """Keep `decisions`, those of the plan that are worth keeping, and the plan's snapshot."""

    @abstractmethod
    def decisions(self, job: str | None = None, limit: int = 100) -> tuple[JournalEntry, ...]:
        """The last decisions of one job or of all, the latest first."""

    @abstractmethod
    def inputs(self, entry: JournalEntry) -> Snapshot:
        """The snapshot of which the decision was made, equal to what the policy was given.

        Raises:
            StoreError: it was pruned.
        """

    @abstractmethod
    def plan(self, entry: JournalEntry) -> Plan:
        """The plan that the decision is part of, with the decisions that were kept of it.

        Raises:
            StoreError: it was pruned.
        """

    @abstractmethod
    def prune(self, before_seconds: float) -> None:
        """Forget the plans made before then, with their decisions and inputs."""


def pruned(entry: JournalEntry) -> StoreError:
    """The error that the plan of an entry is not kept any more."""
    return StoreError(f"plan {entry.plan} was pruned: keep the journal for longer")
