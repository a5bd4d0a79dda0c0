"""Repository of tokens of instances. Only hashes of tokens are stored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final

REPEAT_SECONDS: Final = 60.0
"""Time after a join in which the same agent may join again, since the reply may be lost."""


@dataclass(frozen=True, slots=True)
class NodeToken:
    """Facts of a token with which an instance reports."""

    instance: str
    issued_seconds: float
    expires_seconds: float


class Tokens(ABC):
    """Join tokens and node tokens of instances, in one store."""

    @abstractmethod
    def issue(self, token_hash: str, instance: str, expires_seconds: float) -> None:
        """Store a token with which an instance may join before `expires_seconds`.

        A repeated launch issues its token again, which can only extend its life. A used token
        stays used.

        Raises:
            UnknownInstance: no instance has this id.
        """

    @abstractmethod
    def is_good(self, token_hash: str, now_seconds: float, key_hash: str | None = None) -> bool:
        """Return whether `burn` would return True."""

    @abstractmethod
    def burn(self, token_hash: str, now_seconds: float, key_hash: str | None = None) -> bool:
        """Use a join token; return True for exactly one caller among all threads and processes.

        Return True again to the caller with the same `key_hash` for `REPEAT_SECONDS`. `key_hash`
        None: not again. Returns False if the token was never issued, has expired, or was used.
        """

    @abstractmethod
    def put_node(
        self, token_hash: str, token: NodeToken, presented_hash: str | None = None
    ) -> None:
        """Store a new node token.

        Of the earlier ones of the instance only the one that was presented stays; None: none.

        Raises:
            UnknownInstance: no instance has this id.
        """

    @abstractmethod
    def node(self, token_hash: str) -> NodeToken | None:
        """Return a node token, also one that has expired; None if the hash is unknown."""

    @abstractmethod
    def has_node(self, instance: str) -> bool:
        """Return whether an instance has a node token."""
