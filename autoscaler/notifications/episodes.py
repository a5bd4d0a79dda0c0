"""Episodes of conditions: people are told once when a condition begins, not while it lasts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from autoscaler.domain.notice import NoticeKey, NoticeKind, UserNotice
from autoscaler.notifications.conditions import NoticeCondition
from autoscaler.store.repositories.notices import KnownNotice

# A condition is over once it has not held for this long; one that returns earlier is the same
# episode. After a restart of the controller, stalls and strays need a while to be seen again.
QUIET_SECONDS: Final = 1800.0

_About = tuple[NoticeKind, str]


@dataclass(frozen=True, slots=True)
class EpisodeChanges:
    """Notices to store, and keys of stored ones whose conditions are over."""

    begun: tuple[UserNotice, ...] = ()
    over: tuple[NoticeKey, ...] = ()


class Episodes:
    """Stored notices, and since when each condition has held or not held.

    The times are in memory only: in a new process they begin again. For one thread.
    """

    def __init__(self, known: Iterable[KnownNotice]) -> None:
        self._latest: dict[_About, KnownNotice] = {
            (notice.key.kind, notice.key.subject): notice for notice in known
        }
        self._held_since: dict[_About, float] = {}
        self._absent_since: dict[_About, float] = {}

    def is_known(self, key: NoticeKey) -> bool:
        """Return whether the latest notice of its kind and subject is as late as this one."""
        latest = self._latest.get((key.kind, key.subject))
        return latest is not None and latest.key.episode >= key.episode

    def note(self, key: NoticeKey, is_open: bool) -> None:
        """Remember a notice that is stored now, or whose condition is over now."""
        self._latest[key.kind, key.subject] = KnownNotice(key, is_open)

    def changes(self, holding: Iterable[NoticeCondition], now_seconds: float) -> EpisodeChanges:
        """Return what begins and what is over, given all conditions that hold now."""
        current = {(condition.kind, condition.subject): condition for condition in holding}
        self._held_since = {
            about: min(self._held_since.get(about, now_seconds), now_seconds) for about in current
        }
        begun = []
        for about, condition in current.items():
            held_seconds = now_seconds - self._held_since[about]
            latest = self._latest.get(about)
            is_told = latest is not None and (latest.is_open or condition.is_told_once)
            if not is_told and held_seconds >= condition.hold_seconds:
                episode = 1 if latest is None else latest.key.episode + 1
                begun.append(condition.notice(episode, now_seconds))
        return EpisodeChanges(tuple(begun), tuple(self._over(current, now_seconds)))

    def _over(self, current: Iterable[_About], now_seconds: float) -> list[NoticeKey]:
        """Return the keys of open notices whose conditions have not held for long enough."""
        holding = set(current)
        absent = [
            about
            for about, latest in self._latest.items()
            if latest.is_open and about not in holding
        ]
        self._absent_since = {
            about: min(self._absent_since.get(about, now_seconds), now_seconds) for about in absent
        }
        return [
            self._latest[about].key
            for about, since_seconds in self._absent_since.items()
            if now_seconds - since_seconds >= QUIET_SECONDS
        ]
