"""Tokens in memory."""

from __future__ import annotations

from autoscaler.store.memory.tables import Tables
from autoscaler.store.repositories.tokens import Tokens


class MemoryTokens(Tokens):
    """Join tokens with their expiry, used tokens, and people by hash of their token."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._lock = tables.lock
        self._expires_seconds: dict[str, float] = {}
        self._used: set[str] = set()
        self._people: dict[str, str] = {}

    def issue(self, token_hash: str, instance: str, expires_seconds: float) -> None:
        with self._lock:
            self._tables.instance(instance)
            known_seconds = self._expires_seconds.get(token_hash, expires_seconds)
            self._expires_seconds[token_hash] = max(known_seconds, expires_seconds)

    def is_good(self, token_hash: str, now_seconds: float) -> bool:
        with self._lock:
            return self._is_good(token_hash, now_seconds)

    def burn(self, token_hash: str, now_seconds: float) -> bool:
        with self._lock:
            is_good = self._is_good(token_hash, now_seconds)
            if is_good:
                self._used.add(token_hash)
            return is_good

    def set_person(self, name: str, token_hash: str) -> None:
        with self._lock:
            others = {
                other_hash: other_name
                for other_hash, other_name in self._people.items()
                if other_name != name
            }
            self._people = {**others, token_hash: name}

    def person(self, token_hash: str) -> str | None:
        return self._people.get(token_hash)

    def _is_good(self, token_hash: str, now_seconds: float) -> bool:
        if token_hash not in self._expires_seconds or token_hash in self._used:
            return False
        return self._expires_seconds[token_hash] > now_seconds
