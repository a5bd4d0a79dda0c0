"""Answers to requests with an idempotency key, so that a repeated request gets the same one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final

from autoscaler.domain.errors import Conflict

KEPT_SECONDS: Final = 86_400.0
"""Time for which an answer is kept."""


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """Answer to a request. `body` None: it holds a secret, which is not stored."""

    request_hash: str
    status: int
    body: str | None
    at_seconds: float


class KeptAnswers(ABC):
    """Answers of one store by the hash of person, route and idempotency key."""

    @abstractmethod
    def get(self, key_hash: str, now_seconds: float) -> KeptAnswer | None:
        """Return the answer of a key; None if there is none, or it is older than a day."""

    @abstractmethod
    def keep(self, key_hash: str, answer: KeptAnswer) -> None:
        """Store the answer of a key, and delete those that are older than a day.

        Raises:
            Conflict: the key has an answer already.
        """


def answered_already() -> Conflict:
    """Return the error for a key that another request has used meanwhile."""
    return Conflict("a request with this Idempotency-Key is under way: repeat it in a moment")
