"""Intents in memory."""

from __future__ import annotations

from collections.abc import Callable

from autoscaler.clock import is_waiting
from autoscaler.domain.intent import LONGEST_WAIT_SECONDS, Intent, IntentKind
from autoscaler.store.memory.tables import Tables
from autoscaler.store.repositories.intents import Intents, unknown_intent


class MemoryIntents(Intents):
    """Intents of the shared tables, which `MemoryInstances` writes."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def pending(self, now_seconds: float) -> tuple[Intent, ...]:
        with self._tables.lock:
            pending = self._tables.pending_intents.all()
        launching = {intent.instance for intent in pending if intent.kind is IntentKind.LAUNCH}
        return tuple(
            intent
            for intent in pending
            if not is_waiting(intent.not_before_seconds, now_seconds, LONGEST_WAIT_SECONDS)
            and (intent.kind is IntentKind.LAUNCH or intent.instance not in launching)
        )

    def of_instance(self, instance: str) -> tuple[Intent, ...]:
        with self._tables.lock:
            return tuple(self._tables.intents_of(instance))

    def _change(self, intent: int, change: Callable[[Intent], Intent]) -> None:
        with self._tables.lock:
            known = self._tables.intents.get(intent)
            if known is None:
                raise unknown_intent(intent)
            self._tables.keep_intent(change(known))
