"""Instances in a cloud that no job ordered, and their termination."""

from __future__ import annotations

import logging

from autoscaler.controller.act.intents import Workers
from autoscaler.controller.offers.market import Market
from autoscaler.domain.instance import JOB_TAG, CloudInstance, CloudState
from autoscaler.store.repositories.events import Event
from autoscaler.store.store import Store

_log = logging.getLogger(__name__)


class Orphans:
    """Orphans that listings show, each with the time of the first listing that showed it.

    An orphan is terminated in a worker once a second listing shows it, and not before it is
    `orphan_seconds` old: its launch may still be recorded.
    """

    def __init__(
        self, store: Store, market: Market, workers: Workers, orphan_seconds: float
    ) -> None:
        self._store = store
        self._market = market
        self._workers = workers
        self._orphan_seconds = orphan_seconds
        self._first_seconds: dict[str, float] = {}

    @property
    def cloud_ids(self) -> frozenset[str]:
        """Cloud ids of the orphans that have not ended."""
        return frozenset(self._first_seconds)

    def handle(self, listed: CloudInstance, now_seconds: float) -> None:
        """Note an orphan of the present listing; terminate it if it is old enough."""
        if listed.state in (CloudState.TERMINATED, CloudState.STOPPING):
            self._first_seconds.pop(listed.id, None)
            return
        first_seconds = self._first_seconds.setdefault(listed.id, now_seconds)
        since_seconds = (
            first_seconds if listed.launched_seconds is None else listed.launched_seconds
        )
        is_old_enough = now_seconds - since_seconds >= self._orphan_seconds
        if first_seconds < now_seconds and is_old_enough:
            text = f"{listed.id} ({listed.offer}): no job ordered it; it is terminated"
            _log.info("orphan: %s", text)
            job = listed.tags.get(JOB_TAG)
            self._store.events.add(Event(now_seconds, "orphan", text, job))
            self._workers.submit(lambda: self._market.terminate(listed.offer, listed.id))
