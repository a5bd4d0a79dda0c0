"""Instances in a cloud that no job ordered, and their termination."""

from __future__ import annotations

import logging

from autoscaler.controller.clock_jumps import LoopTime
from autoscaler.controller.offers.market import Market
from autoscaler.controller.workers import CallKind, CallWorkers
from autoscaler.domain.instance import JOB_TAG, CloudInstance, CloudState
from autoscaler.store.repositories.events import Event
from autoscaler.store.store import Store

_log = logging.getLogger(__name__)

# Clouds take minutes to end an instance. One that is stopping for longer is stopped, and its
# volumes cost money until it is terminated.
_LONGEST_STOP_SECONDS = 600.0


class Orphans:
    """Orphans that listings show, each with the moment of the first listing that showed it.

    An orphan is terminated in a worker once a second listing shows it, and not before it is
    `orphan_seconds` old: its launch may still be recorded. One that is stopping is terminated if
    it does not end.
    """

    def __init__(
        self,
        store: Store,
        market: Market,
        workers: CallWorkers,
        orphan_seconds: float,
        time: LoopTime,
    ) -> None:
        self._store = store
        self._market = market
        self._workers = workers
        self._orphan_seconds = orphan_seconds
        self._time = time
        self._first_seconds: dict[str, float] = {}
        self._stopping_seconds: dict[str, float] = {}

    @property
    def cloud_ids(self) -> frozenset[str]:
        """Cloud ids of the orphans that have not ended."""
        return frozenset(self._first_seconds)

    def handle(self, listed: CloudInstance, now_seconds: float) -> None:
        """Note an orphan of the present listing; terminate it if it is old enough."""
        if listed.state in (CloudState.TERMINATED, CloudState.STOPPING):
            self._first_seconds.pop(listed.id, None)
            self._handle_stopping(listed, now_seconds)
            return
        self._stopping_seconds.pop(listed.id, None)
        moment_seconds = self._time.monotonic()
        first_seconds = self._first_seconds.setdefault(listed.id, moment_seconds)
        age_seconds = known_seconds = moment_seconds - first_seconds
        if listed.launched_seconds is not None:
            age_seconds = max(known_seconds, now_seconds - listed.launched_seconds)
        if known_seconds > 0 and age_seconds >= self._orphan_seconds:
            self._terminate(listed, "no job ordered it", now_seconds)

    def _handle_stopping(self, listed: CloudInstance, now_seconds: float) -> None:
        if listed.state is CloudState.TERMINATED:
            self._stopping_seconds.pop(listed.id, None)
            return
        moment_seconds = self._time.monotonic()
        since_seconds = self._stopping_seconds.setdefault(listed.id, moment_seconds)
        if moment_seconds - since_seconds >= _LONGEST_STOP_SECONDS:
            self._stopping_seconds[listed.id] = moment_seconds  # it is tried again after that time
            minutes = _LONGEST_STOP_SECONDS / 60
            cause = f"no job ordered it, and it has been stopping for {minutes:.0f} min"
            self._terminate(listed, cause, now_seconds)

    def _terminate(self, listed: CloudInstance, cause: str, now_seconds: float) -> None:
        text = f"{listed.id} ({listed.offer}): {cause}; it is terminated"
        job = listed.tags.get(JOB_TAG)
        _log.info("orphan: %s", text, extra={"job": job})
        self._store.events.add(Event(now_seconds, "orphan", text, job))
        provider = self._market.provider_of(listed.offer, listed.id) or ""
        workers = self._workers.of(CallKind.TERMINATE, provider)
        workers.submit(lambda: self._market.terminate(listed.offer, listed.id))
