"""Preemption notices, from a Pub/Sub subscription in each region or from operations.

A log sink sends audit log entries to each region's subscription. A message is saved in `Records`
and then acknowledged, since it is delivered only once. A subscription may be missing or slow. An
instance that stops without a request of this provider is therefore looked up in its zone's
operations.
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
from providers.cloud.run_ends import run_end_notice
from providers.gcp.calls import ProjectCalls
from providers.gcp.ending import DeleteCalls
from providers.gcp.history import TAKEN_BACK, past_of
from providers.gcp.records import Records
from providers.gcp.replies import instance_id
from providers.gcp.settings import CallTimeouts, GcpSettings

_log = logging.getLogger(__name__)

_MAX_MESSAGES: Final = 100
# Pulls in one poll; the next poll receives the rest.
_MAX_PULLS: Final = 20
_MAX_LOOKUPS: Final = 20


@dataclass(frozen=True, slots=True)
class InstanceEvent:
    """Event of one instance, from an audit log entry."""

    kind: str
    instance: str
    at_seconds: float


class Notices:
    """Subscriptions of all regions and the reclaim notices found. Thread-safe.

    `deaf` maps a region to the error of its subscription. `counts` counts events by kind.
    """

    def __init__(
        self,
        settings: GcpSettings,
        calls: ProjectCalls,
        register: Register,
        ending: DeleteCalls,
        records: Records,
        patience: CallTimeouts,
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
        self._notices = {notice.instance: notice for notice in records.notices()}
        self._run_ends: dict[str, float] = {}
        self._looked_up: set[str] = set()
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.deaf: dict[str, str] = {}

    def interruptions(self) -> list[Interruption]:
        """Return reclaim notices of this deployment's instances that have not ended.

        While a subscription can't be read, the known notices are returned and `deaf` has the
        error.
        """
        with self._lock:
            for region, subscription in self._subscriptions.items():
                try:
                    self._pull(region, subscription)
                except ProviderError as error:
                    self._set_error(region, str(error))
                else:
                    self.deaf.pop(region, None)
            self._look_up_stopping()
            self._drop_old_notices()
            self._records.keep_notices(self._notices.values())
            announced = {**self._due_run_ends(), **self._notices}
            return [notice for notice in announced.values() if self._is_alive(notice.instance)]

    def note_run_ends(self, run_ends: Mapping[str, float | None]) -> None:
        """Note when the maximum runs of listed instances end, in seconds since the epoch.

        None is an instance without such an end.
        """
        with self._lock:
            for instance, end_seconds in run_ends.items():
                if end_seconds is None:
                    self._run_ends.pop(instance, None)
                else:
                    self._run_ends[instance] = end_seconds

    def _due_run_ends(self) -> dict[str, Interruption]:
        """Return the runs that end soon, as interruptions by instance."""
        due = {}
        for instance, end_seconds in list(self._run_ends.items()):
            registered = self._register.find(instance)
            if registered is None:
                del self._run_ends[instance]
                continue
            launched_seconds = registered.instance.launched_seconds
            if launched_seconds is None:
                continue
            notice = run_end_notice(instance, launched_seconds, end_seconds)
            if self._clock.now() >= notice.notice_seconds:
                due[instance] = notice
        return due

    def _set_error(self, region: str, error: str) -> None:
        if region not in self.deaf:
            _log.warning("reclaim notices can't be received: %s", error)
        self.deaf[region] = error

    def _pull(self, region: str, subscription: str) -> None:
        for _ in range(_MAX_PULLS):
            reply = self._calls.pull(region, subscription, _MAX_MESSAGES)
            with readable(f"{region}: subscriptions.pull"):
                messages = [
                    (str(message["ackId"]), str(message["message"].get("data", "")))
                    for message in reply.get("receivedMessages", ())
                ]
            if not messages:
                return
            for _, data in messages:
                self._handle_message(region, data)
            self._records.keep_notices(self._notices.values())
            self._calls.acknowledge(region, subscription, [ack for ack, _ in messages])

    def _handle_message(self, region: str, data: str) -> None:
        try:
            with readable("a message"):
                event = read_event(json.loads(base64.b64decode(data, validate=True)))
        except (Unavailable, RecursionError) as error:
            self.counts["poison"] += 1
            _log.warning("%s: a message is dropped: %s", region, error)
            return
        self.counts[event.kind] += 1
        if event.kind in TAKEN_BACK:
            # A time in the future would delay the notice's removal.
            self._add_notice(event.instance, min(event.at_seconds, self._clock.now()))

    def _add_notice(self, instance: str, at_seconds: float) -> None:
        """Keep the instance's earliest notice."""
        notice = Interruption(instance, at_seconds, at_seconds + self._patience.notice_seconds)
        before = self._notices.get(instance, notice)
        self._notices[instance] = min(
            before, notice, key=lambda interruption: interruption.notice_seconds
        )

    def _look_up_stopping(self) -> None:
        """Look up in the operations whether the cloud reclaimed instances that stop unasked."""
        stopping = [
            owned.instance.id
            for owned in self._register.all()
            if owned.instance.state is CloudState.STOPPING
        ]
        self._looked_up &= set(stopping)
        unexplained = [
            instance_id for instance_id in stopping if self._is_unexplained(instance_id)
        ]
        for instance in unexplained[:_MAX_LOOKUPS]:
            try:
                past = past_of(self._calls, instance)
            except ProviderError as error:
                _log.info("%s is stopping for an unknown reason: %s", instance, error)
                continue
            self._looked_up.add(instance)
            if past.taken_seconds is not None:
                self._add_notice(instance, past.taken_seconds)

    def _is_unexplained(self, instance: str) -> bool:
        is_known = instance in self._notices or instance in self._looked_up
        return not is_known and not self._ending.was_asked(instance)

    def _drop_old_notices(self) -> None:
        """Drop notices of instances that are not registered, unless lists may still lack them."""
        now_seconds = self._clock.now()
        for instance, notice in list(self._notices.items()):
            is_old = now_seconds - notice.notice_seconds > self._patience.visible_seconds
            if self._register.find(instance) is None and is_old:
                del self._notices[instance]

    def _is_alive(self, instance: str) -> bool:
        registered = self._register.find(instance)
        return registered is not None and not registered.has_ended


def read_event(log_entry: Mapping[str, Any]) -> InstanceEvent:
    """Return the event in an audit log entry.

    Raises:
        KeyError, ValueError, ...: the text is not such an entry.
    """
    payload = log_entry["protoPayload"]
    place = str(payload["resourceName"]).split("/")
    zone, name = place[place.index("zones") + 1], place[place.index("instances") + 1]
    at_seconds = datetime.fromisoformat(log_entry["timestamp"]).timestamp()
    return InstanceEvent(str(payload["methodName"]), instance_id(zone, name), at_seconds)
