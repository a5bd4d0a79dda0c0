"""What is known of this deployment's instances, between two looks at the cloud.

Clouds' lists lag: what was launched a moment ago may be missing from them, and what has ended is
dropped sooner or later. Here the first counts for a stated time as it was last seen, and the
second stays for two hours. What has left a queue was launched when that was first seen, if its
cloud does not say when. Nothing here ends an instance: only its cloud says that one has ended.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from autoscaler.domain.instance import CloudInstance, CloudState

_KEPT_SECONDS: Final = 7200.0
_HAS_CAPACITY: Final = (CloudState.PENDING, CloudState.RUNNING)


@dataclass(frozen=True, slots=True)
class Owned:
    """An instance that was seen with this deployment's tag, or launched with it.

    `scope` is the part of the cloud that lists it: a region of EC2, a zone of Compute Engine.
    """

    instance: CloudInstance
    scope: str

    @property
    def has_ended(self) -> bool:
        """Its cloud has said so."""
        return self.instance.state is CloudState.TERMINATED


class Register:
    """The instances that are ours. Safe to share between threads."""

    def __init__(self, visible_seconds: float) -> None:
        self._visible_seconds = visible_seconds
        self._owned: dict[str, Owned] = {}
        self._seen_seconds: dict[str, float] = {}
        self._first_seconds: dict[str, float] = {}
        self._ended_seconds: dict[str, float] = {}
        self._asked_seconds: dict[str, float] = {}
        self._lock = threading.Lock()

    def add(self, scope: str, instance: CloudInstance, now_seconds: float) -> CloudInstance:
        """One that a launch yielded, whether it is listed yet or not; as known now."""
        with self._lock:
            owned = self._owned[instance.id] = Owned(self._dated(instance, now_seconds), scope)
            self._seen_seconds[instance.id] = now_seconds
            return owned.instance

    def take_in(
        self,
        scope: str,
        listed: Iterable[CloudInstance],
        asked_seconds: float,
        now_seconds: float,
    ) -> None:
        """A complete list of a scope, which was asked for at `asked_seconds`."""
        with self._lock:
            found = {seen.id: Owned(self._dated(seen, now_seconds), scope) for seen in listed}
            for known in [one for one in self._owned.values() if one.scope == scope]:
                if known.instance.id not in found and not self._is_kept(known, asked_seconds):
                    self._forget(known.instance.id)
            self._owned |= found
            self._seen_seconds |= dict.fromkeys(found, asked_seconds)
            self._asked_seconds[scope] = asked_seconds

    def ended_at(self, instance_id: str, ended_seconds: float) -> None:
        """When it ended, from another source than its list: the first that is heard counts."""
        with self._lock:
            self._ended_seconds.setdefault(instance_id, ended_seconds)

    def asked_seconds(self, scope: str) -> float:
        """When the last complete list of the scope was asked for; -inf if there was none."""
        with self._lock:
            return self._asked_seconds.get(scope, -math.inf)

    def scopes(self) -> frozenset[str]:
        """Those that were listed, or have an instance that counts."""
        with self._lock:
            return frozenset(self._asked_seconds) | {one.scope for one in self._owned.values()}

    def all(self) -> Sequence[Owned]:
        """Every instance that counts."""
        with self._lock:
            return list(self._owned.values())

    def find(self, instance_id: str) -> Owned | None:
        """One of them; None if it is not ours, or not known to be."""
        with self._lock:
            return self._owned.get(instance_id)

    def of_token(self, token: str) -> Owned | None:
        """What a launch with this token yielded, if that is known."""
        with self._lock:
            found = (one for one in self._owned.values() if one.instance.token == token)
            return next(found, None)

    def age_seconds(self, instance: CloudInstance, now_seconds: float) -> float:
        """For how long its cloud has had it: since its launch, or since it was seen in a queue."""
        since_seconds = instance.launched_seconds
        if since_seconds is None:
            with self._lock:
                since_seconds = self._first_seconds.get(instance.id, now_seconds)
        return now_seconds - since_seconds

    def _dated(self, instance: CloudInstance, now_seconds: float) -> CloudInstance:
        """With its launch and its end: as its cloud said first, or when that was first seen."""
        self._first_seconds.setdefault(instance.id, now_seconds)
        known, launched_seconds = self._owned.get(instance.id), instance.launched_seconds
        if known is not None and known.instance.launched_seconds is not None:
            launched_seconds = known.instance.launched_seconds
        elif launched_seconds is None and instance.state in _HAS_CAPACITY:
            launched_seconds = now_seconds
        if instance.refusal is not None:  # it was taken for launched and never was
            launched_seconds = None
        dated = replace(instance, launched_seconds=launched_seconds)
        if instance.state is not CloudState.TERMINATED:
            return dated
        told = now_seconds if instance.ended_seconds is None else instance.ended_seconds
        ended_seconds = self._ended_seconds.setdefault(instance.id, told)
        if launched_seconds is not None:
            ended_seconds = max(ended_seconds, launched_seconds)
        return replace(dated, ended_seconds=ended_seconds)

    def _is_kept(self, known: Owned, asked_seconds: float) -> bool:
        """Whether one that a list leaves out counts nevertheless."""
        if known.instance.ended_seconds is not None:
            return asked_seconds - known.instance.ended_seconds < _KEPT_SECONDS
        seen_seconds = self._seen_seconds[known.instance.id]
        return asked_seconds - seen_seconds < self._visible_seconds

    def _forget(self, instance_id: str) -> None:
        del self._owned[instance_id], self._seen_seconds[instance_id]
        self._first_seconds.pop(instance_id, None)
        self._ended_seconds.pop(instance_id, None)
