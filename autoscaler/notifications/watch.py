"""Watch that turns the state of the controller into stored notices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from autoscaler.clock import Clock
from autoscaler.domain.notice import NoticeKey, NoticeKind, UserNotice
from autoscaler.notifications.conditions import conditions, events
from autoscaler.notifications.episodes import Episodes
from autoscaler.notifications.fact_reader import FactReader
from autoscaler.notifications.targets import Target, names_of
from autoscaler.store.store import Store

FRESH_SECONDS: Final = 86_400.0
_SINCE_KEY: Final = "notices since"


class NoticeWatch:
    """Looks at jobs, budgets and providers, and stores a notice for each that people should get.

    Level-triggered: what a look missed, or a crash cut short, is in the next one. For one thread.
    """

    def __init__(
        self, store: Store, reader: FactReader, targets: Sequence[Target], clock: Clock
    ) -> None:
        self._store = store
        self._reader = reader
        self._targets = targets
        self._clock = clock
        self._episodes: Episodes | None = None
        self._since_seconds = 0.0

    def look(self) -> bool:
        """Store what is new; return whether a notice was stored.

        Raises:
            NotLeading, StoreError: the store refused, or did not answer; the next look repeats it.
        """
        now_seconds = self._clock.now()
        episodes = self._prepared(now_seconds)
        since_seconds = max(self._since_seconds, now_seconds - FRESH_SECONDS)
        facts = self._reader.read(since_seconds, now_seconds)
        new = [notice for notice in events(facts) if not episodes.is_known(notice.key)]
        changes = episodes.changes(conditions(facts), now_seconds)
        for notice in (*new, *changes.begun):
            self._store.notices.add(notice, names_of(self._targets, notice))
            episodes.note(notice.key, is_open=notice in changes.begun)
        for key in changes.over:
            self._store.notices.end(key, now_seconds)
            episodes.note(key, is_open=False)
        self._reader.forget_ended()
        return bool(new or changes.begun)

    def _prepared(self, now_seconds: float) -> Episodes:
        """Return the episodes, read from the store at the first look."""
        if self._episodes is None:
            began = self._store.settings.once(_SINCE_KEY, lambda: repr(now_seconds))
            self._since_seconds = float(began)
            self._episodes = Episodes(self._store.notices.known())
        return self._episodes


def leader_notice(url: str, now_seconds: float) -> UserNotice:
    """Return the notice of a new leader of the store, at this URL."""
    key = NoticeKey(NoticeKind.LEADER, "controller", int(now_seconds))
    return UserNotice(key, now_seconds, f"The controller at {url} leads the store now.")
