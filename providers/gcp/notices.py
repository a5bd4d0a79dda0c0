"""What the cloud announces: preemptions, through a subscription of Pub/Sub, or by operations.

A log sink brings the audit log's entries to the subscription of each region. An entry is written
down in `Records` and then acknowledged: it comes once. Where there is no subscription, or it is
slow, an instance that stops though nobody here ended it is asked about among its operations.
"""

from __future__ import annotations

import base64
import json
import logging
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from autoscaler.clock import Clock
from autoscaler.domain.errors import ProviderError, Unavailable
from autoscaler.domain.instance import CloudState, Interruption
from providers.cloud.register import Register
from providers.cloud.replies import readable
from providers.gcp.calls import ProjectCalls
from providers.gcp.ending import Ending
from providers.gcp.history import TAKEN_BACK, past_of
from providers.gcp.records import Records
from providers.gcp.replies import instance_id
from providers.gcp.settings import GcpSettings, Patience

_log = logging.getLogger(__name__)

_MOST_MESSAGES: Final = 100
# So many pulls in one look: the rest is for the next look.
_MOST_PULLS: Final = 20
_MOST_ASKED: Final = 20


@dataclass(frozen=True, slots=True)
class Event:
    """What one entry of the audit log says of one instance."""

    kind: str
    instance: str
    at_seconds: float


class Notices:
    """The subscriptions of all regions, and what they have told. Thread-safe."""

    def __init__(
        self,
        settings: GcpSettings,
        calls: ProjectCalls,
        register: Register,
        ending: Ending,
        records: Records,
        patience: Patience,
        clock: Clock,
    ) -> None:
        self._subscriptions = {
            name: region.subscription
            for name, region in settings.regions.items()
            if region.subscription is not None
        }
        self._calls = calls
        self._register = register
        self._ending = ending
        self._records = records
        self._patience = patience
        self._clock = clock
        self._told = {one.instance: one for one in records.notices()}
        self._asked: set[str] = set()
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.deaf: dict[str, str] = {}

    def interruptions(self) -> list[Interruption]:
        """Those of instances of ours that have not ended.

        While a subscription can't be read, which `deaf` says, those that are known.
        """
        with self._lock:
            for region, subscription in self._subscriptions.items():
                try:
                    self._pull(region, subscription)
                except ProviderError as error:
                    self._tell(region, str(error))
                else:
                    self.deaf.pop(region, None)
            self._ask()
            self._forget()
            self._records.keep_notices(self._told.values())
            return [one for one in self._told.values() if self._is_there(one.instance)]

    def _tell(self, region: str, trouble: str) -> None:
        if region not in self.deaf:
            _log.warning("announcements are not heard: %s", trouble)
        self.deaf[region] = trouble

    def _pull(self, region: str, subscription: str) -> None:
        for _ in range(_MOST_PULLS):
            reply = self._calls.pull(region, subscription, _MOST_MESSAGES)
            with readable(f"{region}: subscriptions.pull"):
                messages = [
                    (str(one["ackId"]), str(one["message"].get("data", "")))
                    for one in reply.get("receivedMessages", ())
                ]
            if not messages:
                return
            for _, data in messages:
                self._take_in(region, data)
            self._records.keep_notices(self._told.values())
            self._calls.acknowledge(region, subscription, [ack for ack, _ in messages])

    def _take_in(self, region: str, data: str) -> None:
        try:
            with readable("a message"):
                event = read_event(json.loads(base64.b64decode(data, validate=True)))
        except (Unavailable, RecursionError) as error:
            self.counts["poison"] += 1
            _log.warning("%s: a message is dropped: %s", region, error)
            return
        self.counts[event.kind] += 1
        if event.kind in TAKEN_BACK:
            # One from the future would never be old enough to be forgotten.
            self._announce(event.instance, min(event.at_seconds, self._clock.now()))

    def _announce(self, instance: str, at_seconds: float) -> None:
        """The earliest is what counts."""
        notice = Interruption(instance, at_seconds, at_seconds + self._patience.notice_seconds)
        before = self._told.get(instance, notice)
        self._told[instance] = min(before, notice, key=lambda one: one.notice_seconds)

    def _ask(self) -> None:
        """What stops, and nobody is known to have stopped, was it taken back?"""
        stopping = [
            one.instance.id
            for one in self._register.all()
            if one.instance.state is CloudState.STOPPING
        ]
        self._asked &= set(stopping)
        unexplained = [one for one in stopping if self._is_unexplained(one)]
        for instance in unexplained[:_MOST_ASKED]:
            try:
                past = past_of(self._calls, instance)
            except ProviderError as error:
                _log.info("%s stops, and it is not known why: %s", instance, error)
                continue
            self._asked.add(instance)
            if past.taken_seconds is not None:
                self._announce(instance, past.taken_seconds)

    def _is_unexplained(self, instance: str) -> bool:
        is_known = instance in self._told or instance in self._asked
        return not is_known and not self._ending.was_asked(instance)

    def _forget(self) -> None:
        """What has ended, and what is nobody's here and not so new that lists may lack it."""
        now_seconds = self._clock.now()
        for instance, notice in list(self._told.items()):
            is_old = now_seconds - notice.notice_seconds > self._patience.visible_seconds
            if self._register.find(instance) is None and is_old:
                del self._told[instance]

    def _is_there(self, instance: str) -> bool:
        known = self._register.find(instance)
        return known is not None and not known.has_ended


def read_event(told: Mapping[str, Any]) -> Event:
    """An entry of the audit log, as a sink hands it on.

    Raises:
        KeyError, ValueError, ...: it is none.
    """
    payload = told["protoPayload"]
    place = str(payload["resourceName"]).split("/")
    zone, name = place[place.index("zones") + 1], place[place.index("instances") + 1]
    at_seconds = datetime.fromisoformat(told["timestamp"]).timestamp()
    return Event(str(payload["methodName"]), instance_id(zone, name), at_seconds)
