"""Register of this deployment's instances, between two lists of the cloud.

Clouds' lists lag. A new instance may be missing from a list; it counts as last seen for a stated
time. An ended instance drops out of the lists; it stays here for two hours. An instance that
leaves a queue counts as launched when first seen so, unless the cloud reports the time. Only the
cloud's report ends an instance.
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
    """Instance that was launched or listed with this deployment's tag.

    `scope` is the part of the cloud that lists the instance: a region of EC2, a zone of Compute
    Engine.
    """

    instance: CloudInstance
    scope: str

    @property
    def has_ended(self) -> bool:
        """Whether the cloud reported the instance's end."""
        return self.instance.state is CloudState.TERMINATED


class Register:
    """Instances of this deployment. Thread-safe.

    `visible_seconds` is the maximum lag of the cloud's lists.
    """

    def __init__(self, visible_seconds: float) -> None:
        self._visible_seconds = visible_seconds
        self._owned: dict[str, Owned] = {}
        self._seen_seconds: dict[str, float] = {}
        self._first_seconds: dict[str, float] = {}
        self._ended_seconds: dict[str, float] = {}
        self._asked_seconds: dict[str, float] = {}
        self._lock = threading.Lock()

    def add(self, scope: str, instance: CloudInstance, now_seconds: float) -> CloudInstance:
        """Add a launched instance, listed or not, and return it with its known times."""
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
        """Replace a scope's instances by a complete list that was requested at `asked_seconds`.

        An unlisted instance stays for two hours after its end, or until the list's lag has passed.
        """
        with self._lock:
            listed_now = {
                instance.id: Owned(self._dated(instance, now_seconds), scope)
                for instance in listed
            }
            for registered in [owned for owned in self._owned.values() if owned.scope == scope]:
                if registered.instance.id not in listed_now and not self._is_kept(
                    registered, asked_seconds
                ):
                    self._forget(registered.instance.id)
            self._owned |= listed_now
            self._seen_seconds |= dict.fromkeys(listed_now, asked_seconds)
            self._asked_seconds[scope] = asked_seconds

    def ended_at(self, instance_id: str, ended_seconds: float) -> None:
        """Record when an instance ended, from another source than a list.

        The first time recorded counts.
        """
        with self._lock:
            self._ended_seconds.setdefault(instance_id, ended_seconds)

    def asked_seconds(self, scope: str) -> float:
        """Return when the scope's last complete list was requested; -inf if there was none."""
        with self._lock:
            return self._asked_seconds.get(scope, -math.inf)

    def scopes(self) -> frozenset[str]:
        """Return the scopes that were listed or have an instance in the register."""
        with self._lock:
            return frozenset(self._asked_seconds) | {owned.scope for owned in self._owned.values()}

    def all(self) -> Sequence[Owned]:
        """Return every instance in the register."""
        with self._lock:
            return list(self._owned.values())

    def find(self, instance_id: str) -> Owned | None:
        """Return an instance by its id; None if it is not in the register."""
        with self._lock:
            return self._owned.get(instance_id)

    def of_token(self, token: str) -> Owned | None:
        """Return the instance launched with this token; None if it is not in the register."""
        with self._lock:
            matches = (owned for owned in self._owned.values() if owned.instance.token == token)
            return next(matches, None)

    def age_seconds(self, instance: CloudInstance, now_seconds: float) -> float:
        """Return the seconds since an instance's launch, or since it was first seen in a queue."""
        since_seconds = instance.launched_seconds
        if since_seconds is None:
            with self._lock:
                since_seconds = self._first_seconds.get(instance.id, now_seconds)
        return now_seconds - since_seconds

    def _dated(self, instance: CloudInstance, now_seconds: float) -> CloudInstance:
        """Return the instance with the first known times of its launch and its end."""
        self._first_seconds.setdefault(instance.id, now_seconds)
        registered, launched_seconds = self._owned.get(instance.id), instance.launched_seconds
        if registered is not None and registered.instance.launched_seconds is not None:
            launched_seconds = registered.instance.launched_seconds
        elif launched_seconds is None and instance.state in _HAS_CAPACITY:
            launched_seconds = now_seconds
        if instance.refusal is not None:  # a refused request never launched
            launched_seconds = None
        dated = replace(instance, launched_seconds=launched_seconds)
        if instance.state is not CloudState.TERMINATED:
            return dated
        reported_seconds = (
            now_seconds if instance.ended_seconds is None else instance.ended_seconds
        )
        ended_seconds = self._ended_seconds.setdefault(instance.id, reported_seconds)
        if launched_seconds is not None:
            ended_seconds = max(ended_seconds, launched_seconds)
        return replace(dated, ended_seconds=ended_seconds)

    def _is_kept(self, registered: Owned, asked_seconds: float) -> bool:
        """Return whether an instance counts although a list leaves it out."""
        if registered.instance.ended_seconds is not None:
            return asked_seconds - registered.instance.ended_seconds < _KEPT_SECONDS
        seen_seconds = self._seen_seconds[registered.instance.id]
        return asked_seconds - seen_seconds < self._visible_seconds

    def _forget(self, instance_id: str) -> None:
        del self._owned[instance_id], self._seen_seconds[instance_id]
        self._first_seconds.pop(instance_id, None)
        self._ended_seconds.pop(instance_id, None)
