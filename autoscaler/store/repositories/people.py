"""Repository of people and of their access tokens. Only hashes of tokens are stored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from autoscaler.domain.access import AccessToken, Person
from autoscaler.domain.errors import NotFound


@dataclass(frozen=True, slots=True)
class KnownToken:
    """A token that was presented, with its person."""

    token: AccessToken
    person: Person


PersonCheck = Callable[[Person], None]
"""Precondition of a change of a person: it may raise an error."""


def accept_person(person: Person) -> None:
    """Accept any person, as the precondition of a change."""


class People(ABC):
    """People of one store, and their tokens.

    A person has at most one token of a name that is not revoked; tokens that were revoked stay,
    so that their use gets a message.
    """

    def put(self, person: Person) -> None:
        """Store a person, in place of the earlier role and team."""
        self.update(person.name, lambda known: person)

    @abstractmethod
    def update(
        self, name: str, make: Callable[[Person | None], Person]
    ) -> tuple[Person | None, Person]:
        """Store the person that `make` returns for the stored one of this name; return both.

        `make` gets None if there is none. No other writer comes between; nothing is stored if
        `make` raises.
        """

    @abstractmethod
    def get(self, name: str) -> Person | None:
        """Return a person; None if there is none of this name."""

    @abstractmethod
    def all(self) -> tuple[Person, ...]:
        """Return all people, sorted by name."""

    @abstractmethod
    def remove(
        self, name: str, now_seconds: float, precondition: PersonCheck = accept_person
    ) -> bool:
        """Remove a person that `precondition` accepts, and revoke all tokens.

        Return False if there was none.
        """

    @abstractmethod
    def add_token(self, token: AccessToken, token_hash: str, replaced_seconds: float) -> None:
        """Store a new token. An earlier one of the same name is revoked at `replaced_seconds`.

        Raises:
            NotFound: there is no such person.
        """

    @abstractmethod
    def tokens(self, person: str | None = None) -> tuple[AccessToken, ...]:
        """Return the tokens of a person, or of all if None, in order of creation."""

    @abstractmethod
    def revoke(self, person: str, name: str, now_seconds: float) -> bool:
        """Revoke a person's tokens of a name; return False if all were revoked before."""

    @abstractmethod
    def of_token(self, token_hash: str) -> KnownToken | None:
        """Return the token of a hash and its person; None if the hash is unknown.

        The token of a person who was removed is unknown.
        """

    @abstractmethod
    def note_use(self, token_hash: str, now_seconds: float) -> None:
        """Store the time of the last use of a token."""


def unknown_person(name: str) -> NotFound:
    """Return the error for a person who is not known."""
    return NotFound(f"nobody is called {name}: castor people lists all, castor invite adds one")
