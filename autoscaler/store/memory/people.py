"""People and their access tokens in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from autoscaler.domain.access import AccessToken, Person
from autoscaler.store.memory.tables import Tables
from autoscaler.store.repositories.people import (
    KnownToken,
    People,
    PersonCheck,
    accept_person,
    unknown_person,
)


class MemoryPeople(People):
    """People by name, and tokens by hash."""

    def __init__(self, tables: Tables) -> None:
        self._lock = tables.lock
        self._people: dict[str, Person] = {}
        self._tokens: dict[str, AccessToken] = {}

    def update(
        self, name: str, make: Callable[[Person | None], Person]
    ) -> tuple[Person | None, Person]:
        with self._lock:
            before = self._people.get(name)
            after = self._people[name] = make(before)
            return before, after

    def get(self, name: str) -> Person | None:
        return self._people.get(name)

    def all(self) -> tuple[Person, ...]:
        with self._lock:
            return tuple(self._people[name] for name in sorted(self._people))

    def remove(
        self, name: str, now_seconds: float, precondition: PersonCheck = accept_person
    ) -> bool:
        with self._lock:
            person = self._people.get(name)
            if person is None:
                return False
            precondition(person)
            del self._people[name]
            self._revoke(lambda token: token.person == name, now_seconds)
            return True

    def add_token(self, token: AccessToken, token_hash: str, replaced_seconds: float) -> None:
        with self._lock:
            if token.person not in self._people:
                raise unknown_person(token.person)
            names = token.person, token.name
            self._revoke(lambda other: (other.person, other.name) == names, replaced_seconds)
            self._tokens[token_hash] = token

    def tokens(self, person: str | None = None) -> tuple[AccessToken, ...]:
        with self._lock:
            tokens = [token for token in self._tokens.values() if person in (None, token.person)]
        return tuple(
            sorted(tokens, key=lambda token: (token.created_seconds, token.person, token.name))
        )

    def revoke(self, person: str, name: str, now_seconds: float) -> bool:
        with self._lock:
            names = person, name
            return self._revoke(lambda token: (token.person, token.name) == names, now_seconds)

    def of_token(self, token_hash: str) -> KnownToken | None:
        with self._lock:
            token = self._tokens.get(token_hash)
            person = None if token is None else self._people.get(token.person)
            return None if token is None or person is None else KnownToken(token, person)

    def note_use(self, token_hash: str, now_seconds: float) -> None:
        with self._lock:
            token = self._tokens.get(token_hash)
            if token is not None:
                self._tokens[token_hash] = replace(token, used_seconds=now_seconds)

    def _revoke(self, is_meant: Callable[[AccessToken], bool], at_seconds: float) -> bool:
        """Revoke the meant tokens that stand at a time; return whether there were any."""
        standing = [
            token_hash
            for token_hash, token in self._tokens.items()
            if is_meant(token) and not token.is_revoked(at_seconds)
        ]
        for token_hash in standing:
            self._tokens[token_hash] = replace(
                self._tokens[token_hash], revoked_seconds=at_seconds
            )
        return bool(standing)
