"""Deliveries: a thread for each target sends what waits for it, and repeats what failed."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote

from autoscaler.back_off import delay_seconds
from autoscaler.clock import Clock
from autoscaler.domain.errors import NotLeading, StoreError
from autoscaler.domain.job_names import exact_name
from autoscaler.domain.notice import Delivery, DeliveryState, NoticeKind, UserNotice
from autoscaler.notifications.base import Message, NotDelivered
from autoscaler.notifications.targets import Target
from autoscaler.store.repositories.events import Event
from autoscaler.store.store import Store

_log = logging.getLogger(__name__)

NOT_DELIVERED: Final = "notice not delivered"
FIRST_RETRY_SECONDS: Final = 5.0
LONGEST_RETRY_SECONDS: Final = 3600.0
GIVE_UP_SECONDS: Final = 86_400.0
_LONGEST_PAUSE_SECONDS: Final = 30.0
_AFTER_ERROR_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Letterhead:
    """Deployment and public URL that messages name."""

    deployment: str
    url: str

    def message(self, notice: UserNotice) -> Message:
        """Return the message of a notice, with the page of its job or study."""
        path = "" if notice.job is None else f"/jobs/{quote(exact_name(notice.job), safe='')}"
        if notice.key.kind is NoticeKind.STUDY:
            path = f"/studies/{quote(notice.key.subject, safe='')}"
        return Message(notice.id(self.deployment), notice, self.deployment, f"{self.url}{path}")


class TargetDeliveries:
    """Deliveries to one target. They are stored, so that another process can go on with them."""

    def __init__(self, target: Target, store: Store, letterhead: Letterhead, clock: Clock) -> None:
        self._target = target
        self._store = store
        self._letterhead = letterhead
        self._clock = clock
        self.woken = threading.Event()

    def run(self, stopped: threading.Event) -> None:
        """Send until `stopped` is set, or until this process does not lead its store any more."""
        while not stopped.is_set():
            self.woken.clear()
            try:
                pause_seconds = self.send_due(stopped)
            except NotLeading:
                return
            except StoreError as error:
                _log.warning("notices to %s wait: %s", self._target.name, error)
                pause_seconds = _AFTER_ERROR_SECONDS
            if not stopped.is_set():
                self.woken.wait(pause_seconds)

    def send_due(self, stopped: threading.Event) -> float:
        """Send what is due; return the seconds until the next delivery may be due.

        Raises:
            NotLeading, StoreError: the result of an attempt can't be stored: it is sent again.
        """
        waiting = self._store.notices.waiting(self._target.name)
        for delivery in waiting:
            if stopped.is_set() or delivery.next_seconds > self._clock.now():
                break
            self._attempt(delivery)
        rest = self._store.notices.waiting(self._target.name, limit=1)
        if not rest:
            return _LONGEST_PAUSE_SECONDS
        left_seconds = rest[0].next_seconds - self._clock.now()
        return min(max(left_seconds, 0.0), _LONGEST_PAUSE_SECONDS)

    def _attempt(self, delivery: Delivery) -> None:
        """Send a delivery, and store the result."""
        message = self._letterhead.message(delivery.notice)
        error: NotDelivered | None = None
        try:
            self._target.notifier.send(message, self._clock.now())
        except NotDelivered as refused:
            error = refused
        except Exception as fault:  # a plug-in may raise anything
            _log.exception("the notifier of %s failed", self._target.name)
            error = NotDelivered(f"{type(fault).__name__}: {fault}")
        outcome = after_attempt(delivery, error, self._clock.now())
        self._store.notices.record(outcome)
        if outcome.state is DeliveryState.GIVEN_UP:
            note_given_up(self._store, outcome, self._clock.now())
        elif outcome.error is not None:
            _log.warning("notice to %s: %s", self._target.name, outcome.error)


def after_attempt(delivery: Delivery, error: NotDelivered | None, now_seconds: float) -> Delivery:
    """Return a delivery after an attempt that ended now; `error` None: it succeeded.

    It is tried again after 5 s, then after twice as long each time, at most an hour, until its
    notice is a day old.
    """
    attempts = delivery.attempts + 1
    if error is None:
        return replace(
            delivery,
            state=DeliveryState.DELIVERED,
            attempts=attempts,
            error=None,
            done_seconds=now_seconds,
        )
    wait_seconds = max(
        delay_seconds(attempts, FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS),
        error.retry_after_seconds or 0.0,
    )
    next_seconds = now_seconds + wait_seconds
    is_over = error.is_final or next_seconds > delivery.notice.at_seconds + GIVE_UP_SECONDS
    return replace(
        delivery,
        state=DeliveryState.GIVEN_UP if is_over else DeliveryState.WAITING,
        attempts=attempts,
        next_seconds=next_seconds,
        error=str(error),
        done_seconds=now_seconds if is_over else None,
    )


def note_given_up(store: Store, delivery: Delivery, now_seconds: float) -> None:
    """Record an event of a delivery that was given up."""
    notice = delivery.notice
    text = (
        f"{notice.key.kind} of {notice.key.subject} to {delivery.target}, given up after "
        f"{delivery.attempts} attempts: {delivery.error}"
    )
    _log.error("%s: %s", NOT_DELIVERED, text)
    store.events.add(Event(now_seconds, NOT_DELIVERED, text, notice.job))
