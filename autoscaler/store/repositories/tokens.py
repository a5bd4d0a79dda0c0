"""Repository of tokens for access to the service. Only hashes of tokens are stored."""

from __future__ import annotations

from abc import ABC, abstractmethod


class Tokens(ABC):
    """Join tokens of instances and tokens of people, in one store."""

    @abstractmethod
    def issue(self, token_hash: str, instance: str, expires_seconds: float) -> None:
        """Store a token with which an instance may join once before `expires_seconds`.

        A repeated launch issues its token again, which can only extend its life. A used token
        stays used.

        Raises:
            UnknownInstance: no instance has this id.
        """

    @abstractmethod
    def is_good(self, token_hash: str, now_seconds: float) -> bool:
        """Return whether a token was issued, has not expired, and is unused."""

    @abstractmethod
    def burn(self, token_hash: str, now_seconds: float) -> bool:
        """Use a token; return True for exactly one caller among all threads and processes.

        Returns False if the token was never issued, has expired, or was used before.
        """

    @abstractmethod
    def set_person(self, name: str, token_hash: str) -> None:
        """Store the token of a person, in place of the person's earlier token."""

    @abstractmethod
    def person(self, token_hash: str) -> str | None:
        """Return the name of the person with a token; None if nobody has the token."""
