"""Notifications of a controller: the watch, the deliveries, and their threads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Final

from autoscaler.clock import Clock
from autoscaler.controller.controller import ControllerStatus
from autoscaler.domain.errors import Conflict, NotLeading, StoreError
from autoscaler.domain.notice import Delivery, NoticeKey, NoticeKind, UserNotice
from autoscaler.notifications.delivery import Letterhead, TargetDeliveries, note_given_up
from autoscaler.notifications.fact_reader import FactReader
from autoscaler.notifications.targets import Target, names_of
from autoscaler.notifications.watch import NoticeWatch
from autoscaler.store.store import Store

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 5.0
_NO_TARGET: Final = "castor serve has no target of this name any more"


class Notifications:
    """Notices of one controller, and their targets.

    Only the controller that leads the store runs the threads. A target that is slow or does not
    answer delays neither the control loop nor another target.
    """

    def __init__(
        self,
        store: Store,
        status: ControllerStatus,
        targets: Sequence[Target],
        url: str,
        clock: Clock,
        fleet_usd: Decimal | None = None,
    ) -> None:
        self.deployment = store.settings.controller_id()
        letterhead = Letterhead(self.deployment, url)
        self._store = store
        self._clock = clock
        self.targets = tuple(targets)
        reader = FactReader(store, status, fleet_usd)
        self._watch = NoticeWatch(store, reader, targets, clock)
        self._deliveries = tuple(
            TargetDeliveries(target, store, letterhead, clock) for target in targets
        )
        self._threads: list[threading.Thread] = []
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start the threads. Without targets there are none, and nothing is stored."""
        if not self.targets:
            return
        runs = [("castor-notices", self._run_watch)]
        runs += [
            (f"castor-notices-{target.name}", self._run_of(deliveries))
            for target, deliveries in zip(self.targets, self._deliveries, strict=True)
        ]
        for name, run in runs:
            thread = threading.Thread(target=run, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self, longest_seconds: float) -> None:
        """End the threads. One that still waits for its target is left behind after a time."""
        self._stopped.set()
        for deliveries in self._deliveries:
            deliveries.woken.set()
        deadline_seconds = self._clock.monotonic() + longest_seconds
        for thread in self._threads:
            thread.join(max(deadline_seconds - self._clock.monotonic(), 0.0))

    def test(self, person: str) -> UserNotice:
        """Store a test notice for each target, at the request of a person; return it.

        Raises:
            Conflict: there is no target.
        """
        if not self.targets:
            raise Conflict("there are no targets: start castor serve with --notify FILE")
        now_seconds = self._clock.now()
        earlier = (known.key for known in self._store.notices.known())
        tests = (key.episode for key in earlier if key.kind is NoticeKind.TEST)
        episode = 1 + max(tests, default=0)
        key = NoticeKey(NoticeKind.TEST, "castor notify test", episode)
        notice = UserNotice(key, now_seconds, f"This is a test, asked for by {person}.")
        self.add(notice)
        return notice

    def add(self, notice: UserNotice) -> None:
        """Store a notice for the targets that get it, and wake their threads."""
        if self._store.notices.add(notice, names_of(self.targets, notice)):
            self._wake()

    def latest(self, limit: int, below: int | None = None) -> tuple[Delivery, ...]:
        """Return the latest deliveries with a number below `below`, the newest first."""
        return self._store.notices.latest(limit, below)

    def look(self) -> None:
        """Store new notices once, and wake the threads that deliver them."""
        if self._watch.look():
            self._wake()

    def _wake(self) -> None:
        for deliveries in self._deliveries:
            deliveries.woken.set()

    def _run_watch(self) -> None:
        is_begun = False
        while not self._stopped.is_set():
            try:
                if not is_begun:
                    self._drop_removed_targets()
                    is_begun = True
                self.look()
            except NotLeading:
                return
            except StoreError as error:
                _log.warning("notices wait: %s", error)
            except Exception:  # the next look repeats it, and the control loop is not affected
                _log.exception("the look for notices failed")
            self._stopped.wait(_LOOK_SECONDS)

    def _run_of(self, deliveries: TargetDeliveries) -> Callable[[], None]:
        return lambda: deliveries.run(self._stopped)

    def _drop_removed_targets(self) -> None:
        """Give up what waits for targets that the file does not have any more."""
        names, now_seconds = [target.name for target in self.targets], self._clock.now()
        for delivery in self._store.notices.give_up_others(names, _NO_TARGET, now_seconds):
            note_given_up(self._store, delivery, now_seconds)
