"""Cloud events from EventBridge, received from an SQS queue in each region.

A message is deleted once it needs no more action. Its instances have then ended or are not of this
deployment, or the message is unreadable. Until then its notice is reported again: by this process
from memory, by the next process from the queue.
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
from providers.aws.settings import CallTimeouts
from providers.cloud.register import Register
from providers.cloud.replies import readable

_log = logging.getLogger(__name__)

_WARNING: Final = "EC2 Spot Instance Interruption Warning"
_REBALANCE: Final = "EC2 Instance Rebalance Recommendation"
_STATE_CHANGE: Final = "EC2 Instance State-change Notification"
_HEALTH: Final = "AWS Health Event"
_ENDING: Final = frozenset({CloudState.STOPPING, CloudState.TERMINATED})
# Receives in one poll, of ten messages each; the next poll receives the rest.
_MAX_RECEIVES: Final = 50
_MAX_DELETED: Final = 10


@dataclass(frozen=True, slots=True)
class InstanceEvent:
    """Event in one message. `reclaim_seconds` is None unless the event announces a reclaim."""

    kind: str
    instances: tuple[str, ...]
    at_seconds: float
    reclaim_seconds: float | None = None
    state: str = ""


class Notices:
    """Event queue of one region and its received events. Thread-safe.

    `trouble` says why the queue can't be read; None if it can. `counts` counts events by kind.
    """

    def __init__(
        self,
        calls: RegionCalls,
        queue_url: str | None,
        register: Register,
        patience: CallTimeouts,
        clock: Clock,
    ) -> None:
        self._calls = calls
        self._queue_url = queue_url
        self._register = register
        self._patience = patience
        self._clock = clock
        self._open: dict[str, tuple[InstanceEvent, str]] = {}
        self._rebalanced: set[str] = set()
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.trouble: str | None = None

    def interruptions(self) -> list[Interruption]:
        """Return reclaim notices of this deployment's running instances.

        While the queue can't be read, the notices received before are returned and `trouble` says
        why.
        """
        if self._queue_url is None:
            return []
        with self._lock:
            try:
                self._receive(self._queue_url)
                self._delete_handled(self._queue_url)
            except ProviderError as error:
                self._set_trouble(str(error))
            else:
                self._set_trouble(None)
            return self._earliest_notices()

    @property
    def rebalanced(self) -> frozenset[str]:
        """Running instances of this deployment with a rebalance recommendation of EC2."""
        with self._lock:
            return frozenset(
                instance_id for instance_id in self._rebalanced if self._is_running(instance_id)
            )

    def _set_trouble(self, error: str | None) -> None:
        if error is not None and self.trouble is None:
            _log.warning("reclaim notices can't be received: %s", error)
        self.trouble = error

    def _receive(self, queue_url: str) -> None:
        for _ in range(_MAX_RECEIVES):
            reply = self._calls.receive(queue_url, self._patience.redelivery_seconds)
            with readable(f"{self._calls.region}: ReceiveMessage"):
                messages = [
                    (message["MessageId"], message["ReceiptHandle"], message["Body"])
                    for message in reply.get("Messages", ())
                ]
            new_ids = {message_id for message_id, _, _ in messages} - self._open.keys()
            for message_id, handle, body in messages:
                event = (
                    self._parse_message(body)
                    if message_id in new_ids
                    else self._open[message_id][0]
                )
                self._open[message_id] = event, handle
            if not new_ids:
                return

    def _parse_message(self, body: str) -> InstanceEvent:
        try:
            with readable("a message"):
                event = read_event(json.loads(body), self._patience.notice_seconds)
        except (Unavailable, RecursionError) as error:
            self.counts["poison"] += 1
            _log.warning("%s: a message is dropped: %s", self._calls.region, error)
            return InstanceEvent("poison", (), self._clock.now())
        self.counts[event.kind] += 1
        # A time in the future would delay the deletion of the message.
        event = replace(event, at_seconds=min(event.at_seconds, self._clock.now()))
        for instance_id in event.instances:
            if event.state == "terminated" and self._register.find(instance_id) is not None:
                self._register.ended_at(instance_id, event.at_seconds)
            if event.kind == _REBALANCE:
                self._rebalanced.add(instance_id)
        return event

    def _delete_handled(self, queue_url: str) -> None:
        """Delete the messages that need no more action. One whose deletion fails stays open."""
        handled = [
            message_id for message_id, (event, _) in self._open.items() if self._is_handled(event)
        ]
        for start in range(0, len(handled), _MAX_DELETED):
            batch = handled[start : start + _MAX_DELETED]
            self._calls.forget(queue_url, [self._open[message_id][1] for message_id in batch])
            for message_id in batch:
                del self._open[message_id]
        self._rebalanced = {
            message_id for message_id in self._rebalanced if not self._has_ended(message_id)
        }

    def _is_handled(self, event: InstanceEvent) -> bool:
        if event.reclaim_seconds is None:
            return True
        age_seconds = self._clock.now() - event.at_seconds
        is_old = age_seconds > self._patience.visible_seconds
        registered = [self._register.find(instance_id) for instance_id in event.instances]
        return all(
            (instance_id is None and is_old) or (instance_id is not None and instance_id.has_ended)
            for instance_id in registered
        )

    def _earliest_notices(self) -> list[Interruption]:
        """Return one notice for each instance: the earliest announced reclaim."""
        notices: dict[str, Interruption] = {}
        for event, _ in self._open.values():
            if event.reclaim_seconds is None:
                continue
            for instance_id in filter(self._is_running, event.instances):
                notice = Interruption(instance_id, event.at_seconds, event.reclaim_seconds)
                before = notices.get(instance_id, notice)
                notices[instance_id] = min(
                    before,
                    notice,
                    key=lambda interruption: (
                        interruption.reclaim_seconds,
                        interruption.notice_seconds,
                    ),
                )
        return list(notices.values())

    def _is_running(self, instance_id: str) -> bool:
        registered = self._register.find(instance_id)
        return registered is not None and registered.instance.state not in _ENDING

    def _has_ended(self, instance_id: str) -> bool:
        registered = self._register.find(instance_id)
        return registered is None or registered.has_ended


def read_event(body: Mapping[str, Any], notice_seconds: float) -> InstanceEvent:
    """Return the event in an EventBridge message.

    Raises:
        KeyError, ValueError, ...: the message is not such an event.
    """
    kind, detail = str(body["detail-type"]), body["detail"]
    at_seconds = datetime.fromisoformat(body["time"]).timestamp()
    if kind == _WARNING:
        return InstanceEvent(
            kind, (str(detail["instance-id"]),), at_seconds, at_seconds + notice_seconds
        )
    if kind in (_REBALANCE, _STATE_CHANGE):
        state = str(detail.get("state", ""))
        return InstanceEvent(kind, (str(detail["instance-id"]),), at_seconds, state=state)
    if kind == _HEALTH and detail["eventTypeCategory"] == "scheduledChange":
        instances = tuple(str(entity["entityValue"]) for entity in detail["affectedEntities"])
        starts_seconds = parsedate_to_datetime(detail["startTime"]).timestamp()
        return InstanceEvent(kind, instances, at_seconds, max(starts_seconds, at_seconds))
    return InstanceEvent("other", (), at_seconds)
