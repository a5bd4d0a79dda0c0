"""Answers to requests with an idempotency key, in memory."""

from __future__ import annotations

from autoscaler.store.memory.tables import Tables
from autoscaler.store.repositories.answers import (
    KEPT_SECONDS,
    KeptAnswer,
    KeptAnswers,
    answered_already,
)


class MemoryAnswers(KeptAnswers):
    """Answers by key."""

    def __init__(self, tables: Tables) -> None:
        self._lock = tables.lock
        self._answers: dict[str, KeptAnswer] = {}

    def get(self, key_hash: str, now_seconds: float) -> KeptAnswer | None:
        with self._lock:
            answer = self._answers.get(key_hash)
            is_kept = answer is not None and answer.at_seconds >= now_seconds - KEPT_SECONDS
            return answer if is_kept else None

    def keep(self, key_hash: str, answer: KeptAnswer) -> None:
        oldest_seconds = answer.at_seconds - KEPT_SECONDS
        with self._lock:
            kept = {
                key: earlier
                for key, earlier in self._answers.items()
                if earlier.at_seconds >= oldest_seconds
            }
            if key_hash in kept:
                raise answered_already()
            self._answers = {**kept, key_hash: answer}
