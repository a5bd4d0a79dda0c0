"""Owners of studies, programs and bundles in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from autoscaler.domain.access import Owner
from autoscaler.store.memory.tables import Tables
from autoscaler.store.repositories.owners import OwnedKind, Owners


class MemoryOwners(Owners):
    """Owners by kind and name of the thing, then by person."""

    def __init__(self, tables: Tables) -> None:
        self._lock = tables.lock
        self._owners: dict[tuple[OwnedKind, str], dict[str, Owner]] = defaultdict(dict)

    def claim(self, kind: OwnedKind, name: str, owner: Owner) -> Owner:
        with self._lock:
            known = self._owners[kind, name]
            if not known:
                known[owner.person] = owner
            return next(iter(known.values()))

    def share(self, kind: OwnedKind, name: str, owner: Owner) -> None:
        with self._lock:
            self._owners[kind, name][owner.person] = owner

    def of(self, kind: OwnedKind, name: str) -> tuple[Owner, ...]:
        with self._lock:
            return tuple(self._owners.get((kind, name), {}).values())

    def all(self, kind: OwnedKind) -> Mapping[str, tuple[Owner, ...]]:
        with self._lock:
            return {
                name: tuple(owners.values())
                for (of_kind, name), owners in self._owners.items()
                if of_kind is kind and owners
            }

    def release(self, kind: OwnedKind, name: str) -> None:
        with self._lock:
            self._owners.pop((kind, name), None)
