"""What the cloud announces: EventBridge's events, through a queue of SQS for each region.

A message is deleted when there is nothing left to do about it: the instance that it names has
ended, is nobody's here, or the message can't be read. Until then it is told again and again, to
this process from memory and to the next one from the queue.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from autoscaler.clock import Clock
from autoscaler.domain.errors import ProviderError, Unavailable
from autoscaler.domain.instance import CloudState, Interruption
from providers.aws.calls import RegionCalls
from providers.aws.settings import Patience
from providers.cloud.register import Register
from providers.cloud.replies import readable

_log = logging.getLogger(__name__)

_WARNING: Final = "EC2 Spot Instance Interruption Warning"
_REBALANCE: Final = "EC2 Instance Rebalance Recommendation"
_STATE_CHANGE: Final = "EC2 Instance State-change Notification"
_HEALTH: Final = "AWS Health Event"
_ENDING: Final = frozenset({CloudState.STOPPING, CloudState.TERMINATED})
# So many receives in one look, of ten messages each: the rest is for the next look.
_MOST_RECEIVES: Final = 50
_MOST_DELETED: Final = 10


@dataclass(frozen=True, slots=True)
class Event:
    """What one message says. `reclaim_seconds` is None where nothing is taken back."""

    kind: str
    instances: tuple[str, ...]
    at_seconds: float
    reclaim_seconds: float | None = None
    state: str = ""


class Notices:
    """The queue of one region, and what it has told. Thread-safe."""

    def __init__(
        self,
        calls: RegionCalls,
        queue_url: str | None,
        register: Register,
        patience: Patience,
        clock: Clock,
    ) -> None:
        self._calls = calls
        self._queue_url = queue_url
        self._register = register
        self._patience = patience
        self._clock = clock
        self._open: dict[str, tuple[Event, str]] = {}
        self._rebalanced: set[str] = set()
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.trouble: str | None = None

    def interruptions(self) -> list[Interruption]:
        """Those of instances of ours that have not ended.

        While the queue can't be read, which `trouble` says, those that it has told.
        """
        if self._queue_url is None:
            return []
        with self._lock:
            try:
                self._receive(self._queue_url)
                self._close(self._queue_url)
            except ProviderError as error:
                self._tell(str(error))
            else:
                self._tell(None)
            return self._told()

    @property
    def rebalanced(self) -> frozenset[str]:
        """Instances of ours that EC2 would rather have back soon: a hint to save, no more."""
        with self._lock:
            return frozenset(one for one in self._rebalanced if self._alive(one))

    def _tell(self, trouble: str | None) -> None:
        if trouble is not None and self.trouble is None:
            _log.warning("announcements are not heard: %s", trouble)
        self.trouble = trouble

    def _receive(self, queue_url: str) -> None:
        for _ in range(_MOST_RECEIVES):
            reply = self._calls.receive(queue_url, self._patience.redelivery_seconds)
            with readable(f"{self._calls.region}: ReceiveMessage"):
                messages = [
                    (one["MessageId"], one["ReceiptHandle"], one["Body"])
                    for one in reply.get("Messages", ())
                ]
            news = {message_id for message_id, _, _ in messages} - self._open.keys()
            for message_id, handle, body in messages:
                event = self._read(body) if message_id in news else self._open[message_id][0]
                self._open[message_id] = event, handle
            if not news:
                return

    def _read(self, body: str) -> Event:
        try:
            with readable("a message"):
                event = read_event(json.loads(body), self._patience.notice_seconds)
        except (Unavailable, RecursionError) as error:
            self.counts["poison"] += 1
            _log.warning("%s: a message is dropped: %s", self._calls.region, error)
            return Event("poison", (), self._clock.now())
        self.counts[event.kind] += 1
        # One from the future would never be old enough to be nobody's.
        event = replace(event, at_seconds=min(event.at_seconds, self._clock.now()))
        for instance_id in event.instances:
            if event.state == "terminated" and self._register.find(instance_id) is not None:
                self._register.ended_at(instance_id, event.at_seconds)
            if event.kind == _REBALANCE:
                self._rebalanced.add(instance_id)
        return event

    def _close(self, queue_url: str) -> None:
        """Delete what is dealt with; what can't be deleted now comes again."""
        done = [one for one, (event, _) in self._open.items() if self._is_dealt_with(event)]
        for start in range(0, len(done), _MOST_DELETED):
            batch = done[start : start + _MOST_DELETED]
            self._calls.forget(queue_url, [self._open[one][1] for one in batch])
            for one in batch:
                del self._open[one]
        self._rebalanced = {one for one in self._rebalanced if not self._has_ended(one)}

    def _is_dealt_with(self, event: Event) -> bool:
        if event.reclaim_seconds is None:
            return True
        age_seconds = self._clock.now() - event.at_seconds
        is_old = age_seconds > self._patience.visible_seconds
        known = [self._register.find(one) for one in event.instances]
        return all(
            (one is None and is_old) or (one is not None and one.has_ended) for one in known
        )

    def _told(self) -> list[Interruption]:
        """One for each instance: the earliest end that was announced."""
        found: dict[str, Interruption] = {}
        for event, _ in self._open.values():
            if event.reclaim_seconds is None:
                continue
            for instance_id in filter(self._alive, event.instances):
                notice = Interruption(instance_id, event.at_seconds, event.reclaim_seconds)
                before = found.get(instance_id, notice)
                found[instance_id] = min(
                    before, notice, key=lambda one: (one.reclaim_seconds, one.notice_seconds)
                )
        return list(found.values())

    def _alive(self, instance_id: str) -> bool:
        known = self._register.find(instance_id)
        return known is not None and known.instance.state not in _ENDING

    def _has_ended(self, instance_id: str) -> bool:
        known = self._register.find(instance_id)
        return known is None or known.has_ended


def read_event(told: Mapping[str, Any], notice_seconds: float) -> Event:
    """An event as EventBridge wraps it.

    Raises:
        KeyError, ValueError, ...: it is none.
    """
    kind, detail = str(told["detail-type"]), told["detail"]
    at_seconds = datetime.fromisoformat(told["time"]).timestamp()
    if kind == _WARNING:
        return Event(kind, (str(detail["instance-id"]),), at_seconds, at_seconds + notice_seconds)
    if kind in (_REBALANCE, _STATE_CHANGE):
        state = str(detail.get("state", ""))
        return Event(kind, (str(detail["instance-id"]),), at_seconds, state=state)
    if kind == _HEALTH and detail["eventTypeCategory"] == "scheduledChange":
        instances = tuple(str(one["entityValue"]) for one in detail["affectedEntities"])
        starts_seconds = parsedate_to_datetime(detail["startTime"]).timestamp()
        return Event(kind, instances, at_seconds, max(starts_seconds, at_seconds))
    return Event("other", (), at_seconds)
