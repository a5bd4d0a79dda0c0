"""Repository of owners of studies, programs and bundles; jobs name theirs in their specs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import StrEnum

from autoscaler.domain.access import Owner


class OwnedKind(StrEnum):
    """Kind of thing with an owner in this repository."""

    STUDY = "study"
    PROGRAM = "program"
    BUNDLE = "bundle"


class Owners(ABC):
    """Owners in one store, by kind and name of the thing."""

    @abstractmethod
    def claim(self, kind: OwnedKind, name: str, owner: Owner) -> Owner:
        """Make `owner` the owner of a thing that has none; return the owner in force."""

    @abstractmethod
    def share(self, kind: OwnedKind, name: str, owner: Owner) -> None:
        """Add an owner to those of a thing. A person who is an owner gets the new team."""

    @abstractmethod
    def of(self, kind: OwnedKind, name: str) -> tuple[Owner, ...]:
        """Return the owners of a thing, the first one first; empty if it has none."""

    @abstractmethod
    def all(self, kind: OwnedKind) -> Mapping[str, tuple[Owner, ...]]:
        """Return the owners of all things of a kind by name, the first one first."""

    @abstractmethod
    def release(self, kind: OwnedKind, name: str) -> None:
        """Remove all owners of a thing that was deleted."""
