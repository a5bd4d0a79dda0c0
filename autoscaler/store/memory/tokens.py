"""Tokens of instances in memory."""

from __future__ import annotations

from autoscaler.store.memory.tables import Tables
from autoscaler.store.repositories.tokens import REPEAT_SECONDS, NodeToken, Tokens


class MemoryTokens(Tokens):
    """Join tokens with their expiry and their use, and node tokens, by hash."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._lock = tables.lock
        self._expires_seconds: dict[str, float] = {}
        self._used: dict[str, tuple[float, str | None]] = {}
        self._nodes: dict[str, NodeToken] = {}

    def issue(self, token_hash: str, instance: str, expires_seconds: float) -> None:
        with self._lock:
            self._tables.instance(instance)
            known_seconds = self._expires_seconds.get(token_hash, expires_seconds)
            self._expires_seconds[token_hash] = max(known_seconds, expires_seconds)

    def is_good(self, token_hash: str, now_seconds: float, key_hash: str | None = None) -> bool:
        with self._lock:
            return self._is_good(token_hash, now_seconds, key_hash)

    def burn(self, token_hash: str, now_seconds: float, key_hash: str | None = None) -> bool:
        with self._lock:
            is_good = self._is_good(token_hash, now_seconds, key_hash)
            if is_good:
                self._used.setdefault(token_hash, (now_seconds, key_hash))
            return is_good

    def put_node(
        self, token_hash: str, token: NodeToken, presented_hash: str | None = None
    ) -> None:
        with self._lock:
            self._tables.instance(token.instance)
            for other_hash, other in tuple(self._nodes.items()):
                if other.instance == token.instance and other_hash != presented_hash:
                    del self._nodes[other_hash]
            self._nodes[token_hash] = token

    def node(self, token_hash: str) -> NodeToken | None:
        return self._nodes.get(token_hash)

    def has_node(self, instance: str) -> bool:
        with self._lock:
            return any(token.instance == instance for token in self._nodes.values())

    def _is_good(self, token_hash: str, now_seconds: float, key_hash: str | None) -> bool:
        used = self._used.get(token_hash)
        if used is not None:
            used_seconds, known_hash = used
            is_same = key_hash is not None and key_hash == known_hash
            return is_same and used_seconds > now_seconds - REPEAT_SECONDS
        return self._expires_seconds.get(token_hash, now_seconds) > now_seconds
