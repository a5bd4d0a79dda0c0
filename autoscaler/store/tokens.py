"""Who may speak to the service. Only hashes of tokens are kept."""

from __future__ import annotations

from abc import ABC, abstractmethod


class Tokens(ABC):
    """The tokens of one store."""

    @abstractmethod
    def issue(self, token_hash: str, instance: str, expires_seconds: float) -> None:
        """Keep a token with which that instance may join once, before it expires.

        A launch that is made again issues its token again, which then expires later; one that was
        used stays used.

        Raises:
            UnknownInstance: there is none.
        """

    @abstractmethod
    def is_good(self, token_hash: str, now_seconds: float) -> bool:
        """The token could be used now: it was issued, has not expired, and was not used."""

    @abstractmethod
    def burn(self, token_hash: str, now_seconds: float) -> bool:
        """Use a token up. True for exactly one caller, of all threads and processes.

        False if it was never issued, has expired, or was used before.
        """

    @abstractmethod
    def set_person(self, name: str, token_hash: str) -> None:
        """Let a person in with a token, in place of the one they had."""

    @abstractmethod
    def person(self, token_hash: str) -> str | None:
        """The name of the person with that token; None if there is nobody."""
